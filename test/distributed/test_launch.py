"""``rlx launch``: ranks that are processes, and what becomes of them when one fails."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx.base.world import started_rank
from rlx.tools.cli import main
from support.processes import left

HEAD = """
import os, signal, sys, time
import numpy as np
import rlx

ranks = int(os.environ["RLX_RANKS"])
mesh = rlx.Mesh(data=ranks)
rank = rlx.distributed.connect(mesh)
g = rlx.Graph("sum")
g.set_outputs(g.input("x", [4]).all_reduce(mesh["data"]))
f = rlx.Session("cpu").compile(g)


def step():
    return f.run({"x": np.full(4, rank + 1.0, np.float32)})[0]
"""


LAUNCH = [sys.executable, "-m", "rlx.tools.cli", "launch"]


def kill_ranks(arguments: list[str]) -> int:
    """``tools/kill_ranks.py``."""
    path = Path(__file__).resolve().parents[2] / "tools" / "kill_ranks.py"
    spec = importlib.util.spec_from_file_location("kill_ranks", path)
    assert spec is not None and spec.loader is not None
    tool: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool.main(arguments)


def launch(
    folder: Path, n: int, script: str, *arguments: str, **environment: str
) -> tuple[int, str, str, float]:
    """The status, both outputs and the seconds of a script as so many ranks."""
    path = folder / "script.py"
    path.write_text(HEAD + script)
    began = time.monotonic()
    done = subprocess.run(
        [*LAUNCH, "-n", str(n), str(path), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr, time.monotonic() - began


def test_ranks_are_processes_that_meet(tmp_path: Path) -> None:
    script = """
for _ in range(20):
    total = step()
assert mesh.rank == rank
print("sum", total[0], *sys.argv[1:])
"""
    status, out, err, _ = launch(tmp_path, 3, script, "--more", "words")
    assert (status, err) == (0, "")
    assert sorted(out.splitlines()) == [f"[{r}] sum 6.0 --more words" for r in range(3)]


def test_a_rank_that_is_killed_is_named_and_ends_all(tmp_path: Path) -> None:
    script = """
for n in range(100):
    step()
    if rank == 1 and n == 3:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    status, _, err, seconds = launch(tmp_path, 2, script, RLX_COMM_TIMEOUT="100")
    assert status == 128 + 9
    assert "rlx: rank 1 of 2 killed by signal 9 (SIGKILL)" in err
    assert seconds < 90
    assert not left(tmp_path)


def test_a_rank_that_raises_ends_all(tmp_path: Path) -> None:
    script = """
step()
if rank == 0:
    raise ValueError("enough")
step()
"""
    status, _, err, _ = launch(tmp_path, 2, script, RLX_COMM_TIMEOUT="100")
    assert status == 1
    assert "[0] ValueError: enough" in err
    assert "rlx: rank 0 of 2 ended with status 1: ValueError: enough" in err
    assert not left(tmp_path)


def test_a_rank_that_stands_still_is_named(tmp_path: Path) -> None:
    script = """
step()
if rank == 1:
    time.sleep(100)
step()
"""
    status, _, err, _ = launch(tmp_path, 2, script, RLX_COMM_TIMEOUT="3")
    assert status == 1
    assert "rank 1 of 2 had not come after 3000 ms" in err
    assert "script.py:10: all_reduce over the 2 ranks along 'data'" in err
    assert "rlx: rank 0 of 2 ended with status 1: FaultError: " in err
    assert not left(tmp_path)


def test_a_signal_ends_the_wait_for_others(tmp_path: Path) -> None:
    """As Ctrl-C does; the rank for which this one waited is soon told that it has left."""
    script = """
def raises(number, frame):
    raise TimeoutError("enough")

step()
signal.signal(signal.SIGALRM, raises)
if rank == 1:
    time.sleep(4)
else:
    signal.alarm(1)
try:
    for _ in range(3):
        step()
except Exception as error:
    print(type(error).__name__, error)
"""
    status, out, err, _ = launch(tmp_path, 2, script, RLX_COMM_TIMEOUT="100")
    assert (status, err) == (0, "")
    assert "[0] TimeoutError enough" in out
    assert "rank 0 of 2 has left" in out


def test_ctrl_c_is_passed_on_to_the_ranks(tmp_path: Path) -> None:
    script = """
try:
    print("ready")
    time.sleep(100)
except KeyboardInterrupt:
    print("stopped")
"""
    (tmp_path / "script.py").write_text(HEAD + script)
    process = subprocess.Popen(
        [*LAUNCH, "-n", "2", "--restarts", "3", str(tmp_path / "script.py")],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    found = sorted(process.stdout.readline() for _ in range(2))
    assert found == ["[0] ready\n", "[1] ready\n"]
    process.send_signal(signal.SIGINT)
    assert sorted(process.stdout) == ["[0] stopped\n", "[1] stopped\n"]
    assert process.wait(60) == 130
    assert not left(tmp_path)


def test_no_rank_outlives_its_launcher(tmp_path: Path) -> None:
    """Which is killed, and can end none."""
    (tmp_path / "script.py").write_text(HEAD + "print('ready')\ntime.sleep(100)\n")
    process = subprocess.Popen(
        [*LAUNCH, "-n", "2", str(tmp_path / "script.py")],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert {process.stdout.readline() for _ in range(2)} == {"[0] ready\n", "[1] ready\n"}
    process.kill()
    process.wait(60)
    process.stdout.close()
    limit = time.monotonic() + 60
    while left(tmp_path) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not left(tmp_path)


def test_ranks_that_are_killed_go_on_with_the_same_losses() -> None:
    """By ``rlx launch --restarts``; the tool sees that they are named, and that none is left."""
    assert kill_ranks(["--rounds", "1", "--steps", "12", "--seed", "1"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0"], "found -n 0, expected 1 or more"),
        (["-n", "-3"], "found -n -3, expected 1 or more"),
        (["-n", "2", "--restarts", "-1"], "found --restarts -1, expected 0 or more"),
        (["-n", "2", "--restart-ranks", "-1"], "found --restart-ranks -1, expected 0 or more"),
        (["-n", "2", "--over", "srun"], "--over srun: found no srun; run it in a job of Slurm"),
        (["-n", "2", "--over", "mpi"], "--over mpi: found no mpiexec beside .*pip install mpich"),
    ],
)
def test_what_cannot_be_launched(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert main(["launch", *arguments, "script.py"]) == 1
    assert re.search(message, capsys.readouterr().err, re.DOTALL)


# -- by other starters -----------------------------------------------------------------------


def test_in_a_job_of_slurm_srun_starts_the_ranks(tmp_path: Path) -> None:
    """A stand-in for srun, which starts one rank."""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\necho "$1 $2 $3 ${5} $6"\nshift 3\nexec "$@"\n')
    srun.chmod(0o755)
    environment = {"SLURM_JOB_ID": "7", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = """
from rlx.distributed.status import note_step

note_step(3)
print("here", os.environ["RLX_NUM_THREADS"], *sys.argv[1:])
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    head = HEAD.replace('os.environ["RLX_RANKS"]', "rlx.distributed.world_size()")
    (tmp_path / "script.py").write_text(head + script)
    done = subprocess.run(
        [*LAUNCH, "-n", "1", "--threads", "1", str(tmp_path / "script.py"), "--more"],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=180,
        check=False,
    )  # fmt: skip
    assert done.stdout == (
        "--kill-on-bad-exit=1 -n 1 -m rlx.distributed.supervisor\n[0] here 1 --more\n"
    )
    assert done.stderr == "rlx: rank 0 of 1 killed by signal 9 (SIGKILL) in step 3\n"
    assert done.returncode == 128 + 9


def test_a_supervisor_passes_signals_on(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import time\ntry:\n    print('ready')\n    time.sleep(100)\nexcept KeyboardInterrupt:\n"
        "    print('stopped')\n    time.sleep(100)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "rlx.distributed.supervisor", str(tmp_path / "script.py")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "[0] ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "[0] stopped\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + 15 and not process.stderr.read()
    assert not left(tmp_path)


@pytest.mark.parametrize(
    ("environment", "rank", "size"),
    [
        ({}, 0, 1),
        ({"SLURM_NTASKS": "4"}, 0, 1),  # a job, and no step of it
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, 2, 4),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}, 1, 3),
        ({"PMIX_RANK": "5", "SLURM_NTASKS": "8"}, 5, 8),
        ({"RLX_RENDEZVOUS": "here", "RLX_RANK": "1", "RLX_RANKS": "2", "PMI_RANK": "0"}, 1, 2),
    ],
)
def test_which_rank_a_process_was_started_as(
    environment: dict[str, str], rank: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in os.environ if n.startswith(("PMI", "OMPI_", "SLURM_", "RLX_R"))]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (started_rank(), rlx.distributed.world_size()) == (rank, size)

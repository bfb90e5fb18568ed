"""``rlx launch``: ranks that are processes, and what becomes of them when one fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlx.tools.cli import main

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


def launch(
    folder: Path, n: int, script: str, *arguments: str, **environment: str
) -> tuple[int, str, str, float]:
    """The status, both outputs and the seconds of a script as so many ranks."""
    path = folder / "script.py"
    path.write_text(HEAD + script)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "rlx.tools.cli", "launch", "-n", str(n), str(path), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr, time.monotonic() - began


def left(folder: Path) -> list[str]:
    """The processes that still run a script of this folder."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command:
            found.append(command)
    return found


def test_ranks_are_processes_that_meet(tmp_path: Path) -> None:
    script = """
for _ in range(20):
    total = step()
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
    assert "[0] ValueError: enough" in err and "rlx: rank 0 of 2 ended with status 1" in err
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


@pytest.mark.parametrize("n", ["0", "-3"])
def test_no_ranks(n: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "-n", n, "script.py"]) == 1
    assert f"launch: found -n {n}, expected 1 or more" in capsys.readouterr().err

"""The files of examples/cluster: what of them can be run here."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx.tools.cli import parser
from support.tiny_llm import write_talker

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "examples" / "cluster"
STEPS = ("--steps", "12")


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        list(command), env={**os.environ, **environment}, cwd=ROOT, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job_of_slurm_has_the_bits_of_ranks_on_a_machine(tmp_path: Path) -> None:
    """With stand-ins: of srun, which starts one rank, and of the command rlx."""
    srun, rlx = tmp_path / "srun", tmp_path / "rlx"
    srun.write_text('#!/bin/sh\n[ "$SLURM_MPI_TYPE" = pmi2 ] || exit 3\nshift 3\nexec "$@"\n')
    rlx.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rlx.tools.cli "$@"\n')
    for file in (srun, rlx):
        file.chmod(0o755)
    job = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "1", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    one = run("sh", str(CLUSTER / "slurm.sh"), *STEPS, "--checkpoint", str(tmp_path / "run"), **job)
    launch = (sys.executable, "-m", "rlx.tools.cli", "launch", "-n", "2", "--over", "processes")
    two = run(*launch, str(CLUSTER / "train.py"), *STEPS)
    assert one.startswith("[0] 1 ranks: loss ") and two.startswith("[0] 2 ranks: loss ")
    assert one.partition(":")[2] == two.partition(":")[2]
    assert (tmp_path / "run" / "manifest.json").exists()


def test_kubernetes_calls_what_there_is() -> None:
    """The commands of its containers are ones of RLX, on scripts that exist."""
    yaml = pytest.importorskip("yaml")
    job, mpi = yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text(encoding="utf-8"))
    assert (job["kind"], mpi["kind"]) == ("Job", "MPIJob")
    replicas = mpi["spec"]["mpiReplicaSpecs"]
    specs: list[Any] = [job["spec"]["template"]["spec"]]
    specs += [replicas[name]["template"]["spec"] for name in ("Launcher", "Worker")]
    commands = [c["command"] for spec in specs for c in spec["containers"] if "command" in c]
    assert len(commands) == 2
    for name, *arguments in commands:
        found = parser({"launch"}).parse_args(arguments)
        assert name == "rlx" and found.ranks == replicas["Worker"]["replicas"]
        assert (ROOT / found.script).exists()
    for spec in specs:
        volumes = {v["name"] for v in spec.get("volumes", [])}
        assert {m["name"] for c in spec["containers"] for m in c.get("volumeMounts", [])} == volumes


def test_ray_starts_ranks_again(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (pip install ray)")
    script = str(CLUSTER / "ray_ranks.py")
    arguments = ("--ranks", "2", "--again", "1", "--dies-at", "25", "--checkpoint")
    out = run(sys.executable, script, *arguments, str(tmp_path / "run"), "--steps", "40")
    (line,) = [text for text in out.splitlines() if "ranks:" in text]
    launch = (sys.executable, "-m", "rlx.tools.cli", "launch", "-n", "2", "--over", "processes")
    alone = run(*launch, str(CLUSTER / "train.py"), "--steps", "40")
    assert line.startswith("1 ranks: 20 steps, loss ")  # from the checkpoint at 20
    assert line.rpartition(" ")[2] in alone


def test_ray_serves_replicas(tmp_path: Path) -> None:
    pytest.importorskip("ray.serve", reason="Ray Serve is not installed (pip install 'ray[serve]')")
    pytest.importorskip("tokenizers", reason="texts need the package tokenizers")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = write_talker(tmp_path, num_hidden_layers=1)
    llm = rlx.LLM(folder, threads=1, context=64)
    wanted = [*llm.generate("Once upon", max_new_tokens=4)[0].ids]
    words = [str(CLUSTER / "ray_serve.py"), str(folder), "--port", str(port), "--context", "64"]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert any("2 replicas at" in line for line in server.stdout)
            seen = set[int]()
            for _ in range(100):
                body = json.dumps({"prompt": "Once upon", "max_new_tokens": 4}).encode()
                with urllib.request.urlopen(f"http://127.0.0.1:{port}", body) as reply:
                    found = json.load(reply)
                assert found["ids"] == wanted
                seen.add(found["pid"])
                if len(seen) == 2:
                    break
            assert len(seen) == 2, "both replicas answer"
        finally:
            server.send_signal(signal.SIGINT)

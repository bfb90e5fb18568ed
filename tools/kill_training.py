"""Kill training runs at random moments, and see that they go on with the same losses, bit for bit.

    python tools/kill_training.py --rounds 20

A run without an end is the reference. Then, in each round, a process that trains and writes
checkpoints is killed with SIGKILL after a random time and started again, until it has ended. Every
loss that any of the processes saw must be that of the reference, and so must the last params.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import rlx
from rlx.models.safetensors import SafeTensors

EVERY = 3
"""Batches between checkpoints."""


def make_step() -> rlx.training.TrainStep:
    """A small network with dropout, averages, and gradients of two batches an update."""
    rng = np.random.default_rng(0)
    g = rlx.Graph("killed")
    x, y, key = g.input("x", [16, 32]), g.input("y", [16], "i64"), g.input("key", [2], "u32")
    for i, (n, m) in enumerate([(32, 256), (256, 256), (256, 8)]):
        w = (rng.standard_normal((n, m)) / np.sqrt(n)).astype(np.float32)
        x = x.relu().dropout(key, 0.1) if i == 1 else x
        x = x @ g.param(f"w{i}", value=w)
    g.set_outputs(x.softmax_cross_entropy(y).mean())
    return rlx.compile_training(
        g, rlx.optim.AdamW(lr=1e-3), ema=0.9, accumulate=2, key="key", clip=rlx.optim.ClipNorm(1.0)
    )


def data() -> rlx.training.Batches:
    """Random rows, in a new order in every epoch."""
    rng = np.random.default_rng(1)
    rows = {"x": rng.standard_normal((160, 32)).astype(np.float32), "y": rng.integers(0, 8, 160)}
    return rlx.training.Batches(rows, 16)


def work(folder: Path, steps: int) -> None:
    """Train to the end, from the checkpoint if there is one; a line for every loss."""
    with (folder / "losses").open("a", encoding="utf-8") as log:

        def note(step: rlx.training.TrainStep, result: rlx.training.StepResult) -> None:
            log.write(f"{step.position - 1} {result.loss.hex()}\n")
            log.flush()

        path = folder / "run.safetensors"
        rlx.fit(make_step(), data(), steps=steps, checkpoint=path, every=EVERY, on_step=note)


def losses(folder: Path) -> list[tuple[int, str]]:
    """The losses that were noted, with their batches; a line that was cut short is left out."""
    text = (folder / "losses").read_text(encoding="utf-8") if (folder / "losses").exists() else ""
    whole = text[: text.rfind("\n") + 1].splitlines()
    return [(int(n), loss) for n, loss in (line.split() for line in whole)]


def killed(folder: Path, steps: int, rng: random.Random, kills: int) -> int:
    """Run the work until it ends, killed at random ``kills`` times at most; how often it was."""
    for n in range(kills + 1):
        command = [sys.executable, __file__, "--work", str(folder), "--steps", str(steps)]
        process = subprocess.Popen(command)
        before = len(losses(folder))
        while n < kills and process.poll() is None and len(losses(folder)) == before:
            time.sleep(0.005)  # until it trains
        if n < kills:
            time.sleep(rng.random() * 0.1)
            process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            return n
        if process.returncode != -signal.SIGKILL:
            raise SystemExit(f"the run ended with {process.returncode}")
    raise AssertionError("the last process was not killed")


def check(folder: Path, reference: Path) -> int:
    """Compare losses and params; how many batches were trained on again."""
    expected = dict(losses(reference))
    found = losses(folder)
    for n, loss in found:
        if loss != expected[n]:
            raise SystemExit(f"batch {n}: loss {loss}, without a kill {expected[n]} ({folder})")
    if {n for n, _ in found} != set(expected):
        raise SystemExit(f"batches are missing: {set(expected) - {n for n, _ in found}}")
    a, b = (SafeTensors(f / "run.safetensors") for f in (folder, reference))
    for name in a:
        if a[name].tobytes() != b[name].tobytes():
            raise SystemExit(f"{name} differs after the run")
    if left := [p.name for p in folder.iterdir() if p.name not in ("losses", "run.safetensors")]:
        raise SystemExit(f"files were left behind: {left}")
    print(f"{len(found) - len(expected)} batches were trained on again")
    return len(found) - len(expected)


def main(given: Sequence[str] | None = None) -> int:
    """Run the rounds; 0 if all of them were as they should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--kills", type=int, default=3, help="the most in a round")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(given)
    if args.work:
        work(args.work, args.steps)
        return 0
    rng = random.Random(args.seed)
    print(f"seed {args.seed}")
    with tempfile.TemporaryDirectory() as base:
        reference = Path(base, "reference")
        reference.mkdir()
        work(reference, args.steps)
        for n in range(args.rounds):
            folder = Path(base, str(n))
            folder.mkdir()
            count = killed(folder, args.steps, rng, args.kills)
            print(f"round {n}: killed {count} times; ", end="")
            check(folder, reference)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Kill ranks that train together at random steps, and see that all goes on with the same losses.

    python tools/kill_ranks.py --rounds 50

A run of one rank is the reference. In each round `rlx launch --restarts 1` starts 2 or 4 ranks, of
which one is killed with SIGKILL in a random step, or as it writes a checkpoint. The launcher has to
name the rank and the step within a second, end the others, and start all again, as many or fewer,
from the last checkpoint. Every loss must be that of the reference, bit for bit; no process may be
left.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import rlx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))

from support.processes import left

EVERY, ROWS = 4, 16


def make_step(mesh: rlx.Mesh | None, zero: int) -> rlx.training.TrainStep:
    """A small network with dropout, averages, and gradients of two batches an update."""
    rng = np.random.default_rng(0)
    g = rlx.Graph("killed")
    x, y, key = (
        g.input("x", [ROWS // 8, 32]),
        g.input("y", [ROWS // 8], "i64"),
        g.input("key", [2], "u32"),
    )
    for i, (n, m) in enumerate([(32, 65), (65, 65), (65, 8)]):
        w = (rng.standard_normal((n, m)) / np.sqrt(n)).astype(np.float32)
        x = x.relu().dropout(key, 0.1) if i == 1 else x
        x = x @ g.param(f"w{i}", value=w)
    g.set_outputs(x.softmax_cross_entropy(y).mean())
    return rlx.compile_training(
        g, rlx.optim.AdamW(lr=1e-3), ema=0.9, accumulate=2, key="key",
        clip=rlx.optim.ClipNorm(1.0), mesh=mesh, reproducible=True, zero=zero if mesh else 0,
    )  # fmt: skip


def data(mesh: rlx.Mesh | None) -> rlx.training.Batches:
    """Random rows, in a new order in every epoch."""
    rng = np.random.default_rng(1)
    rows = {"x": rng.standard_normal((160, 32)).astype(np.float32), "y": rng.integers(0, 8, 160)}
    return rlx.training.Batches(rows, ROWS, mesh=mesh)


def work(folder: Path, steps: int, zero: int) -> None:
    """Train to the end as a rank, from the checkpoint if there is one; a line for every loss."""
    mesh = rlx.Mesh(data=rlx.distributed.world_size())
    rank = rlx.distributed.connect(mesh)
    (folder / f"pid.{rank}").write_text(str(os.getpid()))
    with (folder / f"losses.{rank}").open("a", encoding="utf-8") as log:

        def note(step: rlx.training.TrainStep, result: rlx.training.StepResult) -> None:
            log.write(f"{step.position} {result.loss.hex()}\n")
            log.flush()

        step = make_step(mesh, zero)
        rlx.fit(step, data(mesh), steps=steps, checkpoint=folder / "run", every=EVERY,
                on_step=note)  # fmt: skip


def losses(folder: Path, rank: int) -> list[tuple[int, str]]:
    """The losses that a rank noted, by their steps; a line that was cut short is left out."""
    path = folder / f"losses.{rank}"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1].splitlines()
    return [(int(n), loss) for n, loss in (line.split() for line in whole)]


class Launched:
    """A launch whose lines on standard error come with the time at which they came."""

    def __init__(self, folder: Path, ranks: int, again: int, steps: int, zero: int,
                 over: str) -> None:  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rlx.tools.cli", "launch", "-n", str(ranks), "--restarts", "1",
             "--restart-ranks", str(again), "--over", over, "--threads", "1", __file__,
             "--work", str(folder), "--steps", str(steps), "--zero", str(zero)],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip
        self.lines: list[tuple[float, str]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append((time.monotonic(), line.rstrip()))

    def status(self) -> int:
        """Wait for its end."""
        status = self.process.wait(300)
        self._reader.join(10)
        return status


def fail(why: str, launched: Launched) -> None:
    """End with what was seen."""
    print("\n".join(line for _, line in launched.lines), file=sys.stderr)
    raise SystemExit(why)


def killed(folder: Path, rng: random.Random, steps: int, over: str) -> str:
    """A round; what it did, and how long it took to say so."""
    ranks, zero = rng.choice((2, 4)), rng.choice((0, 1, 3))
    again, victim = rng.choice((1, 2, ranks)), rng.randrange(ranks)
    at = rng.randrange(1, steps - 1)
    launched = Launched(folder, ranks, again, steps, zero, over)
    while launched.process.poll() is None and len(losses(folder, victim)) < at:
        time.sleep(0.001)
    time.sleep(rng.random() * 0.005)
    began = time.monotonic()
    os.kill(int((folder / f"pid.{victim}").read_text()), signal.SIGKILL)
    status = launched.status()
    named = re.compile(rf"rlx: rank {victim} of {ranks} killed by signal 9 .* in step (\d+)")
    told = [(when, m) for when, line in launched.lines if (m := named.search(line))]
    if status or not told:
        fail(f"status {status}, the rank named {len(told)} times", launched)
    if (took := told[0][0] - began) > 1:
        fail(f"the rank was named after {took:.2f} s", launched)
    if processes := left(folder):
        fail(f"left: {processes}", launched)
    step = told[0][1][1]
    return (f"rank {victim} of {ranks} (zero={zero}) killed in step {step}, named after"
            f" {1e3 * took:.0f} ms, again as {again}")  # fmt: skip


def check(folder: Path, expected: dict[int, str]) -> None:
    """All losses that any rank saw are those of the reference, and none is missing."""
    seen: set[int] = set()
    for rank in range(4):
        for n, loss in losses(folder, rank):
            if loss != expected[n]:
                raise SystemExit(f"step {n} of rank {rank}: {loss}, without a kill {expected[n]}")
            seen.add(n)
    if seen != set(expected):
        raise SystemExit(f"steps are missing: {set(expected) - seen}")


def main(given: Sequence[str] | None = None) -> int:
    """Run the rounds; 0 if all of them were as they should be."""
    parser = argparse.ArgumentParser(description="Kill ranks, and see that they go on.")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--over", default="processes", help="as of rlx launch")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    parser.add_argument("--zero", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(given)
    if args.work:
        work(args.work, args.steps, args.zero)
        return 0
    print(f"seed {args.seed}")
    rng, step, batches = random.Random(args.seed), make_step(None, 0), data(None)
    expected = {n + 1: step(batches[n]).loss.hex() for n in range(args.steps)}
    for n in range(args.rounds):
        with tempfile.TemporaryDirectory(prefix="kill-ranks-") as folder:
            said = killed(Path(folder), rng, args.steps, args.over)
            check(Path(folder), expected)
            print(f"round {n + 1}: {said}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

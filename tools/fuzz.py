"""Give RLX wrong inputs of one kind, and list those that it neither takes nor refuses.

    python tools/fuzz.py text --n 20000 [--seed S]
    python tools/fuzz.py text --seed S --only 4711      # one of them again, shown
    python tools/fuzz.py native --n 1000000             # objects and schedules, in C++

An input follows from the seed and its number. Each is tried in a forked process: a crash, an abort
and a hang are findings, and so is any error that is not ours. ``native`` builds a driver in C++
with the sanitizers of addresses and undefined behaviour, and stops at what they report. The exit
code is 1 if anything is found.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("test", "")]

from support.fuzz_native import fuzz_native  # noqa: E402 -- found by the path above
from support.fuzz_targets import TARGETS  # noqa: E402
from support.fuzzing import Outcome, fuzz  # noqa: E402


def main() -> int:
    """Try the inputs, report on stderr as it goes, and print the findings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=[*TARGETS, "native"])
    parser.add_argument("--n", type=int, default=10_000, help="number of inputs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="show and try this input alone, in this process")
    given = parser.parse_args()
    if given.target == "native":
        return fuzz_native(given.n, given.seed)
    target = TARGETS[given.target]
    if given.only is not None:
        value = target.make(target.prepare(), random.Random(f"{given.seed}:{given.only}"))
        print(target.show(value), flush=True)
        target.attempt(value)
        return 0
    start, shown = time.perf_counter(), 0

    def progress(o: Outcome) -> None:
        nonlocal shown
        for f in o.findings[shown:]:
            print(f"--- number {f.number}: {f.what}\n{f.shown[:4000]}", flush=True)
        shown = len(o.findings)
        done, seconds = o.taken + o.refused + shown, time.perf_counter() - start
        line = (
            f"{done} inputs: {o.taken} taken, {o.refused} refused, {shown} found, {seconds:.0f} s"
        )
        print(line, file=sys.stderr, flush=True)

    return 1 if fuzz(target, given.n, given.seed, progress=progress).findings else 0


if __name__ == "__main__":
    sys.exit(main())

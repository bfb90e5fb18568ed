"""Run one compiled graph for long: from many threads, very often, and in a forked process.

    python tools/endure.py [--threads 8 --calls 100000 --runs 1000000]

It checks that every call gives the same bits, that memory stays as it is, and that a child runs
after a fork. The exit code is 1 if one of these does not hold.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("test", "")]

from support.endurance import Trial, forked, growth, threaded  # noqa: E402 -- found above


def main() -> int:
    """Run the three checks; prints what each saw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--calls", type=int, default=100_000, help="a thread makes")
    parser.add_argument("--runs", type=int, default=1_000_000, help="that memory is watched over")
    given = parser.parse_args()
    trial, good = Trial(), True
    start = time.perf_counter()
    wrong = threaded(trial, given.threads, given.calls)
    good &= wrong == 0
    seconds = time.perf_counter() - start
    print(
        f"{given.threads} threads x {given.calls} calls: {wrong} differ, {seconds:.0f} s",
        flush=True,
    )
    grown = growth(trial, given.runs)
    good &= grown < 1 << 20
    print(f"{given.runs} runs: resident memory grew by {grown / 1024:.0f} KiB", flush=True)
    status = forked(trial)
    good &= status == 0
    print(
        f"fork: the child's runs {'are right' if status == 0 else f'end with {status}'}", flush=True
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""Run made-up traces of requests through the scheduler, and check every step of each.

    python tools/schedule_traces.py --n 100000 [--seed S]

A trace follows from its number. The first that breaks an invariant is named, and ends the run with
exit code 1; test/support/schedule_traces.py says what is checked.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("test", "")]

from support.schedule_traces import run_trace  # noqa: E402 -- found by the path above


def main() -> int:
    """Run the traces, and print how many there were and what happened in them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=10_000, help="number of traces")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first")
    given = parser.parse_args()
    start, steps, preemptions, hits = time.perf_counter(), 0, 0, 0
    drafted = accepted = 0
    for n in range(given.seed, given.seed + given.n):
        try:
            trace = run_trace(n)
        except Exception:
            traceback.print_exc()
            print(f"trace {n} breaks an invariant", flush=True)
            return 1
        steps += trace.steps
        preemptions += trace.schedule.preemptions
        hits += trace.schedule.prefix.hits
        drafted, accepted = drafted + trace.drafted, accepted + trace.accepted
    seconds = time.perf_counter() - start
    print(
        f"{given.n} traces, {steps} steps, {preemptions} preemptions, {hits} pages shared,"
        f" {accepted} of {drafted} drafts accepted: no invariant broken, {seconds:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Run random graphs in every way there is, and compare with the reference interpreter.

    python tools/soak.py --graphs 2000 [--seed N]

Progress goes to stderr. A failure is printed as what ``rlx.tools.reduce`` leaves of its graph, in
HIR text, with the seed that makes it again (``--graphs 1 --seed S``); the exit code is then 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("test", "")]

from support.random_graphs import random_case  # noqa: E402 -- found by the path above
from support.random_runs import failure, report  # noqa: E402


def main() -> int:
    """Run the graphs of the seeds from ``--seed`` on; 1 if any of them failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph")
    given = parser.parse_args()
    start, nodes, failed = time.perf_counter(), 0, 0
    for n in range(given.graphs):
        case = random_case(given.seed + n)
        nodes += len(case.graph)
        found = failure(case)
        if found is not None:
            failed += 1
            print(report(case, found), flush=True)
        if (n + 1) % 50 == 0 or n + 1 == given.graphs:
            seconds = time.perf_counter() - start
            line = f"{n + 1} graphs, {nodes} nodes, {failed} failed, {seconds:.0f} s"
            print(line, file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

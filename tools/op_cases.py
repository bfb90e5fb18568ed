"""Run every op on its samples and element types with many operands, and compare all executors.

    python tools/op_cases.py --cases 50000 [--seed N] [--ops REGEX]

A case is a sample of an op on an element type, with operands of its own, by the native kernels or
the common way; the reference interpreter says what is right. Every other round has nan, infinities
and zeros among the operands, and arrays that are not contiguous. Failures are printed as they are
met, each with what makes it again; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("test", "")]

import numpy as np  # noqa: E402 -- support is found by the path above

import rlx  # noqa: E402
from rlx.ir.interpreter import interpret  # noqa: E402
from support.op_graphs import OpGraph  # noqa: E402
from support.samples import op_classes  # noqa: E402
from support.tolerances import Tolerance, assert_close, tolerance_of  # noqa: E402

WAYS = ("native", "common")

BLOCK = Tolerance(1e-4, 1e-5)
"""For whole blocks on f32: on operands that nobody chose, norms and differences magnify roundings.
The tests of their samples, whose operands are known, are stricter."""


def main() -> int:
    """Run rounds over all ops until there were as many cases; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--ops", default="", help="a regular expression: only ops of such names")
    given = parser.parse_args()
    ops = [op for op in op_classes() if re.search(given.ops, op.name) and op.samples]
    graphs = [OpGraph.of(op) for op in ops]
    rounds = -(-given.cases // (len(WAYS) * sum(len(g.cases) for g in graphs)))
    start, done, failed = time.perf_counter(), 0, 0
    # An op at a time, so that only its own kernels are loaded.
    for g in graphs:
        compiled = {way: rlx.Session("cpu").compile(g.graph, dispatch=way) for way in WAYS}
        for seed in range(given.seed, given.seed + rounds):
            for line in failures(g, compiled, seed):
                failed += 1
                print(line, flush=True)
            done += len(WAYS) * len(g.cases)
        print(f"{g.graph.name}: {done} cases, {failed} failed", file=sys.stderr, flush=True)
    print(f"{done} cases of {len(ops)} ops, {failed} failed, {time.perf_counter() - start:.0f} s")
    return 1 if failed else 0


def failures(g: OpGraph, compiled: dict[str, Any], seed: int) -> list[str]:
    """What is wrong in a round, a line each."""
    found: list[str] = []
    feeds = g.feeds(seed, special=seed % 2 == 1)
    with np.errstate(all="ignore"):
        expected = interpret(g.graph, feeds)
    for way, f in compiled.items():
        for case, a, b in zip(g.owners, f.run(feeds), expected, strict=True):
            try:
                whole = case.op.dialect == "hir" and b.dtype == np.float32
                assert_close(a, b, BLOCK if whole else tolerance_of(case.op.name, b))
            except AssertionError as e:
                said = " ".join(str(e).split())
                found.append(f"{case} {way} --seed {seed}: {said[:300]}")
    return found


if __name__ == "__main__":
    sys.exit(main())

"""The samples of all ops on the targets that take whole graphs, by what stands for their devices.

    python -m support.graph_conformance tpu xla --cases full --out found.json

The sets of cases: ``turning`` has every op on one of its element types and every sample of it on
one; ``covering`` every op on every type; ``full`` every sample on every type. Each is run on plain
numbers, and on numbers with nan, infinities, zeros of both signs and the ends of integers.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import RlxError, UnsupportedError
from rlx.ir.interpreter import interpret
from rlx.targets import find_target
from support.conformance import SEEDS, Finding, chosen_cases
from support.op_graphs import OpGraph
from support.samples import Case, cases
from support.tolerances import assert_close, tolerance_of
from support.whole import STANDS, Stand, Stood

__all__ = ["SETS", "cases_for", "conforms"]

BATCH = 60
"""Cases of a program."""

SETS = ("turning", "covering", "full")


def cases_for(target: str, stand: Stand, name: str) -> list[Case]:
    """The cases of a set that the target has types for, and the stand-in can run."""
    lacks = find_target(target).kernels.lacks
    fit = [c for c in cases() if not _types(c) & {*lacks} and stand.takes(c)]
    if name == "full":
        return fit
    turns = (0, 1) if name == "covering" else (0, 0)
    return chosen_cases(lambda op: turns, fit)


def _types(case: Case) -> set[Any]:
    node = case.node()
    values = (*node.present, *node.results)
    return {v.dtype for v in values} | {v.dtype.part for v in values}


def conforms(target: str, stand: Stand, chosen: Sequence[Case]) -> Iterator[Finding]:
    """What became of cases: many make one program, and where that cannot be, halves of it."""
    for start in range(0, len(chosen), BATCH):
        yield from _tried(target, stand, chosen[start : start + BATCH])


def _tried(target: str, stand: Stand, batch: Sequence[Case]) -> Iterator[Finding]:
    try:
        found = list(_run(target, stand, batch))
    except Exception as e:
        if len(batch) == 1:
            refused = isinstance(e, UnsupportedError)
            text = e.message if isinstance(e, RlxError) else f"{type(e).__name__}: {e}"
            yield Finding.of(
                batch[0], "refused" if refused else "fails", " ".join(text.split())[:400]
            )
            return
        half = len(batch) // 2
        yield from _tried(target, stand, batch[:half])
        yield from _tried(target, stand, batch[half:])
    else:
        yield from found


def _run(target: str, stand: Stand, batch: Sequence[Case]) -> Iterator[Finding]:
    made = OpGraph.of_cases("cases", batch)
    stood = Stood(made.graph, target, stand.load)
    wrong: dict[str, str] = {}
    for seed, special in SEEDS:
        feeds = made.feeds(seed, special=special)
        expected = interpret(made.graph, feeds)
        for case, a, b in zip(made.owners, stood.run(feeds), expected, strict=True):
            if special and case.op.name in stand.finite:
                continue
            try:
                assert_close(a, b, tolerance_of(case.op.name, b))
            except AssertionError as e:
                said = " ".join(str(e).split())[:300]
                wrong.setdefault(str(case), f"seed {seed}, special={special}: {said}")
    for case in batch:
        why = wrong.get(str(case), "")
        yield Finding.of(case, "wrong" if why else "agrees", why)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one target by one stand-in, and write the findings."""
    p = argparse.ArgumentParser("graph_conformance", description=__doc__)
    p.add_argument("target", choices=sorted({s.target for s in STANDS.values()}))
    p.add_argument("stand", choices=STANDS)
    p.add_argument("--cases", choices=SETS, default="turning")
    p.add_argument("--op", action="append", help="only the ops whose name contains this")
    p.add_argument("--out", type=Path, help="where the findings go, as JSON")
    args = p.parse_args(argv)
    stand = STANDS[args.stand]
    chosen = cases_for(args.target, stand, args.cases)
    if args.op:
        chosen = [c for c in chosen if any(o in c.op.name for o in args.op)]
    start = time.perf_counter()
    found = list(conforms(args.target, stand, chosen))
    seconds = time.perf_counter() - start
    for f in found:
        if not f.good:
            print(f, file=sys.stderr)
    counts = Counter(f.verdict for f in found)
    print(f"{args.target} by {args.stand}: {dict(counts)} in {seconds:.0f} s")
    if args.out:
        data = {"target": args.target, "stand": args.stand, "cases": args.cases}
        listed = [asdict(f) for f in found]
        args.out.write_text(json.dumps({**data, "findings": listed}), encoding="utf-8")
    return int(not all(f.good for f in found))


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())

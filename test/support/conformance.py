"""The samples of all ops on the GPU targets, against the interpreter: which cases, and what became
of each.

    python -m support.conformance vulkan --full --out found.json

A device's compiler takes a tenth of a second to start and some hundredths for a kernel, so that
many cases make one program. The *covering* set has every op with every element type that it takes,
and every sample with one of them, another on each target; the *full* set has them all.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.compiler import compile_program
from rlx.errors import RlxError, UnsupportedError
from rlx.interpreter import interpret
from rlx.runtime.backend import registered
from rlx.targets import TARGETS, find_target
from rlx.targets.gpu.drivers import DRIVERS, probe
from support.op_graphs import OpGraph
from support.samples import Case, cases
from support.tolerances import assert_close

__all__ = ["Facts", "Finding", "conforms", "covering", "facts", "gpu_targets"]

BATCH = 100
"""Cases of a program: its file is read anew for each of its kernels."""

SEEDS = ((0, False), (1, True))
"""Runs of a program: seeds, and whether some floats are nan, infinite or zero."""


@dataclass(frozen=True)
class Facts:
    """Where the code of a target runs here: on ``hardware``, on a ``software`` driver, or nowhere,
    so that it is ``assembled`` only. ``why`` says what is missing."""

    target: str
    evidence: str
    device: str = ""
    why: str = ""

    @property
    def runs(self) -> bool:
        """Whether there is a device."""
        return self.evidence != "assembled"


@dataclass(frozen=True)
class Finding:
    """What became of a case: it ``agrees``, is ``refused`` by an error that says why, is ``wrong``,
    or ``fails`` with an error that is no refusal."""

    op: str
    dtype: str
    sample: int
    verdict: str
    text: str = ""

    @staticmethod
    def of(case: Case, verdict: str, text: str = "") -> Finding:
        """The finding of a case."""
        dtype = "" if case.dtype is None else case.dtype.name
        return Finding(case.op.name, dtype, case.number, verdict, text)

    @property
    def good(self) -> bool:
        """Whether it is what may be."""
        return self.verdict in ("agrees", "refused")

    def __str__(self) -> str:
        return f"{self.op}-{self.dtype}-{self.sample} {self.verdict}: {self.text}"


def gpu_targets() -> tuple[str, ...]:
    """The targets that are compiled for and are not the processor itself."""
    return tuple(t for t in TARGETS if t != "cpu")


def facts(target: str) -> Facts:
    """What there is to run a target's code here."""
    if not registered(target):
        return Facts(target, "assembled", why="there is no backend that runs its code")
    found = probe(target) if target in DRIVERS else None
    if found is not None and not found.found:
        return Facts(target, "assembled", why=found.why)
    why = rlx.runtime.backend.why_not(target)
    if why:
        return Facts(target, "assembled", why=why)
    software = found is not None and found.software
    return Facts(target, "software" if software else "hardware", rlx.full_name(target))


def covering(target: str) -> list[Case]:
    """Every op with every type, and every sample with a type that turns from target to target."""
    turn = gpu_targets().index(target)
    found: list[Case] = []
    seen: set[tuple[str, str]] = set()
    groups: dict[tuple[str, int], list[Case]] = {}
    for case in cases():
        groups.setdefault((case.op.name, case.number), []).append(case)
    for n, group in enumerate(groups.values()):
        for m, case in enumerate(group):
            key = case.op.name, str(case.dtype)
            if key not in seen or m == (n + turn) % len(group):
                found.append(case)
            seen.add(key)
    return found


def conforms(target: str, chosen: Sequence[Case]) -> Iterator[Finding]:
    """Run cases on the device of a target, or compile them for it where it has none."""
    runs = facts(target).runs
    lacks = find_target(target).kernels.lacks
    fit: list[Case] = []
    for case in chosen:
        node = case.node()
        lacking = [v.dtype.part for v in (*node.present, *node.results) if v.dtype.part in lacks]
        if lacking:
            yield Finding.of(case, "refused", f"{lacking[0]}: {lacks[lacking[0]]}")
        else:
            fit.append(case)
    for start in range(0, len(fit), BATCH):
        yield from _tried(target, fit[start : start + BATCH], runs)


def _tried(target: str, batch: Sequence[Case], runs: bool) -> Iterator[Finding]:
    """A batch as one program; where that cannot be, in halves, down to single cases."""
    try:
        found = list(_run(target, batch) if runs else _compiled(target, batch))
    except RlxError as e:
        if len(batch) == 1:
            verdict = "refused" if isinstance(e, UnsupportedError) else "fails"
            yield Finding.of(batch[0], verdict, e.message)
            return
        half = len(batch) // 2
        yield from _tried(target, batch[:half], runs)
        yield from _tried(target, batch[half:], runs)
    else:
        yield from found


def _compiled(target: str, batch: Sequence[Case]) -> Iterator[Finding]:
    compile_program(OpGraph.of_cases("cases", batch).graph, find_target(target))
    for case in batch:
        yield Finding.of(case, "agrees")


def _run(target: str, batch: Sequence[Case]) -> Iterator[Finding]:
    made = OpGraph.of_cases("cases", batch)
    compiled = rlx.Session(target).compile(made.graph)
    wrong: dict[str, str] = {}
    for seed, special in SEEDS:
        feeds = made.feeds(seed, special=special)
        expected = interpret(made.graph, feeds)
        for case, a, b in zip(made.owners, compiled.run(feeds), expected, strict=True):
            try:
                assert_close(a, b)
            except AssertionError as e:
                wrong.setdefault(str(case), f"seed {seed}, special={special}: {_one_line(e)}")
    for case in batch:
        yield Finding.of(
            case, "wrong" if str(case) in wrong else "agrees", wrong.get(str(case), "")
        )


def _one_line(e: AssertionError) -> str:
    return " ".join(str(e).split())[:400]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one target and write its findings."""
    p = argparse.ArgumentParser("conformance", description=__doc__)
    p.add_argument("target", choices=gpu_targets())
    p.add_argument("--full", action="store_true", help="all cases, and not the covering ones")
    p.add_argument("--op", action="append", help="only the ops whose name contains this")
    p.add_argument("--out", type=Path, help="where the findings go, as JSON")
    args = p.parse_args(argv)
    chosen = list(cases()) if args.full else covering(args.target)
    if args.op:
        chosen = [c for c in chosen if any(o in c.op.name for o in args.op)]
    start = time.perf_counter()
    found = list(conforms(args.target, chosen))
    seconds = time.perf_counter() - start
    for f in found:
        if not f.good:
            print(f, file=sys.stderr)
    counts = {
        v: sum(f.verdict == v for f in found) for v in dict.fromkeys(f.verdict for f in found)
    }
    print(f"{facts(args.target)}: {counts} in {seconds:.0f} s")
    if args.out:
        data: dict[str, Any] = {
            "facts": asdict(facts(args.target)), "seconds": seconds,
            "findings": [asdict(f) for f in found],
        }  # fmt: skip
        args.out.write_text(json.dumps(data), encoding="utf-8")
    return int(not all(f.good for f in found))


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())

"""Write ``docs/gpu_support.json``, which says of every op and element type how it goes on each
GPU target and emulated processor, from what the tests found there:

    make conformance                                    # every op, on every target
    make conformance TARGETS="vulkan gpu" OPS="gather"  # ops whose names contain a word

runs ``support.conformance`` for the targets, and then this on the files that it wrote. Targets,
ops and element types that are not in the files keep what was known of them, and a target the device
that it ran on where it is only assembled now; those that are no more are dropped, and what has
never been tried is an error that names it.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))

from rlx.ir.op import op_class
from rlx.targets import find_target
from support import support_record
from support.conformance import Finding, columns, lacking
from support.samples import cases
from support.support_record import Record, Way, way_of

RANK = ("wrong", "fails", "assembled", "agrees", "refused")
"""What is said of several samples of a type: the first of these that one of them is."""


def found_in(data: Mapping[str, Any]) -> dict[str, dict[str, Way]]:
    """The ways by op and element type, of the findings on a target. What is refused for the element
    type of another operand is left to ``with_types``."""
    target = data["facts"]["target"]
    worst: dict[tuple[str, str], dict[str, Any]] = {}
    some_refused: set[tuple[str, str]] = set()
    by_case = {Finding.of(c, "").case: c for c in cases()}
    for f in data["findings"]:
        key = f["op"], f["dtype"]
        if (case := by_case.get((*key, f["sample"]))) is None or lacking(target, case):
            continue
        if f["verdict"] == "refused":
            some_refused.add(key)
        if key not in worst or RANK.index(f["verdict"]) < RANK.index(worst[key]["verdict"]):
            worst[key] = f
    ops: dict[str, dict[str, Way]] = {}
    for (op, dtype), f in worst.items():
        if f["verdict"] in ("wrong", "fails"):
            sys.exit(f"{target}: {op} on {dtype} is {f['verdict']}: {f['text']}")
        refused = f["verdict"] == "refused"
        way = "refused" if refused else known_way(target, op, dtype)
        reason = shortened(f["text"]) if refused else ""
        partly = not refused and (op, dtype) in some_refused
        ops.setdefault(op, {})[dtype] = Way(way, reason, f["verdict"] == "agrees", partly)
    return ops


def with_types(
    target: str, known: Mapping[str, Mapping[str, Way]]
) -> tuple[dict[str, dict[str, Way]], set[str]]:
    """What is known of a target, for the ops and element types that there are, and with what it
    refuses for want of an element type; and the ops that it has not tried."""
    lacks: dict[tuple[str, str], list[str]] = {}
    for case in cases():
        dtype = "" if case.dtype is None else case.dtype.name
        lacks.setdefault((case.op.name, dtype), []).append(lacking(target, case))
    ops: dict[str, dict[str, Way]] = {}
    untried: set[str] = set()
    for (op, dtype), reasons in lacks.items():
        way = known.get(op, {}).get(dtype)
        if all(reasons):
            way = Way("refused", reasons[0])
        elif way is None or (way.refused and any(way.reason in r for r in lacks_of(target))):
            untried.add(op)
            continue
        elif any(reasons) and not way.refused:
            way = replace(way, partly=True)
        ops.setdefault(op, {})[dtype] = way
    return ops, untried


def lacks_of(target: str) -> list[str]:
    """What a target says of element types that it lacks."""
    return [f"{t}: {why}" for t, why in find_target(target).kernels.lacks.items()]


_ways: dict[tuple[object, ...], str] = {}


def known_way(target: str, op: str, dtype: str) -> str:
    """``way_of``, once for all targets that have the same kernel families."""
    found = find_target(target)
    key = (found.families, found.kernels.frame, found.kernels.logical, op, dtype)
    if key not in _ways:
        _ways[key] = way_of(target, op_class(op), dtype)
    return _ways[key]


def shortened(reason: str) -> str:
    """A reason without the names of kernels and of what ops are applied to, so that equal reasons
    are one."""
    names = r"^[hm]ir\.\w+ on \([^)]*\): |\brlx_\w+ ?|^.*: (?=kernel computes with)"
    return re.sub(names, "", " ".join(reason.split()))


def main(paths: Sequence[str]) -> None:
    """Merge files of findings into the record."""
    record = support_record.read()
    targets = {t: f for t, f in record.targets.items() if t in columns()}
    known = {t: {op: dict(row.get(t, {})) for op, row in record.ops.items()} for t in targets}
    for path in map(Path, paths):
        data = json.loads(path.read_text(encoding="utf-8"))
        target = data["facts"]["target"]
        if target not in targets or data["facts"]["evidence"] != "assembled":
            targets[target] = {k: data["facts"][k] for k in ("evidence", "device")}
        of_target = known.setdefault(target, {})
        for op, found in found_in(data).items():
            of_target[op] = {**of_target.get(op, {}), **found}
    ops: dict[str, dict[str, dict[str, Way]]] = {}
    untried: dict[str, set[str]] = {}
    for target in (t for t in columns() if t in targets):
        typed, untried[target] = with_types(target, known[target])
        for op, ways in typed.items():
            ops.setdefault(op, {})[target] = ways
    if any(untried.values()):
        names = " ".join(sorted(set().union(*untried.values())))
        on = " ".join(t for t, some in untried.items() if some)
        sys.exit(f'not tried yet: make conformance TARGETS="{on}" OPS="{names}"')
    order = {t: targets[t] for t in columns() if t in targets}
    support_record.PATH.write_text(Record(order, ops).text(), encoding="utf-8")
    print(f"wrote {support_record.PATH.name}: {len(ops)} ops on {', '.join(order)}")


if __name__ == "__main__":
    main(sys.argv[1:])

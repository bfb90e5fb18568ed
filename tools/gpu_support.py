"""Write ``docs/gpu_support.json``, which says of every op and element type how it goes on each GPU
target, from what the tests found there:

    make conformance

runs ``support.conformance`` for every target, and then this on the files that it wrote. Targets
without a file keep what was known of them; those that are no more are dropped.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))

from rlx.ir.op import op_class
from rlx.targets import find_target
from support import support_record
from support.conformance import gpu_targets
from support.support_record import Record, Way, way_of

RANK = ("wrong", "fails", "assembled", "agrees", "refused")
"""What is said of several samples of a type: the first of these that one of them is."""


def found_in(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Way]]]:
    """The facts of a target, and the ways by op and element type, of a file of findings."""
    data = json.loads(path.read_text(encoding="utf-8"))
    target = data["facts"]["target"]
    worst: dict[tuple[str, str], dict[str, Any]] = {}
    some_refused: set[tuple[str, str]] = set()
    for f in data["findings"]:
        key = f["op"], f["dtype"]
        if f["verdict"] == "refused":
            some_refused.add(key)
        if key not in worst or RANK.index(f["verdict"]) < RANK.index(worst[key]["verdict"]):
            worst[key] = f
    ops: dict[str, dict[str, Way]] = {}
    for (op, dtype), f in worst.items():
        if f["verdict"] in ("wrong", "fails"):
            sys.exit(f"{path}: {op} on {dtype} is {f['verdict']}: {f['text']}")
        refused = f["verdict"] == "refused"
        way = "refused" if refused else known_way(target, op, dtype)
        reason = shortened(f["text"]) if refused else ""
        partly = not refused and (op, dtype) in some_refused
        ops.setdefault(op, {})[dtype] = Way(way, reason, f["verdict"] == "agrees", partly)
    counts = {v: sum(f["verdict"] == v for f in data["findings"]) for v in RANK}
    facts = {
        "evidence": data["facts"]["evidence"], "device": data["facts"]["device"],
        "cases": {v: n for v, n in counts.items() if n},
    }  # fmt: skip
    return facts, ops


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
    return re.sub(r"^[hm]ir\.\w+ on \([^)]*\): |\brlx_\w+ ?", "", " ".join(reason.split()))


def main(paths: Sequence[str]) -> None:
    """Merge files of findings into the record."""
    record = support_record.read()
    targets = {t: f for t, f in record.targets.items() if t in gpu_targets()}
    ops = {op: {t: w for t, w in row.items() if t in targets} for op, row in record.ops.items()}
    for path in map(Path, paths):
        facts, found = found_in(path)
        target = json.loads(path.read_text(encoding="utf-8"))["facts"]["target"]
        targets[target] = facts
        for row in ops.values():
            row.pop(target, None)
        for op, ways in found.items():
            ops.setdefault(op, {})[target] = ways
    order = {t: targets[t] for t in gpu_targets() if t in targets}
    rows = {op: {t: row[t] for t in order if t in row} for op, row in ops.items() if row}
    support_record.PATH.write_text(Record(order, rows).text(), encoding="utf-8")
    print(f"wrote {support_record.PATH.name}: {len(rows)} ops on {', '.join(order)}")


if __name__ == "__main__":
    main(sys.argv[1:])

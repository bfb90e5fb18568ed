"""What is known of every op on every GPU target: ``docs/gpu_support.json``, which is written by

    python tools/gpu_support.py FOUND.json ...

from the findings of ``support.conformance``, and read by the tests and by the page in ``docs``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import rlx
from rlx.errors import UnsupportedError
from rlx.ir.op import Op
from support.op_graphs import OpGraph
from support.samples import Case, cases

__all__ = ["PATH", "Record", "Way", "read", "way_of"]

PATH = Path(__file__).resolve().parents[2] / "docs" / "gpu_support.json"


@dataclass(frozen=True)
class Way:
    """How an op with an element type goes on a target: ``native``, ``common``, or ``refused`` with
    the reason. ``ran`` says that it ran on the target's device, ``partly`` that some of its samples
    are refused, which have operands or results of another type."""

    way: str
    reason: str = ""
    ran: bool = False
    partly: bool = False

    @property
    def refused(self) -> bool:
        """Whether there is an error in its place."""
        return self.way == "refused"


@dataclass(frozen=True)
class Record:
    """``targets`` has the facts of each; ``ops`` by op, target and element type the ways."""

    targets: Mapping[str, Mapping[str, Any]]
    ops: Mapping[str, Mapping[str, Mapping[str, Way]]]

    def of(self, target: str, op: str) -> Mapping[str, Way]:
        """The ways of an op on a target by element type."""
        return self.ops.get(op, {}).get(target, {})

    def way(self, target: str, op: str, dtype: str) -> Way:
        """The way of an op; one of no name where there is none."""
        return self.of(target, op).get(dtype, Way("unknown"))

    def kinds(self, target: str) -> Iterator[tuple[str, str]]:
        """The ops and element types that are known of a target."""
        return ((op, dt) for op, found in self.ops.items() for dt in found.get(target, {}))

    def text(self) -> str:
        """As JSON: reasons once, and types of one way together."""
        reasons = sorted({w.reason for o in self.ops.values() for t in o.values()
                          for w in t.values() if w.reason})  # fmt: skip
        numbers = {reason: n for n, reason in enumerate(reasons)}
        ops: dict[str, Any] = {}
        for op, found in sorted(self.ops.items()):
            row = ops[op] = dict[str, dict[str, str]]()
            for target, ways in found.items():
                groups: dict[str, list[str]] = {}
                for dtype, w in ways.items():
                    key = f"refused {numbers[w.reason]}" if w.refused else w.way
                    groups.setdefault(key + " ran" * w.ran + " partly" * w.partly, []).append(dtype)
                row[target] = {key: " ".join(dtypes) for key, dtypes in groups.items()}
        lines = ",\n".join(f" {json.dumps(op)}: {json.dumps(row)}" for op, row in ops.items())
        facts = ",\n".join(f" {json.dumps(t)}: {json.dumps(f)}" for t, f in self.targets.items())
        listed = ",\n".join(f" {json.dumps(r)}" for r in reasons)
        return (
            f'{{"targets": {{\n{facts}\n}},\n"reasons": [\n{listed}\n],\n"ops": {{\n{lines}\n}}}}\n'
        )


def read(path: Path = PATH) -> Record:
    """The record; an empty one if there is none."""
    if not path.exists():
        return Record({}, {})
    data = json.loads(path.read_text(encoding="utf-8"))
    ops: dict[str, dict[str, dict[str, Way]]] = {}
    for op, row in data["ops"].items():
        for target, groups in row.items():
            ways = ops.setdefault(op, {}).setdefault(target, {})
            for key, dtypes in groups.items():
                way, *rest = key.split()
                reason = data["reasons"][int(rest[0])] if way == "refused" else ""
                # A type by no name is that of an op whose samples have no T.
                for dtype in dtypes.split(" "):
                    ways[dtype] = Way(way, reason, "ran" in rest, "partly" in rest)
    return Record(data["targets"], ops)


@cache
def _by_kind() -> dict[tuple[str, str], list[Case]]:
    found: dict[tuple[str, str], list[Case]] = {}
    for case in cases():
        found.setdefault((case.op.name, case.dtype.name if case.dtype else ""), []).append(case)
    return found


HERE = {
    "gpu": "gpu:webgpu+buffers16", "opengl": "opengl:opengl4.3+buffers16",
    "webgpu": "webgpu:webgpu+buffers10",
}  # fmt: skip
"""What the devices bind on which ops were found to run, where every device binds fewer buffers."""


def way_of(target: str, op: type[Op], dtype: str) -> str:
    """``native`` if only kernel families run the first sample of an op with an element type that is
    not refused, ``common`` if a loop nest has a part in it."""
    refusal: UnsupportedError | None = None
    for case in _by_kind()[op.name, dtype]:
        graph = OpGraph.of_cases(op.name, [case]).graph
        try:
            report = rlx.dispatch_report_for_device(graph, HERE.get(target, target))
        except UnsupportedError as e:
            refusal = e
        else:
            return "common" if report.common else "native"
    raise refusal or KeyError(dtype)

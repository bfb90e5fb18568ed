"""The boxes of a fused module: what one kernel runs is one box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlx._mlir import ir
from rlx.dialects.bridge import place_of
from rlx.dialects.convert import from_type
from rlx.lowering.functions import functions, output_names
from rlx.lowering.region import Regions
from rlx.view.picture import Box, short_type

if TYPE_CHECKING:
    from rlx.runtime.profile import Profile

__all__ = ["boxes_of_module"]

_LONGEST = 48
"""Characters of the ops of a region."""


def boxes_of_module(module: ir.Module, profile: Profile | None = None) -> list[Box]:
    """The inputs, ops and regions, and outputs of @main, with the times of a profile; the params
    that one reads are lines of it, and what the prologue made of params is left out."""
    main = functions(module)["main"]
    block = main.regions[0].blocks[0]
    given = "arg_attrs" in main.attributes
    marks = list(ir.ArrayAttr(main.attributes["arg_attrs"])) if given else []
    boxes: list[Box] = []
    number: dict[Any, int] = {}
    params: dict[Any, str] = {}
    for arg, mark in zip(block.arguments, marks, strict=False):
        names = ir.DictAttr(mark)
        kind = short_type(from_type(arg.type))
        if "rlx.input" in names:
            number[arg] = len(boxes)
            boxes.append(Box("input", (ir.StringAttr(names["rlx.input"]).value, kind)))
        elif "rlx.param" in names:
            params[arg] = f"{ir.StringAttr(names['rlx.param']).value}: {kind}"
    times, regions = _Times(profile), Regions()
    outputs: Sequence[Any] = ()
    for view in block.operations:
        op = view.operation
        if op.name == "func.return":
            outputs = list(op.operands)
            continue
        found = dict.fromkeys(_operands(op))
        reads = tuple(dict.fromkeys(number[v] for v in found if v in number))
        held = [params[v] for v in found if v in params]
        if not reads and not held and op.name != "mir.fused":
            continue  # a constant
        for v in op.results:
            number[v] = len(boxes)
        boxes.append(_box(op, reads, held, times, regions))
    for name, v in zip(output_names(main), outputs, strict=True):
        reads = (number[v],) if v in number else ()
        boxes.append(Box("output", (f"output {name}", short_type(from_type(v.type))), reads))
    return boxes


def _operands(op: ir.Operation) -> list[ir.Value]:
    """What an op reads; a region reads what its body does."""
    if op.name != "mir.fused":
        return list(op.operands)
    return [v for view in op.regions[0].blocks[0].operations for v in view.operation.operands]


def _box(
    op: ir.Operation, reads: tuple[int, ...], held: Sequence[str], times: _Times, regions: Regions
) -> Box:
    fused = op.name == "mir.fused"
    ops = "" if op.name == "func.call" else regions.of(op).label
    kind = ir.StringAttr(op.attributes["kind"]).value if fused else ""
    name = f"fused {kind}" if fused else op.name.partition(".")[2]
    inner = [ops if len(ops) <= _LONGEST else f"{ops[:_LONGEST]}..."] if fused else []
    types = ", ".join(short_type(from_type(v.type)) for v in op.results)
    file, line = place_of(op)
    place = f"{file.rpartition('/')[2]}:{line}"
    took, share = times.of(ops, f"{file}:{line}")
    lines = (name, *inner, types, *held, place, *took)
    return Box("fused" if fused else "op", lines, reads, share)


class _Times:
    """What a launch took, by its ops and place."""

    def __init__(self, profile: Profile | None) -> None:
        self._seconds: dict[tuple[str, str], float] = {}
        self._whole = profile.launched if profile is not None else 0.0
        for row in profile.rows if profile is not None else ():
            self._seconds[row.ops, row.at] = row.seconds / row.calls

    def of(self, ops: str, at: str) -> tuple[list[str], float | None]:
        """The lines that say what a box took, and its share of all."""
        seconds = self._seconds.get((ops, at))
        if seconds is None or not self._whole:
            return [], None
        share = seconds / self._whole
        return [f"{seconds * 1e6:.1f} us, {share:.1%}"], share

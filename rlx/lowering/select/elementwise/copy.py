"""Movement that cannot be a view: joins and padding."""

from __future__ import annotations

from collections.abc import Sequence

from rlx._mlir import ir
from rlx.base.dims import is_known
from rlx.dialects.convert import from_attr, from_type
from rlx.lowering.region import Region, sole_user
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.movement.slicing import Concat, Pad
from rlx.types import Dim

__all__ = ["SELECTOR"]


class Copy:
    """concat, each part copied to its place, and pad, a fill and a copy."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, Concat | Pad):
            return "it is no concat or pad"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        if isinstance(node, Concat):
            _concat(lowering, region.op, _joined(region.op.results[0], lowering))
        else:
            assert isinstance(node, Pad)
            self._pad(lowering, region, node, lowering.result(region.op.results[0]))

    def _pad(self, lowering: Lowering, region: Region, node: Pad, result: View) -> None:
        fill = lowering.view(region.leaves[node.present[1]])
        lowering.copy(fill.expand(result.shape), result)
        steps = [n + 1 for n in node.interior]
        source = lowering.view(region.leaves[node.present[0]])
        lowering.copy(source, result.slice(static_dims(node.low), source.shape, steps))


def _concat(lowering: Lowering, op: ir.Operation, target: View) -> None:
    """Copy the operands side by side, but for those that lie there."""
    for n, operand in enumerate(op.operands):
        part = _part(op, n, target)
        found = lowering.view(operand)
        if found != part:
            lowering.copy(found, part)


def _part(op: ir.Operation, n: int, target: View) -> View:
    """Where the operand number ``n`` of a concat belongs in its result."""
    axis = from_attr(op.attributes["axis"], "int")
    before, own = (
        sum(from_type(v.type).static_shape[axis] for v in list(op.operands)[a:b])
        for a, b in ((0, n), (n, n + 1))
    )
    rank = range(len(target.shape))
    starts = [before if d == axis else 0 for d in rank]
    sizes = [own if d == axis else size for d, size in enumerate(target.shape)]
    return target.slice(starts, sizes, [1] * len(sizes))


def _joined(v: ir.Value, lowering: Lowering) -> View:
    """The place for the result of a concat: that of its part in the concat that alone reads it, so
    that of many joined tensors each is copied once."""
    if v in lowering.env:  # as an inner one has asked for it
        return lowering.env[v]
    user = sole_user(v)
    alone = user is not None and user.name == Concat.name and user.operands[0] != user.operands[1]
    if user is None or not alone or lowering.in_prologue or not _is_new(user.results[0], lowering):
        return lowering.result(v)
    lowering.env[v] = _part(user, list(user.operands).index(v), _joined(user.results[0], lowering))
    return lowering.env[v]


def _is_new(v: ir.Value, lowering: Lowering) -> bool:
    """Whether the place for a value may be written before the op that makes it: not if an older
    value lies there, of a loop or of a donated input, which other ops may read until then."""
    wanted = lowering.destinations.get(v)
    donated = dict(lowering.compilation.options.donate).values()
    old = wanted is not None and (bool(lowering.active) or wanted.memory.index in donated)
    return not old and lowering.target.kernels.serial


def static_dims(dims: Sequence[Dim]) -> list[int]:
    """Dims of a bound graph, which are ints."""
    return [d for d in dims if is_known(d)]


SELECTOR: Selector = Copy()

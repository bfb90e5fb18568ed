"""Sorting and searching."""

from __future__ import annotations

from typing import Any

from rlx.targets.graph.rows.common import Row, shape_of
from rlx.targets.graph.tensor import Tensor
from rlx.targets.graph.whole import Whole
from rlx.types import bool_, i32, i64

__all__ = ["ROWS"]


def _sorted(k: Whole, x: Tensor, axis: int, descending: bool) -> tuple[Tensor, Tensor]:
    if 0 in x.shape:
        return x, k.literal(0, i64, x.shape)
    if x.dtype is bool_:
        values, indices = k.sorted(k.converted(x, i32), axis, descending)
        return k.compare("ne", values, 0), indices
    return k.sorted(x, axis, descending)


def _sort(k: Whole, node: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return _sorted(k, x, node.axis, node.descending)


def _topk(k: Whole, node: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    if 0 in shape_of(node):
        return k.literal(0, x.dtype, shape_of(node)), k.literal(0, i64, shape_of(node))
    values, indices = _sorted(k, x, node.axis, node.largest)
    return k.narrow(values, node.axis, 0, node.k), k.narrow(indices, node.axis, 0, node.k)


def _searchsorted(k: Whole, node: Any, line: Tensor, values: Tensor) -> Tensor:
    """The binary search of the reference, so that both agree on lines in no order too."""
    lead, n = line.rank - 1, line.shape[-1]
    shape = shape_of(node)
    if 0 in shape or not n:
        return k.literal(0, i64, shape)
    line, v = k.widened(line), k.widened(values)

    def before(a: Tensor, than: Tensor) -> Tensor:
        found = a < than
        if not a.dtype.is_float:
            return found
        return found | (k.compare("ne", than, than) & k.compare("eq", a, a))

    low, high = k.literal(0, i64, shape), k.literal(n, i64, shape)
    for _ in range(n.bit_length()):
        middle = k.minimum((low + high) >> 1, n - 1)
        x = k.reshape(k.taken(line, middle, lead, lead), shape)
        right = before(x, v) if node.side == "left" else k.logical_not(before(v, x))
        low, high = k.select(right, middle + 1, low), k.select(right, high, middle)
    return low


ROWS: dict[str, Row] = {
    "mir.sort": _sort,
    "mir.topk": _topk,
    "mir.searchsorted": _searchsorted,
}

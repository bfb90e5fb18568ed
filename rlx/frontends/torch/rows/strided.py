"""Elements by strides in the memory of a tensor, or of the one that it is a view of."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.frontends.torch.node import Node, Rows
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.constant import Iota
from rlx.types import Dim, i64

__all__ = ["ROWS"]

Dims = Sequence[Dim]


def strided(
    n: Node, x: Value, size: Dims, stride: Dims, storage_offset: Dim | None = None
) -> Value:
    memory = n.memory
    offset = memory.offset if storage_offset is None else storage_offset
    return _read(n, memory.line, size, stride, offset).reshape(n.shape)


def strided_scatter(
    n: Node, x: Value, src: Value, size: Dims, stride: Dims, storage_offset: Dim | None = None
) -> Value:
    """The tensor after a write to such elements."""
    memory = n.memory
    offset = memory.offset if storage_offset is None else storage_offset
    at = _places(n, size, stride, offset).reshape([-1])
    line = memory.line.scatter(at, n.cast(src).reshape([-1]), 0)
    return _read(n, line, x.shape, memory.strides, memory.offset).reshape(n.shape)


def _read(n: Node, line: Value, size: Dims, stride: Dims, offset: Dim) -> Value:
    nested = _nested(line, size, stride, offset)
    return Gather.build(line, _places(n, size, stride, offset), 0) if nested is None else nested


def _places(n: Node, size: Dims, stride: Dims, offset: Dim) -> Value:
    """The place in the line of each element."""
    at = n.cast(offset, i64).expand(size)
    for axis, step in enumerate(stride):
        if size[axis] != 1 and step != 0:
            at = at + Iota(tuple(size), axis, i64).out * n.cast(step, i64)
    return at


def _nested(line: Value, size: Dims, stride: Dims, offset: Dim) -> Value | None:
    """The elements as a part of the line in rows of rows, if no two windows overlap and each stride
    is a multiple of the next; axes with a stride of 0 repeat what there is."""
    counts, steps, ends = map(_numbers, (size, stride, (offset, line.shape[0])))
    if counts is None or steps is None or ends is None:
        return None
    axes = [i for i, (d, s) in enumerate(zip(counts, steps, strict=True)) if d != 1 and s != 0]
    axes.sort(key=lambda i: -steps[i])
    inner = [*(steps[i] for i in axes[1:]), 1]
    within = [counts[i] * steps[i] for i in axes[1:]]
    if not axes or 0 in counts or any(steps[i] % s for i, s in zip(axes, inner, strict=True)):
        return None
    if any(steps[i] < w for i, w in zip(axes, within, strict=False)):
        return None
    whole = counts[axes[0]] * steps[axes[0]]
    there = min(whole, ends[1] - ends[0])
    line = line.narrow(0, ends[0], there).pad([0], [whole - there])
    ratios = [steps[i] // s for i, s in zip(axes, inner, strict=True)]
    wide = [counts[axes[0]], *ratios]
    rows = line.reshape(wide).slice([0] * len(wide), [*(counts[i] for i in axes), 1]).squeeze(-1)
    order = sorted(range(len(axes)), key=lambda i: axes[i])
    shape = [counts[i] if i in axes else 1 for i in range(len(counts))]
    return rows.transpose(order).reshape(shape).expand(size)


def _numbers(dims: Dims) -> list[int] | None:
    """Dims as ints; None if one is symbolic."""
    found = [d for d in dims if isinstance(d, int)]
    return found if len(found) == len(dims) else None


ROWS: Rows = {
    "as_strided": strided, "as_strided_copy": strided, "as_strided_scatter": strided_scatter,
}  # fmt: skip

"""The same elements in other places: reshape, transpose, slice, join, pad and their like."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.errors import ModelError, ShapeError, UnsupportedError
from rlx.frontends.common.values import constant
from rlx.frontends.onnx.node import Node, Result, Rows
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.movement import Expand, Reshape, Transpose, axis_of
from rlx.ops.movement.slicing import Pad, Slice
from rlx.ops.sugar import concat, split, squeeze
from rlx.types import Dim, SymDim, broadcast_shapes, i64

__all__ = ["ROWS", "pick", "slices"]

_END = 1 << 31
"""Bounds of a slice from here on mean "to the end"."""


def reshape(n: Node) -> Value:
    x = n[0]
    dims = n.dims(1) if n.version >= 5 else list(n.need("shape"))
    if not n.attr("allowzero", 0):
        if any(d == 0 and i >= x.rank for i, d in enumerate(dims)):
            raise ShapeError(f"reshape: {dims} copies a dim that {x.type} lacks")
        dims = [x.shape[i] if d == 0 else d for i, d in enumerate(dims)]
    return Reshape.build(x, dims)


def transpose(n: Node) -> Value:
    return Transpose.build(n[0], n.attr("perm", None))


def expand(n: Node) -> Value:
    return Expand.build(n[0], broadcast_shapes(n[0].shape, tuple(n.dims(1))))


def flat(n: Node) -> Value:
    x = n[0]
    at = n.attr("axis", 1)
    at = at if at == x.rank else axis_of(at, x.rank, "axis")
    sizes = [x.type.with_shape(part).size for part in (x.shape[:at], x.shape[at:])]
    return x.reshape(sizes)


def squeezed(n: Node) -> Value:
    return squeeze(n[0], n.axes(1))


def unsqueezed(n: Node) -> Value:
    x, axes = n[0], n.axes(1) or []
    rank = x.rank + len(axes)
    new = {axis_of(a, rank, "axes") for a in axes}
    if len(new) < len(axes):
        raise ShapeError(f"unsqueeze: an axis is listed twice in {axes}")
    old = iter(x.shape)
    return x.reshape([1 if i in new else next(old) for i in range(rank)])


def joined(n: Node) -> Value:
    return concat(n.values(), n.need("axis"))


def parted(n: Node) -> list[Value]:
    x, axis = n[0], n.axis(0)
    sizes: Sequence[Dim] | None = n.attr("split", None)
    if sizes is None and n.has(1):
        sizes = n.dims(1)
    if sizes is None:
        count = n.attr("num_outputs", len(n.proto.output))
        if count != len(n.proto.output):
            raise ModelError(f"it is split into {count}, and has {len(n.proto.output)} outputs")
        whole = x.shape[axis]
        if isinstance(whole, SymDim) or whole % count == 0:
            return split(x, count, axis)
        each = -(-whole // count)
        sizes = [each] * (count - 1) + [whole - each * (count - 1)]
    return split(x, list(sizes), axis)


def slices(n: Node) -> list[tuple[int, Dim, Dim, int]]:
    """Axis, start, end and step of every axis that a slice is of."""
    if n.version < 10:
        starts, ends = n.need("starts"), n.need("ends")
        axes, steps = n.attr("axes", range(len(starts))), [1] * len(starts)
    else:
        starts, ends = n.dims(1), n.dims(2)
        axes = n.ints(3) if n.has(3) else range(len(starts))
        steps = n.ints(4) if n.has(4) else [1] * len(starts)
    rank = n.edge(0).type.rank
    axes = [axis_of(a, rank, "axes") for a in axes]
    return list(zip(axes, starts, ends, steps, strict=True))


def sliced(n: Node) -> Value:
    x = n[0]
    for cut in slices(n):
        x = _cut(x, *cut)
    return x


def _cut(x: Value, axis: int, start: Dim, end: Dim, step: int) -> Value:
    """One axis of a slice, whose bounds mean what they mean in Python, but that a negative step
    from before the first element starts at it."""
    dim = x.shape[axis]
    if isinstance(dim, int) and isinstance(start, int) and isinstance(end, int):
        if step < 0 and start < -dim:
            start = -dim
        places = range(*slice(start, end, step).indices(dim)) if step else range(0)
        if step < 0:
            return pick(x, axis, np.array(places, np.int64))
        return _box(x, axis, places.start, len(places), step)
    beyond = isinstance(end, int) and (end >= _END if step > 0 else end <= -_END)
    before = isinstance(start, int) and (start <= -_END if step > 0 else start >= _END)
    part = slice(None if before else start, None if beyond else end, step)
    return x[(*[slice(None)] * axis, part)]


def _box(x: Value, axis: int, start: Dim, size: Dim, step: int) -> Value:
    starts: list[Dim] = [0] * x.rank
    sizes, steps = list(x.shape), [1] * x.rank
    starts[axis], sizes[axis], steps[axis] = start, size, step
    return x if tuple(sizes) == x.shape and step == 1 else Slice.build(x, starts, sizes, steps)


def pick(x: Value, axis: int, places: np.ndarray) -> Value:
    """The elements at given places of an axis."""
    return Gather.build(x, constant(places), axis)


def tile(n: Node) -> Value:
    x, repeats = n[0], n.dims(1)
    shape = [d for r, size in zip(repeats, x.shape, strict=True) for d in (r, size)]
    between = [d for size in x.shape for d in (1, size)]
    out = [r * size for r, size in zip(repeats, x.shape, strict=True)]
    return x.reshape(between).expand(shape).reshape(out)


def pad(n: Node) -> Value:
    x, mode = n[0], n.attr("mode", "constant")
    if n.version < 11:
        pads, fill = list(n.need("pads")), constant(n.attr("value", 0.0), x.dtype)
        axes = list(range(x.rank))
    else:
        pads = n.ints(1)
        fill = n[2].reshape([]) if n.has(2) else constant(0, x.dtype)
        axes = [axis_of(a, x.rank, "axes") for a in n.ints(3)] if n.has(3) else list(range(x.rank))
    if len(pads) != 2 * len(axes):
        raise ShapeError(f"pad: {len(axes)} axes need {2 * len(axes)} numbers, found {len(pads)}")
    low, high = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(axes):
        low[axis], high[axis] = pads[i], pads[i + len(axes)]
    for axis in range(x.rank):  # negative padding takes elements away
        before, after = max(-low[axis], 0), max(-high[axis], 0)
        x = _box(x, axis, before, x.shape[axis] - before - after, 1)
    low, high = [max(v, 0) for v in low], [max(v, 0) for v in high]
    if mode == "constant":
        return Pad.build(x, low, high, fill)
    for axis in range(x.rank):
        if low[axis] or high[axis]:
            size = _size(x, axis)
            at = n.line(low[axis] + size + high[axis], -low[axis])
            x = pick(x, axis, _places(mode, size, at))
    return x


def _size(x: Value, axis: int) -> int:
    return x.type.static_shape[axis]


def _places(mode: str, size: int, at: np.ndarray) -> np.ndarray:
    """Where the elements at places of a padded axis come from."""
    if mode == "edge":
        return np.clip(at, 0, size - 1)
    if mode == "wrap":
        return at % size
    if mode != "reflect":
        raise UnsupportedError(f"its mode is {mode!r}; there are constant, edge, reflect and wrap")
    period = max(2 * (size - 1), 1)
    at = at % period
    return np.minimum(at, period - at) if size > 1 else np.zeros_like(at)


def reverse_sequence(n: Node) -> Value:
    """Each sequence of a batch, turned around up to its length."""
    time, batch = n.attr("time_axis", 0), n.attr("batch_axis", 1)
    x = n[0] if batch == 0 else n[0].swapaxes(0, 1)
    if {time, batch} != {0, 1}:
        raise UnsupportedError(f"its axes are {time} and {batch}, expected 0 and 1")
    steps = x.shape[1]
    at = constant(n.line(_size(x, 1)), i64).reshape([1, steps])
    length = n[1].reshape([x.shape[0], 1])
    at = at.lt(length).where(length - 1 - at, at)
    out = Gather.build(x, at, 1, batch_dims=1)
    return out if batch == 0 else out.swapaxes(0, 1)


def depth_to_space(n: Node) -> Value:
    x, b = n[0], int(n.need("blocksize"))
    batch, channels, high, wide = x.shape
    depth = channels // (b * b)
    if n.attr("mode", "DCR") == "DCR":
        x = x.reshape([batch, b, b, depth, high, wide]).transpose([0, 3, 4, 1, 5, 2])
    else:
        x = x.reshape([batch, depth, b, b, high, wide]).transpose([0, 1, 4, 2, 5, 3])
    return x.reshape([batch, depth, high * b, wide * b])


def dropout(n: Node) -> list[Result]:
    """Nothing happens in inference."""
    x = n[0]
    n.ignore("seed")
    training = n.has(2) and bool(n.array(2))
    ratio = float(n.array(1)) if n.has(1) else n.attr("ratio", 0.5)
    if training and ratio:
        raise UnsupportedError("in training mode it is random; export the model for inference")
    return [n.edge(0), constant(True).expand(x.shape)]


ROWS: Rows = {
    "Concat": joined,
    "DepthToSpace": depth_to_space,
    "Dropout": dropout,
    "Expand": expand,
    "Flatten": flat,
    "Pad": pad,
    "Reshape": reshape,
    "ReverseSequence": reverse_sequence,
    "Slice": sliced,
    "Split": parted,
    "Squeeze": squeezed,
    "Tile": tile,
    "Transpose": transpose,
    "Unsqueeze": unsqueezed,
}

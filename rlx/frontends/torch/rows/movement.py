"""The same elements in other places: views, joins, pieces, padding, and tensors made of none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.base.dims import maximum, minimum
from rlx.frontends.common.values import constant, size_value
from rlx.frontends.torch.node import Node, Operand, Row, Rows, axis_of, static
from rlx.ir.value import Value
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.rearrange import repeat
from rlx.ops.movement.slicing import Slice
from rlx.ops.pointwise.floats import WHOLE
from rlx.ops.sugar import concat
from rlx.types import Dim, i64

__all__ = ["ROWS", "bounds", "pieces"]


def reshaped(n: Node, x: Value, *rest: Any) -> Value:
    return x.reshape(n.shape)


def expanded(n: Node, x: Value, *rest: Any) -> Value:
    return x.expand(n.shape)


def viewed_as(n: Node, x: Value, dtype: Any) -> Value:
    """The bits of elements of the same width; halves and pairs are not there."""
    if n.dtype.bits == x.dtype.bits and x.dtype in WHOLE and n.dtype in WHOLE:
        return x.bitcast(n.dtype)
    return n.refuse(f"its elements are read as {n.dtype}, which are stored as {x.dtype}")


def indices(of: Callable[..., Any]) -> Row:
    """Rows and columns of a triangle."""

    def row(n: Node, rows: int, columns: int, offset: int = 0) -> Value:
        rows, columns = (static(n, d, "a side") for d in (rows, columns))
        return n.cast(constant(np.stack(of(rows, offset, columns)).astype(np.int64)))

    return row


def permuted(n: Node, x: Value, dims: Sequence[int]) -> Value:
    return x.transpose([d % x.rank for d in dims]) if x.rank else x


def transposed(n: Node, x: Value, dim0: int, dim1: int) -> Value:
    return x.swapaxes(axis_of(dim0, x.rank), axis_of(dim1, x.rank)) if x.rank else x


def turned(n: Node, x: Value) -> Value:
    return x.transpose(list(range(x.rank))[::-1]) if x.rank > 1 else x


def repeated(n: Node, x: Value, repeats: Sequence[Dim]) -> Value:
    """Copies along each axis: an axis of copies before each, made one with it."""
    lead = [1] * (len(repeats) - x.rank)
    shape: list[Dim] = [*lead, *x.shape]
    pairs = [d for size in shape for d in (1, size)]
    wide = [d for r, size in zip(repeats, shape, strict=True) for d in (r, size)]
    return x.reshape(pairs).expand(wide).reshape(n.shape)


def repeated_each(
    n: Node, x: Value, repeats: int, dim: int | None = None, output_size: Any = None
) -> Value:
    if not isinstance(repeats, int):
        n.refuse("how often each element is repeated is data, and decides the result's shape")
    x = x if dim is not None else x.reshape([-1])
    return repeat(x, repeats, axis_of(dim or 0, x.rank))


def flipped(n: Node, x: Value, dims: Sequence[int]) -> Value:
    return x.flip([d % x.rank for d in dims]) if x.rank and len(dims) else x


def rolled(n: Node, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    shifts = [shifts] if isinstance(shifts, int) else shifts
    dims = [dims] if isinstance(dims, int) else dims
    if x.type.size == 0:
        return x
    if not len(dims):
        return x.reshape([-1]).roll(list(shifts), [0]).reshape(x.shape)
    return x.roll(list(shifts), [d % x.rank for d in dims])


def joined(n: Node, tensors: Sequence[Value], dim: int = 0) -> Value:
    """An empty tensor of rank 1 joins any other."""
    parts = [n.cast(x) for x in tensors if x.shape != (0,) or len(n.shape) == 1]
    return concat(parts, axis_of(dim, len(n.shape)))


def stacked(n: Node, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = axis_of(dim, len(n.shape))
    return concat([n.cast(x).unsqueeze(axis) for x in tensors], axis)


def pieces(n: Node, x: Value, axis: int) -> list[Value]:
    """Parts along an axis, of the sizes that torch says of the results."""
    out: list[Value] = []
    start: Dim = 0
    for t in n.types:
        assert t is not None, "every part is a tensor"
        out.append(x.narrow(axis, start, t.shape[axis]))
        start = start + t.shape[axis]
    return out


def parted(n: Node, x: Value, sizes: Any, dim: int = 0) -> list[Value]:
    return pieces(n, x, axis_of(dim, x.rank))


def unbound(n: Node, x: Value, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, x.rank)
    return [x.narrow(axis, i, 1).squeeze(axis) for i in range(len(n.types))]


def bounds(start: Dim | None, end: Dim | None, size: Dim) -> tuple[Dim, Dim]:
    """Where a slice begins and ends, counted from the front and within the axis."""
    return _clamped(0 if start is None else start, size), _clamped(
        size if end is None else end, size
    )


def _clamped(place: Dim, size: Dim) -> Dim:
    if isinstance(place, int):
        if place >= 1 << 62:
            return size
        place = place if place >= 0 else size + place
    return maximum(0, minimum(place, size))


def sliced(
    n: Node, x: Value, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: int = 1
) -> Value:
    axis = axis_of(dim, x.rank)
    first, _ = bounds(start, end, x.shape[axis])
    starts: list[Dim] = [0] * x.rank
    starts[axis] = first
    return Slice.build(x, starts, n.shape, [step if i == axis else 1 for i in range(x.rank)])


def narrowed(n: Node, x: Value, dim: int, start: Any, length: Dim) -> Value:
    if isinstance(start, Value):
        n.refuse("where it begins is a tensor's element")
    return x.narrow(axis_of(dim, x.rank), start, length)


def selected(n: Node, x: Value, dim: int, index: Dim) -> Value:
    axis = axis_of(dim, x.rank)
    if isinstance(index, int) and index < 0:
        index = x.shape[axis] + index
    return x.narrow(axis, index, 1).squeeze(axis)


def diagonal(n: Node, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    return x.diagonal(offset, dim1 % x.rank, dim2 % x.rank)


def triangle(keep_lower: bool) -> Row:
    """The elements on one side of a diagonal, zeros on the other."""

    def row(n: Node, x: Value, diagonal: int = 0) -> Value:
        rows, columns = (Iota(x.shape[-2:], axis, i64).out for axis in (0, 1))
        gap = columns - rows
        seen = gap.le(diagonal) if keep_lower else gap.ge(diagonal)
        return seen.where(x, constant(0, x.dtype))

    return row


def windows(n: Node, x: Value, dimension: int, size: int, step: int) -> Value:
    """Windows along an axis, as a last axis."""
    if not x.rank:
        return x.reshape(n.shape)
    axis = axis_of(dimension, x.rank)
    count = n.shape[axis]
    at = Iota((count, size), 0, i64).out * step + Iota((count, size), 1, i64).out
    out = x.gather(at, axis, "clip")
    order = [i for i in range(out.rank) if i != axis + 1]
    return out.transpose([*order, axis + 1])


# -- padding -------------------------------------------------------------------------------


def _sides(x: Value, pad: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    low: list[Dim] = [0] * x.rank
    high: list[Dim] = [0] * x.rank
    for i in range(len(pad) // 2):
        low[x.rank - 1 - i], high[x.rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return low, high


def padded(n: Node, x: Value, pad: Sequence[Dim], value: Operand = 0) -> Value:
    """Negative padding takes elements away."""
    low, high = _sides(x, pad)
    cut_low, cut_high = ([_less(d) for d in side] for side in (low, high))
    if any(not isinstance(d, int) or d for d in (*cut_low, *cut_high)):
        sizes = [d - a - b for d, a, b in zip(x.shape, cut_low, cut_high, strict=True)]
        x = Slice.build(x, cut_low, sizes)
    low, high = ([_more(d) for d in side] for side in (low, high))
    return x.pad(low, high, n.cast(value))


def _less(d: Dim) -> Dim:
    return maximum(0, -d) if isinstance(d, int) else 0


def _more(d: Dim) -> Dim:
    return maximum(0, d) if isinstance(d, int) else d


def padded_by(mode: str) -> Row:
    """Padding by elements that are there."""

    def row(n: Node, x: Value, padding: Sequence[int]) -> Value:
        low, high = _sides(x, padding)
        return x.pad(low, high, mode=mode)

    return row


# -- tensors of their own ------------------------------------------------------------------


def filled(n: Node, size: Any, fill_value: Operand) -> Value:
    return n.full(fill_value)


def number(n: Node, s: Operand) -> Value:
    return n.cast(s)


def filled_by(number: int) -> Row:
    """Zeros or ones."""
    return lambda n, *rest: n.full(number)


def counted(n: Node, start: Operand, step: Operand) -> Value:
    """The multiples of a step from a start; of floats in f64, as torch computes them."""
    line = Iota(n.shape, 0, i64).out
    if n.dtype.is_int:
        return line.cast(n.dtype) * n.cast(step) + n.cast(start)
    count, ends = n.shape[0], (start, step)
    if isinstance(count, int) and all(isinstance(v, int | float) for v in ends):
        first, by = np.asarray(ends, np.float64)
        return constant((np.arange(count) * by + first).astype(n.dtype.numpy))
    return line.cast(n.dtype) * n.cast(step) + n.cast(start)


def arange(n: Node, end: Operand) -> Value:
    return counted(n, 0, 1)


def arange_from(n: Node, start: Operand, end: Operand) -> Value:
    return counted(n, start, 1)


def arange_by(n: Node, start: Operand, end: Operand, step: Operand = 1) -> Value:
    return counted(n, start, step)


def iota(n: Node, length: Dim, *, start: Operand = 0, step: Operand = 1) -> Value:
    return counted(n, start, step)


def eye(n: Node, rows: Dim, columns: Dim | None = None) -> Value:
    row, column = (Iota(n.shape, axis, i64).out for axis in (0, 1))
    return n.cast(row.eq(column))


def linspace(n: Node, start: float, end: float, steps: int) -> Value:
    if isinstance(start, Value) or isinstance(end, Value):
        n.refuse("its ends are tensors")
    count = static(n, steps, "the number of its steps")
    return constant(np.linspace(start, end, count).astype(n.dtype.numpy))


def logspace(n: Node, start: float, end: float, steps: int, base: float = 10.0) -> Value:
    if isinstance(start, Value) or isinstance(end, Value):
        n.refuse("its ends are tensors")
    count = static(n, steps, "the number of its steps")
    return constant(np.logspace(start, end, count, base=base).astype(n.dtype.numpy))


def filled_as(n: Node, x: Value, value: Operand) -> Value:
    return n.full(value)


def size_of(n: Node, x: Value, dim: int) -> Value:
    return size_value(x.shape[dim])


ROWS: Rows = {
    **dict.fromkeys((
        "view", "_unsafe_view", "reshape", "_reshape_alias", "flatten", "unflatten", "unsqueeze",
        "squeeze", "view_copy", "squeeze_copy", "unsqueeze_copy", "view_as", "reshape_as",
    ), reshaped),
    "tril_indices": indices(np.tril_indices), "triu_indices": indices(np.triu_indices),
    "view.dtype": viewed_as, "view_copy.dtype": viewed_as,
    **dict.fromkeys(("expand", "expand_copy", "broadcast_to", "expand_as"), expanded),
    "permute": permuted, "permute_copy": permuted, "transpose": transposed,
    "transpose_copy": transposed, "swapaxes": transposed, "t": turned, "t_copy": turned,
    "numpy_T": turned, "repeat": repeated, "repeat_interleave.self_int": repeated_each,
    "flip": flipped, "roll": rolled,
    "cat": joined, "concat": joined, "stack": stacked,
    **dict.fromkeys((
        "split", "split_with_sizes", "split_copy", "split_with_sizes_copy", "chunk",
        "tensor_split",
    ), parted),
    "unbind": unbound, "unbind_copy": unbound,
    "slice": sliced, "slice_copy": sliced, "narrow": narrowed, "narrow_copy": narrowed,
    "select": selected, "select_copy": selected, "diagonal": diagonal, "diagonal_copy": diagonal,
    "tril": triangle(True), "triu": triangle(False), "unfold": windows, "unfold_copy": windows,
    "constant_pad_nd": padded,
    **{f"reflection_pad{d}d": padded_by("reflect") for d in (1, 2, 3)},
    **{f"replication_pad{d}d": padded_by("edge") for d in (1, 2, 3)},
    "full": filled, "full_like": filled_as, "new_full": lambda n, x, size, fill_value: n.full(
        fill_value),
    "fill": filled_as, "scalar_tensor": number,
    **dict.fromkeys((
        "zeros", "zeros_like", "new_zeros", "zero", "empty", "empty_like", "new_empty",
        "empty_strided", "new_empty_strided", "empty_permuted",
    ), filled_by(0)),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), filled_by(1)),
    "arange": arange, "arange.start": arange_from, "arange.start_step": arange_by,
    "prims.iota": iota, "eye": eye, "eye.m": eye, "linspace": linspace, "logspace": logspace,
}  # fmt: skip

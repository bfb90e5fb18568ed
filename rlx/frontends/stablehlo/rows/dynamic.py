"""Ops of programs for any sizes: those that take shapes as operands."""

from __future__ import annotations

from collections.abc import Sequence

from rlx._mlir import ir
from rlx.base.dims import maximum, minimum
from rlx.frontends.common.values import size_value
from rlx.frontends.stablehlo.node import Node, Result, as_type, dims_of, row, single
from rlx.frontends.stablehlo.rows.indexing import gathered
from rlx.frontends.stablehlo.rows.movement import broadcast_along
from rlx.frontends.stablehlo.rows.reductions import Window, windowed
from rlx.ops.movement.constant import Iota
from rlx.ops.sugar import concat
from rlx.types import Dim, i64

__all__: list[str] = []


@row("get_dimension_size")
def _get_dimension_size(n: Node) -> Result:
    return as_type(size_value(n.x.shape[n.int("dimension")]), n.dtype)


@row("dynamic_broadcast_in_dim")
def _dynamic_broadcast_in_dim(n: Node) -> Result:
    return broadcast_along(n.xs[0], n.ints("broadcast_dimensions"), n.dims(1))


@row("dynamic_reshape")
def _dynamic_reshape(n: Node) -> Result:
    return n.xs[0].reshape(n.dims(1))


@row("dynamic_iota")
def _dynamic_iota(n: Node) -> Result:
    return as_type(Iota(tuple(n.dims(0)), n.int("iota_dimension"), i64).out, n.dtype)


@row("real_dynamic_slice")
def _real_dynamic_slice(n: Node) -> Result:
    starts, limits, strides = (n.dims(i) for i in (1, 2, 3))
    if not starts:
        return n.xs[0]
    if not all(isinstance(s, int) for s in strides):
        raise n.refuse("its strides are sizes, expected numbers")
    steps = [int(s) for s in strides]  # type: ignore[arg-type]
    lengths = [(b - a + s - 1) // s for a, b, s in zip(starts, limits, steps, strict=True)]
    return n.xs[0].slice(starts, lengths, steps)


@row("dynamic_pad")
def _dynamic_pad(n: Node) -> Result:
    x, value = n.xs[:2]
    low, high, interior = (n.dims(i) for i in (2, 3, 4))
    widths = [*low, *high, *interior]
    if not all(isinstance(w, int) and w >= 0 for w in widths):
        return _padded_by_sizes(n, low, high, interior)
    return x.pad(low, high, value=value, interior=interior)  # type: ignore[arg-type]


def _padded_by_sizes(
    n: Node, low: Sequence[Dim], high: Sequence[Dim], interior: Sequence[Dim]
) -> Result:
    """Padding whose widths are sizes, or take elements away: slices, and tensors of the value."""
    x, value = n.xs[:2]
    if any(i != 0 for i in interior):
        raise n.refuse("its interior padding is no number, expected 0 beside sizes")
    for axis, (a, b) in enumerate(zip(low, high, strict=True)):
        before, after = maximum(-a, 0), maximum(-b, 0)
        if before != 0 or after != 0:
            x = x.narrow(axis, before, x.shape[axis] - before - after)
        for width, first in ((maximum(a, 0), True), (maximum(b, 0), False)):
            if width != 0:
                shape = [width if i == axis else d for i, d in enumerate(x.shape)]
                part = value.expand(shape)
                x = concat([part, x] if first else [x, part], axis)
    return x


@row("dynamic_gather")
def _dynamic_gather(n: Node) -> Result:
    x, sizes = n.xs[0], n.dims(2)
    d = n.numbers("dimension_numbers")
    starts = dims_of(n.edges[1])
    if starts is None or list(d.operand_batching_dims) or len(n.edges[1].shape) != 1:
        return gathered(n, x, n.xs[1], sizes)
    at: list[Dim] = [0] * x.rank
    for axis, start in zip(d.start_index_map, starts, strict=True):
        at[axis] = _within(start, x.shape[axis] - sizes[axis])
    dropped = [int(i) for i in d.collapsed_slice_dims]
    return x.slice(at, sizes).reshape([s for i, s in enumerate(sizes) if i not in dropped])


def _within(start: Dim, most: Dim) -> Dim:
    """A start of a window, clamped so that the window fits."""
    return minimum(maximum(start, 0), most)


@row("dynamic_reduce_window")
def _dynamic_reduce_window(n: Node) -> Result:
    """The custom call of that name, whose windows are operands."""
    half = (len(n.edges) - 5) // 2
    sizes, strides, spread, apart, pads = (n.dims(2 * half + i) for i in range(5))
    (name,) = (str(found)[1:] for found in ir.ArrayAttr(n.op.attributes["called_computations"]))
    block = n.importer.functions[name].regions[0].blocks[0]
    window = Window(
        sizes, strides, spread, apart, list(zip(pads[::2], pads[1::2], strict=True)),
        single(block) if half == 1 else None, lambda values: n.importer.values(block, values, {}),
    )  # fmt: skip
    return windowed(n, n.xs[:half], n.xs[half : 2 * half], window)

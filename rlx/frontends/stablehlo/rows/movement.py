"""Ops that rearrange, and slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.frontends.common.values import size_value
from rlx.frontends.stablehlo.node import Node, Result, row
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.dynamic import DynamicSlice, DynamicUpdateSlice
from rlx.ops.sugar import concat
from rlx.types import Dim, SymDim, i64

__all__ = ["broadcast_along", "placed", "trimmed"]


@row("reshape")
def _reshape(n: Node) -> Result:
    return n.x if n.x.shape == n.shape else n.x.reshape(n.shape)


@row("transpose")
def _transpose(n: Node) -> Result:
    return n.x.transpose(n.ints("permutation"))


@row("broadcast_in_dim")
def _broadcast_in_dim(n: Node) -> Result:
    return broadcast_along(n.x, n.ints("broadcast_dimensions"), n.shape)


def broadcast_along(x: Value, dims: Sequence[int], shape: Sequence[Dim]) -> Value:
    """A tensor with its dims at places of a shape, expanded to it."""
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    x = x if order == list(range(len(dims))) else x.transpose(order)
    middle: list[Dim] = [1] * len(shape)
    for size, i in zip(x.shape, order, strict=True):
        middle[dims[i]] = size
    return x.reshape(middle).expand(list(shape))


@row("broadcast")
def _broadcast(n: Node) -> Result:
    return n.x.expand(n.shape)


@row("concatenate")
def _concatenate(n: Node) -> Result:
    return concat(n.xs, n.int("dimension"))


@row("reverse")
def _reverse(n: Node) -> Result:
    dims = n.ints("dimensions")
    return n.x.flip(dims) if dims else n.x


@row("slice")
def _slice(n: Node) -> Result:
    if not n.x.shape:
        return n.x
    starts, strides = n.ints("start_indices"), n.ints("strides")
    sizes = [
        -(-(b - a) // s) for a, b, s in zip(starts, n.ints("limit_indices"), strides, strict=True)
    ]
    return n.x.slice(starts, sizes, strides)


@row("pad")
def _pad(n: Node) -> Result:
    if not n.x.shape:
        return n.x
    low, high = n.ints("edge_padding_low"), n.ints("edge_padding_high")
    return trimmed(n.x, n.xs[1], low, high, n.ints("interior_padding"))


def trimmed(
    x: Value, value: Value, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> Value:
    """A tensor with ``value`` around and between its elements; a negative width takes elements
    away."""
    y = x.pad([max(0, a) for a in low], [max(0, b) for b in high], value=value,
              interior=list(interior))  # fmt: skip
    if min(*low, *high) >= 0:
        return y
    sizes = [size - max(0, -a) - max(0, -b) for size, a, b in zip(y.shape, low, high, strict=True)]
    return y.slice([max(0, -a) for a in low], sizes)


def placed(start: Value, most: Dim) -> Value:
    """A start within bounds, as i64."""
    if isinstance(most, SymDim):
        return start.cast(i64).maximum(0).minimum(size_value(most))
    if start.dtype.name == "u64":
        start = start.minimum(Constant(np.asarray(most, np.uint64)).out)
    return start.cast(i64).maximum(0).minimum(most)


@row("dynamic_slice")
def _dynamic_slice(n: Node) -> Result:
    x, *starts = n.xs
    if not starts:
        return x
    sizes = n.ints("slice_sizes")
    room = [a - b for a, b in zip(x.shape, sizes, strict=True)]
    at = [placed(s, most) for s, most in zip(starts, room, strict=True)]
    found = DynamicSlice.build(x, at, sizes)
    n.importer.reads[found] = (x, at)
    return found


@row("dynamic_update_slice")
def _dynamic_update_slice(n: Node) -> Result:
    x, update, *starts = n.xs
    if not starts:
        return update
    room = [a - b for a, b in zip(x.shape, update.shape, strict=True)]
    at = [placed(s, most) for s, most in zip(starts, room, strict=True)]
    found = DynamicUpdateSlice.build(x, update, at)
    n.importer.writes[found] = (x, update, at)
    return found


@row("optimization_barrier")
def _optimization_barrier(n: Node) -> Result:
    return n.xs


@row("get_tuple_element", "tuple")
def _tuple(n: Node) -> Result:
    raise n.refuse("tuples are not read; export the program anew, newer exporters use none")

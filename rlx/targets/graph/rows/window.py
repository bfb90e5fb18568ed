"""Convolutions and pools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from rlx.targets.graph.rows.common import Row, dtype_of, kept, least, shape_of
from rlx.targets.graph.rows.products import matrices
from rlx.targets.graph.tensor import Number, Tensor
from rlx.targets.graph.whole import Whole
from rlx.types import i32, i64

__all__ = ["ROWS"]


def _conv(k: Whole, node: Any, x: Tensor, w: Tensor) -> Tensor:
    shape = shape_of(node)
    if 0 in shape or 0 in x.shape or 0 in w.shape:
        return k.literal(0, dtype_of(node), shape)
    low, high = list(node.low), list(node.high)
    if any(v < 0 for v in (*low, *high)):
        cut = [[min(v, 0) for v in side] for side in (low, high)]
        x = k.pad(x, k.literal(0, x.dtype), *([0, 0, *c] for c in cut))
        low, high = [max(v, 0) for v in low], [max(v, 0) for v in high]
    return kept(k, node, _sum(k, x, w, node.stride, low, high, node.dilation, node.groups, shape))


def _conv_transpose(k: Whole, node: Any, x: Tensor, w: Tensor) -> Tensor:
    """The convolution of x, spread out by the strides, with the kernel turned around."""
    shape, groups, spatial = shape_of(node), node.groups, x.rank - 2
    if 0 in shape or 0 in x.shape or 0 in w.shape:
        return k.literal(0, dtype_of(node), shape)
    c, own, *taps = w.shape
    axes = range(2, 2 + spatial)
    turned = k.reshape(k.flipped(w, list(axes)), (groups, c // groups, own, *taps))
    turned = k.transpose(turned, [0, 2, 1, *range(3, 3 + spatial)])
    turned = k.reshape(turned, (groups * own, c // groups, *taps))
    reach = [(t - 1) * d for t, d in zip(taps, node.dilation, strict=True)]
    low = [0, 0, *(r - lo for r, lo in zip(reach, node.low, strict=True))]
    high = [0, 0, *(r - hi for r, hi in zip(reach, node.high, strict=True))]
    between = [0, 0, *(s - 1 for s in node.stride)]
    x = k.pad(x, k.literal(0, x.dtype), low, high, between)
    none = [0] * spatial
    geometry = ([1] * spatial, none, none, node.dilation, groups)
    return kept(k, node, _sum(k, x, turned, *geometry, shape))


def _sum(
    k: Whole, x: Tensor, w: Tensor, stride: Sequence[int], low: Sequence[int],
    high: Sequence[int], dilation: Sequence[int], groups: int, shape: tuple[int, ...],
) -> Tensor:  # fmt: skip
    if x.dtype.is_float:
        return k.correlated(x, w, stride, low, high, dilation, groups)
    # Integers: a product of matrices for each tap.
    n, c, o, *taps = x.shape[0], x.shape[1] // groups, w.shape[0] // groups, *w.shape[2:]
    total: Tensor | None = None
    for tap, seen in _taps(k, x, 0, taps, stride, low, high, dilation, shape[2:]):
        part = k.reshape(seen, (n, groups, c, prod(shape[2:])))
        own = k.sliced(w, [0, 0, *tap], [*w.shape[:2], *(t + 1 for t in tap)], [1] * w.rank)
        found = matrices(k, k.reshape(own, (1, groups, o, c)), part)
        total = found if total is None else total + found
    assert total is not None, "a kernel has taps"
    return total


def _taps(
    k: Whole, x: Tensor, fill: Number, taps: Sequence[int], stride: Sequence[int],
    low: Sequence[int], high: Sequence[int], dilation: Sequence[int], counts: Sequence[int],
) -> Iterator[tuple[tuple[int, ...], Tensor]]:  # fmt: skip
    """For every tap what the windows [N, C, counts] have under it."""
    wide = k.pad(x, k.literal(fill, x.dtype), [0, 0, *low], [0, 0, *high])
    for tap in product(*map(range, taps)):
        starts = [0, 0, *(t * d for t, d in zip(tap, dilation, strict=True))]
        ends = [
            *x.shape[:2],
            *(
                s + (n - 1) * step + 1
                for s, n, step in zip(starts[2:], counts, stride, strict=True)
            ),
        ]
        yield tap, k.sliced(wide, starts, ends, [1, 1, *stride])


def _reach(node: Any, x: Tensor, dilation: Sequence[int]) -> list[int]:
    """Padding behind the elements that every window fits into."""
    windows = zip(shape_of(node)[2:], node.stride, node.taps, dilation, strict=True)
    ends = [(n - 1) * s + (t - 1) * d + 1 for n, s, t, d in windows]
    return [max(e - n - lo, 0) for e, n, lo in zip(ends, x.shape[2:], node.low, strict=True)]


def _max_pool(k: Whole, node: Any, x: Tensor) -> Tensor:
    if 0 in shape_of(node):
        return k.literal(0, x.dtype, shape_of(node))
    geometry = (node.taps, node.stride, node.low, _reach(node, x, node.dilation), node.dilation)
    best: Tensor | None = None
    for _, seen in _taps(k, k.widened(x), least(x.dtype), *geometry, shape_of(node)[2:]):
        best = seen if best is None else k.maximum(best, seen)
    assert best is not None, "a window has taps"
    return kept(k, node, best)


def _max_pool_indices(k: Whole, node: Any, x: Tensor) -> Tensor:
    shape = shape_of(node)
    if 0 in shape:
        return k.literal(0, i64, shape)
    geometry = (node.taps, node.stride, node.low, _reach(node, x, node.dilation), node.dilation)
    places = np.arange(prod(x.shape[2:]), dtype=np.int64).reshape(1, 1, *x.shape[2:])
    numbers = _taps(k, k.array(places, i64), -1, *geometry, shape[2:])
    wide = k.widened(x)
    best, found = k.literal(0, wide.dtype, shape), k.literal(-1, i64, shape)
    for (_, value), (_, place) in zip(
        _taps(k, wide, 0, *geometry, shape[2:]), numbers, strict=True
    ):
        takes = (found < 0) | (value > best)
        if value.dtype.is_float:
            takes = takes | k.compare("ne", value, value)
        takes = takes & (place >= 0)
        best, found = k.select(takes, value, best), k.select(takes, place, found)
    return found


def _max_pool_backward(k: Whole, node: Any, g: Tensor, indices: Tensor) -> Tensor:
    shape = shape_of(node)
    if 0 in shape or 0 in g.shape:
        return k.literal(0, g.dtype, shape)
    n, c, size = *shape[:2], prod(shape[2:])
    rows = k.reshape(k.widened(g), (n, c, prod(g.shape[2:])))
    word = i32 if k.target.index_bits == 32 else i64
    where = k.cast(k.reshape(indices, rows.shape), word)
    seen = where >= 0
    zeros = k.literal(0, rows.dtype, (n, c, size))
    updates = k.select(seen, rows, 0)
    out = k.scattered("add", zeros, k.select(seen, where, 0), updates, 2, 2)
    return kept(k, node, out)


def _mean_pool(k: Whole, node: Any, x: Tensor) -> Tensor:
    shape = shape_of(node)
    if 0 in shape:
        return k.literal(0, x.dtype, shape)
    one = [1] * (x.rank - 2)
    geometry = (node.taps, node.stride, node.low, _reach(node, x, one), one)
    total: Tensor | None = None
    for _, seen in _taps(k, k.widened(x), 0, *geometry, shape[2:]):
        total = seen if total is None else total + seen
    assert total is not None, "a window has taps"
    counts = np.broadcast_to(node.counts(), (1, 1, *shape[2:])).astype(total.dtype.numpy)
    return kept(k, node, total / k.array(counts, total.dtype))


ROWS: dict[str, Row] = {
    "mir.conv": _conv,
    "mir.conv_transpose": _conv_transpose,
    "mir.max_pool": _max_pool,
    "mir.max_pool_indices": _max_pool_indices,
    "mir.max_pool_backward": _max_pool_backward,
    "mir.mean_pool": _mean_pool,
}

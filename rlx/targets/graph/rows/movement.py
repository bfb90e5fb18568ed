"""Literals, and ops that move elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.targets.graph.rows.common import Row, dtype_of, shape_of
from rlx.targets.graph.tensor import Tensor
from rlx.targets.graph.whole import Whole

__all__ = ["ROWS"]


def _constant(k: Whole, node: Any) -> Tensor:
    a, dt = np.asarray(node.value), dtype_of(node)
    # A splat is a number: by its bits, since nan equals nothing, and -0 equals 0.
    if not a.size:
        return k.literal(0, dt, a.shape)
    raw = np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(a.size, -1)
    return k.literal(a.reshape(-1)[0], dt, a.shape) if (raw == raw[0]).all() else k.array(a, dt)


def _slice(k: Whole, node: Any, x: Tensor) -> Tensor:
    starts, steps, sizes = list(node.starts), list(node.steps), shape_of(node)
    back = [i for i, s in enumerate(steps) if s < 0]
    for i in back:  # the same elements, from the other end
        starts[i] = x.shape[i] - 1 - starts[i]
    if back:
        x = k.flipped(x, back)
    if 0 in sizes:
        return k.literal(0, x.dtype, sizes)
    rows = zip(starts, sizes, steps, strict=True)
    ends = [s + (n - 1) * abs(step) + 1 for s, n, step in rows]
    whole = (starts, ends) == ([0] * x.rank, list(x.shape)) and all(abs(s) == 1 for s in steps)
    return x if whole else k.sliced(x, starts, ends, [abs(s) for s in steps])


def _concat(k: Whole, node: Any, a: Tensor, b: Tensor) -> Tensor:
    parts = [t for t in (a, b) if t.shape[node.axis]]
    return k.joined(parts, node.axis) if len(parts) == 2 else (*parts, a)[0]


def _pad(k: Whole, node: Any, x: Tensor, fill: Tensor) -> Tensor:
    shape = shape_of(node)
    if 0 in x.shape:
        return k.spread(k.reshape(fill, ()), shape)
    if 0 in shape:
        return k.literal(0, x.dtype, shape)
    return k.pad(x, k.reshape(fill, ()), node.low, node.high, node.interior)


def _iota(k: Whole, node: Any) -> Tensor:
    return k.iota(shape_of(node), node.axis, dtype_of(node))


ROWS: dict[str, Row] = {
    "mir.constant": _constant,
    "mir.reshape": lambda k, node, x: k.reshape(x, shape_of(node)),
    "mir.transpose": lambda k, node, x: k.transpose(x, node.perm),
    "mir.expand": lambda k, node, x: k.spread(x, shape_of(node)),
    "mir.slice": _slice,
    "mir.concat": _concat,
    "mir.pad": _pad,
    "mir.flip": lambda k, node, x: k.flipped(x, node.axes) if node.axes and x.rank else x,
    "mir.iota": _iota,
}

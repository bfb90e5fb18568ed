"""Products of matrices, and rotary embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.targets.graph.rows.common import Row, dtype_of, kept, shape_of
from rlx.targets.graph.tensor import Tensor
from rlx.targets.graph.whole import Whole
from rlx.types import bool_, i32, i64

__all__ = ["ROWS", "by_sums", "matrices"]


def matrices(k: Whole, a: Tensor, b: Tensor) -> Tensor:
    """A product with leading axes that broadcast; 16-bit floats give f32."""
    lead = tuple(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    shape = (*lead, a.shape[-2], b.shape[-1])
    if 0 in a.shape or 0 in b.shape:
        return k.literal(0, k.widened(a).dtype, shape)
    a, b = k.spread(a, (*lead, *a.shape[-2:])), k.spread(b, (*lead, *b.shape[-2:]))
    return k.product(a, b)


def by_sums(k: Whole, a: Tensor, b: Tensor) -> Tensor:
    """The same of what a system has no product of: integers, which wrap."""
    *lead, m, inner = a.shape
    n, r = b.shape[-1], a.rank
    left = k.reshape(a, (*lead, m, inner, 1))
    right = k.reshape(b, (*lead, 1, inner, n))
    return k.folded("add", left * right, [r - 1])


def _matmul(k: Whole, node: Any, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype is bool_:
        total = matrices(k, k.converted(a, i32), k.converted(b, i32))
        return k.compare("ne", total, 0)
    return kept(k, node, matrices(k, a, b))


def _known_experts(k: Whole, node: Any, experts: Tensor, count: int) -> Tensor:
    experts = k.cast(experts, k.index_word(experts.dtype))
    outside = (experts < 0) | (experts >= count)
    k.check(outside, node.out_of_range(count))
    word = i32 if k.target.index_bits == 32 else i64
    return k.cast(k.select(outside, 0, experts), word)


def _grouped_matmul(k: Whole, node: Any, x: Tensor, w: Tensor, experts: Tensor) -> Tensor:
    shape = shape_of(node)
    if 0 in shape:
        return k.literal(0, dtype_of(node), shape)
    which = _known_experts(k, node, experts, w.shape[0])
    if 0 in w.shape:
        return k.literal(0, dtype_of(node), shape)
    own = k.taken(w, which, 0, 0)
    rows = k.reshape(x, (x.shape[0], 1, x.shape[1]))
    return kept(k, node, matrices(k, rows, own))


def _grouped_outer(k: Whole, node: Any, x: Tensor, y: Tensor, experts: Tensor) -> Tensor:
    shape, (count,) = shape_of(node), node.count
    if 0 in shape or not x.shape[0]:
        return k.literal(0, dtype_of(node), shape)
    which = _known_experts(k, node, experts, count)
    left = k.reshape(k.widened(x), (*x.shape, 1))
    right = k.reshape(k.widened(y), (y.shape[0], 1, y.shape[1]))
    zeros = k.literal(0, k.widened(x).dtype, shape)
    return kept(k, node, k.scattered("add", zeros, which, left * right, 0, 0))


def _rope(k: Whole, node: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    h, d, steps = node.n_rot // 2, node.head_dim, x.shape[-2]
    if 0 in x.shape:
        return x
    wide = k.widened(x).dtype
    if node.layout == "bhsd":
        heads, table = k.widened(x), (1, 1, steps, h)
    else:
        heads = k.reshape(k.widened(x), (*x.shape[:2], x.shape[2] // d, d))
        table = (1, steps, 1, h)
    c, s = (k.reshape(k.narrow(k.rounded(k.widened(t), wide), 1, 0, h), table) for t in (cos, sin))
    a, b = k.narrow(heads, 3, 0, h), k.narrow(heads, 3, h, 2 * h)
    parts = [a * c - b * s, b * c + a * s]
    if 2 * h < d:
        parts.append(k.narrow(heads, 3, 2 * h, d))
    return kept(k, node, k.joined(parts, 3))


ROWS: dict[str, Row] = {
    "mir.matmul": _matmul,
    "mir.grouped_matmul": _grouped_matmul,
    "mir.grouped_outer": _grouped_outer,
    "mir.rope": _rope,
}

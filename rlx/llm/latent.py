"""Attention by latent vectors (DeepSeek-AI, "DeepSeek-V2", 2024): the keys and values of all heads
are made of one short vector of each row, and one part of a key, the one that turns, is that of all
heads. The cache has keys and values as they are made, since attention reads these."""

from __future__ import annotations

from typing import Any

from rlx.ir.value import Value
from rlx.llm.config import ModelConfig
from rlx.llm.graph_weights import GraphWeights
from rlx.llm.share import Share
from rlx.ops.sugar import concat

__all__ = ["latent_rows", "values_of"]

_EPS = 1e-6
"""Of the norms of latent vectors, whatever a configuration says of others."""


def latent_rows(
    layers: GraphWeights, c: ModelConfig, share: Share, name: str, x: Value,
    tables: tuple[Value, Value],
) -> tuple[Value, Value, Value]:  # fmt: skip
    """Queries, keys and values of the rows, f32 ``[rows, heads * head_dim]``, turned. Values are
    0 beyond their own length."""
    at = c.latent
    assert at is not None
    rows, heads, d, turning = x.shape[0], len(share.heads), c.head_dim, c.rotary.dim
    queries, part = (c.heads * d, at.queries or c.hidden), _of_heads(share, d)
    if at.queries:
        y = layers.linear(x, f"{name}.attn_q_a", (at.queries, c.hidden))
        y = y.rms_norm(layers.vector(f"{name}.attn_q_a_norm.weight", at.queries), eps=_EPS)
        q = layers.linear(y, f"{name}.attn_q_b", queries, rows=part)
    else:
        q = layers.linear(x, f"{name}.attn_q", queries, rows=part)
    both = layers.linear(x, f"{name}.attn_kv_a_mqa", (at.rank + turning, c.hidden))
    short = both[:, : at.rank].rms_norm(
        layers.vector(f"{name}.attn_kv_a_norm.weight", at.rank), eps=_EPS
    )
    each = at.plain + at.value
    kv = layers.linear(
        short, f"{name}.attn_kv_b", (c.heads * each, at.rank), rows=_of_heads(share, each)
    ).reshape([rows, heads, each])
    turned = both[:, at.rank :].rope(*tables, turning, turning)
    turned = turned.reshape([rows, 1, turning]).expand([rows, heads, turning])
    k = concat([turned, kv[:, :, : at.plain]], axis=2).reshape([rows, heads * d])
    v = kv[:, :, at.plain :].pad([0, 0, 0], [0, 0, d - at.value]).reshape([rows, heads * d])
    return q.rope(*tables, d, turning), k, v


def values_of(c: ModelConfig, y: Value, heads: int) -> Value:
    """What attention made of values, without what is beyond their length."""
    if c.value_dim == c.head_dim:
        return y
    each: list[Any] = [y.shape[0], heads, c.head_dim]
    return y.reshape(each)[:, :, : c.value_dim].reshape([y.shape[0], heads * c.value_dim])


def _of_heads(share: Share, size: int) -> range:
    """The rows of a matrix that are a rank's, where each head has so many."""
    return range(share.heads.start * size, share.heads.stop * size)

"""The order of rows in matrices of attention, which is another in files than here.

Here rotary pairs lie half of what turns apart, what turns of a head comes first, and q, k and v are
matrices of their own. Only rows move, so blocks of weights stay as they are.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rlx.frontends.gguf import Tensor
from rlx.llm.config import ModelConfig

__all__ = ["arranged"]

Array = np.ndarray[Any, Any]


def arranged(part: str, tensor: Tensor, config: ModelConfig, kind: Literal["gguf", "hf"]) -> Tensor:
    """A tensor whose rows are those of a part of a layer (such as "attn_q") in a kind of file, with
    the rows in the order that they have here. One of another number of rows is left alone."""
    order = _order(part, config, kind)
    if order is None or tensor.shape[0] % len(order):
        return tensor
    rows = tensor.data.reshape(tensor.shape[0] // len(order), len(order), -1)
    # Bytes, which nobody can write: as a param they are not copied again.
    data = np.frombuffer(rows[:, order].tobytes(), np.uint8).reshape(tensor.data.shape)
    return Tensor(tensor.scheme, tensor.shape, data, tensor.byteorder)


def _order(part: str, config: ModelConfig, kind: str) -> Array | None:
    """For each row here its place in the file, among the rows of a head or of all of them; None if
    they are the same."""
    c, family = config, config.family
    if part == "attn_qkv" and family.together and kind == "hf":
        return _apart(c)
    if part in ("ssm_in", "ssm_ba") and family.recurrent == "delta" and kind == "hf":
        return _of_groups(c, part)
    if part == "attn_q" and family.gated:
        rows = np.arange(2 * c.heads * c.head_dim).reshape(c.heads, 2, c.head_dim)
        return rows.transpose(1, 0, 2).reshape(-1)
    pairs = family.adjacent in ("all", kind)
    turned = np.arange(c.rotary.dim)
    if pairs:
        turned = turned.reshape(-1, 2).T.reshape(-1)
    if c.latent is not None:
        if part in ("attn_q", "attn_q_b"):
            return np.concatenate([c.latent.plain + turned, np.arange(c.latent.plain)])
        rank = c.latent.rank
        return np.append(np.arange(rank), rank + turned) if part == "attn_kv_a_mqa" else None
    if pairs and part in ("attn_q", "attn_k", "attn_q_norm", "attn_k_norm"):
        return np.append(turned, np.arange(len(turned), c.head_dim))
    return None


def _of_groups(c: ModelConfig, part: str) -> Array:
    """Of the gated delta rule: queries, keys, values and gates of all heads, or what its two
    numbers of each head are made by, from those of each head of keys together."""
    r = c.recurrent
    assert r is not None
    each = r.heads // r.groups
    values = each * (r.width if part == "ssm_in" else 1)
    sizes = [r.size, r.size, values, values] if part == "ssm_in" else [values, values]
    rows = np.arange(r.groups * sum(sizes)).reshape(r.groups, -1)
    parts = np.split(rows, np.cumsum(sizes)[:-1], axis=1)
    return np.concatenate([p.reshape(-1) for p in parts])


def _apart(c: ModelConfig) -> Array:
    """Queries of all groups of heads, keys and values, from those of each group together."""
    each = c.heads // c.kv_heads
    rows = np.arange((c.heads + 2 * c.kv_heads) * c.head_dim)
    rows = rows.reshape(c.kv_heads, each + 2, c.head_dim)
    parts = rows[:, :each], rows[:, each], rows[:, each + 1]
    return np.concatenate([p.reshape(-1) for p in parts])

"""Ops that read and write by index, by comparing indices with places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from support.jax_ops.peer import Table, jax, jnp, lax, nn

__all__ = ["OPS"]


def _many(f: Callable[..., Any], batch_dims: int) -> Callable[..., Any]:
    """The function for each element of some leading axes."""
    for _ in range(batch_dims):
        f = jax.vmap(f)
    return f


def _places(mode: str, indices: Any, length: int) -> Any:
    """The place that each index means; -1 for none."""
    i = indices.astype(np.int64)
    if mode == "clip":
        return jnp.clip(i, 0, length - 1)
    if mode == "wrap":
        return i % length
    i = jnp.where(i < 0, i + length, i)
    return jnp.where((i < 0) | (i >= length), -1, i)


def _gather(n: Any, table: Any, indices: Any) -> Any:
    axis = n.axis - n.batch_dims

    def one(table: Any, indices: Any) -> Any:
        places = _places(n.mode, indices, table.shape[axis])
        found = jnp.take(table, jnp.maximum(places, 0), axis, mode="clip")
        there = (places >= 0).reshape(places.shape + (1,) * (table.ndim - axis - 1))
        return jnp.where(there, found, 0)

    return _many(one, n.batch_dims)(table, indices)


def _written(x: Any, hits: Any, updates: Any, reduction: str) -> Any:
    """``updates`` [I, ...] on ``x`` [length, ...]; ``hits`` [I, length] says which goes where."""
    hits = hits.reshape(hits.shape + (1,) * (x.ndim - 1))
    spread = lambda neutral: jnp.where(hits, updates[:, None], neutral)
    if reduction == "add":
        return x + spread(0).sum(0)
    if reduction == "mul":
        return x * spread(1).prod(0)
    if reduction in ("min", "max"):
        far = np.inf if reduction == "min" else -np.inf
        return getattr(jnp, reduction)(jnp.concatenate([x[None], spread(far)]), axis=0)
    last = hits.shape[0] - 1 - jnp.argmax(jnp.flip(hits, 0), 0)
    return jnp.where(hits.any(0), jnp.take_along_axis(updates, last, 0), x)


def _scattered(n: Any, x: Any, indices: Any, updates: Any, reduction: str) -> Any:
    axis = n.axis - n.batch_dims

    def one(x: Any, indices: Any, updates: Any) -> Any:
        first = range(axis, axis + indices.ndim)
        updates = jnp.moveaxis(updates, first, range(indices.ndim))
        updates = updates.reshape(indices.size, *updates.shape[indices.ndim :])
        if not indices.size:
            return x
        x = jnp.moveaxis(x, axis, 0)
        places = _places(n.mode, indices.reshape(-1), x.shape[0])
        hits = places[:, None] == jnp.arange(x.shape[0])
        return jnp.moveaxis(_written(x, hits, updates, reduction), 0, axis)

    return _many(one, n.batch_dims)(x, indices, updates)


def _scatter_add(n: Any, updates: Any, indices: Any) -> Any:
    zeros = jnp.zeros(n.out.type.static_shape, updates.dtype)
    return _scattered(n, zeros, indices, updates, "add")


def _dynamic_slice(n: Any, x: Any, starts: Any) -> Any:
    one = lambda x, starts: lax.dynamic_slice(x, list(starts), n.sizes)
    return _many(one, n.batch_dims)(x, starts)


def _dynamic_update_slice(n: Any, x: Any, update: Any, starts: Any) -> Any:
    one = lambda x, update, starts: lax.dynamic_update_slice(x, update, list(starts))
    return _many(one, n.batch_dims)(x, update, starts)


def _outer(n: Any, x: Any, y: Any, experts: Any) -> Any:
    chosen = nn.one_hot(experts, *n.count, dtype=x.dtype)
    return jnp.einsum("me,mk,mn->ekn", chosen, x, y)


OPS: Table = {
    "mir.dynamic_slice": _dynamic_slice,
    "mir.dynamic_update_slice": _dynamic_update_slice,
    "mir.gather": _gather,
    "mir.grouped_matmul": lambda n, x, w, experts: jnp.einsum("mk,mkn->mn", x, w[experts]),
    "mir.grouped_outer": _outer,
    "mir.scatter": lambda n, x, i, updates: _scattered(n, x, i, updates, n.reduction),
    "mir.scatter_add": _scatter_add,
}

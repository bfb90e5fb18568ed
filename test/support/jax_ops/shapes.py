"""Ops that place elements: what they are in JAX."""

from __future__ import annotations

from typing import Any

from support.jax_ops.peer import Table, jax, jnp, lax

__all__ = ["OPS"]


def _slice(n: Any, x: Any) -> Any:
    parts = zip(n.starts, n.sizes, n.steps, strict=True)
    return x[
        tuple(slice(a, a + max(0, (s - 1) * t + 1), t) if s else slice(0, 0) for a, s, t in parts)
    ]


def _pad(n: Any, x: Any, fill: Any) -> Any:
    return lax.pad(x, fill, list(zip(n.low, n.high, n.interior, strict=True)))


def _dropout(n: Any, x: Any, key: Any) -> Any:
    shape = x.shape[key.ndim - 1 :]
    draw = lambda k: jax.random.uniform(k, shape, jnp.float32)
    for _ in range(key.ndim - 1):
        draw = jax.vmap(draw)
    # Of a rate of 1 nothing is left that could be divided by 0.
    return jnp.where(draw(key) < 1 - n.rate, x / ((1 - n.rate) or 1), 0)


OPS: Table = {
    "mir.concat": lambda n, a, b: jnp.concatenate([a, b], n.axis),
    "mir.constant": lambda n: jnp.asarray(n.value),
    "mir.dropout": _dropout,
    "mir.expand": lambda n, x: jnp.broadcast_to(x, n.shape),
    "mir.flip": lambda n, x: jnp.flip(x, n.axes),
    "mir.iota": lambda n: lax.broadcasted_iota(n.dtype.numpy, n.shape, n.axis),
    "mir.pad": _pad,
    "mir.reshape": lambda n, x: x.reshape(n.shape),
    "mir.slice": _slice,
    "mir.transpose": lambda n, x: x.transpose(n.perm),
    "hir.stop_gradient": lambda n, x: lax.stop_gradient(x),
}

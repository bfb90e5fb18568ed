"""Ops along axes: reductions, running ones, orders, softmax and its kin, Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from support.jax_ops.peer import Table, jnp, lax, nn

__all__ = ["OPS"]


def _reduced(name: str) -> Callable[..., Any]:
    return lambda n, x: getattr(jnp, name)(x, axis=n.axes, keepdims=n.keepdims)


def _turned(n: Any, x: Any) -> Any:
    return jnp.flip(x, n.axis) if n.reverse else x


def _running(name: str, first: int = 0) -> Callable[..., Any]:
    """``first`` is what an exclusive one begins with."""

    def run(n: Any, x: Any) -> Any:
        y = getattr(lax, name)(_turned(n, x), n.axis)
        if getattr(n, "exclusive", False):
            begin = jnp.full_like(lax.slice_in_dim(y, 0, 1, axis=n.axis), first)
            y = jnp.concatenate([begin, lax.slice_in_dim(y, 0, -1, axis=n.axis)], n.axis)
        return _turned(n, y)

    return run


def _sort(n: Any, x: Any) -> Any:
    values = jnp.sort(x, n.axis, stable=True, descending=n.descending)
    return values, jnp.argsort(x, n.axis, stable=True, descending=n.descending).astype(np.int64)


def _topk(n: Any, x: Any) -> Any:
    y = jnp.moveaxis(x if n.largest else -x, n.axis, -1)
    values, places = lax.top_k(y, n.k)
    values = values if n.largest else -values
    return jnp.moveaxis(values, -1, n.axis), jnp.moveaxis(places, -1, n.axis).astype(np.int64)


def _cross_entropy(n: Any, logits: Any, labels: Any) -> Any:
    counted = labels != n.ignore_index
    places = jnp.where(counted, labels, 0).astype(np.int64)
    found = jnp.take_along_axis(nn.log_softmax(logits), places[..., None], -1)[..., 0]
    return jnp.where(counted, -found, 0)


def _transform(name: str) -> Callable[..., Any]:
    return lambda n, x: getattr(jnp.fft, name)(x, norm=n.norm)


def _argmax(n: Any, x: Any) -> Any:
    if not n.select_last_index:
        return jnp.argmax(x, n.axis, keepdims=n.keepdims)
    return x.shape[n.axis] - 1 - jnp.argmax(jnp.flip(x, n.axis), n.axis, keepdims=n.keepdims)


OPS: Table = {
    **{f"mir.reduce_{name}": _reduced(name) for name in ("max", "mean", "min", "prod", "sum")},
    "mir.cummax": _running("cummax"),
    "mir.cummin": _running("cummin"),
    "mir.cumprod": _running("cumprod", 1),
    "mir.cumsum": _running("cumsum"),
    "mir.logcumsumexp": _running("cumlogsumexp"),
    "mir.logsumexp": lambda n, x: nn.logsumexp(x, axis=n.axes, keepdims=n.keepdims),
    "mir.log_softmax": lambda n, x: nn.log_softmax(x, n.axis),
    "mir.softmax": lambda n, x: nn.softmax(x, n.axis),
    "mir.softmax_cross_entropy": _cross_entropy,
    "mir.argmax": _argmax,
    "mir.sort": _sort,
    "mir.topk": _topk,
    "mir.fft": _transform("fft"),
    "mir.ifft": _transform("ifft"),
    "mir.rfft": _transform("rfft"),
    "mir.irfft": lambda n, x: jnp.fft.irfft(x, n.n, norm=n.norm),
}

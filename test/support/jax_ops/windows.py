"""Ops over windows: convolutions, pooling; and images in other sizes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from support.jax_ops.peer import Table, jax, jnp, lax

__all__ = ["OPS"]

Array = np.ndarray[Any, Any]


def _conv(n: Any, x: Any, w: Any, high: Any = None) -> Any:
    return lax.conv_general_dilated(
        x, w, n.stride, list(zip(n.low, n.high if high is None else high, strict=True)),
        rhs_dilation=n.dilation, feature_group_count=n.groups,
    )  # fmt: skip


def _conv_transpose(n: Any, x: Any, w: Any) -> Any:
    """A convolution of what the stride spreads, with the taps in reverse order."""
    c, co, *taps = w.shape
    w = w.reshape(n.groups, c // n.groups, co, *taps).swapaxes(1, 2)
    w = jnp.flip(w.reshape(n.groups * co, c // n.groups, *taps), range(2, w.ndim - 1))
    reach = [(k - 1) * d for k, d in zip(taps, n.dilation, strict=True)]
    padding = [(r - lo, r - hi) for r, lo, hi in zip(reach, n.low, n.high, strict=True)]
    return lax.conv_general_dilated(
        x, w, (1,) * len(taps), padding, n.stride, n.dilation, feature_group_count=n.groups
    )


def _conv_weights(n: Any, x: Any, g: Any) -> Any:
    """The gradient of JAX's convolution by the weights, which do not matter for it. JAX has none of
    integers: those of the samples are exact in f64."""
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return _conv_weights(n, x.astype(float), g.astype(float)).astype(x.dtype)
    sizes = zip(x.shape[2:], g.shape[2:], n.taps, n.stride, n.low, n.dilation, strict=True)
    high = [(m - 1) * s + (k - 1) * d + 1 - lo - size for size, m, k, s, lo, d in sizes]
    w = jnp.zeros((g.shape[1], x.shape[1] // n.groups, *n.taps), x.dtype)
    return jax.vjp(lambda w: _conv(n, x, w, high), w)[1](g)[0]


def _taps(n: Any, x: Any, fill: Any, low: Any, dilation: Any) -> Iterator[Any]:
    """For each tap of the windows the elements that it sees, with ``fill`` around the tensor."""
    counts = n.out.type.static_shape[2:]
    sizes = zip(x.shape[2:], counts, n.taps, n.stride, low, dilation, strict=True)
    high = [max(0, (m - 1) * s + (k - 1) * d + 1 - lo - size) for size, m, k, s, lo, d in sizes]
    sides = [(lo, hi, 0) for lo, hi in zip(low, high, strict=True)]
    wide = lax.pad(x, jnp.asarray(fill, x.dtype), [(0, 0, 0), (0, 0, 0), *sides])
    for tap in product(*map(range, n.taps)):
        first = [t * d for t, d in zip(tap, dilation, strict=True)]
        ranges = zip(first, counts, n.stride, strict=True)
        yield wide[(..., *(slice(f, f + (m - 1) * s + 1, s) for f, m, s in ranges))]


def _max_pool(n: Any, x: Any) -> Any:
    least = -np.inf if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.iinfo(x.dtype).min
    return jnp.max(jnp.stack(list(_taps(n, x, least, n.low, n.dilation))), 0)


def _mean_pool(n: Any, x: Any) -> Any:
    near = (1,) * len(n.taps)
    counted, low = np.ones((1, 1, *x.shape[2:])), n.low
    if n.count_include_pad:
        # The places of padding count; those that _taps adds beyond it do not.
        sides = zip(n.low, n.high, strict=True)
        counted, low = np.pad(counted, [(0, 0), (0, 0), *sides], constant_values=1), (0,) * len(low)
    return sum(_taps(n, x, 0, n.low, near)) / sum(_taps(n, counted, 0, low, near))


def _max_pool_backward(n: Any, g: Any, indices: Any) -> Any:
    """By comparing each index with every place of its window."""
    counts, size = g.shape[2:], n.size
    reached = np.zeros((int(np.prod(counts)), int(np.prod(size))))
    for row, window in enumerate(np.ndindex(*counts)):
        for tap in product(*map(range, n.taps)):
            parts = zip(window, tap, n.stride, n.low, n.dilation, strict=True)
            place = [w * s - lo + t * d for w, t, s, lo, d in parts]
            if all(0 <= p < d for p, d in zip(place, size, strict=True)):
                reached[row, np.ravel_multi_index(place, size)] = 1
    g, indices = (v.reshape(*v.shape[:2], -1) for v in (g, indices))
    hits = (indices[..., None] == jnp.arange(reached.shape[1])) * reached
    return jnp.einsum("ncw,ncwp->ncp", g, hits).reshape(*g.shape[:2], *size)


# -- images in other sizes -----------------------------------------------------------------


def _weights(n: Any, old: int, new: int) -> Array:
    """How much of each old element is in each new one, along an axis: [new, old]."""
    o = np.arange(new)
    places = {
        "half_pixel": (o + 0.5) * old / new - 0.5,
        "asymmetric": o * old / new,
        "align_corners": o * (old - 1) / max(new - 1, 1),
    }[n.coordinates]
    out = np.zeros((new, old))
    for row, s in enumerate(places):
        if n.mode == "nearest":
            taps = {int(np.floor(s + (0.5 if n.coordinates == "half_pixel" else 0))): 1.0}
        else:
            reach = 1 if n.mode == "linear" else 2
            first = int(np.floor(s))
            near = range(first - reach + 1, first + reach + 1)
            taps = {i: (_tent if reach == 1 else _keys)(abs(s - i)) for i in near}
        for i, weight in taps.items():
            out[row, min(max(i, 0), old - 1)] += weight
    return out


def _tent(d: float) -> float:
    return max(0.0, 1 - d)


def _keys(d: float, a: float = -0.75) -> float:
    """R. Keys' cubic convolution kernel, with PyTorch's slope."""
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * (d**3 - 5 * d**2 + 8 * d - 4)


def _resize(n: Any, x: Any) -> Any:
    for axis, new in enumerate(n.sizes, 2):
        w = _weights(n, x.shape[axis], new)
        x = jnp.moveaxis(jnp.tensordot(w, x, ([1], [axis])), 0, axis)
    return x


OPS: Table = {
    "mir.conv": _conv,
    "mir.conv_transpose": _conv_transpose,
    "mir.conv_weights": _conv_weights,
    "mir.max_pool": _max_pool,
    "mir.max_pool_backward": _max_pool_backward,
    "mir.mean_pool": _mean_pool,
    "hir.resize": _resize,
}

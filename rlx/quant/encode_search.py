"""Scales of least error, found by search.

A block is a few sub-blocks, each with a scale of few bits that multiplies one float of the block.
What is minimised is the sum of ``weight * (x - value) ** 2``. For fixed codes that is a problem of
linear least squares, and for fixed scales the codes are the nearest: the two alternate, from
several starts, and at the end scales are tried as they are stored, rounded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx.quant.bits import Array, nearest
from rlx.quant.encode_plain import half, inverse

__all__ = ["Snap", "codebook", "fit_scales", "whole", "with_least", "with_scales"]

Snap = Callable[[Array], Array]
"""What rounds numbers to the values that codes have."""

_REFINED = 2
"""How often the floats of a block follow from its codes."""


def whole(low: int, high: int) -> Snap:
    """Whole numbers in a range."""
    return lambda y: np.clip(np.rint(y), np.float32(low), np.float32(high))


def codebook(values: Array) -> Snap:
    """The nearest of ascending values."""
    return lambda y: values[nearest(y, values)]


def _ratio(over: Array, under: Array) -> Array:
    return over * inverse(under)


def _error(x: Array, w: Array, values: Array) -> Array:
    return (w * np.square(x - values)).sum(-1)


def fit_scales(x: Array, w: Array, snap: Snap, levels: Array) -> Array:
    """The scale ``[...]`` of each of the sub-blocks ``x [..., g]``: from starts at which the
    farthest element is at one of ``levels``."""
    farthest = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)
    best = np.zeros(x.shape[:-1], np.float32)
    best_gain = np.full(x.shape[:-1], -1, np.float32)
    for level in levels.astype(np.float32):
        q = snap(x * (level * inverse(farthest)))
        wq = w * q
        over, under = (wq * x).sum(-1), (wq * q).sum(-1)
        scale = _ratio(over, under)
        better = over * scale > best_gain
        best, best_gain = np.where(better, scale, best), np.where(better, over * scale, best_gain)
    return best


def with_scales(
    x: Array, w: Array, snap: Snap, levels: Array, low: int, high: int
) -> tuple[Array, Array, Array]:
    """Blocks ``x [n, m, g]`` of m sub-blocks with whole scales from ``low`` to ``high``: the floats
    of the blocks ``[n]`` in f16, the scales ``[n, m]``, and the values of codes ``[n, m, g]``."""
    wanted = fit_scales(x, w, snap, levels)
    farthest = np.take_along_axis(wanted, np.abs(wanted).argmax(-1)[:, None], -1)
    d = half(farthest[:, 0] / np.float32(low))
    s = wanted * inverse(d.astype(np.float32))[:, None]
    s, q = _scales_around(x, w, snap, d, s, (low, high))
    for _ in range(_REFINED):
        v = s[..., None] * q
        wv = w * v
        d = half(_ratio((wv * x).sum((1, 2)), (wv * v).sum((1, 2))))
        s, q = _scales_around(x, w, snap, d, s, (low, high))
    return d, s, q


def _scales_around(
    x: Array, w: Array, snap: Snap, d: Array, centre: Array, ends: tuple[int, int]
) -> tuple[Array, Array]:
    """The best of the scales next to ``centre``, and the values of codes with it."""
    centre = np.clip(np.rint(centre), ends[0], ends[1])
    best, best_s, best_q = np.full(centre.shape, np.inf, np.float32), centre, np.zeros_like(x)
    d32 = d.astype(np.float32)[:, None]
    for step in (0, -1, 1):
        s = np.clip(centre + np.float32(step), ends[0], ends[1])
        each = (d32 * s)[..., None]
        q = snap(x * inverse(each))
        error = _error(x, w, each * q)
        better = error < best
        best, best_s = np.where(better, error, best), np.where(better, s, best_s)
        best_q = np.where(better[..., None], q, best_q)
    return best_s, best_q


# -- with a least value ------------------------------------------------------------------------


def _line(x: Array, w: Array, a: Array, b: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """``s`` and ``m``, neither below 0, for which ``s * a - m * b`` is nearest to x."""
    wa, wb = w * a, w * b
    aa, ab, bb = (wa * a).sum(axes), (wa * b).sum(axes), (wb * b).sum(axes)
    ax, bx = (wa * x).sum(axes), (wb * x).sum(axes)
    back = inverse(aa * bb - ab * ab)
    s, m = (bb * ax - ab * bx) * back, (ab * ax - aa * bx) * back
    alone = (m <= 0) | (s <= 0)
    least = np.where(aa == 0, np.maximum(_ratio(-bx, bb), 0), 0)
    return np.maximum(np.where(alone, _ratio(ax, aa), s), 0), np.where(alone, least, m)


def _fit_lines(x: Array, w: Array, top: int, starts: Array) -> tuple[Array, Array]:
    """The scale and least value ``[...]`` of each sub-block, from starts that spread the codes over
    a part of the elements' range."""
    low = np.minimum(x.min(-1), 0)
    span: Array = x.max(-1) - low
    snap = whole(0, top)
    one = np.ones_like(x)
    out = [np.zeros_like(low), -low]
    best = _error(x, w, low[..., None])
    for part in starts.astype(np.float32):
        s, m, q = span * (part / np.float32(top)), -low * part, one
        for _ in range(2):
            q = snap((x + m[..., None]) * inverse(s)[..., None])
            s, m = _line(x, w, q, one, (-1,))
        error = _error(x, w, s[..., None] * q - m[..., None])
        better = error < best
        best = np.where(better, error, best)
        out = [np.where(better, new, old) for new, old in zip((s, m), out, strict=True)]
    return out[0], out[1]


def with_least(
    x: Array, w: Array, top: int, scale_top: int, starts: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Blocks ``x [n, m, g]`` with codes from 0 to ``top``, and with scales and least values from 0
    to ``scale_top``: the two floats of the blocks ``[n]`` in f16, the scales and the least values
    ``[n, m]``, and the codes ``[n, m, g]``."""
    wanted = _fit_lines(x, w, top, starts)
    floats = [half(v.max(-1) / np.float32(scale_top)) for v in wanted]
    s, m = (v * inverse(f.astype(np.float32))[:, None] for v, f in zip(wanted, floats, strict=True))
    s, m, q = _lines_around(x, w, top, scale_top, floats, (s, m))
    for _ in range(_REFINED):
        a, b = s[..., None] * q, np.broadcast_to(m[..., None], q.shape)
        floats = [half(v) for v in _line(x, w, a, b, (1, 2))]
        s, m, q = _lines_around(x, w, top, scale_top, floats, (s, m))
    return floats[0], floats[1], s, m, q


def _lines_around(
    x: Array, w: Array, top: int, scale_top: int, floats: list[Array], centre: tuple[Array, Array]
) -> tuple[Array, Array, Array]:
    """The best of the pairs next to ``centre``, and the codes with it."""
    d, dmin = (f.astype(np.float32)[:, None] for f in floats)
    s0, m0 = (np.rint(c) for c in centre)
    snap = whole(0, top)
    best, best_s, best_m = np.full(s0.shape, np.inf, np.float32), s0, m0
    best_q = np.zeros_like(x)
    for i in (0, -1, 1):
        s = np.clip(s0 + np.float32(i), 0, np.float32(scale_top))
        each, back = (d * s)[..., None], inverse(d * s)[..., None]
        for j in (0, -1, 1):
            m = np.clip(m0 + np.float32(j), 0, np.float32(scale_top))
            least = (dmin * m)[..., None]
            q = snap((x + least) * back)
            error = _error(x, w, each * q - least)
            better = error < best
            best = np.where(better, error, best)
            best_s, best_m = np.where(better, s, best_s), np.where(better, m, best_m)
            best_q = np.where(better[..., None], q, best_q)
    return best_s, best_m, best_q

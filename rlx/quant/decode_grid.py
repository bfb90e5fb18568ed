"""Decoders of GGML's formats whose elements are points of a codebook: IQ1, IQ2 and IQ3.

They take and give what those of ``rlx.quant.decode_plain`` do. A point is 8 or 4 sizes; the signs
of 8 are a byte, or 7 bits, where the eighth makes their number even.
"""

from __future__ import annotations

import numpy as np

from rlx.quant.bits import Array, lookup, planes, sign_bits
from rlx.quant.decode_plain import scale
from rlx.quant.grids import grid

__all__ = ["EVEN_SIGNS", "iq1_m", "iq1_s", "iq2_s", "iq2_xs", "iq2_xxs", "iq3_s", "iq3_xxs"]

_SEVEN = np.arange(128, dtype=np.uint8)
EVEN_SIGNS = _SEVEN | (np.bitwise_count(_SEVEN) & 1) << 7
"""The sign byte of each 7 bits."""

_DELTA = np.float32(0.125)


def _signed(d: Array, points: Array, signs: Array) -> Array:
    """Points ``[n, m, 8]`` with sign bytes ``[n, m]``, times scales ``[n, s]`` of m / s points."""
    n, m, _ = points.shape
    d = np.repeat(d, m // d.shape[1], 1)[:, :, None]
    return (d * points * sign_bits(signs)).reshape(n, m * 8)


def _shifted(words: Array, shifts: list[int], mask: int) -> Array:
    """``words >> shift & mask``: ``[n, m]`` to ``[n, m * len(shifts)]``."""
    out = words[:, :, None] >> np.array(shifts, words.dtype) & words.dtype.type(mask)
    return out.reshape(words.shape[0], -1)


def _half(b: Array, scales: Array) -> Array:
    return scale(b["d"]) * (np.float32(0.5) + scales.astype(np.float32))


def _signs_and_scales(words: Array) -> tuple[Array, Array]:
    """Four sign bytes and a scale of 4 bits of every u32."""
    return lookup(EVEN_SIGNS, _shifted(words, [0, 7, 14, 21], 127)), words >> np.uint32(28)


def iq2_xxs(b: Array) -> Array:
    """``d * (scale + 1/2) / 4 * sign * size``, 8 elements a byte, a scale for 32."""
    qs = b["qs"]
    signs, scales = _signs_and_scales(qs["signs"])
    points = lookup(grid("iq2_xxs"), qs["points"].reshape(qs["signs"].shape[0], 32))
    return _signed(_half(b, scales) * np.float32(0.25), points, signs)


def iq2_xs(b: Array) -> Array:
    """``d * (scale + 1/2) / 4 * sign * size``, a point and its signs a word, a scale for 16."""
    points = lookup(grid("iq2_xs"), b["qs"] & np.uint16(511))
    d = _half(b, planes(b["scales"], 1, 4)) * np.float32(0.25)
    return _signed(d, points, lookup(EVEN_SIGNS, b["qs"] >> np.uint16(9)))


def _with_high(low: Array, high: Array) -> Array:
    return low.astype(np.uint16) | high.astype(np.uint16) << np.uint16(8)


def iq2_s(b: Array) -> Array:
    """``d * (scale + 1/2) / 4 * sign * size``, of 1024 points and free signs."""
    points = lookup(grid("iq2_s"), _with_high(b["qs"], planes(b["qh"], 1, 2)))
    d = _half(b, planes(b["scales"], 1, 4)) * np.float32(0.25)
    return _signed(d, points, b["signs"])


def iq3_xxs(b: Array) -> Array:
    """``d * (scale + 1/2) / 2 * sign * size``, 4 elements a byte."""
    signs, scales = _signs_and_scales(b["signs"])
    points = lookup(grid("iq3_xxs"), b["qs"]).reshape(b["qs"].shape[0], 32, 8)
    return _signed(_half(b, scales) * np.float32(0.5), points, signs)


def iq3_s(b: Array) -> Array:
    """``d * (2 * scale + 1) * sign * size``, of 512 points and free signs."""
    codes = _with_high(b["qs"], planes(b["qh"], 1, 1))
    points = lookup(grid("iq3_s"), codes).reshape(codes.shape[0], 32, 8)
    d = scale(b["d"]) * (1 + 2 * planes(b["scales"], 1, 4)).astype(np.float32)
    return _signed(d, points, b["signs"])


def _offset(d: Array, points: Array, negative: Array) -> Array:
    """``d * (point ± 1/8)``; the offsets and scales ``[n, m]`` are of equally many points each."""
    n, m, _ = points.shape
    delta = np.where(negative, -_DELTA, _DELTA)
    delta, d = (np.repeat(v, m // v.shape[1], 1)[:, :, None] for v in (delta, d))
    return (d * (points + delta)).reshape(n, m * 8)


def iq1_s(b: Array) -> Array:
    """``d * (2 * scale + 1) * (point ± 1/8)``, a scale for 32."""
    qh = b["qh"]
    d = scale(b["d"]) * (2 * (qh >> 12 & 7) + 1).astype(np.float32)
    points = lookup(grid("iq1_s"), _with_high(b["qs"], _shifted(qh, [0, 3, 6, 9], 7)))
    return _offset(d, points, qh & 0x8000 != 0)


def iq1_m(b: Array) -> Array:
    """Its f16 scale is in the top nibbles of the four words of scales, the lowest one first."""
    words = b["scales"].astype(np.uint16)
    top = words >> 12 << np.array([0, 4, 8, 12], np.uint16)
    d = np.bitwise_or.reduce(top, 1).view(np.float16).astype(np.float32)[:, None]
    d = d * (2 * _shifted(words, [0, 3, 6, 9], 7) + 1).astype(np.float32)
    qh = planes(b["qh"], 1, 4)
    points = lookup(grid("iq1_s"), _with_high(b["qs"], qh & 7))
    return _offset(d, points, qh & 8 != 0)

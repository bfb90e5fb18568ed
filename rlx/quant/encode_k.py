"""Encoders of GGML's K formats and IQ4_XS, by the search of ``rlx.quant.encode_search``.

Each takes f32 ``[n, 256]`` and weights of that shape, and gives n blocks.
"""

from __future__ import annotations

import numpy as np

from rlx.quant.bits import Array, from_planes
from rlx.quant.decode_k import pack_scales
from rlx.quant.decode_plain import IQ4_VALUES
from rlx.quant.encode_plain import blocks
from rlx.quant.encode_search import codebook, whole, with_least, with_scales

__all__ = ["iq4_xs", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"]


def _split(x: Array, w: Array | None, m: int) -> tuple[Array, Array]:
    """Elements and weights as ``[n, m, 256 / m]``."""
    w = np.ones_like(x) if w is None else w
    return x.reshape(len(x), m, -1), w.reshape(len(x), m, -1)


def _codes(q: Array) -> Array:
    return q.reshape(len(q), 256).astype(np.uint8)


def q2_k(x: Array, w: Array | None = None) -> Array:
    """2 bits, 16 sub-blocks with a least value."""
    d, dmin, s, m, q = with_least(*_split(x, w, 16), 3, 15, np.linspace(0.6, 1.1, 11))
    scales = s.astype(np.uint8) | m.astype(np.uint8) << 4
    return blocks("q2_k", d=d, dmin=dmin, scales=scales, qs=from_planes(_codes(q), 32, 2))


def q3_k(x: Array, w: Array | None = None) -> Array:
    """3 bits, 16 sub-blocks."""
    levels = np.concatenate([np.linspace(-5.2, -2.6, 14), np.linspace(2.4, 4.0, 7)])
    d, s, q = with_scales(*_split(x, w, 16), whole(-4, 3), levels, -32, 31)
    s, q = (s + 32).astype(np.uint8), _codes(q + 4)
    scales = [from_planes(s & 15, 8, 4), from_planes(s >> 4, 4, 2)]
    return blocks(
        "q3_k",
        d=d,
        scales=np.concatenate(scales, 1),
        qs=from_planes(q & 3, 32, 2),
        hmask=from_planes(q >> 2, 32, 1),
    )


def _least_of_32(x: Array, w: Array | None, top: int) -> tuple[dict[str, Array], Array]:
    """The fields that Q4_K and Q5_K share, and the codes."""
    starts = np.linspace(0.85, 1.05, 9)
    d, dmin, s, m, q = with_least(*_split(x, w, 8), top, 63, starts)
    scales = pack_scales(s.astype(np.uint8), m.astype(np.uint8))
    return {"d": d, "dmin": dmin, "scales": scales}, _codes(q)


def q4_k(x: Array, w: Array | None = None) -> Array:
    """4 bits, 8 sub-blocks with a least value."""
    shared, q = _least_of_32(x, w, 15)
    return blocks("q4_k", **shared, qs=from_planes(q, 32, 4))


def q5_k(x: Array, w: Array | None = None) -> Array:
    """5 bits, 8 sub-blocks with a least value."""
    shared, q = _least_of_32(x, w, 31)
    return blocks("q5_k", **shared, qs=from_planes(q & 15, 32, 4), qh=from_planes(q >> 4, 32, 1))


def q6_k(x: Array, w: Array | None = None) -> Array:
    """6 bits, 16 sub-blocks."""
    levels = np.concatenate([np.linspace(-33.5, -29, 10), np.linspace(29, 32, 6)])
    d, s, q = with_scales(*_split(x, w, 16), whole(-32, 31), levels, -128, 127)
    q = _codes(q + 32)
    return blocks(
        "q6_k", d=d, scales=s, ql=from_planes(q & 15, 64, 4), qh=from_planes(q >> 4, 32, 2)
    )


def iq4_xs(x: Array, w: Array | None = None) -> Array:
    """A codebook of 16, 8 sub-blocks."""
    levels = np.concatenate([np.linspace(-145, -95, 11), np.linspace(90, 130, 9)])
    d, s, q = with_scales(*_split(x, w, 8), codebook(IQ4_VALUES), levels, -32, 31)
    s, codes = (s + 32).astype(np.uint16), _codes(np.searchsorted(IQ4_VALUES, q))
    high = np.bitwise_or.reduce(s >> 4 << np.arange(0, 16, 2, dtype=np.uint16), 1)
    return blocks(
        "iq4_xs",
        d=d,
        scales_h=high,
        scales_l=from_planes((s & 15).astype(np.uint8), 1, 4),
        qs=from_planes(codes, 16, 4),
    )

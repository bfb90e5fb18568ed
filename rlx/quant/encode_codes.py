"""Encoders of GGML's formats of 4 bits by a codebook: IQ4_NL, MXFP4 and NVFP4."""

from __future__ import annotations

import numpy as np

from rlx.quant.bits import E2M1, UE4M3, Array, e8m0, from_planes, nearest
from rlx.quant.decode_plain import FP4, IQ4_VALUES
from rlx.quant.encode_plain import blocks, half, inverse
from rlx.quant.encode_search import codebook, fit_scales

__all__ = ["fp4_codes", "iq4_nl", "mxfp4", "nvfp4", "scale_codes"]

_LEVELS = np.concatenate([np.linspace(-145, -95, 21), np.linspace(90, 130, 17)])


def iq4_nl(x: Array, w: Array | None = None) -> Array:
    """A codebook of 16."""
    w = np.ones_like(x) if w is None else w
    d = half(fit_scales(x, w, codebook(IQ4_VALUES), _LEVELS))
    q = nearest(x * inverse(d.astype(np.float32))[:, None], IQ4_VALUES)
    return blocks("iq4_nl", d=d, qs=from_planes(q.astype(np.uint8), 16, 4))


def mxfp4(x: Array) -> Array:
    """With GGML's bits: the greatest power of two for which the farthest element is 4 at least, and
    of equally near codes the least."""
    farthest = np.abs(x).max(1)
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log2(farthest)) + np.float32(125)
    e = np.where(farthest > 0, np.maximum(exponent, 0), 0).astype(np.uint8)
    d = e8m0(e)[:, None]
    best, codes = np.full(x.shape, np.inf, np.float32), np.zeros(x.shape, np.uint8)
    for code, value in enumerate(FP4):
        error = np.abs(d * value - x)
        codes[error < best] = code
        best = np.minimum(best, error)
    return blocks("mxfp4", e=e, qs=from_planes(codes, 16, 4))


_SIZES = E2M1[:8]


def fp4_codes(y: Array) -> Array:
    """The codes of the nearest floats of 4 bits, as u8."""
    return (nearest(np.abs(y), _SIZES) | np.signbit(y) << 3).astype(np.uint8)


def scale_codes(x: Array, w: Array, table: Array) -> Array:
    """The codes ``[...]`` of the best of E4M3's scales of sub-blocks ``x [..., g]`` of floats of 4
    bits: of those around that which takes the farthest element to 6, or to 4."""
    first = nearest(np.abs(x).max(-1) / 6, UE4M3[:0x7F])
    best, out = np.full(first.shape, np.inf, np.float32), first
    for step in range(-5, 8):
        code = np.clip(first + step, 0, 0x7E)
        scale = table[code][..., None]
        y = E2M1[fp4_codes(x * inverse(scale))]
        error = (w * np.square(x - scale * y)).sum(-1)
        best, out = np.minimum(best, error), np.where(error < best, code, out)
    return out.astype(np.uint8)


def nvfp4(x: Array, w: Array | None = None) -> Array:
    """The best scale of each 16 elements."""
    parts = x.reshape(-1, 4, 16)
    weights = np.ones_like(parts) if w is None else w.reshape(parts.shape)
    d = scale_codes(parts, weights, UE4M3)
    q = fp4_codes(parts * inverse(UE4M3[d])[..., None])
    return blocks("nvfp4", d=d, qs=from_planes(q.reshape(-1, 64), 8, 4))

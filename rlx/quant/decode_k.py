"""Decoders of GGML's K formats: 256 elements, whose 8 or 16 sub-blocks have scales of 4 to 8 bits.

They take and give what those of ``rlx.quant.decode_plain`` do.
"""

from __future__ import annotations

import numpy as np

from rlx.quant.bits import Array, lookup, planes
from rlx.quant.decode_plain import IQ4_VALUES, scale

__all__ = ["iq4_xs", "pack_scales", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"]


def _blocks(scales: Array, q: Array) -> Array:
    """Numbers ``[n, 256]`` times the scales ``[n, m]`` of their sub-blocks."""
    n, m = scales.shape
    return scales[:, :, None] * q.reshape(n, m, 256 // m).astype(np.float32)


def _flat(x: Array) -> Array:
    """Numbers ``[n, m, 256 / m]`` as ``[n, 256]``."""
    return x.reshape(x.shape[0], 256)


def _above(b: Array, q: Array, scales: Array, least: Array) -> Array:
    """``d * scale * q - dmin * least``."""
    d = scale(b["d"]) * scales.astype(np.float32)
    m = scale(b["dmin"]) * least.astype(np.float32)
    return _flat(_blocks(d, q) - m[:, :, None])


def q2_k(b: Array) -> Array:
    """``d * scale * q - dmin * least``, in 2 bits."""
    s = b["scales"]
    return _above(b, planes(b["qs"], 32, 2), s & np.uint8(15), s >> np.uint8(4))


def q3_k(b: Array) -> Array:
    """``d * (scale - 32) * (q - 4)``."""
    high = planes(b["hmask"], 32, 1).astype(np.int8)
    q = planes(b["qs"], 32, 2).astype(np.int8) - 4 * (1 - high)
    s = planes(b["scales"][:, :8], 8, 4) | planes(b["scales"][:, 8:], 4, 2) << np.uint8(4)
    d = scale(b["d"]) * (s.astype(np.float32) - 32)
    return _flat(_blocks(d, q))


def _scales(packed: Array) -> tuple[Array, Array]:
    """8 scales and 8 least values of 6 bits in 12 bytes: the low 6 bits of the first 8 bytes are 4
    of each; the others' low 4 bits are in the last 4 bytes, their high 2 above the first."""
    first, second, low = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    s = np.concatenate([first & 63, (low & 15) | (first >> 2 & 48)], 1)
    m = np.concatenate([second & 63, (low >> 4) | (second >> 2 & 48)], 1)
    return s, m


def pack_scales(s: Array, m: Array) -> Array:
    """The 12 bytes of 8 scales and 8 least values of 6 bits, u8 ``[n, 8]`` each."""
    high = [v[:, :4] | (v[:, 4:] >> 4) << 6 for v in (s, m)]
    return np.concatenate([*high, (s[:, 4:] & 15) | (m[:, 4:] & 15) << 4], 1)


def q4_k(b: Array) -> Array:
    """``d * scale * q - dmin * least``, in 4 bits."""
    return _above(b, planes(b["qs"], 32, 4), *_scales(b["scales"]))


def q5_k(b: Array) -> Array:
    """``d * scale * q - dmin * least``, in 5 bits."""
    q = planes(b["qs"], 32, 4) | planes(b["qh"], 32, 1) << np.uint8(4)
    return _above(b, q, *_scales(b["scales"]))


def q6_k(b: Array) -> Array:
    """``d * scale * (q - 32)``."""
    q = planes(b["ql"], 64, 4) | planes(b["qh"], 32, 2) << np.uint8(4)
    d = scale(b["d"]) * b["scales"].astype(np.float32)
    return _flat(_blocks(d, q.astype(np.int8) - 32))


def iq4_xs(b: Array) -> Array:
    """``d * (scale - 32) * codebook[q]``."""
    high = b["scales_h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)
    s = planes(b["scales_l"], 1, 4) | high.astype(np.uint8) << np.uint8(4)
    d = scale(b["d"]) * (s.astype(np.float32) - 32)
    return _flat(_blocks(d, lookup(IQ4_VALUES, planes(b["qs"], 16, 4))))

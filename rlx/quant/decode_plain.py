"""Decoders of GGML's formats with one scale, and at most one least value, a block.

Each takes a structured array of n blocks, whose fields ``rlx.quant.table`` names, and gives f32
``[n, elements]``. The order of the products is the format's: results are equal to GGML's, bit for
bit.
"""

from __future__ import annotations

import numpy as np

from rlx.quant.bits import E2M1, E4M3, E5M2, UE4M3, Array, e8m0, lookup, planes

__all__ = [
    "FP4",
    "IQ4_VALUES",
    "bf16",
    "e4m3",
    "e5m2",
    "f16",
    "f32",
    "iq4_nl",
    "mxfp4",
    "nvfp4",
    "q1_0",
    "q2_1",
    "q4_0",
    "q4_1",
    "q5_0",
    "q5_1",
    "q8_0",
    "q8_1",
    "q8_k",
    "scale",
    "tq1_0",
    "tq2_0",
]  # fmt: skip

IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
"""The codebook of IQ4_NL and IQ4_XS: a fact of the format (ggml-common.h)."""

FP4 = 2 * E2M1 + 0
"""Doubled, as their scales are halved; GGML has no negative 0 among them."""


_E8M0 = e8m0(np.arange(256))


def scale(field: Array) -> Array:
    """A float of each block as f32 ``[n, 1]``."""
    return field.astype(np.float32)[:, None]


def f32(b: Array) -> Array:
    """The numbers themselves."""
    return scale(b["x"])


f16 = f32


def bf16(b: Array) -> Array:
    """The upper halves of f32."""
    return (b["x"].astype(np.uint32) << 16).view(np.float32)[:, None]


def q4_0(b: Array) -> Array:
    """``d * (q - 8)``."""
    return scale(b["d"]) * (planes(b["qs"], 16, 4).astype(np.float32) - 8)


def q4_1(b: Array) -> Array:
    """``d * q + m``."""
    return scale(b["d"]) * planes(b["qs"], 16, 4).astype(np.float32) + scale(b["m"])


def q8_1(b: Array) -> Array:
    """``d * q + m``, of unsigned bytes."""
    return scale(b["d"]) * b["qs"].astype(np.float32) + scale(b["m"])


def e4m3(b: Array) -> Array:
    """``d * e4m3fn``."""
    return scale(b["d"]) * lookup(E4M3, b["qs"])


def e5m2(b: Array) -> Array:
    """``d * e5m2``."""
    return scale(b["d"]) * lookup(E5M2, b["qs"])


def q2_1(b: Array) -> Array:
    """``d * q + m``, in 2 bits."""
    return scale(b["d"]) * planes(b["qs"], 8, 2).astype(np.float32) + scale(b["m"])


def _five(b: Array) -> Array:
    high = np.unpackbits(b["qh"], axis=-1, bitorder="little")
    return (planes(b["qs"], 16, 4) | high << np.uint8(4)).astype(np.float32)


def q5_0(b: Array) -> Array:
    """``d * (q - 16)``."""
    return scale(b["d"]) * (_five(b) - 16)


def q5_1(b: Array) -> Array:
    """``d * q + m``."""
    return scale(b["d"]) * _five(b) + scale(b["m"])


def q8_0(b: Array) -> Array:
    """``d * q``."""
    return scale(b["d"]) * b["qs"].astype(np.float32)


q8_k = q8_0


def q1_0(b: Array) -> Array:
    """``d`` or ``-d``."""
    d = scale(b["d"])
    return np.where(np.unpackbits(b["qs"], axis=-1, bitorder="little"), d, -d)


def iq4_nl(b: Array) -> Array:
    """``d * codebook[q]``."""
    return scale(b["d"]) * lookup(IQ4_VALUES, planes(b["qs"], 16, 4))


def mxfp4(b: Array) -> Array:
    """``2 ** e * float4``."""
    return lookup(_E8M0, b["e"])[:, None] * lookup(FP4, planes(b["qs"], 16, 4))


def nvfp4(b: Array) -> Array:
    """``e4m3 * float4``, a scale for 16 elements."""
    d = lookup(UE4M3, b["d"]) * np.float32(0.5)
    n = d.shape[0]
    return (d[:, :, None] * lookup(FP4, planes(b["qs"], 8, 4)).reshape(n, 4, 16)).reshape(n, 64)


def tq2_0(b: Array) -> Array:
    """``d * (q - 1)``, in 2 bits."""
    return scale(b["d"]) * (planes(b["qs"], 32, 2).astype(np.float32) - 1)


def _trits(data: Array, width: int, count: int) -> Array:
    """The first ``count`` digits of base 3 of bytes, which are fractions of 256, as ``planes``."""
    powers = np.array([1, 3, 9, 27, 81][:count], np.uint8)[:, None]
    shifted = data.reshape(data.shape[0], -1, 1, width) * powers
    return ((shifted.astype(np.uint16) * 3) >> 8).reshape(data.shape[0], -1)


def tq1_0(b: Array) -> Array:
    """``d * (q - 1)``, five digits of base 3 a byte."""
    parts = [_trits(b["qs"][:, :32], 32, 5), _trits(b["qs"][:, 32:], 16, 5), _trits(b["qh"], 4, 4)]
    return scale(b["d"]) * (np.concatenate(parts, 1).astype(np.float32) - 1)

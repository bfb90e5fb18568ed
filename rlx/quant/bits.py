"""Numbers of less than a byte, and the small floats of scales, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "E2M1",
    "E4M3",
    "E5M2",
    "UE4M3",
    "Array",
    "away",
    "e8m0",
    "from_planes",
    "lookup",
    "nearest",
    "nibbles",
    "planes",
    "sign_bits",
]

Array = np.ndarray[Any, Any]


def planes(data: Array, width: int, bits: int) -> Array:
    """The small numbers in bytes ``[n, m]``, as u8 ``[n, m * 8 / bits]``.

    They lie in groups of ``width`` bytes: the lowest bits of all bytes of a group come first, then
    the next ones of all. Thus a group of 16 bytes holds 16 low nibbles and then 16 high ones.
    """
    n, m = data.shape
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    out = data.reshape(n, m // width, 1, width) >> shifts
    out &= np.uint8((1 << bits) - 1)
    return out.reshape(n, m * 8 // bits)


def from_planes(values: Array, width: int, bits: int) -> Array:
    """The bytes ``[n, m]`` whose ``planes`` are the u8 values ``[n, m * 8 / bits]``."""
    n, m = values.shape
    each = 8 // bits
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    parts = values.reshape(n, m // (each * width), each, width) << shifts
    return np.bitwise_or.reduce(parts, axis=2).reshape(n, m // each)


def lookup(table: Array, codes: Array) -> Array:
    """The entries of a table by code, also of a traced array."""
    traced = getattr(codes, "entries_of", None)
    return np.take(table, codes, axis=0) if traced is None else traced(table)


def nibbles(data: Array) -> Array:
    """Numbers of 4 bits, two a byte, the low one first: ``[..., m]`` to ``[..., 2m]``."""
    return np.stack([data & np.uint8(15), data >> np.uint8(4)], -1).reshape(*data.shape[:-1], -1)


def sign_bits(data: Array) -> Array:
    """-1 where a bit is set and 1 elsewhere, the lowest bit of a byte first, on a new last axis."""
    bits = np.unpackbits(data[..., None], axis=-1, bitorder="little")
    return np.float32(1) - 2 * bits.astype(np.float32)


def away(x: Array) -> Array:
    """Rounded to the nearest whole number, halves away from zero, as C's ``roundf``."""
    size = np.abs(x)
    whole = np.floor(size)
    return np.copysign(whole + (size - whole >= np.float32(0.5)), x)


def _floats(exponent: int, mantissa: int, bias: int) -> Array:
    """The values of all codes of a float of a sign, an exponent and a mantissa: no inf, no nan."""
    codes = np.arange(1 << (1 + exponent + mantissa))
    e = codes >> mantissa & ((1 << exponent) - 1)
    m = (codes & ((1 << mantissa) - 1)) / (1 << mantissa)
    size = np.ldexp(np.where(e == 0, m, 1 + m), np.maximum(e, 1) - bias)
    return np.where(codes >> (exponent + mantissa), -size, size).astype(np.float32)


def _with(table: Array, values: dict[int, float]) -> Array:
    table[list(values)] = list(values.values())
    return table


E2M1 = _floats(2, 1, bias=1)
"""The values of OCP's float of 4 bits, by code."""

E4M3 = _with(_floats(4, 3, bias=7), {0x7F: np.nan, 0xFF: np.nan})
"""The values of float8_e4m3fn, which has nan and no infinities, by code."""

_NANS = dict.fromkeys((0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF), np.nan)
E5M2 = _with(_floats(5, 2, bias=15), {0x7C: np.inf, 0xFC: -np.inf, **_NANS})
"""The values of float8_e5m2, by code."""

UE4M3 = _with(np.abs(_floats(4, 3, bias=7)), {0x7F: 0.0})
"""The values of E4M3 without a sign, as GGML reads the scales of NVFP4: its top bit means nothing,
and of the two codes of a nan 0x7f counts as 0."""


def e8m0(codes: Array) -> Array:
    """Half of the powers of two of bytes, ``2 ** (code - 128)``, as GGML reads MXFP4."""
    return np.ldexp(np.float32(1), codes.astype(np.int32) - 128)


def nearest(x: Array, values: Array) -> Array:
    """The indices of the nearest of ascending values, of two equally near ones the even index."""
    middles = (values[:-1].astype(np.float64) + values[1:]) / 2
    below = np.searchsorted(middles, x, "left")
    tie = (below < len(middles)) & (middles[np.minimum(below, len(middles) - 1)] == x)
    return below + (tie & (below % 2 == 1))


def sizes(table: Array) -> Array:
    """The finite numbers of a float of 8 bits that are not below 0, in order."""
    return table[: np.flatnonzero(np.isfinite(table[:128]))[-1] + 1]


def fp8_codes(x: Array, table: Array) -> Array:
    """The codes of the nearest floats of 8 bits; what is beyond the largest becomes that."""
    return (nearest(np.abs(x), sizes(table)) | np.signbit(x) << 7).astype(np.uint8)

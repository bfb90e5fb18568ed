"""The integer arithmetic of quantized networks, exact, on NumPy arrays.

It is that of gemmlowp and TensorFlow Lite: a real multiplier is an integer of 31 bits and a shift
(Jacob et al. 2018, "Quantization and training of neural networks for efficient
integer-arithmetic-only inference").
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.errors import DTypeError, GraphError
from rlx.ir.attrs import to_array
from rlx.ir.builders import located

__all__ = ["quantize_multiplier", "rdpot", "requantize_q31", "srdhm"]

Array = np.ndarray[Any, Any]

LEAST, MOST = -(1 << 31), (1 << 31) - 1


def _whole(v: Any, what: str) -> Array:
    """Integers as i64; DTypeError for what is none."""
    a = to_array(v, what)
    if a.dtype.kind not in "iu":
        raise DTypeError(f"{what} holds {a.dtype}, expected integers")
    return a.astype(np.int64)


@located
def quantize_multiplier(real: float) -> tuple[int, int]:
    """q and e with ``real`` = q 2^-31 2^e to 31 bits: q in [2^30, 2^31), or 0 for 0. GraphError for
    a number that is negative or not finite."""
    if not 0 <= real < math.inf:
        raise GraphError(f"quantize_multiplier takes a finite number of 0 or more, found {real}")
    mantissa, exponent = math.frexp(real)
    q = round(mantissa * (1 << 31))
    if q == 1 << 31:
        q, exponent = q // 2, exponent + 1
    return (q, exponent) if q else (0, 0)


@located
def srdhm(a: Any, b: Any) -> Array:
    """The rounded high half of twice the product of i32 numbers, as i64: ``a b / 2^31``, of which
    halves go up, and the one case that overflows saturates. DTypeError for no integers."""
    x, y = np.broadcast_arrays(_whole(a, "srdhm: a"), _whole(b, "srdhm: b"))
    product = x * y
    moved = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    out = np.where(moved >= 0, moved >> 31, -((-moved) >> 31))
    return np.where((x == LEAST) & (y == LEAST), MOST, out)


@located
def rdpot(x: Any, exponent: int) -> Array:
    """``x / 2^exponent`` rounded to the nearest, halves away from zero, as i64. GraphError for an
    exponent that is not 0 to 31."""
    if not 0 <= exponent <= 31:
        raise GraphError(f"rdpot: the exponent is 0 to 31, found {exponent}")
    v = _whole(x, "rdpot: x")
    mask = (1 << exponent) - 1
    return (v >> exponent) + ((v & mask) > (mask >> 1) + (v < 0))


@located
def requantize_q31(
    acc: Any, multiplier: Any, shift: int, zero: int = 0, low: int = -128, high: int = 127
) -> Array:
    """Sums as integers of few bits: ``acc`` (i32) times ``multiplier`` 2^-31 2^``shift``, moved by
    ``zero``, within [low, high]; as i64. A ``shift`` to the left saturates at 32 bits first; one to
    the right is -31 at most."""
    left = np.clip(_whole(acc, "requantize_q31: acc") << max(shift, 0), LEAST, MOST)
    return np.clip(rdpot(srdhm(left, multiplier), max(-shift, 0)) + zero, low, high)

"""sinh, cosh, and the inverses of the hyperbolic functions."""

from __future__ import annotations

import math

from rlx.codegen.math.core import absolute, horner, sign_of, toggle_sign
from rlx.codegen.math.exponential import half_exp
from rlx.codegen.math.logarithm import log1p
from rlx.codegen.reg import Reg
from rlx.types import f32, f64

__all__ = ["acosh", "asinh", "atanh", "cosh", "sinh"]

_SINH = {dt: [1.0 / math.factorial(2 * i + 3) for i in range(n)] for dt, n in ((f32, 5), (f64, 8))}
"""sinh a = a + a·z·P(z), z = a², a ≤ 1: the Taylor series, as far as it counts."""

_LARGE = 2.0**60
"""From here on √(x² + 1) and √(x² - 1) are x in either format; x² overflows in neither before."""

_LN2 = math.log(2.0)


def sinh(x: Reg) -> Reg:
    """The hyperbolic sine; inf only where the result is too large."""
    k, t = x.k, absolute(x)
    z = t * t
    near = k.fma(horner(z, _SINH[x.dtype]) * z, t, t)
    half = half_exp(t)
    return toggle_sign(k.select(t < 1.0, near, half - 0.25 / half), sign_of(x))


def cosh(x: Reg) -> Reg:
    """The hyperbolic cosine; inf only where the result is too large."""
    half = half_exp(absolute(x))
    return half + 0.25 / half


def asinh(x: Reg) -> Reg:
    """The inverse of sinh: log1p(t + t² / (1 + √(t² + 1))) with t = |x|."""
    k, t = x.k, absolute(x)
    z = t * t
    return toggle_sign(_log1p_or_log(t, t + z / (k.sqrt(z + 1.0) + 1.0)), sign_of(x))


def acosh(x: Reg) -> Reg:
    """The inverse of cosh for x ≥ 1: log1p(u + √(u·(u + 2))) with u = x - 1; nan below 1."""
    k, u = x.k, x - 1.0
    return k.select(x < 1.0, math.nan, _log1p_or_log(x, u + k.sqrt(u * (u + 2.0))))


def _log1p_or_log(t: Reg, argument: Reg) -> Reg:
    """log(1 + argument); log(2t) where the square in it is no longer right."""
    k, large = t.k, t > _LARGE
    result = log1p(k.select(large, t, argument))
    return k.select(large, result + _LN2, result)


def atanh(x: Reg) -> Reg:
    """The inverse of tanh: log1p(2t / (1 - t)) / 2 with t = |x|; ±inf at ±1, nan beyond."""
    t = absolute(x)
    return toggle_sign(log1p(2.0 * t / (1.0 - t)) * 0.5, sign_of(x))

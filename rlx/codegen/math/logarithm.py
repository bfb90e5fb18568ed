"""log, log2, log1p, and log to twice the precision for pow."""

from __future__ import annotations

import math

from rlx.codegen.math.core import (
    LN2,
    absolute,
    bits,
    exact_fma,
    fast_two_sum,
    format_of,
    horner,
    multiply_add,
    product_error,
    two_sum,
)
from rlx.codegen.reg import Reg
from rlx.types import f32, f64

__all__ = ["log", "log1p", "log2", "log_double"]

# log m = 2s + s·z·P(z), s = (m - 1) / (m + 1), z = s², √½ ≤ m < √2
_LOG = {
    f32: (0.6666666269302368, 0.40000972151756287, 0.28498780727386475, 0.24279217422008514),
    f64: (0.6666666666666735, 0.3999999999940933, 0.28571428743703314, 0.2222219842637141,
          0.18183572520927582, 0.1531382734142177, 0.14798312222406196),
}  # fmt: skip
_LOG2_E = {
    f32: (float.fromhex("0x1.715476p+0"), float.fromhex("0x1.4ae0cp-26")),
    f64: (float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.777d0ffda0d24p-56")),
}
_SQRT_HALF_BITS = {f32: 0x3F3504F3, f64: 0x3FE6A09E667F3BCD}


def _split(x: Reg) -> tuple[Reg, Reg]:
    """m and e (a float) with x = m · 2^e and √½ ≤ m < √2, for finite x > 0."""
    k, form = x.k, format_of(x)
    smallest_normal = 2.0 ** (1 - form.bias)
    subnormal = x < smallest_normal
    up = form.mantissa + 1
    word = bits(k.select(subnormal, x * 2.0**up, x))
    root = _SQRT_HALF_BITS[x.dtype]
    moved = word + ((form.bias << form.mantissa) - root)
    m = k.bitcast((moved & ((1 << form.mantissa) - 1)) + root, x.dtype)
    # The exponent field in the low bits of 2^mantissa is an integer already converted.
    carrier = 2.0**form.mantissa
    carrier_bits = (form.bias + form.mantissa) << form.mantissa
    e = k.bitcast((moved >> form.mantissa) | carrier_bits, x.dtype) - (carrier + form.bias)
    return m, k.select(subnormal, e - up, e)


def log(x: Reg) -> Reg:
    """The natural logarithm: -inf at ±0, nan below."""
    m, e = _split(x)
    f, tail = _series(m)
    high, low = LN2[x.dtype]
    return _special(x, x.k.fma(e, high, f + x.k.fma(e, low, tail)))


def _series(m: Reg) -> tuple[Reg, Reg]:
    """f and t with log m = f + t and f = m - 1, which is exact, for √½ ≤ m < √2.

    With h = f²/2, t = s·(h + R) - h (P. T. P. Tang, ACM TOMS 16, 1990, for the analysis of this
    kind of sum).
    """
    k = m.k
    f = m - 1.0
    s = f / (m + 1.0)
    z = s * s
    h = f * f * 0.5
    return f, k.fma(s, k.fma(horner(z, _LOG[m.dtype]), z, h), -h)


def log2(x: Reg) -> Reg:
    """The logarithm to base 2: exact at powers of 2, -inf at ±0, nan below."""
    m, e = _split(x)
    f, tail = _series(m)
    high, low = _LOG2_E[x.dtype]
    return _special(x, e + multiply_add(f, high, multiply_add(f, low, tail * high)))


def log1p(x: Reg) -> Reg:
    """log(1 + x), with no digits lost near 0: -inf at -1, nan below."""
    k = x.k
    u, lost = two_sum(x, k.const(1.0, x.dtype, x.lanes))
    m, e = _split(u)
    f, tail = _series(m)
    high, low = LN2[x.dtype]
    # log(u + lost) = log u + lost / u, as near as it gets.
    result = k.fma(e, high, f + (tail + k.fma(e, low, lost / u)))
    tiny = absolute(x) < 2.0 ** -(format_of(x).mantissa + 2)
    return k.select(tiny, x, _special(u, result))


def _special(x: Reg, result: Reg) -> Reg:
    k = x.k
    result = k.select(x < math.inf, result, x)
    result = k.select(k.compare("eq", x, 0.0), -math.inf, result)
    return k.select(x < 0.0, math.nan, result)


# log m = 2s + s·z·(2/3 + z·Q(z))
_LOG_TAIL = (
    0.3999999999999998, 0.2857142857144387, 0.22222222217778678, 0.1818181884571708,
    0.15384558292476053, 0.1333627028021355, 0.11675654498790798, 0.11982865179099221,
)  # fmt: skip
_TERMS = {f32: 5, f64: 8}
_TWO_THIRDS = {
    f32: (float.fromhex("0x1.555556p-1"), float.fromhex("-0x1.555556p-26")),
    f64: (2.0 / 3.0, float.fromhex("0x1.5555555555555p-55")),
}


def log_double(x: Reg) -> tuple[Reg, Reg]:
    """log x for x ≥ 0 as high + low, with a relative error below 2^-63 in f64, 2^-34 in f32.

    The quotient s and the first two terms of the series are carried as unevaluated sums of two
    numbers (T. J. Dekker, Numer. Math. 18, 1971).
    """
    k, dt = x.k, x.dtype
    m, e = _split(x)
    f = m - 1.0
    d = m + 1.0
    d_low = m - (d - 1.0)
    s = f / d
    s_low = (exact_fma(-s, d, f) - s * d_low) / d
    z = s * s
    z_low = product_error(s, s, z) + s * s_low * 2.0
    high, low = _TWO_THIRDS[dt]
    a, a_low = fast_two_sum(k.const(high, dt, x.lanes), z * horner(z, _LOG_TAIL[: _TERMS[dt]]))
    a_low = a_low + low
    b = z * a
    b_low = product_error(z, a, b) + k.fma(z, a_low, z_low * a)
    t = s * b
    t_low = product_error(s, b, t) + k.fma(s, b_low, s_low * b)
    series, series_low = fast_two_sum(s * 2.0, t)
    total, total_low = fast_two_sum(e * LN2[dt][0], series)
    low = total_low + (k.fma(e, LN2[dt][1], series_low) + k.fma(s_low, 2.0, t_low))
    high, low = fast_two_sum(total, low)
    finite = k.compare("ne", x, 0.0) & (x < math.inf)
    edge = k.select(k.compare("eq", x, 0.0), -math.inf, x)
    return k.select(finite, high, edge), k.select(finite, low, 0.0)

"""pow, with the special cases of IEEE 754-2019, 9.2.1."""

from __future__ import annotations

import math

from rlx.codegen.math.core import absolute, bits, format_of, product_error
from rlx.codegen.math.exponential import exp
from rlx.codegen.math.logarithm import log, log_double
from rlx.codegen.reg import Reg
from rlx.types import f32, f64

__all__ = ["power"]


def power(x: Reg, y: Reg | float) -> Reg:
    """x to the power y: nan for negative x with a fraction y, 1 for y = 0 and for x = 1."""
    k, form = x.k, format_of(x)
    number = k.number_of(y) if isinstance(y, Reg) else y
    # GPUs may have no f64, and divisions and roots that round in their own way.
    if number is not None and k.target.serial:
        found = _by_number(x, float(number.real))
        if found is not None:
            return found
    y = y if isinstance(y, Reg) else k.const(y, x.dtype, x.lanes)
    x, y = _same_lanes(x, y)
    magnitude = absolute(x)
    result = _of_magnitude(magnitude, y)
    # 1 to ±inf: the product of the logarithm 0 with inf would be nan.
    flat = k.compare("eq", magnitude, 1.0) & k.compare("eq", y, y)
    result = k.select(flat, 1.0, result)
    whole = k.compare("eq", k.floor(y), y)
    half = y * 0.5
    odd = whole & k.compare("ne", k.floor(half), half)
    result = k.bitcast(bits(result) | k.select(odd, bits(x) & form.sign, 0), x.dtype)
    undefined = (x < 0.0) & (x > -math.inf) & k.logical_not(whole | k.compare("ne", y, y))
    result = k.select(undefined, math.nan, result)
    return k.select(k.compare("eq", x, 1.0) | k.compare("eq", y, 0.0), 1.0, result)


MOST_FACTORS = 16
"""Multiplications round f32 once and f64 too often; so many are cheaper than an exp and a log."""


def _by_number(x: Reg, y: float) -> Reg | None:
    """x to a power for which few instructions are as exact, special cases included; else None."""
    k = x.k
    if y == 0.5:
        # The power of -0 is 0, and that of -inf is inf; the roots are -0 and nan.
        return k.select(k.compare("eq", x, -math.inf), math.inf, k.sqrt(x + 0.0))
    if y in (1.0, 2.0) or (y == 3.0 and x.dtype is f64):
        return _multiplied(x, int(y))
    if y == -1.0:
        return 1.0 / x
    whole = y == math.floor(y) and 0 < abs(y) <= MOST_FACTORS
    if f64 in k.target.lacks or not (y == -0.5 or (whole and x.dtype is f32)):
        return None
    wide = k.cast(x, f64)
    if whole:
        found = _multiplied(wide, int(abs(y)))
        found = 1.0 / found if y < 0 else found
    else:
        found = k.select(k.compare("eq", wide, -math.inf), 0.0, 1.0 / k.sqrt(wide + 0.0))
    return k.cast(found, x.dtype)


def _multiplied(x: Reg, n: int) -> Reg:
    """x to the power n from 1 on, by squares."""
    if n == 1:
        return x
    half = _multiplied(x, n // 2)
    return half * half * x if n % 2 else half * half


def _same_lanes(x: Reg, y: Reg) -> tuple[Reg, Reg]:
    lanes = max(x.lanes, y.lanes)
    return (x.k.splat(x, lanes), x.k.splat(y, lanes)) if lanes else (x, y)


def _of_magnitude(x: Reg, y: Reg) -> Reg:
    """x^y for x ≥ 0. An error of the logarithm is multiplied by up to 745, so it carries more
    bits than the result: those of f64 for f32, those of two numbers for f64, and for f32 on a
    machine that has no f64."""
    k = x.k
    if x.dtype is f32 and f64 not in k.target.lacks:
        return k.cast(exp(log(k.cast(x, f64)) * k.cast(y, f64)), f32)
    high, low = log_double(x)
    product = y * high
    rest = product_error(y, high, product) + y * low
    # Beyond this the result is 0 or inf, and the rest may be nan.
    tail = k.select(absolute(product) < format_of(x).bias + 1.0, rest, 0.0)
    return exp(product, tail)

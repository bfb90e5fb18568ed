"""sin, cos, tan, and their inverses."""

from __future__ import annotations

import math

from rlx.codegen.math.angle import reduce_angle
from rlx.codegen.math.core import absolute, bits, format_of, horner, sign_of, toggle_sign
from rlx.codegen.reg import Reg
from rlx.types import f32, f64

__all__ = ["acos", "asin", "atan", "atan2", "cos", "sin", "tan"]

# fmt: off
# sin r = r + r·z·P(z), z = r², |r| ≤ π/4
_SIN = {
    f32: (-0.16666653752326965, 0.008332100696861744, -0.00019506586249917746),
    f64: (-0.16666666666666666, 0.008333333333333044, -0.00019841269840966777,
          2.755731907746963e-06, -2.5052072150026467e-08, 1.6054506569008028e-10,
          -7.400927952490386e-13),
}
# cos r = 1 - z/2 + z²·P(z)
_COS = {
    f32: (0.04166664555668831, -0.00138873013202101, 2.443065750412643e-05),
    f64: (0.04166666666666659, -0.0013888888888872056, 2.4801587288144628e-05,
          -2.755731395423256e-07, 2.0875667756803944e-09, -1.1356708897761578e-11),
}
# atan a = a + a·z·P(z), z = a², 0 ≤ a ≤ 1
_ATAN = {
    f32: (-0.333333283662796, 0.199997216463089, -0.14280468225479126, 0.1106225773692131,
          -0.08825839310884476, 0.06774519383907318, -0.045146021991968155,
          0.022922519594430923, -0.007496016100049019, 0.0011490535689517856),
    f64: (-0.3333333333333329, 0.19999999999991552, -0.14285714285102044, 0.11111111088471143,
          -0.09090908585449484, 0.0769230019238542, -0.06666587992273439, 0.0588174399468968,
          -0.05259570748137299, 0.04745444282520918, -0.04287918474751873, 0.03824543708575398,
          -0.03284999775623941, 0.026244481574892686, -0.018718633521966174,
          0.011408514934558947, -0.0056722562060741374, 0.0021804494943466375,
          -0.0006024911341969338, 0.00010583891129935329, -8.841375039473766e-06),
}
# asin a = a + a·z·P(z), z = a², 0 ≤ a ≤ 1/2
_ASIN = {
    f32: (0.16666752099990845, 0.074953094124794, 0.04546915367245674, 0.02418474853038788,
          0.042158376425504684),
    f64: (0.16666666666665408, 0.07500000000337143, 0.04464285682821342, 0.03038195914201216,
          0.022371757923603876, 0.017359706747122002, 0.01388521529089087, 0.012169347378627753,
          0.006527375474057006, 0.019529939208819326, -0.016226928425486977, 0.03191413609936611),
}
_HALF_PI = {
    f32: (float.fromhex("0x1.921fb6p+0"), float.fromhex("-0x1.777a5cp-25")),
    f64: (float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a62633145c07p-54")),
}
# fmt: on


def _sin_cos(r: Reg) -> tuple[Reg, Reg]:
    """sin r and cos r for |r| ≤ π/4."""
    k, z = r.k, r * r
    sine = k.fma(horner(z, _SIN[r.dtype]) * z, r, r)
    # 1 - z/2 is rounded; what that loses goes in with the small terms.
    half = z * 0.5
    rounded = 1.0 - half
    lost = (1.0 - rounded) - half
    return sine, rounded + k.fma(horner(z, _COS[r.dtype]), z * z, lost)


def _bit(quadrant: Reg, number: int) -> Reg:
    """Bit ``number`` of the quadrant, where the sign is."""
    return (quadrant >> number) << (quadrant.dtype.bits - 1)


def _rotated(x: Reg, quarter_turns: int) -> tuple[Reg, Reg]:
    """sin(|x| + quarter_turns·π/2), and its sign still to be applied."""
    k = x.k
    r, quadrant = reduce_angle(absolute(x))
    if quarter_turns:
        quadrant = quadrant + quarter_turns
    sine, cosine = _sin_cos(r)
    odd = k.compare("ne", quadrant & 1, 0)
    return k.select(odd, cosine, sine), _bit(quadrant, 1)


def sin(x: Reg) -> Reg:
    """The sine of x radians, right for every finite x; nan at ±inf."""
    value, sign = _rotated(x, 0)
    return toggle_sign(toggle_sign(value, sign), sign_of(x))


def cos(x: Reg) -> Reg:
    """The cosine of x radians, right for every finite x; nan at ±inf."""
    value, sign = _rotated(x, 1)
    return toggle_sign(value, sign)


def tan(x: Reg) -> Reg:
    """The tangent of x radians, right for every finite x; nan at ±inf."""
    k = x.k
    r, quadrant = reduce_angle(absolute(x))
    sine, cosine = _sin_cos(r)
    odd = k.compare("ne", quadrant & 1, 0)
    ratio = k.select(odd, cosine, sine) / k.select(odd, sine, cosine)
    minus = quadrant << (quadrant.dtype.bits - 1)
    return toggle_sign(toggle_sign(ratio, minus), sign_of(x))


def _atan_ratio(a: Reg) -> Reg:
    """The arc tangent for 0 ≤ a ≤ 1."""
    z = a * a
    return a.k.fma(horner(z, _ATAN[a.dtype]) * z, a, a)


def atan(x: Reg) -> Reg:
    """The arc tangent in radians; above 1 as π/2 less that of the inverse."""
    k, t = x.k, absolute(x)
    above = t > 1.0
    p = _atan_ratio(k.select(above, 1.0 / t, t))
    high, low = _HALF_PI[x.dtype]
    return toggle_sign(k.select(above, high - (p - low), p), sign_of(x))


def atan2(y: Reg, x: Reg) -> Reg:
    """The angle of the point (x, y) in radians, from -π to π; IEEE 754-2019, 9.2.1, says what it is
    at zeros and infinities."""
    k, form = x.k, format_of(x)
    up, along = absolute(y), absolute(x)
    steep = up > along
    least, most = k.select(steep, along, up), k.select(steep, up, along)
    ratio = k.select(k.compare("eq", most, 0.0), 0.0, least / most)
    ratio = k.select(k.compare("eq", least, math.inf), 1.0, ratio)
    angle = _atan_ratio(ratio)
    high, low = _HALF_PI[x.dtype]
    angle = k.select(steep, high - (angle - low), angle)
    behind = k.compare("ne", bits(x) & form.sign, 0)
    angle = k.select(behind, 2.0 * high - (angle - 2.0 * low), angle)
    angle = k.select(k.compare("ne", x, x) | k.compare("ne", y, y), math.nan, angle)
    return toggle_sign(angle, sign_of(y))


def _asin_small(a: Reg) -> Reg:
    """The arc sine for 0 ≤ a ≤ 1/2."""
    z = a * a
    return a.k.fma(horner(z, _ASIN[a.dtype]) * z, a, a)


def _asin_argument(t: Reg) -> tuple[Reg, Reg]:
    """Whether t = |x| is above 1/2, and the argument for ``_asin_small``: t, or where it is,
    √((1 - t)/2), the sine of half of what is left to π/2."""
    k = t.k
    above = t > 0.5
    return above, k.select(above, k.sqrt((1.0 - t) * 0.5), t)


def asin(x: Reg) -> Reg:
    """The arc sine in radians; nan beyond ±1."""
    k, t = x.k, absolute(x)
    above, a = _asin_argument(t)
    p = _asin_small(a)
    high, low = _HALF_PI[x.dtype]
    return toggle_sign(k.select(above, high - (2.0 * p - low), p), sign_of(x))


def acos(x: Reg) -> Reg:
    """The arc cosine in radians, from 0 to π; nan beyond ±1."""
    k, t = x.k, absolute(x)
    above, a = _asin_argument(t)
    p = _asin_small(a)
    high, low = _HALF_PI[x.dtype]
    far = 2.0 * p
    far = k.select(x < 0.0, 2.0 * high - (far - 2.0 * low), far)
    return k.select(above, far, high - (toggle_sign(p, sign_of(x)) - low))

"""Elementary functions of complex numbers, as formulas of ops on their parts.

Branch cuts, signs of zeros and what is done near them follow W. Kahan, "Branch cuts for complex
elementary functions, or much ado about nothing's sign bit", 1987. Beside an infinity or nan they
may be nan where C99 has a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.ir.value import Value
from rlx.ops.pointwise.complex import Complex
from rlx.ops.pointwise.elementary import Atan2

__all__ = ["FORMS", "power"]

Form = Callable[[Value], Value]


def _parts(z: Value) -> tuple[Value, Value]:
    return z.real(), z.imag()


def _product(a: Value, b: Value) -> Value:
    """A product, which is 0 where a is, also beside an infinity."""
    return a.eq(0).where(a, a * b)


def _unbounded(x: Value, y: Value) -> Value:
    """Where x is infinite and y has no direction."""
    return x.isinf().logical_and(y.isfinite().logical_not())


def _turned(f: Form) -> Form:
    """``-i f(i z)``: the circular function of a hyperbolic one."""

    def form(z: Value) -> Value:
        x, y = _parts(z)
        re, im = _parts(f(Complex.build(-y, x)))
        return Complex.build(im, -re)

    return form


def _sinh(z: Value) -> Value:
    x, y = _parts(z)
    re = _unbounded(x, y).where(x, _product(x.sinh(), y.cos()))
    return Complex.build(re, _product(y.sin(), x.cosh()))


def _cosh(z: Value) -> Value:
    x, y = _parts(z)
    re = _unbounded(x, y).where(math.inf, x.cosh() * y.cos())
    return Complex.build(re, _product(x.sinh(), y.sin()))


def _cos(z: Value) -> Value:
    x, y = _parts(z)
    return _cosh(Complex.build(-y, x))


def _tanh(z: Value) -> Value:
    x, y = _parts(z)
    far = x.abs().gt(15.0 if x.dtype.bits == 32 else 40.0)
    near = far.where(0.0, x)
    sine, cosine, s = y.sin(), y.cos(), near.sinh()
    # |cosh z|**2 = sinh(x)**2 + cos(y)**2
    square = s * s + cosine * cosine
    sides = far.where(4.0 * (-2.0 * x.abs()).exp(), 1.0 / square)
    re = far.where(x.ones_like().copysign(x), s * near.cosh() / square)
    return Complex.build(re, y.eq(0).where(y, _product(sides, sine * cosine)))


def _expm1(z: Value) -> Value:
    x, y = _parts(z)
    half = (y * 0.5).sin()
    size = x.exp()
    re = size.eq(0).where(-1.0, x.expm1() * y.cos() - 2.0 * half * half)
    re = _unbounded(x, y).logical_and(x.gt(0)).where(x, re)
    return Complex.build(re, size.eq(0).where(size, _product(y.sin(), size)))


def _log1p(z: Value) -> Value:
    x, y = _parts(z)
    small = x.abs().lt(0.5).logical_and(y.abs().lt(0.5))
    a, b = small.where(x, 0.0), small.where(y, 0.0)
    near = (a * (a + 2.0) + b * b).log1p() * 0.5
    return Complex.build(small.where(near, (z + 1.0).abs().log()), Atan2.build(y, x + 1.0))


def _roots(z: Value) -> tuple[Value, Value]:
    """Of 1 - z and of 1 + z, the signs of zeros kept."""
    x, y = _parts(z)
    return Complex.build(1.0 - x, -y).sqrt(), Complex.build(x + 1.0, y).sqrt()


def _asin(z: Value) -> Value:
    (a, b), (c, d) = map(_parts, _roots(z))
    return Complex.build(Atan2.build(z.real(), a * c - b * d), (a * d - b * c).asinh())


def _acos(z: Value) -> Value:
    (a, b), (c, d) = map(_parts, _roots(z))
    return Complex.build(2.0 * Atan2.build(a, c), (b * c - a * d).asinh())


def _acosh(z: Value) -> Value:
    x, y = _parts(z)
    a, b = _parts(Complex.build(x - 1.0, y).sqrt())
    c, d = _parts(Complex.build(x + 1.0, y).sqrt())
    return Complex.build((a * c + b * d).asinh(), 2.0 * Atan2.build(b, c))


def _asinh(z: Value) -> Value:
    """``i asin(-i z)``."""
    x, y = _parts(z)
    re, im = _parts(_asin(Complex.build(y, -x)))
    return Complex.build(-im, re)


def _atanh(z: Value) -> Value:
    x, y = _parts(z)
    size = z.abs()
    far = size.gt(1e15 if x.dtype.bits == 64 else 1e7)  # where it is 1 / z and a right angle
    a, b = far.where(0.0, x.abs()), far.where(0.0, y)
    re = 0.25 * (4.0 * a / ((1.0 - a) * (1.0 - a) + b * b)).log1p()
    whole = far.where(size, 1.0)
    re = far.where((x.abs() / whole) / whole, re).copysign(x)
    im = 0.5 * Atan2.build(2.0 * b, (1.0 - a) * (a + 1.0) - b * b)
    return Complex.build(re, far.where(math.pi / 2, im.abs()).copysign(y))


def _sign(z: Value) -> Value:
    """``z / |z|``, and 0 of 0."""
    x, y = _parts(z)
    size = z.abs()
    length = size.eq(0).where(1.0, size.isinf().where(math.nan, size))
    return Complex.build(x / length, y / length)


def _sigmoid(z: Value) -> Value:
    left = z.real().lt(0)
    small = left.where(z, -z).exp()
    return left.where(small, 1.0) / (small + 1.0)


def power(base: Value, exponent: Value) -> Value:
    """``exp(exponent log(base))``. 0 is to the power of 0 one, else 0 if the exponent's real part
    is positive, and nan if not."""
    zero = base.eq(0)
    found = (exponent * zero.where(1.0, base).log()).exp()
    re = exponent.real()
    at_zero = re.gt(0).where(0.0, exponent.eq(0).where(re.ones_like(), re.full_like(math.nan)))
    return zero.where(at_zero.complex(0.0), found)


FORMS: dict[str, Form] = {
    "mir.sin": _turned(_sinh), "mir.cos": _cos, "mir.tan": _turned(_tanh), "mir.sinh": _sinh,
    "mir.cosh": _cosh, "mir.tanh": _tanh, "mir.asin": _asin, "mir.acos": _acos,
    "mir.atan": _turned(_atanh), "mir.asinh": _asinh, "mir.acosh": _acosh, "mir.atanh": _atanh,
    "mir.expm1": _expm1, "mir.log1p": _log1p, "mir.sign": _sign, "mir.sigmoid": _sigmoid,
    "mir.exp2": lambda z: (z * math.log(2.0)).exp(), "mir.log2": lambda z: z.log() / math.log(2.0),
    "mir.rsqrt": lambda z: 1.0 / z.sqrt(),
}  # fmt: skip
"""What stands for an op where its operand is complex."""

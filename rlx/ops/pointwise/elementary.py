"""More elementary functions: exponentials and logarithms near 0 and to base 2, the inverses of the
trigonometric functions, hyperbolic functions and their inverses, rounding up and toward zero."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, Sample, bad, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.activation import Activation
from rlx.ops.pointwise.base import Analytic, Binary, Unary, sum_to
from rlx.ops.pointwise.binary import SAMPLES, total
from rlx.ops.pointwise.cast import in_double, widened
from rlx.ops.pointwise.unary import FLOATS_ONLY
from rlx.types import FLOATS

__all__ = [
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan2",
    "Atanh",
    "Ceil",
    "Cosh",
    "Exp2",
    "Expm1",
    "Log1p",
    "Log2",
    "Sinh",
    "Trunc",
]

LN2 = math.log(2.0)


def two_samples(data: str = "normal") -> tuple[Sample, ...]:
    """A matrix and a scalar, with values of the kind ``data``."""
    return (sample("2x3xT", data={0: data}), sample("T", data={0: data}))


class Elementary(Activation, Analytic):
    """A function that a target's math table has, by the op's name."""

    samples = two_samples()
    ufunc: ClassVar[Callable[..., Any]]

    def reference(self, x: Array) -> Array:
        return in_double(type(self).ufunc, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.call(self.short, x)


class Expm1(Elementary, name="mir.expm1"):
    """``exp(x) - 1``, precise near 0."""

    ufunc = np.expm1

    def slope(self, x: Value, y: Value) -> Value:
        return y + 1.0


class Log1p(Elementary, name="mir.log1p"):
    """``log(1 + x)``, precise near 0; -inf at -1, nan below."""

    samples = two_samples("unit")
    ufunc = np.log1p

    def slope(self, x: Value, y: Value) -> Value:
        return 1.0 / (x + 1.0)


class Exp2(Elementary, name="mir.exp2"):
    """2 to the power of every element; exact where it is whole."""

    ufunc = np.exp2

    def slope(self, x: Value, y: Value) -> Value:
        return y * LN2


class Log2(Elementary, name="mir.log2"):
    """Logarithm to base 2, exact at powers of 2; -inf at 0, nan below."""

    samples = two_samples("positive")
    ufunc = np.log2

    def slope(self, x: Value, y: Value) -> Value:
        return (1.0 / LN2) / x


class Asin(Elementary, name="mir.asin"):
    """Arc sine, in [-pi/2, pi/2]; nan beyond -1 and 1."""

    samples = two_samples("unit")
    ufunc = np.arcsin

    def slope(self, x: Value, y: Value) -> Value:
        return ((1.0 - x) * (x + 1.0)).rsqrt()


class Acos(Elementary, name="mir.acos"):
    """Arc cosine, in [0, pi]; nan beyond -1 and 1."""

    samples = two_samples("unit")
    ufunc = np.arccos

    def slope(self, x: Value, y: Value) -> Value:
        return -((1.0 - x) * (x + 1.0)).rsqrt()


class Sinh(Elementary, name="mir.sinh"):
    """Hyperbolic sine."""

    ufunc = np.sinh

    def slope(self, x: Value, y: Value) -> Value:
        return x.cosh()


class Cosh(Elementary, name="mir.cosh"):
    """Hyperbolic cosine."""

    ufunc = np.cosh

    def slope(self, x: Value, y: Value) -> Value:
        return x.sinh()


class Asinh(Elementary, name="mir.asinh"):
    """Inverse hyperbolic sine."""

    ufunc = np.arcsinh

    def slope(self, x: Value, y: Value) -> Value:
        return (x * x + 1.0).rsqrt()


class Acosh(Elementary, name="mir.acosh"):
    """Inverse hyperbolic cosine, of 1 and above; nan below."""

    samples = two_samples("above_one")
    ufunc = np.arccosh

    def slope(self, x: Value, y: Value) -> Value:
        return ((x - 1.0) * (x + 1.0)).rsqrt()


class Atanh(Elementary, name="mir.atanh"):
    """Inverse hyperbolic tangent; infinite at -1 and 1, nan beyond."""

    samples = two_samples("unit")
    ufunc = np.arctanh

    def slope(self, x: Value, y: Value) -> Value:
        return 1.0 / ((1.0 - x) * (x + 1.0))


class Atan2(Binary, name="mir.atan2"):
    """The angle of the point (rhs, lhs) in radians, in [-pi, pi].

    It is the arc tangent of ``lhs / rhs`` in the quadrant of the point; zeros count with their
    signs.
    """

    dtypes = FLOATS
    samples = tuple(sample(*s.types, data={1: "nonzero"}) for s in SAMPLES)
    bads = (
        bad("2x3xf32", "4xf32", match="do not broadcast", error=ShapeError),
        bad("2xi32", "2xi32", match="found i32. Cast the operand", error=DTypeError),
    )

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return in_double(np.arctan2, lhs, rhs)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return k.atan2(lhs, rhs)

    def _slopes(self) -> tuple[Value, Value]:
        y, x = widened(self.lhs), widened(self.rhs)
        square = x * x + y * y
        by_y, by_x = x / square, -y / square
        return by_y.cast(to=self.out.dtype), by_x.cast(to=self.out.dtype)

    def vjp(self, g: Value) -> tuple[Value, Value]:
        by_y, by_x = self._slopes()
        return sum_to(g * by_y, self.lhs), sum_to(g * by_x, self.rhs)

    def jvp(self, ty: Value | None, tx: Value | None) -> Value:
        by_y, by_x = self._slopes()
        return total(self, None if ty is None else ty * by_y, None if tx is None else tx * by_x)


class Rounding(Unary):
    """A function whose result is whole. Its derivative is 0 everywhere."""

    samples = two_samples()
    bads = FLOATS_ONLY
    differentiable = False
    ufunc: ClassVar[Callable[..., Any]]

    def reference(self, x: Array) -> Array:
        return in_double(type(self).ufunc, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return getattr(k, self.short)(x)


class Ceil(Rounding, name="mir.ceil"):
    """The smallest whole number that is not less. Its derivative is 0 everywhere."""

    ufunc = np.ceil


class Trunc(Rounding, name="mir.trunc"):
    """The whole number next to the element on the side of 0. Its derivative is 0 everywhere."""

    ufunc = np.trunc

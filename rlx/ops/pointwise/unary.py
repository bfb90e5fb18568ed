"""Functions of one operand: elementary functions, rounding and sign."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError
from rlx.ir.op import Array, Bad, Sample, bad, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.base import ARITHMETIC, INEXACT, NUMERIC, Analytic, Unary
from rlx.ops.pointwise.cast import in_double
from rlx.types import DType

__all__ = [
    "Abs",
    "Atan",
    "Cos",
    "Exp",
    "Floor",
    "Log",
    "Neg",
    "Relu",
    "Round",
    "Rsqrt",
    "Sign",
    "Sin",
    "Sqrt",
    "Tan",
]


def samples(data: str = "normal") -> tuple[Sample, ...]:
    """Operands of every rank that matters, with values of the kind ``data``."""
    return tuple(sample(t, data={0: data}) for t in ("2x3xT", "T", "1x5x1xT", "0x2xT"))


FLOATS_ONLY: tuple[Bad, ...] = (
    bad("2xi32", match="found i32. Cast the operand", error=DTypeError),
    bad("2xbool", match="found bool. Cast the operand", error=DTypeError),
)
NUMBERS_ONLY: tuple[Bad, ...] = FLOATS_ONLY[1:]


class Exp(Unary, name="mir.exp"):
    """e to the power of every element."""

    dtypes = INEXACT
    samples = samples()
    bads = FLOATS_ONLY

    def reference(self, x: Array) -> Array:
        return in_double(np.exp, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.exp(x)

    def derivative(self) -> Value:
        return self.out


class Log(Unary, name="mir.log"):
    """Natural logarithm; -inf at 0, nan below. Of a complex number the principal one."""

    dtypes = INEXACT
    samples = samples("positive")
    bads = FLOATS_ONLY

    def reference(self, x: Array) -> Array:
        return in_double(np.log, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.log(x)

    def vjp(self, g: Value) -> tuple[Value]:
        return (g / self.x,)

    def jvp(self, t: Value) -> Value:
        return t / self.x


class Sqrt(Unary, name="mir.sqrt"):
    """Square root; nan below 0. Of a complex number the principal one."""

    dtypes = INEXACT
    samples = samples("positive")
    bads = FLOATS_ONLY

    def reference(self, x: Array) -> Array:
        return in_double(np.sqrt, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.sqrt(x)

    def derivative(self) -> Value:
        return 0.5 / self.out


class Rsqrt(Analytic, name="mir.rsqrt"):
    """One over the square root; inf at 0, nan below."""

    samples = samples("positive")
    bads = FLOATS_ONLY

    def reference(self, x: Array) -> Array:
        return in_double(lambda v: 1.0 / np.sqrt(v), x)

    def scalar(self, k: Any, x: Any) -> Any:
        return 1.0 / k.sqrt(x)

    def derivative(self) -> Value:
        return -0.5 * (self.out / self.x)


class Sin(Analytic, name="mir.sin"):
    """Sine of an angle in radians."""

    samples = samples()
    bads = FLOATS_ONLY

    def reference(self, x: Array) -> Array:
        return in_double(np.sin, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.sin(x)

    def derivative(self) -> Value:
        return self.x.cos()


class Cos(Analytic, name="mir.cos"):
    """Cosine of an angle in radians."""

    samples = samples()
    bads = FLOATS_ONLY

    def reference(self, x: Array) -> Array:
        return in_double(np.cos, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.cos(x)

    def derivative(self) -> Value:
        return -self.x.sin()


class Tan(Analytic, name="mir.tan"):
    """Tangent of an angle in radians."""

    samples = samples("unit")
    bads = FLOATS_ONLY

    def reference(self, x: Array) -> Array:
        return in_double(np.tan, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.tan(x)

    def derivative(self) -> Value:
        return self.out * self.out + 1.0


class Atan(Analytic, name="mir.atan"):
    """Arc tangent, in (-pi/2, pi/2)."""

    samples = samples()
    bads = FLOATS_ONLY

    def reference(self, x: Array) -> Array:
        return in_double(np.arctan, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.atan(x)

    def derivative(self) -> Value:
        return 1.0 / (self.x * self.x + 1.0)


class Relu(Unary, name="mir.relu"):
    """``max(x, 0)``: 0 below zero, nan for nan. The derivative at 0 is 0."""

    dtypes = NUMERIC
    samples = samples()
    bads = NUMBERS_ONLY

    def reference(self, x: Array) -> Array:
        return np.where(x < 0, np.zeros_like(x), x)

    def scalar(self, k: Any, x: Any) -> Any:
        # This form keeps nan, and is one maxps on x86; k.maximum would be three instructions.
        return k.select(x < 0, 0, x)

    def vjp(self, g: Value) -> tuple[Value]:
        return (self.x.gt(0).where(g, 0.0),)

    def jvp(self, t: Value) -> Value:
        return self.x.gt(0).where(t, 0.0)


class Neg(Unary, name="mir.neg"):
    """The element with its sign changed. Integers wrap: the least signed one stays itself."""

    linear = ((0,),)
    dtypes = ARITHMETIC
    samples = samples()
    bads = NUMBERS_ONLY

    def reference(self, x: Array) -> Array:
        return np.negative(x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.neg(x)

    def vjp(self, g: Value) -> tuple[Value]:
        return (-g,)

    def jvp(self, t: Value) -> Value:
        return -t


class Abs(Unary, name="mir.abs"):
    """The absolute value. The least signed integer stays itself; the derivative at 0 is 0.

    Of a complex number it is the modulus, a real one; its derivative at 0 is 0 too."""

    dtypes = ARITHMETIC
    samples = samples()
    bads = NUMBERS_ONLY

    def reference(self, x: Array) -> Array:
        return np.abs(x)

    def result_dtype(self) -> DType:
        return self.x.dtype.part

    def scalar(self, k: Any, x: Any) -> Any:
        return k.abs(x)

    def vjp(self, g: Value) -> tuple[Value]:
        if not self.x.dtype.is_complex:
            return (g * self.x.sign(),)
        return (g * self._direction().conj(),)

    def jvp(self, t: Value) -> Value:
        if not self.x.dtype.is_complex:
            return t * self.x.sign()
        return (t * self._direction().conj()).real()

    def _direction(self) -> Value:
        """The number of modulus 1 and of the same argument; 0 for 0."""
        zero = self.out.eq(0)
        return zero.where(0.0, self.x / zero.where(1.0, self.out))


class Sign(Analytic, name="mir.sign"):
    """-1, 0 or 1; zeros keep their sign and nan stays. Its derivative is 0 everywhere."""

    dtypes = NUMERIC
    samples = samples()
    bads = NUMBERS_ONLY
    differentiable = False

    def reference(self, x: Array) -> Array:
        return np.where(x == 0, x, np.sign(x))

    def scalar(self, k: Any, x: Any) -> Any:
        positive = k.select(x > 0, 1, x)
        return positive if x.dtype.kind == "uint" else k.select(x < 0, -1, positive)


class Round(Unary, name="mir.round"):
    """The nearest whole number, of two the even one. Its derivative is 0 everywhere."""

    samples = samples()
    bads = FLOATS_ONLY
    differentiable = False

    def reference(self, x: Array) -> Array:
        return in_double(np.rint, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.round_even(x)


class Floor(Unary, name="mir.floor"):
    """The largest whole number that is not greater. Its derivative is 0 everywhere."""

    samples = samples()
    bads = FLOATS_ONLY
    differentiable = False

    def reference(self, x: Array) -> Array:
        return in_double(np.floor, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.floor(x)

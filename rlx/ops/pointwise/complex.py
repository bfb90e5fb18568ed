"""Complex numbers: made of two reals, and taken apart.

Derivatives follow JAX's convention. A cotangent of a complex value z = x + iy is dL/dx - i dL/dy,
so the rule of a holomorphic op is the one of reals: the cotangent times the derivative, with no
conjugate. The gradient of a real L is the conjugate of the direction in which L grows fastest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.lift import promoted
from rlx.ir.op import Array, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import zeros
from rlx.ops.pointwise.base import Pointwise, Unary, sum_to
from rlx.ops.pointwise.cast import converted, in_double
from rlx.ops.pointwise.unary import samples
from rlx.types import COMPLEX, DType, complex_of, dtype, f32, f64

__all__ = ["Angle", "Complex", "ComplexNormSq", "Conj", "Imag", "Real"]

COMPLEX_ONLY = (bad("2xf32", match="takes c64, c128; found f32", error=DTypeError),)


class Complex(Pointwise, name="mir.complex"):
    """The complex numbers of given real and imaginary parts."""

    re: Value = operand("the real parts, f32 or f64")
    im: Value = operand("the imaginary parts, of the same element type")

    dtypes = (f32, f64)
    samples = (sample("2x3xT", "2x3xT"), sample("4x1x5xT", "3x1xT"), sample("0xT", "T"))
    bads = (
        bad("2xf16", "2xf16", match="found f16. Cast the operand", error=DTypeError),
        bad("2xf32", "2xf64", match="one type", error=DTypeError),
        bad("2x3xf32", "4xf32", match="do not broadcast", error=ShapeError),
    )

    @classmethod
    def build(cls, re: Any, im: Any = 0.0) -> Value:
        """Numbers take the other operand's type; two types meet by promotion."""
        return cls(*promoted(re, im)).out

    def result_dtype(self) -> DType:
        return complex_of(self.re.dtype)

    def reference(self, re: Array, im: Array) -> Array:
        re, im = np.broadcast_arrays(re, im)
        out = np.empty(re.shape, self.out.dtype.numpy)
        out.real, out.imag = re, im
        return out

    def scalar(self, k: Any, re: Any, im: Any) -> Any:
        return k.pair(re, im)

    def vjp(self, g: Value) -> tuple[Value, Value]:
        return sum_to(g.real(), self.re), sum_to(-g.imag(), self.im)

    def jvp(self, tr: Value | None, ti: Value | None) -> Value:
        re = zeros(self.re.shape, self.re.dtype) if tr is None else tr
        im = zeros(self.im.shape, self.im.dtype) if ti is None else ti
        return Complex(re, im).out


class Part(Unary):
    """A real function of a complex number."""

    dtypes = COMPLEX
    samples = samples()
    bads = COMPLEX_ONLY

    def result_dtype(self) -> DType:
        return self.x.dtype.part


class Real(Part, name="mir.real"):
    """The real part of a complex number."""

    @classmethod
    def build(cls, x: Value) -> Value:
        """A real tensor is its own real part."""
        return cls(x).out if x.dtype.is_complex else x

    def reference(self, x: Array) -> Array:
        return np.ascontiguousarray(x.real).reshape(x.shape)

    def scalar(self, k: Any, x: Any) -> Any:
        return x.re

    def vjp(self, g: Value) -> tuple[Value]:
        return (Complex.build(g, 0.0),)

    def jvp(self, t: Value) -> Value:
        return t.real()


class Imag(Part, name="mir.imag"):
    """The imaginary part of a complex number."""

    @classmethod
    def build(cls, x: Value) -> Value:
        """That of a real tensor is 0."""
        return cls(x).out if x.dtype.is_complex else zeros(x.shape, x.dtype)

    def reference(self, x: Array) -> Array:
        return np.ascontiguousarray(x.imag).reshape(x.shape)

    def scalar(self, k: Any, x: Any) -> Any:
        return x.im

    def vjp(self, g: Value) -> tuple[Value]:
        return (Complex.build(0.0, -g),)

    def jvp(self, t: Value) -> Value:
        return t.imag()


class Conj(Unary, name="mir.conj"):
    """The complex conjugate: the imaginary part with its sign changed."""

    dtypes = COMPLEX
    samples = samples()
    bads = COMPLEX_ONLY

    @classmethod
    def build(cls, x: Value) -> Value:
        """A real tensor is its own conjugate."""
        return cls(x).out if x.dtype.is_complex else x

    def reference(self, x: Array) -> Array:
        return np.conj(x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.pair(x.re, -x.im)

    def vjp(self, g: Value) -> tuple[Value]:
        return (g.conj(),)

    def jvp(self, t: Value) -> Value:
        return t.conj()


class Angle(Part, name="mir.angle"):
    """The argument of a complex number in radians, in [-pi, pi], as ``numpy.angle``."""

    samples = samples("nonzero")

    def reference(self, x: Array) -> Array:
        return converted(np.angle(x.astype(np.complex128)), dtype(x.real.dtype))

    def scalar(self, k: Any, x: Any) -> Any:
        return k.angle(x)

    def vjp(self, g: Value) -> tuple[Value]:
        return (g * self._slope(),)

    def jvp(self, t: Value) -> Value:
        return (t * self._slope()).real()

    def _slope(self) -> Value:
        """-i / z: the derivative of -i log(z), of which the argument is the real part."""
        return Constant(np.asarray(-1j, self.x.dtype.numpy)).out / self.x


class ComplexNormSq(Part, name="mir.complex_norm_sq"):
    """``|z|**2``, the squared modulus of a complex number: ``re**2 + im**2``, a real number."""

    def reference(self, x: Array) -> Array:
        square = in_double(lambda z: z * np.conj(z), x)
        return np.ascontiguousarray(square.real).reshape(x.shape)

    def scalar(self, k: Any, x: Any) -> Any:
        return x.re * x.re + x.im * x.im

    def vjp(self, g: Value) -> tuple[Value]:
        return (2.0 * g * self.x.conj(),)

    def jvp(self, t: Value) -> Value:
        return 2.0 * (t * self.x.conj()).real()

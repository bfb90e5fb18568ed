"""Discrete Fourier transforms along one axis, as ``numpy.fft``.

The ops transform the last axis whole; the builder methods take any axis and length. On a CPU a
kernel family runs lengths with small prime factors; what it does not run expands to products with
small matrices, or for a large prime factor to a convolution (``expand.py``): O(n log n) always.

Transforms are linear, so a tangent is transformed as the operand is. In JAX's convention, which
conjugates nothing (see ``complex``), the transpose of a complex transform is the transform itself,
since its matrix is symmetric. That of a real one is the opposite real one, with the same scale and
with the elements that stand for two counted twice there and once here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.factors import Factors, lines
from rlx.ir.op import Array, Bad, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.fft.expand import inverse_real, transformed
from rlx.ops.fft.plan import NORMS, OPPOSITE, scale_of
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import axis_of
from rlx.ops.movement.slicing import Slice
from rlx.ops.pointwise.base import unsuitable
from rlx.ops.pointwise.complex import Complex
from rlx.types import COMPLEX, TensorType, complex_of, f32, f64

__all__ = ["Fft", "Ifft", "Irfft", "Rfft", "Transform", "along", "length_of"]

LENGTHS = (8, 12, 1, 7, 34)


def _bads(good: str, other: str) -> tuple[Bad, ...]:
    return (
        bad(f"2x4x{other}", match=f"found {other}", error=DTypeError),
        bad(good, match="no axis", error=ShapeError),
        bad(f"2x0x{good}", match="no element", error=ShapeError),
        bad(f"4x{good}", match="'middle' is none of", error=GraphError, norm="middle"),
    )


class Transform(Op):
    """A transform of the last axis."""

    x: Value = operand("the tensor; its last axis is transformed")
    norm: str = attr("backward", "which direction is scaled: backward, ortho or forward")

    linear = ((0,),)
    dtypes = COMPLEX
    inverse: ClassVar[bool] = False
    function: ClassVar[Callable[..., Array]]

    @property
    def length(self) -> int:
        """Elements of a transform, in the domain that has them all."""
        return length_of(self.x)

    def infer(self) -> TensorType:
        if self.x.dtype not in self.dtypes:
            raise unsuitable(self, self.x.dtype)
        if self.norm not in NORMS:
            raise GraphError(f"{self.short}: norm {self.norm!r} is none of {', '.join(NORMS)}")
        if not self.x.rank:
            raise ShapeError(f"{self.short} transforms an axis, and {self.x.type} has no axis")
        if self.x.shape[-1] == 0:
            raise ShapeError(f"{self.short}: the last axis of {self.x.type} has no element")
        return self.x.type

    def reference(self, x: Array) -> Array:
        wide = np.complex128 if np.iscomplexobj(x) else np.float64
        found = type(self).function(x.astype(wide), self.length, norm=self.norm)
        return found.astype(self.out.dtype.numpy)

    def factors(self) -> Factors:
        return lines(self, self.x.rank - 1)

    def jvp(self, t: Value) -> Value:
        return self.with_operands([t]).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands).out

    def cost(self) -> Cost:
        """5 n log2(n) operations a transform of n, as is usual to say; 0 for a symbolic size."""
        size, last = self.x.type.size, self.x.shape[-1]
        moved = super().cost().bytes
        if not (is_known(size) and is_known(last)):
            return Cost(0, moved)
        return Cost(size * int(80 * math.log2(max(2, last))) // 16, moved)


class Fft(Transform, name="mir.fft"):
    """The discrete Fourier transform: ``y[k] = sum of x[t] exp(-2 pi i k t / n)``."""

    samples = (*(sample(f"2x{n}xT") for n in LENGTHS), sample("3x4xT", norm="ortho"))
    bads = _bads("c64", "f16")
    function = np.fft.fft

    @classmethod
    def build(cls, x: Value, n: int | None = None, axis: int = -1, norm: str = "backward") -> Value:
        """As ``numpy.fft.fft``: the axis is cut, or filled up with zeros, to ``n`` elements; a real
        tensor (f32, f64) becomes complex."""
        return along(x, axis, lambda v: cls(cut(_complex(v, cls.name), n), norm).out)

    def expand(self) -> Value:
        scale = scale_of(self.length, self.norm, inverse=self.inverse)
        return transformed(self.x, self.inverse, scale)

    def vjp(self, g: Value) -> tuple[Value]:
        return (self.with_operands([g]).out,)


class Ifft(Fft, name="mir.ifft"):
    """The inverse transform: ``x[t] = sum of y[k] exp(2 pi i k t / n)``, over n unless scaled."""

    function = np.fft.ifft
    inverse = True


class Rfft(Transform, name="mir.rfft"):
    """The transform of real numbers: elements 0 to n // 2, whose conjugates are the others."""

    dtypes = (f32, f64)
    samples = (*(sample(f"2x{n}xT") for n in LENGTHS), sample("3x4xT", norm="forward"))
    bads = _bads("f32", "f16")
    function = np.fft.rfft

    @classmethod
    def build(cls, x: Value, n: int | None = None, axis: int = -1, norm: str = "backward") -> Value:
        """As ``numpy.fft.rfft``: the axis is cut, or filled up with zeros, to ``n`` elements."""
        return along(x, axis, lambda v: cls(cut(v, n), norm).out)

    def infer(self) -> TensorType:
        x = super().infer()
        shape = (*x.shape[:-1], x.shape[-1] // 2 + 1)
        return TensorType(shape, complex_of(x.dtype))

    def expand(self) -> Value:
        n = self.length
        whole = Fft(Complex.build(self.x, 0.0), self.norm).out
        return cut(whole, n // 2 + 1)

    def vjp(self, g: Value) -> tuple[Value]:
        halves = counted(self.length, 0.5, g)
        return (Irfft(g.conj() * halves, OPPOSITE[self.norm], self.length).out,)


class Irfft(Transform, name="mir.irfft"):
    """The inverse of ``rfft``: n real numbers from the n // 2 + 1 elements of their transform."""

    n: int = attr(doc="how many numbers: with n // 2 + 1 elements, an even or an odd one")

    samples = (
        *(sample(f"2x{n // 2 + 1}xT", n=n) for n in LENGTHS),
        sample("3x3xT", n=4, norm="ortho"),
    )
    bads = (
        bad("2x4xf32", match="found f32", error=DTypeError, n=6),
        bad("2x4xc64", match="n = 9 numbers have 5", error=ShapeError, n=9),
        bad("1xc64", match="n = 0", error=ShapeError, n=0),
    )
    function = np.fft.irfft
    inverse = True

    @classmethod
    def build(cls, x: Value, n: int | None = None, axis: int = -1, norm: str = "backward") -> Value:
        """As ``numpy.fft.irfft``: by default n is 2 (m - 1), for m elements along the axis."""

        def along_last(v: Value) -> Value:
            size = 2 * (length_of(v) - 1) if n is None else n
            return cls(cut(_complex(v, cls.name), max(size, 0) // 2 + 1), norm, size).out

        return along(x, axis, along_last)

    @property
    def length(self) -> int:
        """The numbers of the result."""
        return self.n

    def infer(self) -> TensorType:
        x = super().infer()
        if self.n < 1 or x.shape[-1] != self.n // 2 + 1:
            raise ShapeError(
                f"irfft: n = {self.n} numbers have {max(self.n, 0) // 2 + 1} elements of their"
                f" transform, found {x.shape[-1]}; n is at least 1"
            )
        return TensorType((*x.shape[:-1], self.n), x.dtype.part)

    def expand(self) -> Value:
        doubled = self.x * counted(self.n, 2.0, self.x)
        return inverse_real(doubled, self.n, scale_of(self.n, self.norm, inverse=True))

    def vjp(self, g: Value) -> tuple[Value]:
        back = Rfft(g, OPPOSITE[self.norm]).out.conj()
        return (back * counted(self.n, 2.0, back),)


def counted(n: int, by: float, like: Value) -> Value:
    """``by`` for the elements of a half transform that stand for two, 1 for the others."""
    out = np.full(n // 2 + 1, by, like.dtype.numpy)
    out[0] = 1
    if n % 2 == 0:
        out[-1] = 1
    return Constant(out).out


def length_of(x: Value, axis: int = -1) -> int:
    """Elements along an axis; ShapeError while they are a symbol."""
    n = x.shape[axis_of(axis, x.rank, "the transform")]
    if not is_known(n):
        raise ShapeError(f"the axis to transform of {x.type} is the symbol {n}; bind it to a size")
    return int(n)


def along(x: Value, axis: int, function: Callable[[Value], Value]) -> Value:
    """``function`` of the last axis, of another one."""
    axis = axis_of(axis, x.rank, "the transform")
    if axis == x.rank - 1:
        return function(x)
    back = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
    front = [i for i in range(x.rank) if i != axis]
    return function(x.transpose([*front, axis])).transpose(back)


def cut(x: Value, n: int | None) -> Value:
    """The last axis with its first n elements, or with zeros behind it to make n."""
    size = x.shape[-1]
    if n is None or n == size:
        return x
    if n < 1:
        raise ShapeError(f"a transform has at least one element, found n = {n}")
    size = length_of(x)
    if n < size:
        return Slice.build(x, [0] * x.rank, [*x.shape[:-1], n])
    return x.pad([0] * x.rank, [*[0] * (x.rank - 1), n - size])


def _complex(x: Value, name: str) -> Value:
    if x.dtype in (f32, f64):
        return x.cast(to=complex_of(x.dtype))
    if not x.dtype.is_complex:
        short = name.split(".")[1]
        raise DTypeError(
            f"{short} takes f32, f64, c64, c128; found {x.dtype}. Cast the operand first"
        )
    return x

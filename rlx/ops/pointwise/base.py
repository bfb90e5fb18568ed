"""The shared shape of pointwise ops: operands broadcast, one formula gives every element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rlx.errors import DTypeError
from rlx.ir.factors import Factors, broadcast
from rlx.ir.lift import promoted
from rlx.ir.op import Op, operand
from rlx.ir.value import Value
from rlx.types import (
    COMPLEX,
    DTYPES,
    FLOAT8,
    FLOATS,
    INTS,
    DType,
    TensorType,
    broadcast_shapes,
    check_one_type,
)

__all__ = [
    "ANY", "ARITHMETIC", "COMPARED", "INEXACT", "NUMERIC", "ORDERED", "Analytic", "Binary",
    "Pointwise",
    "Unary", "check_ordered", "sum_to", "unsuitable",
]  # fmt: skip

NUMERIC: tuple[DType, ...] = (*FLOATS, *INTS)
INEXACT: tuple[DType, ...] = (*FLOATS, *COMPLEX)
ARITHMETIC: tuple[DType, ...] = (*NUMERIC, *COMPLEX)
ANY: tuple[DType, ...] = tuple(DTYPES.values())
ORDERED: tuple[DType, ...] = tuple(d for d in ANY if not (d.is_complex or d.is_float8))
COMPARED: tuple[DType, ...] = (*ORDERED, *FLOAT8)


def check_ordered(op: str, dtype: DType) -> None:
    """DTypeError for the complex types, of which none is less than another, and for 8-bit floats,
    which are not computed with."""
    if dtype.is_float8:
        raise DTypeError(f"{op} takes no 8-bit floats; found {dtype}. Cast the operand first")
    if dtype.is_complex:
        raise DTypeError(f"{op} takes what has an order, found {dtype}; take abs() or real() first")


class Pointwise(Op):
    """An op whose every result element depends on the operand elements at its place alone.

    ``dtypes`` are the element types it takes; operands have one element type (builders promote).
    """

    pointwise: ClassVar[bool] = True
    dtypes: ClassVar[tuple[DType, ...]] = NUMERIC

    def infer(self) -> TensorType:
        self.check_dtypes(*self.present)
        return TensorType(broadcast_shapes(*(v.shape for v in self.present)), self.result_dtype())

    def result_dtype(self) -> DType:
        """The element type of the result; the operands' unless an op says otherwise."""
        return self.present[0].dtype

    def check_dtypes(self, *values: Value) -> None:
        """DTypeError unless all have one element type, and that is one the op takes."""
        for v in values:
            if v.dtype not in self.dtypes:
                raise unsuitable(self, v.dtype)
        check_one_type(self.short, *(v.dtype for v in values))

    def factors(self) -> Factors:
        return broadcast(self)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        """Batched operands keep their new axis in front; lower ranks are padded behind it."""
        rank = self.out.rank
        ready: list[Value] = []
        for v, has in zip(operands, batched, strict=True):
            ones = [1] * (rank + 1 - v.rank)
            ready.append(v.reshape((v.shape[0], *ones, *v.shape[1:])) if has and ones else v)
        return self.with_operands(ready).out


def unsuitable(op: Op, found: DType) -> DTypeError:
    """The error for an element type that an op does not take."""
    takes = ", ".join(d.name for d in op.dtypes)
    todo = "Take its real(), imag() or abs()" if found.is_complex else "Cast the operand first"
    return DTypeError(f"{op.short} takes {takes}; found {found}. {todo}")


class Unary(Pointwise):
    """A pointwise op of one operand."""

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    x: Value = operand("the tensor")

    derivative: ClassVar[Callable[..., Value]]
    """``derivative(self)``: d out / d x as a Value; gives both vjp and jvp."""

    def vjp(self, g: Value) -> tuple[Value | None]:
        return (g * self.derivative(),)

    def jvp(self, t: Value) -> Value:
        return t * self.derivative()


class Analytic(Unary):
    """A function that complex numbers have too, by a formula of other ops."""

    @classmethod
    def build(cls, x: Value) -> Value:
        """Of complex numbers it is a formula of ops on their parts."""
        if isinstance(x, Value) and x.dtype.is_complex:
            from rlx.ops.pointwise.analytic import FORMS

            return FORMS[cls.name](x)
        return cls(x).out


class Binary(Pointwise):
    """A pointwise op of two operands that broadcast."""

    lhs: Value = operand("left")
    rhs: Value = operand("right")

    @classmethod
    def build(cls, lhs: Any, rhs: Any) -> Value:
        """Numbers take the other operand's type; two types meet by promotion."""
        return cls(*promoted(lhs, rhs)).out


def sum_to(g: Value, like: Value) -> Value:
    """Sum a cotangent over the axes along which ``like`` was broadcast."""
    extra = g.rank - like.rank
    axes = [
        *range(extra),
        *(i + extra for i, d in enumerate(like.shape) if d == 1 and g.shape[i + extra] != 1),
    ]
    if not axes:
        return g
    return g.sum(axes=axes).reshape(like.shape)

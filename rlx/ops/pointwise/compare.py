"""Comparisons, logic on bools, and the choice between two tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.attrs import literal
from rlx.ir.lift import lift, promoted
from rlx.ir.op import Array, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.ops.pointwise.base import ANY, COMPARED, Binary, Pointwise, Unary, sum_to
from rlx.types import DType, bool_, dtype

__all__ = [
    "Eq",
    "Ge",
    "Gt",
    "IsFinite",
    "IsInf",
    "IsNan",
    "Le",
    "LogicalAnd",
    "LogicalNot",
    "LogicalOr",
    "LogicalXor",
    "Lt",
    "Ne",
    "Where",
]

SAMPLES = (
    sample("2x3xT", "2x3xT"),
    sample("4x1x5xT", "3x1xT"),
    sample("T", "T"),
    sample("0x3xT", "3xT"),
)


class Compare(Binary):
    """A comparison: operands of one type, a bool for every element. Nothing equals nan."""

    dtypes = COMPARED
    differentiable = False
    samples = SAMPLES
    bads = (
        bad("2x3xf32", "4xf32", match="do not broadcast", error=ShapeError),
        bad("2xf32", "2xi32", match="one type", error=DTypeError),
    )
    ufunc: ClassVar[Callable[..., Any]]

    def result_dtype(self) -> DType:
        return bool_

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return type(self).ufunc(lhs, rhs)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return k.compare(self.short, lhs, rhs)


class Eq(Compare, name="mir.eq"):
    """Whether the operands are equal, element by element; nan equals nothing."""

    commutes = True
    dtypes = ANY
    ufunc = np.equal


class Ne(Compare, name="mir.ne"):
    """Whether the operands differ, element by element; nan differs from everything."""

    commutes = True
    dtypes = ANY
    ufunc = np.not_equal


class Lt(Compare, name="mir.lt"):
    """Whether the left operand is less, element by element; false with nan."""

    ufunc = np.less


class Le(Compare, name="mir.le"):
    """Whether the left operand is less or equal, element by element; false with nan."""

    ufunc = np.less_equal


class Gt(Compare, name="mir.gt"):
    """Whether the left operand is greater, element by element; false with nan."""

    ufunc = np.greater


class Ge(Compare, name="mir.ge"):
    """Whether the left operand is greater or equal, element by element; false with nan."""

    ufunc = np.greater_equal


class Logical(Binary):
    """A connective of bools."""

    commutes = True
    dtypes = (bool_,)
    differentiable = False
    samples = SAMPLES
    bads = (
        bad("2x3xbool", "4xbool", match="do not broadcast", error=ShapeError),
        bad("2xi32", "2xi32", match="takes bool; found i32", error=DTypeError),
    )


class LogicalAnd(Logical, name="mir.logical_and"):
    """Whether both bools are true."""

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return np.logical_and(lhs, rhs)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return lhs & rhs


class LogicalOr(Logical, name="mir.logical_or"):
    """Whether at least one of two bools is true."""

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return np.logical_or(lhs, rhs)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return lhs | rhs


class LogicalXor(Logical, name="mir.logical_xor"):
    """Whether one of two bools is true and the other is not."""

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return np.logical_xor(lhs, rhs)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return lhs ^ rhs


class LogicalNot(Unary, name="mir.logical_not"):
    """Whether a bool is false."""

    dtypes = (bool_,)
    differentiable = False
    samples = (sample("2x3xT"), sample("T"), sample("0xT"))
    bads = (bad("2xi32", match="takes bool; found i32", error=DTypeError),)

    def reference(self, x: Array) -> Array:
        return np.logical_not(x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.logical_not(x)


class Kind(Unary):
    """Whether a float is of some kind: a bool for every element."""

    differentiable = False
    samples = (sample("2x3xT"), sample("T"))
    bads = (bad("2xi32", match="found i32. Cast the operand", error=DTypeError),)
    ufunc: ClassVar[Callable[..., Any]]

    def result_dtype(self) -> DType:
        return bool_

    def reference(self, x: Array) -> Array:
        return type(self).ufunc(x)


class IsNan(Kind, name="mir.isnan"):
    """Whether a float is nan."""

    ufunc = np.isnan

    def scalar(self, k: Any, x: Any) -> Any:
        return k.compare("ne", x, x)


class IsInf(Kind, name="mir.isinf"):
    """Whether a float is inf or -inf."""

    ufunc = np.isinf

    def scalar(self, k: Any, x: Any) -> Any:
        return k.compare("eq", k.abs(x), math.inf)


class IsFinite(Kind, name="mir.isfinite"):
    """Whether a float is neither nan nor infinite."""

    ufunc = np.isfinite

    def scalar(self, k: Any, x: Any) -> Any:
        return k.abs(x) < math.inf


class Where(Pointwise, name="mir.where"):
    """``a`` where the condition is true, ``b`` elsewhere; all three operands broadcast."""

    cond: Value = operand("which one to take, bool")
    a: Value = operand("taken where the condition is true")
    b: Value = operand("taken elsewhere, of the same element type")

    dtypes = ANY
    samples = (
        sample("2x3xbool", "2x3xT", "2x3xT"),
        sample("3x1xbool", "4xT", "2x1x1xT"),
        sample("bool", "T", "2xT"),
        sample("2xbool", "T", "T"),
        sample("0x2xbool", "2xT", "T"),
    )
    bads = (
        bad("2xf32", "2xf32", "2xf32", match="condition is bool, found f32", error=DTypeError),
        bad("2xbool", "2xf32", "2xi32", match="one type", error=DTypeError),
        bad("2xbool", "3xf32", "3xf32", match="do not broadcast", error=ShapeError),
    )

    @classmethod
    def build(cls, cond: Any, a: Any, b: Any) -> Value:
        """Numbers take the other choice's element type (two numbers: f32, i64 or bool by their
        Python types); two types meet by promotion."""
        if not isinstance(a, Value) and not isinstance(b, Value):
            common = np.result_type(type(a), type(b)) if np.isscalar(a) and np.isscalar(b) else None
            dt = np.dtype(np.float32) if common == np.float64 else common
            kind = None if dt is None else dtype(dt)
            a = Constant(literal(a, kind, "where: a choice")).out
        a, b = promoted(a, b)
        return cls(lift(cond, a), a, b).out

    def check_dtypes(self, *values: Value) -> None:
        cond, *choices = values
        if cond.dtype is not bool_:
            raise DTypeError(
                f"where: the condition is bool, found {cond.dtype}; compare it, as in x.ne(0)"
            )
        super().check_dtypes(*choices)

    def result_dtype(self) -> DType:
        return self.a.dtype

    def reference(self, cond: Array, a: Array, b: Array) -> Array:
        return np.where(cond, a, b)

    def scalar(self, k: Any, cond: Any, a: Any, b: Any) -> Any:
        return k.select(cond, a, b)

    def vjp(self, g: Value) -> tuple[None, Value, Value]:
        return (
            None,
            sum_to(self.cond.where(g, 0.0), self.a),
            sum_to(self.cond.where(0.0, g), self.b),
        )

    def jvp(self, tc: Value | None, ta: Value | None, tb: Value | None) -> Value | None:
        if ta is None and tb is None:
            return None
        chosen = self.cond.where(0.0 if ta is None else ta, 0.0 if tb is None else tb)
        return chosen.expand(self.out.shape)

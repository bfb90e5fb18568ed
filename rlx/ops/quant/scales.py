"""What ops with a scale share: one number for a tensor, or one for each place of an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.base.dims import surely_differ
from rlx.errors import DTypeError, OutOfMemoryError, ShapeError
from rlx.ir.attrs import to_array
from rlx.ir.op import Array
from rlx.ir.value import Value
from rlx.ops.by_formula import ByFormula
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import axis_of
from rlx.types import Dim, DType, f32, f64

__all__ = ["Expanded", "Scaled", "axis_from", "numbers", "operand_of", "wide_of"]


def wide_of(dt: DType) -> DType:
    """In what numbers of a float type are divided and rounded: f64 in f64, others in f32."""
    return f64 if dt is f64 else f32


def axis_from(axis: int | None, rank: int) -> tuple[int, ...]:
    """An axis as the attribute of ``Scaled`` ops has it."""
    return () if axis is None else (axis_of(axis, rank, "axis"),)


def numbers(what: str, v: Any, dt: DType) -> Array:
    """A user's scales or zero points as an array of an element type. DTypeError for what are no
    numbers, or none that an integer type holds; OutOfMemoryError."""
    found = to_array(v, what)
    if found.dtype.kind not in "iuf":
        raise DTypeError(f"{what} are numbers, found {found.dtype}")
    try:
        with np.errstate(invalid="ignore"):
            made = found.astype(dt.numpy)
    except MemoryError as e:
        raise OutOfMemoryError(f"there is no memory for {what} as {dt}: {e}") from None
    if dt.is_int and (made != found).any():
        raise DTypeError(f"{what} of {found.ravel()[:4]} are no {dt}")
    return made


def operand_of(what: str, v: Any, dt: DType) -> Value:
    """A user's scales or zero points as an operand: a Value as it is, numbers in a type."""
    return v if isinstance(v, Value) else Constant(numbers(what, v, dt)).out


class Expanded(ByFormula):
    """A composite whose derivatives and batches are those of what it expands to."""

    def formula(self, *operands: Value | None) -> Any:
        """What it expands to on other operands."""
        return self.with_operands(operands).expand()


class Scaled(Expanded):
    """An op whose attribute ``axis`` says along which axis there is a number for each place: ``()``
    where one number is for all."""

    def place(self, x: Value) -> int | None:
        """The axis, or None."""
        axis: tuple[int, ...] = self.attrs["axis"]
        if len(axis) > 1:
            raise ShapeError(f"{self.short}: scales lie along one axis at most, found {axis}")
        return axis_of(axis[0], x.rank, "axis") if axis else None

    def check_scale(self, what: str, v: Value | None, x: Value) -> None:
        """ShapeError unless v has one number, or one for each place of the axis of x."""
        if v is None:
            return
        place = self.place(x)
        if place is None:
            if tuple(v.shape) not in ((), (1,)):
                raise ShapeError(
                    f"{self.short}: {what} of {v.type} is one a place of an axis: say which by axis"
                )
        elif v.rank != 1 or surely_differ(v.shape[0], x.shape[place]):
            raise ShapeError(
                f"{self.short}: {what} must have one number for each of the {x.shape[place]} places"
                f" of axis {place} of {x.type}, found {v.type}"
            )

    def check_floats(self, **values: Value | None) -> None:
        """DTypeError for a value that is no float."""
        for name, v in values.items():
            if v is not None and not v.dtype.is_float:
                raise DTypeError(f"{self.short} takes floats for {name}, found {v.dtype}")

    def spread(self, v: Value, x: Value) -> Value:
        """Numbers in a shape that meets x."""
        return v.reshape(self._met(x))

    def spread_array(self, v: Array, x: Array) -> Array:
        """The same of arrays."""
        axis: tuple[int, ...] = self.attrs["axis"]
        return v.reshape([-1, *[1] * (x.ndim - axis[0] - 1)] if axis else [])

    def _met(self, x: Value) -> list[Dim]:
        place = self.place(x)
        return [] if place is None else [x.shape[place], *[1] * (x.rank - place - 1)]

    def others(self, x: Value) -> list[int] | None:
        """The axes that a scale is for all of; None for all."""
        place = self.place(x)
        return None if place is None else [a for a in range(x.rank) if a != place]

    def scale_shape(self, x: Value) -> tuple[Dim, ...]:
        """The shape of the scales of x."""
        place = self.place(x)
        return () if place is None else (x.shape[place],)

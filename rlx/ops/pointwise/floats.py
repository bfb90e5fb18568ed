"""The bits of floats: read as integers and back, the sign of another, the next float."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.base import Binary, Pointwise, sum_to
from rlx.ops.pointwise.binary import SAMPLES, total
from rlx.ops.pointwise.cast import in_double
from rlx.types import FLOAT8, FLOATS, INTS, DType, dtype, f32, f64

__all__ = ["WHOLE", "Bitcast", "Copysign", "Nextafter"]

WHOLE = (f32, f64, *INTS, *FLOAT8)
"""The types whose bits a register holds as they are."""

_BAD = (
    bad("2x3xf32", "4xf32", match="do not broadcast", error=ShapeError),
    bad("2xi32", "2xi32", match="found i32. Cast the operand", error=DTypeError),
)


class Bitcast(Pointwise, name="mir.bitcast"):
    """The same bits as another type of the same width: of f32, f64, integers and 8-bit floats.

    It has no derivative, unless the type is the same.
    """

    x: Value = operand("the tensor")
    to: DType = attr(doc="the result's element type")

    dtypes = WHOLE
    samples = (
        *(sample("2x3xf32", to=name) for name in ("i32", "u32", "f32")),
        *(sample("2x3xf64", to=name) for name in ("i64", "u64")),
        *(sample("4xi32", to=name) for name in ("f32", "u32")),
        *(sample("u64", to=name) for name in ("f64", "i64")),
        sample("0x2xi8", to="u8"),
        *(sample("6xu8", to=d.name) for d in FLOAT8),
        *(sample(f"6x{d}", to="i8") for d in FLOAT8),
        sample("5xu16", to="i16"),
    )
    bads = (
        bad("2xf32", match="f32 has 32 bits, i64 has 64", error=DTypeError, to="i64"),
        bad("2xbf16", match="found bf16. Cast the operand", error=DTypeError, to="i16"),
        bad("2xi16", match="found f16", error=DTypeError, to="f16"),
        bad("2xi8", match="found bool", error=DTypeError, to="bool"),
    )

    @classmethod
    def build(cls, x: Value, to: DType | str | Any) -> Value:
        """Of the value's own type it is the value itself."""
        wanted = dtype(to)
        return x if wanted is x.dtype and wanted in WHOLE else cls(x, wanted).out

    def result_dtype(self) -> DType:
        if self.to not in WHOLE:
            raise DTypeError(f"bitcast gives {', '.join(map(str, WHOLE))}; found {self.to}")
        if self.to.bits != self.x.dtype.bits:
            raise DTypeError(
                f"bitcast: {self.x.dtype} has {self.x.dtype.bits} bits, {self.to} has"
                f" {self.to.bits}; give a type of the same width"
            )
        return self.to

    def reference(self, x: Array) -> Array:
        return np.ascontiguousarray(x).view(self.to.numpy).reshape(np.shape(x))

    def scalar(self, k: Any, x: Any) -> Any:
        return k.bitcast(x, self.to)

    def vjp(self, g: Value) -> tuple[Value | None]:
        return (g if self.to is self.x.dtype else None,)

    def jvp(self, t: Value) -> Value | None:
        return t if self.to is self.x.dtype else None


class Copysign(Binary, name="mir.copysign"):
    """The size of the left element with the sign of the right one, which -0.0 and nan have too."""

    dtypes = FLOATS
    samples = tuple(sample(*s.types, data={0: "nonzero", 1: "nonzero"}) for s in SAMPLES)
    bads = _BAD

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return in_double(np.copysign, lhs, rhs)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        bits = dtype("u64" if lhs.dtype is f64 else "u32")
        sign = 1 << (bits.bits - 1)
        size = k.bitcast(lhs, bits) & (sign - 1)
        return k.bitcast(size | (k.bitcast(rhs, bits) & sign), lhs.dtype)

    def _slope(self) -> Value:
        one = self.lhs.ones_like()
        return one.copysign(self.lhs) * one.copysign(self.rhs)

    def vjp(self, g: Value) -> tuple[Value, Value | None]:
        return sum_to(g * self._slope(), self.lhs), None

    def jvp(self, tl: Value | None, tr: Value | None) -> Value:
        return total(self, tl * self._slope() if tl is not None else self.out.zeros_like())


class Nextafter(Binary, name="mir.nextafter"):
    """The float next to the left element in the direction of the right one.

    Where the two are equal it is the right one. Its derivative is that of the left element.
    """

    dtypes = (f32, f64)
    samples = SAMPLES
    bads = _BAD

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return np.nextafter(lhs, rhs)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        bits = dtype("i64" if lhs.dtype is f64 else "i32")
        unsigned = dtype(f"u{bits.bits}")
        # Of negative floats the bits grow away from 0 too.
        up, positive = k.compare("lt", lhs, rhs), k.compare("gt", lhs, 0)
        whole = k.bitcast(lhs, bits)
        moved = k.bitcast(k.select(up ^ positive, whole - 1, whole + 1), lhs.dtype)
        sign = k.bitcast(rhs, unsigned) & (1 << (bits.bits - 1))
        least = k.bitcast(sign | 1, lhs.dtype)
        found = k.select(k.compare("eq", lhs, 0), least, moved)
        found = k.select(k.compare("eq", lhs, rhs), rhs, found)
        known = k.compare("eq", lhs, lhs) & k.compare("eq", rhs, rhs)
        return k.select(known, found, lhs + rhs)

    def vjp(self, g: Value) -> tuple[Value, Value | None]:
        return sum_to(g, self.lhs), None

    def jvp(self, tl: Value | None, tr: Value | None) -> Value:
        return total(self, self.out.zeros_like() if tl is None else tl)

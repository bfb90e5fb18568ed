"""Conversion between element types, and the rounding that every reference shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.errors import DTypeError, UnsupportedError
from rlx.ir.op import Array, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.base import COMPARED, INEXACT, Pointwise
from rlx.types import (
    DTYPES,
    FLOAT8,
    DType,
    bf16,
    bool_,
    c128,
    dtype,
    f8e4m3fn,
    f8e5m2,
    f16,
    f32,
    f64,
)

__all__ = ["Cast", "converted", "in_double", "widened"]


class Cast(Pointwise, name="mir.cast"):
    """The same values in another element type.

    - To a float: rounded once, to nearest even; what is too large becomes inf.
    - To an 8-bit float: rounded once, to nearest even; what is too large, inf too, becomes the
      greatest number if ``saturate`` (448 in f8e4m3fn, 57344 in f8e5m2), else what the type has
      beyond it: nan in f8e4m3fn, inf in f8e5m2. Such a cast and its inverse have no derivative.
    - Float to integer: rounded toward zero; what is out of range becomes the nearest bound, nan 0.
    - Integer to integer: keeps the low bits (wraps).
    - To bool: ``x != 0``, so nan is true. From bool: 0 or 1.
    - To its own type: nothing changes, inf of an 8-bit float neither.
    - To a complex type: the real part is converted, the imaginary part is 0. From one only to
      another or to bool; its parts are ``real(x)`` and ``imag(x)``.
    """

    x: Value = operand("any tensor")
    to: DType = attr(doc="the result's element type")
    saturate: bool = attr(True, "whether an 8-bit float stays finite; other types ask nothing")

    dtypes = COMPARED  # and complex types, of which not every cast is one
    samples = (
        *(sample("2x3xT", to=d.name) for d in DTYPES.values() if not d.is_float8),
        *(sample("2x3xT", to=d.name, derivatives=0) for d in FLOAT8),
        *(sample("2x3xf32", to=d.name, saturate=False, derivatives=0) for d in FLOAT8),
        *(sample("2x3xc64", to=name) for name in ("c128", "bool")),
        sample("2x3xc128", to="c64"),
        sample("T", to="bf16"),
        sample("0x2xT", to="i8"),
    )
    bads = (
        bad("2xf32", match="unknown dtype 'f8'", error=DTypeError, to="f8"),
        bad("2xc64", match=r"Take its real\(\)", error=DTypeError, to="f32"),
    )

    @classmethod
    def build(cls, x: Value, to: DType | str | Any, saturate: bool = True) -> Value:
        """Casting to the value's own type gives the value itself."""
        wanted = dtype(to)
        return x if wanted is x.dtype else cls(x, wanted, saturate or not wanted.is_float8).out

    def check_dtypes(self, *values: Value) -> None:
        """Every type is taken; not every pair."""

    def result_dtype(self) -> DType:
        if self.x.dtype.is_complex and not (self.to.is_complex or self.to is bool_):
            raise DTypeError(
                f"cast: {self.x.dtype} has no value in {self.to}. Take its real(), imag() or abs()"
            )
        return self.to

    def reference(self, x: Array) -> Array:
        return converted(x, self.to, self.saturate)

    def scalar(self, k: Any, x: Any) -> Any:
        if self.to is self.x.dtype:
            return x
        # The caller rounds an f32 to the 16 bits of f16 and bf16. From f64, and from integers that
        # f32 does not hold, that would be a second rounding (f16 is safe: it holds none of these
        # integers, and inf is inf). 8-bit floats hold even fewer.
        short = self.to in (f16, bf16)
        if self.to.is_float8:
            wide = _odd_f32(k, x) if x.dtype is f64 else k.cast(x, f32)
            return k.rounded_to_float8(wide, self.to, self.saturate)
        if (short and x.dtype is f64) or (self.to is bf16 and _exceeds_f32(x.dtype)):
            return _odd_f32(k, _odd_f64(k, x))
        return k.cast(x, f32 if short else self.to)

    def vjp(self, g: Value) -> tuple[Value | None]:
        self._check_derivative()
        if not self._smooth():
            return (None,)
        # The transpose of x -> x + 0i keeps the real part.
        back = g.real() if g.dtype.is_complex and not self.x.dtype.is_complex else g
        return (back.cast(to=self.x.dtype),)

    def jvp(self, t: Value) -> Value | None:
        self._check_derivative()
        return t.cast(to=self.to) if self._smooth() else None

    def _check_derivative(self) -> None:
        types = (self.x.dtype, self.to)
        if any(t.is_float8 for t in types) and any(t in INEXACT for t in types):
            raise UnsupportedError(
                f"cast: there is no derivative of a cast from {types[0]} to {types[1]}: cotangents"
                " of 8-bit floats are not added. Put it below stop_gradient(), or train with"
                " fake_quantize"
            )

    def _smooth(self) -> bool:
        return self.x.dtype in INEXACT and self.to in INEXACT


# Rounding to odd keeps the last bit set when anything was cut off. A later rounding to nearest
# into a type at least two bits shorter then sees no false tie, and the pair of roundings equals
# one (S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms
# using rounding to odd", IEEE Trans. Computers 57(4), 2008).


def _odd_f64(k: Any, x: Any) -> Any:
    """An integer as f64, rounded to odd where 53 bits do not hold it."""
    if x.dtype.bits < 64 or x.dtype.is_float:
        return k.cast(x, f64)
    # 2**53 and above: clear the low bits and remember them in the lowest bit that stays.
    sticky = k.select(k.compare("ne", x & 0x7FF, 0), (x >> 11 << 11) | 0x800, x)
    high = x >> 53
    small = k.compare("eq", high, 0)
    if x.dtype.kind == "int":
        small = small | k.compare("eq", high, -1)
    return k.cast(k.select(small, x, sticky), f64)


def _odd_f32(k: Any, x: Any) -> Any:
    """An f64 as f32, rounded to odd; nan stays nan."""
    nearest = k.cast(x, f32)
    back = k.cast(nearest, f64)
    bits = k.bitcast(nearest, dtype("u32"))
    toward_zero = k.select(k.abs(back) > k.abs(x), bits - 1, bits)
    odd = k.select(k.compare("ne", back, x), toward_zero | 1, bits)
    return k.bitcast(odd, f32)


def converted(x: Array, to: DType, saturate: bool = True) -> Array:
    """``x`` in another element type, as ``Cast`` defines it."""
    x = np.asarray(x)
    source = dtype(x.dtype)
    if source is to:
        return x.copy()
    if source.is_float8:
        x, source = x.astype(np.float32), f32
    if to is bool_:
        return x != 0
    if to.is_float8:
        return _float8(x, to, saturate)
    if source.is_float and to.is_int:
        return _saturated(x.astype(np.float64), to)
    if to is bf16 and (source is f64 or _exceeds_f32(source)):
        return _bf16(x)
    return x.astype(to.numpy)


def _exceeds_f32(dt: DType) -> bool:
    return dt.is_int and dt.bits > 16


def _saturated(x: Array, to: DType) -> Array:
    info = np.iinfo(to.numpy)
    least, most = to.numpy.type(info.min), to.numpy.type(info.max)
    # The bounds as floats; the upper one is the first value that does not fit.
    above, below = x >= float(info.max) + (to.bits < 64), x <= float(info.min)
    whole = np.where(above | below | np.isnan(x), 0.0, x).astype(to.numpy)
    return np.where(above, most, np.where(below, least, whole))


_MOST = {f8e4m3fn: np.float32(448), f8e5m2: np.float32(57344)}


def _float8(x: Array, to: DType, saturate: bool) -> Array:
    """Round to an 8-bit float once; ml_dtypes goes through f32, and never saturates."""
    x = _odd_single(x) if dtype(x.dtype) is f64 else x.astype(np.float32)
    if saturate:
        most = _MOST[to]
        x = np.clip(x, -most, most)
    return np.asarray(x).astype(to.numpy)


def _bf16(x: Array) -> Array:
    """Round f64 or integers to bf16 once; ml_dtypes goes through f32, which would be twice."""
    if dtype(x.dtype).is_int:
        x = _odd_double(x)
    return _odd_single(x).astype(bf16.numpy)


def _odd_single(x: Array) -> Array:
    """f64 as f32, rounded to odd; see ``_odd_f32``."""
    nearest = x.astype(np.float32)
    bits, back = nearest.view(np.uint32), nearest.astype(np.float64)
    toward_zero = bits - (np.abs(back) > np.abs(x)).astype(np.uint32)
    odd = np.where(back != x, toward_zero | np.uint32(1), bits)
    return odd.view(np.float32)


def _odd_double(x: Array) -> Array:
    """Integers as f64, rounded to odd where 53 bits do not hold them; see ``_odd_f64``."""
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)
    low, last = x.dtype.type(0x7FF), x.dtype.type(0x800)
    small = (x >> 53 == 0) | (x >> 53 == -1 if x.dtype.kind == "i" else False)
    sticky = np.where(x & low, (x & ~low) | last, x)
    return np.where(small, x, sticky).astype(np.float64)


def in_double(f: Callable[..., Array], *xs: Array) -> Array:
    """``f`` evaluated in f64 (c128 for complex types) and rounded once to the element type of the
    operands: what every reference of a float function gives, whatever the type."""
    dt = dtype(np.asarray(xs[0]).dtype)
    wide = (c128 if dt.is_complex else f64).numpy
    out = f(*(np.asarray(x, wide) for x in xs))
    return converted(np.asarray(out, wide), dt)


def widened(x: Value) -> Value:
    """A 16-bit float as f32, for a formula of several steps that is to be rounded once."""
    return x.cast(to=f32) if x.dtype in (f16, bf16) else x

"""Conversions between register types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx.codegen import float8
from rlx.codegen.complex import Complex, pair, parts
from rlx.codegen.reg import INDEX, Reg, mlir_type
from rlx.types import DType, bf16, bool_, f16, f32, f64, i32, i64

if TYPE_CHECKING:
    from rlx.codegen.builder import Kernel

__all__ = ["convert"]


def convert(k: Kernel, x: Reg, dt: DType) -> Reg:
    """Convert a register to another register type (see ``Kernel.cast``)."""
    src = x.dtype
    if src is dt:
        return x
    if dt in (f16, bf16):
        raise TypeError(f"kernel {k.name}: {dt} is a memory format; cast to f32 and use round_to")
    if src.is_float8:
        return convert(k, float8.widened(k, x), dt)
    if dt.is_float8:
        return float8.rounded(k, convert(k, x, f32), dt)
    if isinstance(x, Complex):
        return _from_complex(k, x, dt)
    if dt.is_complex:
        return pair(*parts(convert(k, x, dt.part)))
    if INDEX in (src, dt):
        return _index(k, x, dt)
    if dt is bool_:
        return k.compare("ne", x, 0)
    if src is bool_:
        one, zero = (k.const(n, dt, x.lanes) for n in (1, 0))
        return k.select(x, one, zero)
    return _from_float(k, x, dt) if src.is_float else _from_integer(k, x, dt)


def _from_complex(k: Kernel, x: Complex, dt: DType) -> Reg:
    if dt is bool_:
        return k.compare("ne", x, 0)
    if not dt.is_complex:
        raise TypeError(f"kernel {k.name}: {x.dtype} has no value in {dt}; take one of its parts")
    return pair(convert(k, x.re, dt.part), convert(k, x.im, dt.part))


def _op(k: Kernel, verb: str, x: Reg, dt: DType) -> Reg:
    return k.op(f"{verb} {x.name} : {x.mlir} to {mlir_type(dt, x.lanes)}", dt, x.lanes)


def _index(k: Kernel, x: Reg, dt: DType) -> Reg:
    word = i64 if k.target.index_bits == 64 else i32
    if dt is INDEX:
        if x.dtype.is_float or x.dtype is bool_:
            return _index(k, convert(k, x, word), INDEX)
        return _op(k, "arith.index_cast" if x.dtype.kind == "int" else "arith.index_castui", x, dt)
    if dt.is_float or dt is bool_:
        return convert(k, _op(k, "arith.index_cast", x, word), dt)
    return _op(k, "arith.index_cast", x, dt)


def _from_integer(k: Kernel, x: Reg, dt: DType) -> Reg:
    signed = x.dtype.kind == "int"
    if dt.is_float:
        return _op(k, "arith.sitofp" if signed else "arith.uitofp", x, dt)
    if dt.bits == x.dtype.bits:
        return Reg(k, x.name, dt, x.lanes)
    if dt.bits < x.dtype.bits:
        return _op(k, "arith.trunci", x, dt)
    return _op(k, "arith.extsi" if signed else "arith.extui", x, dt)


def _from_float(k: Kernel, x: Reg, dt: DType) -> Reg:
    if dt is f64:
        return _op(k, "arith.extf", x, dt)
    if dt is f32:
        return _op(k, "arith.truncf", x, dt)
    # Saturate: the instruction's result is undefined outside the type's range and for nan. The
    # bounds are powers of two, hence exact in any float type.
    signed = dt.kind == "int"
    top = float(2 ** (dt.bits - (1 if signed else 0)))
    low = -top if signed else 0.0
    most = 2 ** (dt.bits - (1 if signed else 0)) - 1
    least = -(most + 1) if signed else 0
    if dt.bits <= 16 and k.target.serial:
        return _narrow(k, x, dt, least, most)
    if dt is i32 and x.dtype is f32 and k.target.serial:
        cut = _cut(k, x, low, BELOW_I32)
        whole = k.select(x >= top, most, _op(k, "arith.fptosi", cut, dt))
        return k.select(k.compare("eq", x, x), whole, 0)
    above, below = x >= top, x <= low
    inside = k.logical_not(above | below | k.compare("ne", x, x))
    safe = k.select(inside, x, 0.0)
    whole = _op(k, "arith.fptosi" if signed else "arith.fptoui", safe, dt)
    return k.select(above, most, k.select(below, least, whole))


BELOW_I32 = 2.0**31 - 128
"""The largest f32 below 2 ** 31."""


def _cut(k: Kernel, x: Reg, least: float, most: float) -> Reg:
    """``x`` within two numbers; nan becomes the least."""
    # A maximum and a minimum in this form, of which nan comes out as a number, are one instruction.
    cut = k.select(x > float(least), x, float(least))
    return k.select(cut < float(most), cut, float(most))


def _narrow(k: Kernel, x: Reg, dt: DType, least: int, most: int) -> Reg:
    """To an integer whose ends the float type has: cut off before the conversion, by way of a
    32-bit integer, to which machines convert vectors."""
    wide = _op(k, "arith.fptosi", _cut(k, x, least, most), i32)
    if least == 0:  # so nan has become 0
        return _from_integer(k, wide, dt)
    zero = k.const(0, i32, x.lanes)
    return _from_integer(k, k.select(k.compare("eq", x, x), wide, zero), dt)

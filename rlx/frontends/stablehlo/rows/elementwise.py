"""Ops of elements, conversions, and constants."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
from ml_dtypes import finfo

from rlx.frontends.common.special import erfc
from rlx.frontends.stablehlo.node import Node, Result, as_type, constant_of, row
from rlx.ir.builders import builder
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant, Iota
from rlx.ops.pointwise.complex import Complex
from rlx.ops.pointwise.floats import WHOLE
from rlx.types import DTYPES, DType, bf16, bool_, f16, f32, f64, i64
from rlx.xp.elementwise import pow as _pow

__all__ = ["total_order"]

_SAME = {
    "abs": "abs", "atan2": "atan2", "ceil": "ceil", "cosine": "cos", "exponential": "exp",
    "exponential_minus_one": "expm1", "floor": "floor", "log": "log", "log_plus_one": "log1p",
    "logistic": "sigmoid", "negate": "neg", "round_nearest_even": "round", "rsqrt": "rsqrt",
    "sign": "sign", "sine": "sin", "sqrt": "sqrt", "subtract": "sub", "tan": "tan", "tanh": "tanh",
    "is_finite": "isfinite", "erf": "erf",
    **{f"chlo.{n}": n for n in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "conj", "cosh", "erf", "sinh", "square",
        "tan",
    )},
    "chlo.erf_inv": "erfinv", "chlo.is_inf": "isinf", "chlo.lgamma": "lgamma",
    "chlo.digamma": "digamma", "chlo.bessel_i1e": "bessel_i1e", "chlo.next_after": "nextafter",
    "popcnt": "popcount",
}  # fmt: skip
"""Ops that are ops of ours by another name."""

_OF_BOOLS = {
    "add": ("add", "logical_or"), "multiply": ("mul", "logical_and"),
    "maximum": ("maximum", "logical_or"), "minimum": ("minimum", "logical_and"),
    "and": ("bitwise_and", "logical_and"), "or": ("bitwise_or", "logical_or"),
    "xor": ("bitwise_xor", "logical_xor"), "not": ("bitwise_not", "logical_not"),
}  # fmt: skip
"""Ops that are another of ours for bools."""


def _method(numbers: str, bools: str) -> Callable[[Node], Result]:
    def f(n: Node) -> Result:
        found = builder(bools if n.x.dtype is bool_ else numbers)
        assert found is not None
        return found(*n.xs)

    return f


for _name, _own in _SAME.items():
    row(_name)(_method(_own, _own))
for _name, (_own, _bools) in _OF_BOOLS.items():
    row(_name)(_method(_own, _bools))


@row("constant")
def _constant(n: Node) -> Result:
    a = constant_of(n.op)
    if a.size > 1 and not any(a.strides):  # of one element, as often as it is wanted
        return Constant(np.ascontiguousarray(a.reshape(-1)[0])).out.expand(a.shape)
    return Constant(np.ascontiguousarray(a).reshape(a.shape)).out


@row("iota")
def _iota(n: Node) -> Result:
    return as_type(Iota(n.shape, n.int("iota_dimension"), i64).out, n.dtype)


@row("divide")
def _divide(n: Node) -> Result:
    return n.x.div(n.xs[1])


@row("remainder")
def _remainder(n: Node) -> Result:
    return n.x.fmod(n.xs[1])


@row("power")
def _power(n: Node) -> Result:
    if n.x.dtype.is_complex:
        return n.x.pow(n.xs[1])
    return _pow(n.x, n.xs[1])


@row("cbrt")
def _cbrt(n: Node) -> Result:
    return n.x.sign() * n.x.abs().pow(1 / 3)


@row("round_nearest_afz")
def _round(n: Node) -> Result:
    whole = n.x.trunc()
    away = (n.x - whole).abs().ge(0.5).where(n.x.sign(), n.x.zeros_like())
    return whole + away


@row("real")
def _real(n: Node) -> Result:
    return n.x.real() if n.x.dtype.is_complex else n.x


@row("imag")
def _imag(n: Node) -> Result:
    return n.x.imag() if n.x.dtype.is_complex else n.x.zeros_like()


@row("complex")
def _complex(n: Node) -> Result:
    return Complex.build(*n.xs)


@row("chlo.erfc")
def _erfc(n: Node) -> Result:
    return erfc(n.x)


@row("compare")
def _compare(n: Node) -> Result:
    a, b = n.xs
    direction = n.word("comparison_direction")
    if a.dtype is bool_ and direction not in ("EQ", "NE"):
        a, b = a.cast("u8"), b.cast("u8")
    total = n.has("compare_type") and n.word("compare_type") == "TOTALORDER"
    if total and a.dtype.is_float:
        a, b = total_order(a), total_order(b)
    found = builder(direction.lower())
    assert found is not None
    return found(a, b)


def total_order(x: Value) -> Value:
    """Integers in the total order of floats (IEEE 754, 5.10): -0.0 before 0.0, and nan at the end
    that its sign says."""
    bits = (x if x.dtype in (f32, f64) else x.cast(f32)).bitcast("i64" if x.dtype is f64 else "i32")
    most = _like(bits, np.iinfo(bits.dtype.numpy).max)
    return bits.lt(_like(bits, 0)).where(bits.bitwise_xor(most), bits)


@row("select")
def _select(n: Node) -> Result:
    condition, a, b = n.xs
    return condition.where(a, b)


@row("clamp")
def _clamp(n: Node) -> Result:
    low, x, high = n.xs
    return x.maximum(low).minimum(high)


@row("convert")
def _convert(n: Node) -> Result:
    dt = n.dtype
    if n.x.dtype is dt:
        return n.x
    if dt is bool_:
        return n.x.ne(n.x.zeros_like())
    x = n.x.real() if n.x.dtype.is_complex and not dt.is_complex else n.x
    return as_type(x, dt)


@row("bitcast_convert")
def _bitcast(n: Node) -> Result:
    to = n.dtype
    if n.x.dtype is to:
        return n.x
    if n.x.dtype in WHOLE and to in WHOLE and n.x.dtype.bits == to.bits:
        return n.x.bitcast(to)
    if n.x.dtype.is_int and to.is_float and n.x.dtype.bits == to.bits:
        return _of_bits(n.x, to)
    if n.x.dtype in (f16, bf16) and to.is_int and to.bits == 16:
        return _bits_of(n.x).cast(to)
    raise n.refuse(f"RLX reads the bits of {n.x.dtype} as {to} by no op yet")


def _bits_of(x: Value) -> Value:
    """The bits of floats of 16 bits, as u32. A nan is the one of its sign that machines make."""
    u = x.cast("f32").bitcast("u32")
    if x.dtype is bf16:
        return u.right_shift(_like(u, 16))
    sign = u.right_shift(_like(u, 16)).bitwise_and(_like(u, 0x8000))
    size = u.bitwise_and(_like(u, 0x7FFFFFFF))
    # Numbers below the least normal one are so many times 2**-24.
    small = (x.abs().cast("f32") * 2.0**24).minimum(2.0**11).cast("u32")
    normal = size.right_shift(_like(u, 13)) - _like(u, (127 - 15) << 10)
    special = size.gt(_like(u, 0x7F800000)).where(_like(u, 0x7E00), _like(u, 0x7C00))
    found = size.lt(_like(u, 0x38800000)).where(small, normal)
    return sign.bitwise_or(size.ge(_like(u, 0x47800000)).where(special, found))


def _of_bits(x: Value, to: DType) -> Value:
    """The floats that bits are: sign, exponent and fraction, put together without rounding. A nan
    loses what its bits say beyond that."""
    u, info = _unsigned(x), finfo(to.numpy)
    fraction_bits, exponent_bits = int(info.nmant), int(info.nexp)
    fraction = u.bitwise_and(_like(u, (1 << fraction_bits) - 1))
    exponent = u.right_shift(_like(u, fraction_bits))
    exponent = exponent.bitwise_and(_like(u, (1 << exponent_bits) - 1))
    negative = u.right_shift(_like(u, u.dtype.bits - 1)).ne(_like(u, 0))
    top = (1 << exponent_bits) - 1
    least = 2 - (1 << (exponent_bits - 1))
    # Of subnormal numbers the exponent is the least, and no 1 stands before the fraction.
    powers = np.ldexp(1.0, np.maximum(np.arange(top) - 1, 0) + least).astype(to.numpy)
    scale = Constant(powers).out.gather(exponent.cast("i64").minimum(top - 1), axis=0)
    hidden = exponent.ne(_like(u, 0)).where(_like(u, 1 << fraction_bits), _like(u, 0))
    digits = (fraction + hidden).cast(to) * float(np.ldexp(1.0, -fraction_bits))
    special = fraction.eq(_like(u, 0)).where(digits.full_like(np.inf), digits.full_like(np.nan))
    found = exponent.eq(_like(u, top)).where(special, digits * scale)
    return negative.where(-found, found)


_CASTS = {(8, 7): "bf16", (5, 10): "f16", (8, 23): "f32", (11, 52): "f64"}


@row("reduce_precision")
def _reduce_precision(n: Node) -> Result:
    bits = n.int("exponent_bits"), n.int("mantissa_bits")
    if bits not in _CASTS:
        raise n.refuse(f"there is no type of {bits[0]} exponent and {bits[1]} mantissa bits")
    to = DTYPES[_CASTS[bits]]
    return n.x if to.bits >= n.x.dtype.bits and to is not n.x.dtype else _rounded(n.x, to)


def _rounded(x: Value, to: DType) -> Value:
    return as_type(as_type(x, to), x.dtype)


# -- bits ----------------------------------------------------------------------------------


def _like(x: Value, n: int) -> Value:
    return Constant(np.asarray(n, x.dtype.numpy)).out


def _unsigned(x: Value) -> Value:
    return as_type(x, DTYPES[f"u{x.dtype.bits}"])


@row("shift_left")
def _shift_left(n: Node) -> Result:
    return as_type(_unsigned(n.x).left_shift(_unsigned(n.xs[1])), n.x.dtype)


@row("shift_right_logical")
def _shift_right_logical(n: Node) -> Result:
    return as_type(_unsigned(n.x).right_shift(_unsigned(n.xs[1])), n.x.dtype)


@row("shift_right_arithmetic")
def _shift_right_arithmetic(n: Node) -> Result:
    x, by = n.x, _unsigned(n.xs[1])
    by = by.minimum(_like(by, x.dtype.bits - 1))
    signed = DTYPES[f"i{x.dtype.bits}"]
    return as_type(as_type(x, signed).right_shift(as_type(by, signed)), x.dtype)


@row("count_leading_zeros")
def _count_leading_zeros(n: Node) -> Result:
    u = _unsigned(n.x)
    zeros = [u.right_shift(_like(u, i)).eq(_like(u, 0)) for i in range(u.dtype.bits)]
    return reduce(lambda a, b: a + b, (z.cast(n.x.dtype) for z in zeros))

"""Functions of elements: those of the array API standard, on Values and arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.ir.builders import builder
from rlx.ir.lift import promoted
from rlx.ir.value import Value
from rlx.types import bool_, f64
from rlx.xp.function import Operand, Term, function

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
    "where",
]  # fmt: skip


def _op(method: str) -> Callable[..., Any]:
    found = builder(method)
    assert found is not None, method
    return found


def _unary(name: str, method: str = "", *, whole: bool = False) -> Callable[..., Any]:
    """A function that is an op. If ``whole``, it leaves integers as they are."""
    method = method or name

    def f(x: Operand, /) -> Any:
        integer = isinstance(x, Value) and (x.dtype.is_int or x.dtype is bool_)
        if whole and integer:
            return x
        return _op(method)(x)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"The op ``{method}``, element by element."
    return function(f)


def _about_floats(name: str, integers: bool) -> Callable[..., Any]:
    """What is asked of floats: of integers the answer is known. If it is "yes" for them, it is for
    a complex number where it is for both parts, else where it is for one."""

    def f(x: Operand, /) -> Any:
        if x.dtype.is_complex:
            re, im = _op(name)(x.real()), _op(name)(x.imag())
            return re.logical_and(im) if integers else re.logical_or(im)
        if x.dtype.is_int or x.dtype is bool_:
            return x.eq(x) if integers else x.ne(x)
        return _op(name)(x)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"The op ``{name}``, element by element; of a complex number by its parts."
    return function(f)


def _binary(name: str, method: str = "") -> Callable[..., Any]:
    """A function of two operands that is an op; one of them may be a number."""
    method = method or name

    def f(x1: Term, x2: Term, /) -> Any:
        return _op(method)(*promoted(x1, x2))

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"The op ``{method}``, element by element; the operands broadcast."
    return function(f)


abs = _unary("abs")
acos = _unary("acos")
acosh = _unary("acosh")
asin = _unary("asin")
asinh = _unary("asinh")
atan = _unary("atan")
atanh = _unary("atanh")
bitwise_invert = _unary("bitwise_invert", "bitwise_not")
ceil = _unary("ceil", whole=True)
cos = _unary("cos")
cosh = _unary("cosh")
exp = _unary("exp")
expm1 = _unary("expm1")
floor = _unary("floor", whole=True)
isfinite = _about_floats("isfinite", integers=True)
isinf = _about_floats("isinf", integers=False)
isnan = _about_floats("isnan", integers=False)
log = _unary("log")
log1p = _unary("log1p")
log2 = _unary("log2")
logical_not = _unary("logical_not")
negative = _unary("negative", "neg")
round = _unary("round", whole=True)
sign = _unary("sign")
sin = _unary("sin")
sinh = _unary("sinh")
sqrt = _unary("sqrt")
square = _unary("square")
tan = _unary("tan")
tanh = _unary("tanh")
trunc = _unary("trunc", whole=True)

add = _binary("add")
atan2 = _binary("atan2")
bitwise_and = _binary("bitwise_and")
bitwise_left_shift = _binary("bitwise_left_shift", "left_shift")
bitwise_or = _binary("bitwise_or")
bitwise_right_shift = _binary("bitwise_right_shift", "right_shift")
bitwise_xor = _binary("bitwise_xor")
equal = _binary("equal", "eq")
floor_divide = _binary("floor_divide")
greater = _binary("greater", "gt")
greater_equal = _binary("greater_equal", "ge")
less = _binary("less", "lt")
less_equal = _binary("less_equal", "le")
logical_and = _binary("logical_and")
logical_or = _binary("logical_or")
logical_xor = _binary("logical_xor")
maximum = _binary("maximum")
minimum = _binary("minimum")
multiply = _binary("multiply", "mul")
not_equal = _binary("not_equal", "ne")
remainder = _binary("remainder")
subtract = _binary("subtract", "sub")

copysign = _binary("copysign")
nextafter = _binary("nextafter")


@function
def divide(x1: Term, x2: Term, /) -> Any:
    """The quotient; of integers as f64, as in NumPy."""
    a, b = promoted(x1, x2)
    if a.dtype.is_int or a.dtype is bool_:
        a, b = a.cast(f64), b.cast(f64)
    return a.div(b)


@function
def pow(x1: Term, x2: Term, /) -> Any:
    """``x1`` to the power ``x2``. Integers wrap; one to a negative power is 0, but of 1 and -1."""
    a, b = promoted(x1, x2)
    if not a.dtype.is_int:
        return a.pow(b)
    found, square_of = a.ones_like().expand(_shape(a, b)), a
    for bit in range(a.dtype.bits):
        odd = b.right_shift(bit).bitwise_and(1).eq(1)
        found = odd.where(found * square_of, found)
        square_of = square_of * square_of
    if a.dtype.kind == "uint":
        return found
    # Of integers only 1 and -1 have an inverse.
    unit = a.eq(1).where(1, a.eq(-1).where(_alternating(b), a.zeros_like()))
    return b.lt(0).where(unit, found)


def _alternating(b: Value) -> Value:
    """-1 to the power of an integer."""
    return b.bitwise_and(1).eq(1).where(b.ones_like().neg(), b.ones_like())


def _shape(a: Value, b: Value) -> Any:
    from rlx.types import broadcast_shapes

    return broadcast_shapes(a.shape, b.shape)


@function
def reciprocal(x: Operand, /) -> Any:
    """One over every element."""
    return 1.0 / x


@function
def positive(x: Operand, /) -> Any:
    """The elements as they are."""
    return x


@function
def conj(x: Operand, /) -> Any:
    """The complex conjugate; a real number is its own."""
    return x.conj() if x.dtype.is_complex else x


@function
def real(x: Operand, /) -> Any:
    """The real part."""
    return x.real() if x.dtype.is_complex else x


@function
def imag(x: Operand, /) -> Any:
    """The imaginary part, which of a real number is 0."""
    return x.imag() if x.dtype.is_complex else x.zeros_like()


@function
def log10(x: Operand, /) -> Any:
    """The logarithm to the base 10."""
    return x.log() * (1 / math.log(10))


@function
def hypot(x1: Term, x2: Term, /) -> Any:
    """The root of the sum of two squares, without overflow where it has none itself."""
    a, b = (v.abs() for v in promoted(x1, x2))
    large, small = a.maximum(b), a.minimum(b)
    ratio = small / large.eq(0).where(1, large)
    found = large * (ratio * ratio + 1).sqrt()
    return a.isinf().logical_or(b.isinf()).where(math.inf, found)


@function
def logaddexp(x1: Term, x2: Term, /) -> Any:
    """The logarithm of the sum of two exponentials."""
    a, b = promoted(x1, x2)
    large = a.maximum(b)
    apart = (a - b).abs()
    found = large + (-apart).exp().log1p()
    return a.eq(b).where(large + math.log(2), found)  # of infinities too


@function
def signbit(x: Operand, /) -> Any:
    """Whether the sign of a float is set: of -0.0 and of some nan too."""
    return x.ones_like().copysign(x).lt(0)


@function
def clip(x: Operand, /, min: Term | None = None, max: Term | None = None) -> Any:
    """The elements within bounds, numbers or arrays; None leaves a side open."""
    found = x
    for bound, side in ((min, "maximum"), (max, "minimum")):
        if bound is not None:
            found = _op(side)(*promoted(found, bound))
    return found if found.dtype is x.dtype else found.cast(x.dtype)


@function
def where(condition: Term, x1: Term, x2: Term, /) -> Any:
    """``x1`` where the condition is true, ``x2`` elsewhere."""
    if not isinstance(x1, Value) and not isinstance(x2, Value):
        return _op("where")(condition, np.asarray(x1), np.asarray(x2))
    return _op("where")(condition, *promoted(x1, x2))

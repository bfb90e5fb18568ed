"""Functions of one element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.frontends.onnx.export.writer import Name, Row, Rows, Writer, elem_type, same
from rlx.types import DType, bool_, f32, i32

__all__ = ["ROWS", "choice"]


def bent(kind: str, *attributes: str) -> Row:
    """An activation whose attributes have the same names."""

    def row(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
        return w.node(kind, *xs, **{a: float(getattr(op, a)) for a in attributes})

    return row


def ends(kind: str, **attributes: Any) -> Row:
    """A question that is asked of floats alone: no integer is nan or infinite."""

    def row(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
        if op.x.dtype.is_float:
            return w.node(kind, *xs, **attributes)
        found = w.node("Equal", xs[0], xs[0])
        return w.node("Not", found)

    return row


def inverse_root(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    return w.node("Reciprocal", w.node("Sqrt", *xs))


def quotient(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    """Of integers with 0 for a divisor of 0, and no trap for the least over -1."""
    x, y = xs
    dt = op.out.dtype
    if not dt.is_int:
        return w.node("Div", x, y)
    zero, one = w.constant(0, dt), w.constant(1, dt)
    none = w.node("Equal", y, zero)
    if dt.kind == "uint":
        found = w.node("Div", x, w.node("Where", none, one, y))
        return w.node("Where", none, zero, found)
    minus = w.node("Equal", y, w.constant(-1, dt))
    found = w.node("Div", x, w.node("Where", w.node("Or", none, minus), one, y))
    found = w.node("Where", minus, w.node("Sub", zero, x), found)
    return w.node("Where", none, zero, found)


def left_over(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    """With the sign of the dividend; an integer over 0 leaves 0."""
    if op.out.dtype.is_float:
        return w.node("Mod", *xs, fmod=1)
    zero, one = w.constant(0, op.out.dtype), w.constant(1, op.out.dtype)
    none = w.node("Equal", xs[1], zero)
    found = w.node("Mod", xs[0], w.node("Where", none, one, xs[1]), fmod=1)
    return w.node("Where", none, zero, found)


def cast(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    """From floats to integers beyond their range it is the nearest, where ONNX leaves it open.
    Between 8-bit floats and what is no float it goes by way of f32."""
    x, source, to = xs[0], op.x.dtype, op.to
    if source.is_float8 and not to.is_float:
        x, source = w.cast(x, f32), f32
    if to.is_float8:
        x = x if source.is_float else w.cast(x, f32)
        return w.node("Cast", x, to=elem_type(to, "a cast"), saturate=int(op.saturate))
    if not (source.is_float and to.is_int):
        return w.cast(x, to)
    if source.bits < 32:
        x, source = w.cast(x, f32), f32
    x = w.node("Where", w.node("IsNaN", x), w.constant(0, source), x)
    info = np.iinfo(to.numpy)
    high = np.asarray(info.max, source.numpy)
    while float(high) > info.max:
        high = np.nextafter(high, np.zeros_like(high))
    exact = int(high) == info.max
    low, high = w.constant(info.min, source), w.constant(high)
    inside = w.cast(w.node("Clip", x, low, high), to)
    if exact:
        return inside
    return w.node("Where", w.node("Greater", x, high), w.constant(info.max, to), inside)


def extreme(kind: str, of_bools: str) -> Row:
    """The larger or the smaller; of bools an or, or an and."""

    def row(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
        return w.node(of_bools if op.out.dtype is bool_ else kind, *xs)

    return row


def compared(kind: str) -> Row:
    """A comparison; bools are compared as integers."""

    def row(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
        if op.lhs.dtype is bool_ and kind != "Equal":
            xs = [w.cast(x, i32) for x in xs]
        return w.node(kind, *xs)

    return row


def chosen(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    return choice(w, op.out.dtype, *xs)


def choice(w: Writer, dt: DType, mask: Name, x: Name, y: Name) -> Name:
    """``x`` where a mask is true and ``y`` elsewhere; of bools by logic, which ONNX Runtime has no
    Where of."""
    if dt is not bool_:
        return w.node("Where", mask, x, y)
    return w.node("Or", w.node("And", mask, x), w.node("And", w.node("Not", mask), y))


def differs(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    return w.node("Not", w.node("Equal", *xs))


def negated(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    if op.x.dtype.kind != "uint":
        return w.node("Neg", *xs)
    return w.node("Sub", w.constant(0, op.x.dtype), *xs)


def rectified(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    if op.x.dtype.kind == "uint":
        return w.node("Identity", *xs)
    if op.x.dtype.is_float:
        return w.node("Relu", *xs)
    return w.node("Max", xs[0], w.constant(0, op.x.dtype))


def celu(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    """Which ONNX has of f32 alone."""
    dt = op.x.dtype
    x = xs[0] if dt is f32 else w.cast(xs[0], f32)
    if dt.bits > 32:
        raise UnsupportedError(f"ONNX has Celu of f32 alone, found {dt}")
    found = w.node("Celu", x, alpha=float(op.alpha))
    return found if dt is f32 else w.cast(found, dt)


def relu6(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    dt = op.out.dtype
    return w.node("Clip", xs[0], w.constant(0, dt), w.constant(6, dt))


def silu(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    return w.node("Mul", xs[0], w.node("Sigmoid", xs[0]))


ROWS: Rows = {
    **{f"mir.{name}": same(kind) for name, kind in {
        "add": "Add", "sub": "Sub", "mul": "Mul", "pow": "Pow", "logical_and": "And",
        "logical_or": "Or", "logical_xor": "Xor", "logical_not": "Not",
        "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor",
        "bitwise_not": "BitwiseNot", "exp": "Exp", "log": "Log", "sqrt": "Sqrt",
        "abs": "Abs", "sin": "Sin", "cos": "Cos", "tan": "Tan", "atan": "Atan",
        "round": "Round", "floor": "Floor", "ceil": "Ceil", "sign": "Sign", "asin": "Asin",
        "acos": "Acos", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh",
        "atanh": "Atanh", "gelu": "Gelu", "sigmoid": "Sigmoid", "tanh": "Tanh", "erf": "Erf",
        "softplus": "Softplus", "mish": "Mish", "softsign": "Softsign", "hard_swish": "HardSwish",
    }.items()},
    **{f"mir.{name}": compared(kind) for name, kind in {
        "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
    }.items()},
    "mir.ne": differs, "mir.where": chosen,
    "mir.maximum": extreme("Max", "Or"), "mir.minimum": extreme("Min", "And"),
    "mir.isnan": ends("IsNaN"), "mir.isinf": ends("IsInf"), "mir.rsqrt": inverse_root,
    "mir.div": quotient, "mir.cast": cast, "mir.gelu_approx": same("Gelu", approximate="tanh"),
    "mir.neg": negated, "mir.relu": rectified, "mir.silu": silu, "mir.relu6": relu6,
    "mir.selu": same("Selu"), "mir.fmod": left_over,
    "mir.elu": bent("Elu", "alpha"), "mir.celu": celu,
    "mir.leaky_relu": bent("LeakyRelu", "alpha"),
    "mir.hard_sigmoid": bent("HardSigmoid", "alpha", "beta"),
}  # fmt: skip

"""Algebraic rules as rows of text, and the matcher that applies them to mir ops.

A row must hold bit for bit on every element type it names, with nan, infinities, signed zeros and
overflow: a test evaluates both sides on such values. That is why ``x * 0 --> 0`` is here for
integers only, and why adding zero to a float is written with ``-0.0``.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Literal

import numpy as np

from rlx._mlir import ir, raw_elements
from rlx.dialects.convert import from_attr, from_type
from rlx.errors import PassError, did_you_mean
from rlx.lowering.region import producer
from rlx.ops import OP_MODULES
from rlx.ops.attrs import repeats
from rlx.ops.base import op_class
from rlx.ops.constant import Constant
from rlx.records import frozen
from rlx.types import DType

__all__ = ["RULES", "Call", "Pattern", "Rule", "constant_of", "splat_of"]


@frozen
class Call:
    """An op applied to patterns."""

    op: str
    args: tuple[Pattern, ...]


Pattern = Call | str | float
"""An op on patterns, a variable, or a number (a constant with all elements equal)."""


@frozen
class Rule:
    """``before --> after`` on element types of ``kinds``; an op stands for ``mir.<op>``."""

    name: str
    text: str
    kinds: tuple[Literal["float", "int", "uint", "bool"], ...] = ("float", "int", "uint")
    before: Call = field(init=False)
    after: Pattern = field(init=False)

    def __post_init__(self) -> None:
        left, right = (side.strip() for side in self.text.split("-->"))
        before, after = _parse(left), _parse(right)
        assert isinstance(before, Call), f"{self.name}: the left side must be an op"
        object.__setattr__(self, "before", before)
        object.__setattr__(self, "after", after)

    def match(self, op: ir.Operation, dt: DType) -> dict[str, ir.Value] | None:
        """The values of the variables if the rule applies to ``op`` with result type ``dt``."""
        if dt.kind not in self.kinds or op.name != f"mir.{self.before.op}":
            return None
        found: dict[str, ir.Value] = {}
        return found if _match(self.before, op, found) else None


_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|-?\d+(?:\.\d+)?|[(),])")


def _parse(text: str) -> Pattern:
    tokens = _TOKEN.findall(text)
    at = 0

    def expression() -> Pattern:
        nonlocal at
        token = tokens[at]
        at += 1
        if token[0].isdigit() or token[0] == "-":
            return float(token)
        if at < len(tokens) and tokens[at] == "(":
            _check_op(token, text)
            args: list[Pattern] = []
            while tokens[at] != ")":
                at += 1
                args.append(expression())
            at += 1
            return Call(token, tuple(args))
        return token

    return expression()


def _check_op(short: str, text: str) -> None:
    """PassError for what a rule cannot name."""
    if f"mir.{short}" not in OP_MODULES:
        near = did_you_mean(short, [name.removeprefix("mir.") for name in OP_MODULES])
        raise PassError(f"rule {text!r}: no op of mir is called {short!r}{near}")
    op = op_class(f"mir.{short}")
    if not op.pointwise or op.attr_fields:
        raise PassError(
            f"rule {text!r}: a row is of pointwise ops without attributes, found {short!r}; write a"
            " function in rlx/lowering/simplify.py"
        )


_INTS: tuple[Literal["int", "uint"], ...] = ("int", "uint")

RULES: tuple[Rule, ...] = (
    Rule("add-negative-zero", "add(x, -0.0) --> x", ("float",)),
    Rule("negative-zero-add", "add(-0.0, x) --> x", ("float",)),
    Rule("add-zero", "add(x, 0) --> x", _INTS),
    Rule("zero-add", "add(0, x) --> x", _INTS),
    Rule("sub-zero", "sub(x, 0) --> x"),
    Rule("sub-self", "sub(x, x) --> 0", _INTS),
    Rule("mul-one", "mul(x, 1) --> x"),
    Rule("one-mul", "mul(1, x) --> x"),
    Rule("mul-zero", "mul(x, 0) --> 0", _INTS),
    Rule("zero-mul", "mul(0, x) --> 0", _INTS),
    Rule("div-one", "div(x, 1) --> x"),
    Rule("double-neg", "neg(neg(x)) --> x", ("float", "int")),
    Rule("sub-from-negative-zero", "sub(-0.0, x) --> neg(x)", ("float",)),
    Rule("abs-abs", "abs(abs(x)) --> abs(x)", ("float", "int", "uint")),
    Rule("abs-neg", "abs(neg(x)) --> abs(x)", ("float", "int")),
    Rule("relu-relu", "relu(relu(x)) --> relu(x)"),
    Rule("max-self", "maximum(x, x) --> x"),
    Rule("min-self", "minimum(x, x) --> x"),
    Rule("double-not", "logical_not(logical_not(x)) --> x", ("bool",)),
    Rule("and-self", "logical_and(x, x) --> x", ("bool",)),
    Rule("or-self", "logical_or(x, x) --> x", ("bool",)),
    Rule("where-same", "where(c, x, x) --> x", ("float", "int", "uint", "bool")),
)


def _match(pattern: Call, op: ir.Operation, found: dict[str, ir.Value]) -> bool:
    if op.name != f"mir.{pattern.op}" or len(op.operands) != len(pattern.args):
        return False
    for p, v in zip(pattern.args, op.operands, strict=True):
        if isinstance(p, str):
            if found.setdefault(p, v) != v:
                return False
        elif isinstance(p, Call):
            inner = producer(v)
            if inner is None or not _match(p, inner, found):
                return False
        else:
            value = splat_of(v)
            if (
                value is None
                or np.iscomplexobj(value)
                or float(value) != p
                or np.signbit(float(value)) != np.signbit(p)
            ):
                return False
    return True


def constant_of(v: ir.Value) -> np.ndarray | None:
    """The array of a value that a ``mir.constant`` defines, else None."""
    op = producer(v)
    if op is None or op.name != Constant.name:
        return None
    return from_attr(op.attributes["value"], "Array")


def splat_of(v: ir.Value) -> np.generic | None:
    """The one element of a constant whose elements are all equal (by their bits), else None."""
    op = producer(v)
    if op is None or op.name != Constant.name:
        return None
    if isinstance(op.attributes["value"], ir.ArrayAttr):
        array = from_attr(op.attributes["value"], "Array")
        return array.reshape(-1)[0] if repeats(array) else None
    dense = ir.DenseElementsAttr(op.attributes["value"])
    if not dense.is_splat:
        return None
    dt = from_type(v.type).dtype
    if dt.kind == "bool":
        return np.bool_(ir.BoolAttr(dense.get_splat_value()).value)
    return np.frombuffer(raw_elements(dense, dt.bytes), dt.numpy)[0]

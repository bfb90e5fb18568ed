"""Algebraic rules as rows of text, and the matcher that applies them to mir ops.

A row must hold bit for bit on every element type it names, with nan, infinities, signed zeros and
overflow: a test evaluates both sides on such values. That is why ``x * 0 --> 0`` is here for
integers only, and why adding zero to a float is written with ``-0.0``.

A row is ``before --> after``, and may end in guards, joined by ``and``: ``where uses(x) == 1``
holds where x is used once, ``where dtype(c) is bool`` says the kind of a variable that has not the
kind of the result, ``where type(x) is result`` that it has the whole type of it. The operands of an
op that commutes (``Op.commutes``) match in either order. ``flip[axes=a](x)`` names attributes: a
name that comes twice stands for equal ones. An attribute that the left side does not name may be
anything; the right side names all that have no default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Literal, NamedTuple

import numpy as np

from rlx._mlir import ir, raw_elements
from rlx.base.frozen import frozen
from rlx.dialects.convert import from_attr, from_type
from rlx.dialects.held import array_of
from rlx.errors import PassError, did_you_mean
from rlx.ir.attrs import repeats
from rlx.ir.op import REQUIRED, op_class
from rlx.lowering.region import producer
from rlx.ops import OP_MODULES
from rlx.ops.movement.constant import Constant
from rlx.types import DType

__all__ = [
    "RULES", "Call", "Match", "Pattern", "Rule", "constant_of", "depth", "splat_of", "variables",
]  # fmt: skip


@frozen
class Call:
    """An op applied to patterns; ``attrs`` are names of attributes and of what stands for them."""

    op: str
    args: tuple[Pattern, ...]
    attrs: tuple[tuple[str, str], ...] = ()


Pattern = Call | str | float
"""An op on patterns, a variable, or a number (a constant with all elements equal)."""


Kind = Literal["float", "float8", "int", "uint", "bool", "complex"]


class Match(NamedTuple):
    """What the variables of a rule stand for, values and attributes, and the ops below the root
    that its left side names."""

    values: Mapping[str, ir.Value]
    attrs: Mapping[str, ir.Attribute]
    below: tuple[ir.Operation, ...]


_NOTHING = Match({}, {}, ())


@frozen
class Guards:
    """What must hold of variables: how often they are used, their kinds, and which of them have the
    type of the result."""

    uses: dict[str, int]
    kinds: dict[str, str]
    same: list[str]

    def hold(self, match: Match, op: ir.Operation) -> bool:
        """Whether they do for a match at an op."""
        found = match.values
        return (
            all(found[v].type == op.results[0].type for v in self.same)
            and all(len(list(found[v].uses)) == n for v, n in self.uses.items())
            and all(from_type(found[v].type).dtype.kind == k for v, k in self.kinds.items())
        )


@frozen
class Rule:
    """``before --> after`` on element types of ``kinds``; an op stands for ``mir.<op>``."""

    name: str
    text: str
    kinds: tuple[Kind, ...] = ("float", "int", "uint")
    before: Call = field(init=False)
    after: Pattern = field(init=False)
    guards: Guards = field(init=False)

    def __post_init__(self) -> None:
        sides, *guards = _WHERE.split(self.text, maxsplit=1)
        left, right = (side.strip() for side in sides.split("-->"))
        before, after = _parse(left), _parse(right)
        assert isinstance(before, Call), f"{self.name}: the left side must be an op"
        known = variables(before)
        unknown = (variables(after) - known) | (named(after) - named(before))
        if unknown:
            raise PassError(f"rule {self.text!r}: {min(unknown)} is not on the left side")
        for op, missing in _unnamed(after):
            raise PassError(f"rule {self.text!r}: {op} on the right side needs {missing}=name")
        object.__setattr__(self, "before", before)
        object.__setattr__(self, "after", after)
        object.__setattr__(self, "guards", _guards(guards[0] if guards else "", known, self.text))

    def match(self, op: ir.Operation, dt: DType) -> Match | None:
        """What the variables stand for if the rule applies to ``op`` with result type ``dt``."""
        if dt.kind not in self.kinds:
            return None
        found = _matches(self.before, op, _NOTHING)
        return next((m for m in found if self.guards.hold(m, op)), None)


def variables(p: Pattern) -> set[str]:
    """The variables of a pattern."""
    if isinstance(p, Call):
        return set[str]().union(*map(variables, p.args))
    return {p} if isinstance(p, str) else set()


def named(p: Pattern) -> set[str]:
    """What stands for attributes in a pattern."""
    if not isinstance(p, Call):
        return set()
    return {name for _, name in p.attrs}.union(*map(named, p.args))


def _unnamed(p: Pattern) -> Iterator[tuple[str, str]]:
    """The ops of a pattern that lack an attribute without a default, and which."""
    if isinstance(p, Call):
        given = dict(p.attrs)
        for a in op_class(f"mir.{p.op}").attr_fields:
            if a.name not in given and a.default is REQUIRED:
                yield p.op, a.name
        for arg in p.args:
            yield from _unnamed(arg)


def depth(p: Pattern) -> int:
    """How many ops lie one above the other in a pattern; a number is a constant, and so an op."""
    if isinstance(p, Call):
        return 1 + max(map(depth, p.args), default=0)
    return 0 if isinstance(p, str) else 1


_WHERE = re.compile(r"\s+where\s+(?=[a-z])")
_USES = re.compile(r"uses\((\w+)\) == (\d+)")
_KIND = re.compile(r"dtype\((\w+)\) is (float|int|uint|bool|complex)")
_SAME = re.compile(r"type\((\w+)\) is result")


def _guards(said: str, known: set[str], text: str) -> Guards:
    """The guards of a rule; PassError for what is none."""
    found = Guards({}, {}, [])
    for guard in re.split(r"\s+and\s+", said.strip()) if said else ():
        uses, kind, same = (p.fullmatch(guard) for p in (_USES, _KIND, _SAME))
        name = (uses or kind or same or [None, None])[1]
        if name not in known:
            raise PassError(
                f"rule {text!r}: the guard {guard!r} is none; write uses(x) == 1, dtype(x) is"
                " float, int, uint, bool or complex, or type(x) is result, of a variable of the"
                " left side"
            )
        if uses:
            found.uses[uses[1]] = int(uses[2])
        elif kind:
            found.kinds[kind[1]] = kind[2]
        else:
            found.same.append(name)
    return found


_TOKEN = re.compile(r"\s*([A-Za-z_]\w*(?:\[[^\]]*\])?|-?\d+(?:\.\d+)?|[(),])")
_NAMED = re.compile(r"(\w+)=(\w+)")


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
            op, attrs = _op_of(token, text)
            args: list[Pattern] = []
            while tokens[at] != ")":
                at += 1
                args.append(expression())
            at += 1
            return Call(op, tuple(args), attrs)
        return token

    return expression()


def _op_of(token: str, text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The op and the attributes that a token names; PassError for what a rule cannot name."""
    short, _, rest = token.partition("[")
    if f"mir.{short}" not in OP_MODULES:
        near = did_you_mean(short, [name.removeprefix("mir.") for name in OP_MODULES])
        raise PassError(f"rule {text!r}: no op of mir is called {short!r}{near}")
    op = op_class(f"mir.{short}")
    attrs: list[tuple[str, str]] = []
    for part in filter(None, (p.strip() for p in rest.rstrip("]").split(","))):
        found = _NAMED.fullmatch(part)
        own = [a.name for a in op.attr_fields]
        if found is None or found[1] not in own:
            listed = ", ".join(own) or "none"
            raise PassError(
                f"rule {text!r}: {part!r} is no attribute of {short} with a name for it, such as"
                f" axes=a; it has {listed}"
            )
        attrs.append((found[1], found[2]))
    return short, tuple(attrs)


_INTS: tuple[Kind, ...] = ("int", "uint")
_REAL: tuple[Kind, ...] = ("float", "float8", "int", "uint", "bool")
_ANY: tuple[Kind, ...] = (*_REAL, "complex")

RULES: tuple[Rule, ...] = (
    Rule("add-negative-zero", "add(x, -0.0) --> x", ("float",)),
    Rule("add-zero", "add(x, 0) --> x", _INTS),
    Rule("sub-zero", "sub(x, 0) --> x"),
    Rule("sub-self", "sub(x, x) --> 0", _INTS),
    Rule("mul-one", "mul(x, 1) --> x"),
    Rule("mul-zero", "mul(x, 0) --> 0", _INTS),
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
    Rule("where-same", "where(c, x, x) --> x where dtype(c) is bool", _REAL),
    # Movement that moves nothing goes, and two of a kind become one.
    Rule("same-reshape", "reshape(x) --> x where type(x) is result", _ANY),
    Rule("merge-reshapes", "reshape[shape=s](reshape(x)) --> reshape[shape=s](x)", _ANY),
    Rule("same-expand", "expand(x) --> x where type(x) is result", _ANY),
    Rule("merge-expands", "expand[shape=s](expand(x)) --> expand[shape=s](x)", _ANY),
    Rule("same-cast", "cast(x) --> x where type(x) is result", _REAL),
    Rule("same-slice", "slice(x) --> x where type(x) is result", _ANY),
    Rule("double-flip", "flip[axes=a](flip[axes=a](x)) --> x", _ANY),
)


def _matches(pattern: Call, op: ir.Operation, match: Match) -> Iterator[Match]:
    """The ways in which an op is an instance of a pattern, given what was found before."""
    if op.name != f"mir.{pattern.op}" or len(op.operands) != len(pattern.args):
        return
    for attr, name in pattern.attrs:
        own = op.attributes[attr]
        if match.attrs.get(name, own) != own:
            return
        match = match._replace(attrs={**match.attrs, name: own})
    operands = list(op.operands)
    orders = [operands]
    if op_class(op.name).commutes and operands[0] != operands[1]:
        orders.append(operands[::-1])
    for order in orders:
        yield from _all_match(pattern.args, order, match)


def _all_match(
    patterns: Sequence[Pattern], values: Sequence[ir.Value], match: Match
) -> Iterator[Match]:
    if not patterns:
        yield match
        return
    (p, *others), (v, *rest) = patterns, values
    if isinstance(p, Call):
        source = producer(v)
        if source is None:
            return
        for more in _matches(p, source, match._replace(below=(*match.below, source))):
            yield from _all_match(others, rest, more)
    elif isinstance(p, str):
        if match.values.get(p, v) == v:
            yield from _all_match(others, rest, match._replace(values={**match.values, p: v}))
    elif _is_number(v, p):
        yield from _all_match(others, rest, match)


def _is_number(v: ir.Value, p: float) -> bool:
    """Whether a value is a constant with all elements equal to a number, its sign included."""
    value = splat_of(v)
    if value is None or np.iscomplexobj(value):
        return False
    return float(value) == p and bool(np.signbit(float(value)) == np.signbit(p))


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
    if array_of(op.attributes["value"]) is not None:
        return None  # what repeats an element is never held
    dense = ir.DenseElementsAttr(op.attributes["value"])
    if not dense.is_splat:
        return None
    dt = from_type(v.type).dtype
    if dt.kind == "bool":
        return np.bool_(ir.BoolAttr(dense.get_splat_value()).value)
    return np.frombuffer(raw_elements(dense, dt.bytes), dt.numpy)[0]

"""Every algebraic rule, both sides evaluated on every element type it names: bit for bit.

The values hold nan, infinities, both zeros, the largest, smallest and subnormal numbers. Only the
sign and payload of a nan are free: no element type gives them a meaning.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from rlx.errors import PassError
from rlx.ir.attrs import parts_of
from rlx.ir.interpreter import evaluate
from rlx.ir.op import op_class, placeholders
from rlx.lowering.rules import RULES, Pattern, Rule, depth, variables
from rlx.types import DTYPES, DType, TensorType, bool_
from support.samples import op_classes

Array = np.ndarray[Any, Any]


def extremes(dt: DType) -> Array:
    """Values at which an identity may break."""
    if dt is bool_:
        return np.array([False, True])
    if dt.is_complex:
        part = extremes(dt.part)
        return np.ascontiguousarray(np.stack([part, part[::-1]], -1)).view(dt.numpy).reshape(-1)
    if dt.is_int:
        info = np.iinfo(dt.numpy)
        near = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2, 0, 1, 2, 3, 7]
        return np.array([*near, *([] if dt.kind == "uint" else [-1, -2, -7])], dt.numpy)
    bits = np.dtype(f"u{dt.bytes}")
    largest = {
        "f16": 65504.0,
        "bf16": 3.3895e38,
        "f32": 3.4028234e38,
        "f64": 1.7976931348623157e308,
        "f8e4m3fn": 448.0,
        "f8e5m2": 57344.0,
    }
    numbers = [0.0, 1.0, 0.1, 1.5, 2.5, 1e-3, 7.0, largest[dt.name], np.inf, np.nan]
    small = np.array([1, 3], bits).view(dt.numpy)  # subnormal
    a = np.concatenate([np.array(numbers).astype(dt.numpy), small])
    return np.concatenate([a, (-a).astype(dt.numpy)])


MOVES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "same-reshape": ((2, 3), {"shape": (2, 3)}),
    "merge-reshapes": ((2, 3, 4), {"shape": (6, 4), "s": (4, 6)}),
    "same-expand": ((2, 3), {"shape": (2, 3)}),
    "merge-expands": ((1, 3), {"shape": (2, 3), "s": (4, 2, 3)}),
    "same-cast": ((24,), {"to": None, "saturate": True}),
    "same-slice": ((2, 3), {"starts": (0, 0), "sizes": (2, 3), "steps": (1, 1)}),
    "double-flip": ((2, 3, 2), {"a": (0, 2)}),
}
"""For a rule of ops with attributes the shape of its variable, and the attributes: those that it
names by these names, the others by their own. None is the element type at hand."""


def value_of(
    p: Pattern, given: dict[str, Array], dt: DType, n: int, known: dict[str, Any]
) -> Array:
    """A side of a rule on arrays of ``n`` elements; a number has the element type of the result."""
    if isinstance(p, str):
        return given[p]
    if isinstance(p, float):
        return np.full(n, p).astype(dt.numpy)
    arrays = [value_of(a, given, dt, n, known) for a in p.args]
    types = [TensorType.of(a.shape, a.dtype) for a in arrays]
    cls, names = op_class(f"mir.{p.op}"), dict(p.attrs)
    attrs = {a.name: known[names.get(a.name, a.name)] for a in cls.attr_fields}
    attrs = {name: dt if v is None else v for name, v in attrs.items()}
    return evaluate(cls(*placeholders(types), **attrs), list(arrays))[0]


def dtypes_of(rule: Rule) -> list[DType]:
    """The element types on which the left side exists."""
    return [
        d
        for d in DTYPES.values()
        if d.kind in rule.kinds and d in op_class(f"mir.{rule.before.op}").dtypes
    ]


def broken(rule: Rule, dt: DType) -> str | None:
    """Values on which the two sides differ, or None. All combinations of extremes are tried."""
    names = sorted(variables(rule.before))
    kinds = [bool_ if rule.guards.kinds.get(name) == "bool" else dt for name in names]
    table = list(itertools.product(*(extremes(k) for k in kinds)))
    columns = zip(*table, strict=True) if names else []
    given = {n: np.array(c).astype(k.numpy) for n, k, c in zip(names, kinds, columns, strict=True)}
    shape, known = MOVES.get(rule.name, ((len(table),), {}))
    given = {n: np.resize(a, shape) for n, a in given.items()}
    left = value_of(rule.before, given, dt, len(table), known)
    right = value_of(rule.after, given, dt, len(table), known)
    if left.dtype != right.dtype:
        return f"{left.dtype} becomes {right.dtype}"
    if dt.is_complex:
        left, right = (parts_of(a) for a in (left, right))
    left, right = left.reshape(-1), right.reshape(-1)
    raw = f"u{left.dtype.itemsize}"
    same = left.view(raw) == right.view(raw)
    if dt.is_float or dt.is_complex:
        same |= np.isnan(left.astype(np.float64)) & np.isnan(right.astype(np.float64))
    if same.all():
        return None
    i = int(np.argmin(same))
    if rule.name in MOVES:
        return f"element {i}: {left[i]} becomes {right[i]}"
    return f"{ {n: a[i] for n, a in given.items()} }: {left[i]} becomes {right[i]}"


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_changes_no_bit(rule: Rule) -> None:
    dtypes = dtypes_of(rule)
    assert {d.kind for d in dtypes} == set(rule.kinds), "a kind on which the rule never applies"
    for dt in dtypes:
        assert broken(rule, dt) is None, f"{rule.text} on {dt}: {broken(rule, dt)}"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("mul(x, 0) --> 0", "float"),  # nan, inf and -1
        ("add(x, 0) --> x", "float"),  # -0.0
        ("sub(-0.0, x) --> x", "float"),
        ("sub(x, x) --> 0", "float"),  # inf
        ("sub(0, x) --> neg(x)", "float"),  # 0.0
        ("div(x, x) --> 1", "float"),
        ("sub(add(x, y), y) --> x", "float"),  # rounding, overflow
        ("abs(x) --> x", "int"),
        ("div(mul(x, 2), 2) --> x", "int"),  # overflow
        ("neg(x) --> x", "uint"),
        ("where(c, x, y) --> x where dtype(c) is bool", "int"),
        ("logical_and(x, y) --> x", "bool"),
    ],
)
def test_a_wrong_rule_is_found(text: str, kind: Any) -> None:
    rule = Rule("wrong", text, (kind,))
    assert all(broken(rule, dt) for dt in dtypes_of(rule))


def test_every_row_is_named_once() -> None:
    names = [r.name for r in RULES]
    assert len(set(names)) == len(names)


def test_a_rule_without_an_op_on_the_left_is_refused() -> None:
    with pytest.raises(AssertionError, match="left side must be an op"):
        Rule("odd", "x --> x")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("add(x, 0) --> y", "y is not on the left side"),
        ("add(x, 0) --> x where uses(y) == 1", "uses\\(y\\) == 1' is none"),
        ("add(x, 0) --> x where uses(x) == 1 and dtype(x) is f32", "dtype\\(x\\) is f32' is none"),
        ("add(x, 0) --> x where x > 0", "'x > 0' is none; write uses"),
        ("add(x, 0) --> x where type(y) is result", "type\\(y\\) is result' is none"),
        ("flip(x) --> flip[axes=a](x)", "a is not on the left side"),
        ("flip[axis=a](x) --> x", "'axis=a' is no attribute of flip .* it has axes"),
        ("flip[axes=0](x) --> add[axes=a](x, x)", "'axes=a' is no attribute of add .* none"),
    ],
)
def test_a_guard_or_a_variable_that_is_none_is_refused(text: str, match: str) -> None:
    with pytest.raises(PassError, match=match):
        Rule("odd", text)


def test_guards_and_depth() -> None:
    rule = Rule("r", "where(c, neg(x), 1) --> x where dtype(c) is bool and uses(x) == 2")
    assert rule.guards.kinds == {"c": "bool"} and rule.guards.uses == {"x": 2}
    assert (depth(rule.before), depth(rule.after)) == (2, 0)


COMMUTING = [op for op in op_classes() if op.commutes]


@pytest.mark.parametrize("op", COMMUTING, ids=lambda op: op.name)
def test_an_op_that_commutes_changes_no_bit(op: Any) -> None:
    for dt in op.dtypes:
        if dt.is_complex:
            continue
        table = np.array(list(itertools.product(extremes(dt), repeat=2)), dt.numpy)
        x, y = table[:, 0].copy(), table[:, 1].copy()
        node = op(*placeholders([TensorType.of(a.shape, a.dtype) for a in (x, y)]))
        one, other = (evaluate(node, pair)[0] for pair in ([x, y], [y, x]))
        numbers = np.isnan(one) if one.dtype.kind in "fV" else np.zeros(one.shape, bool)
        raw = f"u{one.dtype.itemsize}"
        assert ((one.view(raw) == other.view(raw)) | numbers).all(), dt


def test_which_ops_commute() -> None:
    assert {op.name for op in COMMUTING} >= {"mir.add", "mir.mul", "mir.maximum", "mir.eq"}

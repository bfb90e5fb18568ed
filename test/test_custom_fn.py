"""Functions whose derivatives the user says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError, RlxError, ShapeError
from rlx.ir.interpreter import interpret
from rlx.ops import rules

Array = np.ndarray[Any, Any]
X = np.array([1.2, 2.0, 3.4])

STRAIGHT = rlx.custom_fn(lambda x: x.round(), vjp=lambda a, r, g: g, jvp=lambda a, t: t)
"""Rounding, with the derivative of the identity."""


def run(g: rlx.Graph, **feeds: Array) -> list[Array]:
    found = list(rlx.Session("cpu").compile(g).run(feeds))
    for a, b in zip(found, interpret(g, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    return found


def test_rules_are_used() -> None:
    g = rlx.Graph("straight")
    x = g.input("x", [3], "f64")
    y = STRAIGHT(x * 3.0)
    g.set_outputs([y, *rules.vjp([y], [x], [x]), *rules.jvp([y], [x], [x])])  # type: ignore[list-item]
    y, back, ahead = run(g, x=X)
    np.testing.assert_array_equal(y, np.round(3 * X))
    np.testing.assert_allclose(back, 3 * X)
    np.testing.assert_allclose(ahead, 3 * X)


def test_a_missing_rule_is_the_functions_own_derivative() -> None:
    g = rlx.Graph("own")
    x = g.input("x", [3], "f64")
    plain = rlx.custom_fn(lambda x: x * x)(x)
    half = rlx.custom_fn(lambda x: x * x, vjp=lambda a, r, g: g * 7.0)(x)
    found = [*rules.vjp([plain], [x], [x]), *rules.jvp([half], [x], [x])]
    g.set_outputs([*found, *rules.vjp([half], [x], [x])])  # type: ignore[list-item]
    a, b, c = run(g, x=X)
    np.testing.assert_allclose(a, 2 * X * X)
    np.testing.assert_allclose(b, 2 * X * X)
    np.testing.assert_allclose(c, 7 * X)


def test_several_values_and_integers() -> None:
    seen: list[Any] = []

    def vjp(args: Any, results: Any, g: Any) -> Any:
        seen.append((len(args), len(results), g[0] is None, g[1] is None))
        return g[0] * results[0], None, None

    h = rlx.custom_fn(lambda x, i, y: (x * y, i + 1), vjp=vjp)
    g = rlx.Graph("several")
    x, i, y = g.input("x", [3], "f64"), g.input("i", [3], "i64"), g.input("y", [3], "f64")
    a, b = h(x, i, y)
    first, second, third = rules.vjp([a, b], [x, i, y], [x, None])
    assert second is None and first is not None and third is not None
    assert seen == [(3, 2, False, True)]
    g.set_outputs([a, b, first, third])
    found = run(g, x=X, i=np.arange(3), y=X + 1)
    np.testing.assert_array_equal(found[1], [1, 2, 3])
    np.testing.assert_allclose(found[2], X * X * (X + 1))
    np.testing.assert_array_equal(found[3], np.zeros(3))


def test_rules_hold_in_batches() -> None:
    g = rlx.Graph("batched")
    x, many = g.input("x", [3], "f64"), g.input("many", [4, 3], "f64")
    ((y, batched),) = rules.batch([STRAIGHT(x * 3.0)], {x: (many, True)})
    assert batched
    (back,) = rules.vjp([y], [many], [many])
    assert back is not None
    g.set_outputs([y, back, x])
    data = np.linspace(0, 5, 12).reshape(4, 3)
    found = run(g, x=X, many=data)
    np.testing.assert_array_equal(found[0], np.round(3 * data))
    np.testing.assert_allclose(found[1], 3 * data)


def test_derivatives_of_rules() -> None:
    cube = rlx.custom_fn(lambda x: x * x * x, vjp=lambda a, r, g: g * (a[0] * a[0]) * 3.0)
    g = rlx.Graph("second")
    x = g.input("x", [3], "f64")
    (first,) = rules.vjp([cube(x)], [x], [x * 0.0 + 1.0])
    assert first is not None
    (second,) = rules.vjp([first], [x], [x * 0.0 + 1.0])
    assert second is not None
    g.set_outputs([first, second])
    a, b = run(g, x=X)
    np.testing.assert_allclose(a, 3 * X**2)
    np.testing.assert_allclose(b, 6 * X)


def test_it_nests_and_may_hold_control_flow() -> None:
    inner = rlx.custom_fn(lambda x: rlx.while_loop(lambda v: v.max() < 100.0, lambda v: v * v, x))
    outer = rlx.custom_fn(lambda x: inner(STRAIGHT(x)) + 1.0)
    g = rlx.Graph("nested")
    x = g.input("x", [2], "f64")
    flag = g.input("flag", [], "bool")
    g.set_outputs([outer(x), rlx.cond(flag, outer, lambda v: v, x)])
    found = run(g, x=np.array([2.2, 3.0]), flag=np.array(True))
    np.testing.assert_array_equal(found[0], [257, 6562])
    np.testing.assert_array_equal(found[1], found[0])


def test_text_keeps_the_rules(tmp_path: Path) -> None:
    g = rlx.Graph("text")
    x = g.input("x", ["n"], "f64")
    g.set_outputs([STRAIGHT(x)])
    rlx.save(g, tmp_path / "g.mlir")
    again = rlx.load(tmp_path / "g.mlir").bind({"n": 3})
    (x,) = again.inputs
    (back,) = rules.vjp(again.outputs, [x], [x])
    assert back is not None
    again.set_outputs([back])
    np.testing.assert_array_equal(run(again, x=X)[0], X)


G = rlx.Graph("around")
OUTER = G.input("outer", [3], "f64")
ARG = G.input("arg", [3], "f64")


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: rlx.custom_fn(lambda x: x + OUTER)(ARG), GraphError, "function uses 'outer' from"),
        (lambda: rlx.custom_fn(lambda x: OUTER)(ARG), GraphError, "function uses 'outer' from"),
        (lambda: rlx.custom_fn(lambda x: x, vjp=lambda a, r, g: OUTER)(ARG), GraphError,
         "the vjp uses 'outer' from around it; make it an argument"),
        (lambda: rlx.custom_fn(lambda x: x, vjp=lambda a, r, g: (g, g))(ARG), GraphError,
         "the vjp gives 2 values, expected 1"),
        (lambda: rlx.custom_fn(lambda x: x, vjp=lambda a, r, g: g.sum())(ARG), ShapeError,
         "the vjp gives f64, expected 3xf64"),
        (lambda: rlx.custom_fn(lambda x: x, jvp=lambda a, t: 3)(ARG), ShapeError,
         "the jvp gives int, expected 3xf64"),
        (lambda: rlx.custom_fn(lambda x: x, jvp=lambda a, t: [3])(ARG), ShapeError,
         "the jvp gives int, expected 3xf64"),
        (lambda: rlx.custom_fn(lambda x: None)(ARG), GraphError, "the function gives None"),
        (lambda: rlx.custom_fn(lambda x: x)(np.ones(3)), GraphError, "takes Values, found an nda"),
    ],
)  # fmt: skip
def test_what_does_not_fit(make: Any, error: type[RlxError], match: str) -> None:
    with pytest.raises(error, match=match):
        make()


def test_rules_that_no_text_may_have() -> None:
    from rlx.ops.control.bodies import make
    from rlx.ops.control.custom_fn import CustomFn

    g = rlx.Graph("body")
    g.set_outputs([g.input("x0", [3], "f64") + 1.0])
    with pytest.raises(GraphError, match="rules is 'both', expected vjp, jvp or both"):
        make(CustomFn, [ARG], body=g, vjp_rule=g, jvp_rule=g, rules="both")

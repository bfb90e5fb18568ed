"""Control flow: traced from Python, run by the interpreter and natively, refused where it is wrong.

The oracle is Python itself: the same functions on NumPy scalars and arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx.errors import DTypeError, FaultError, GraphError, ShapeError
from rlx.ops.control.control import Cond, Scan, WhileLoop
from support.control import check

# -- meaning ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [-1, 0, 5])
def test_cond_runs_one_body(n: int) -> None:
    def build(g: rlx.Graph) -> Any:
        x, i = g.input("x", [3]), g.input("n", [], "i64")
        return rlx.cond(i > 0, lambda a: (a * 2, a.sum()), lambda a: (a - 1, a.max()), x)

    x = np.array([1, 2, 4], np.float32)
    first, second = (x * 2, x.sum()) if n > 0 else (x - 1, x.max())
    check(build, {"x": x, "n": np.int64(n)}, first, second)


def test_the_other_body_does_not_run() -> None:
    """Its gather would be out of range."""

    def build(g: rlx.Graph) -> Any:
        x, i = g.input("x", [3]), g.input("i", [], "i64")
        return rlx.cond(i < 3, lambda: g.gather(x, i), x.sum)

    x = np.array([1, 2, 4], np.float32)
    check(build, {"x": x, "i": np.int64(2)}, 4)
    check(build, {"x": x, "i": np.int64(9)}, 7)


def test_bodies_use_what_is_around_them() -> None:
    """Inputs, params, results of nodes, and the values of an outer body."""

    def build(g: rlx.Graph) -> Any:
        x, n = g.input("x", [2, 2]), g.input("n", [], "i64")
        w = g.param("w", [2, 2], value=np.array([[1, 1], [0, 1]], np.float32))
        y = x + 1

        def body(i: rlx.Value, v: rlx.Value) -> Any:
            return i + 1, rlx.cond(i > 1, lambda: v @ w, lambda: v + y)

        return rlx.while_loop(lambda i, v: i < n, body, (g.constant(0), x))

    x = np.array([[1, 2], [3, 4]], np.float32)
    v = x
    for i in range(4):
        v = v @ np.array([[1, 1], [0, 1]], np.float32) if i > 1 else v + x + 1
    check(build, {"x": x, "n": np.int64(4)}, 4, v)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_carried_values_change_places(n: int) -> None:
    """Fibonacci: each new value is another's old one."""

    def build(g: rlx.Graph) -> Any:
        n = g.input("n", [], "i64")
        start = (n * 0, n * 0, n * 0 + 1)
        return rlx.while_loop(lambda i, a, b: i < n, lambda i, a, b: (i + 1, b, a + b), start)

    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    check(build, {"n": np.int64(n)}, n, a, b)


def test_carried_values_are_swapped() -> None:
    def build(g: rlx.Graph) -> Any:
        start = (g.input("a", [3]), g.input("b", [3]), g.constant(0))
        return rlx.while_loop(lambda a, b, i: i < 3, lambda a, b, i: (b, a, i + 1), start)

    a, b = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    check(build, {"a": a, "b": b}, b, a, 3)


def test_a_body_may_give_back_its_operands_and_literals() -> None:
    def build(g: rlx.Graph) -> Any:
        x, p = g.input("x", [3]), g.input("p", [], "bool")
        one = g.constant(np.float32([1, 1, 1]))
        return rlx.cond(p, lambda a: (a, one, a), lambda a: (one, a, a.reshape(3, 1).T[0]), x)

    x = np.array([1, 2, 4], np.float32)
    check(build, {"x": x, "p": np.bool_(True)}, x, [1, 1, 1], x)
    check(build, {"x": x, "p": np.bool_(False)}, [1, 1, 1], x, x)


def test_what_lives_across_a_loop_is_not_overwritten() -> None:
    """Values from before a loop are read in its last round, and after it."""

    def build(g: rlx.Graph) -> Any:
        x = g.input("x", [64])
        before = [x * float(i) for i in range(6)]

        def body(i: rlx.Value, v: rlx.Value) -> Any:
            for b in before[:3]:
                v = (v + b).softmax() + b.cumsum(0) * 0
            return i + 1, v

        _, v = rlx.while_loop(lambda i, v: i < 3, body, (g.constant(0), x))
        return v, sum(before[4:], before[3])

    x = np.linspace(-1, 1, 64, dtype=np.float32)
    v = x
    for _ in range(3):
        for k in range(3):
            e = np.exp(v + x * k - (v + x * k).max())
            v = e / e.sum()
    check(build, {"x": x}, v, x * 12)


def test_symbolic_dims_reach_into_bodies() -> None:
    g = rlx.Graph()
    x = g.input("x", ["n", 2])
    g.set_outputs(rlx.cond(x.sum() > 0, lambda: x.softmax(0), lambda: x.reshape(-1, 2) - 1))
    compiled = rlx.Session().compile(g)
    for n in (1, 3):
        x = np.ones((n, 2), np.float32)
        np.testing.assert_allclose(compiled.run({"x": x})[0], x / n)
        np.testing.assert_allclose(compiled.run({"x": -x})[0], -x - 1)


def test_a_weight_of_a_body_is_packed_once() -> None:
    g = rlx.Graph()
    x = g.input("x", [4, 32])
    w = g.param("w", [32, 32])
    _, y = rlx.while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, v @ w), (g.constant(0), x))
    g.set_outputs(y)
    text = rlx.inspect_pipeline(g).lir
    prologue, main = text.split("func.func @main")
    assert "call @pack" in prologue and "call @pack" not in main


SMALL = st.integers(-3, 3)


@settings(max_examples=15)
@given(st.lists(st.tuples(SMALL, SMALL, SMALL), min_size=1, max_size=3), SMALL, SMALL)
def test_nests_agree_with_python(layers: list[tuple[int, int, int]], a: int, n: int) -> None:
    """Loops in conds in loops, each adding or multiplying by something of an outer one."""

    def python(depth: int, v: int, outer: int) -> int:
        if depth == len(layers):
            return v + outer
        add, times, bound = layers[depth]
        for i in range(max(bound, 0)):
            v = python(depth + 1, v * times, i) if v < n else v + add
        return v

    def build(g: rlx.Graph) -> Any:
        limit = g.input("n", [], "i64")

        def traced(depth: int, v: rlx.Value, outer: rlx.Value) -> rlx.Value:
            if depth == len(layers):
                return v + outer
            add, times, bound = layers[depth]

            def body(i: rlx.Value, v: rlx.Value) -> Any:
                inner = rlx.cond(
                    v < limit, lambda: traced(depth + 1, v * times, i), lambda: v + add
                )
                return i + 1, inner

            return rlx.while_loop(lambda i, v: i < bound, body, (g.constant(0), v))[1]

        x = g.input("x", [], "i64")
        return traced(0, x, x)

    check(build, {"x": np.int64(a), "n": np.int64(n)}, python(0, a, a))


# -- faults and refusals ----------------------------------------------------------------------


def test_a_loop_over_its_limit_is_a_fault() -> None:
    g = rlx.Graph()
    x = g.input("x", [])
    g.set_outputs(rlx.while_loop(lambda v: v > 0, lambda v: v + 1, x, limit=8))
    compiled = rlx.Session().compile(g)
    assert compiled.run({"x": np.float32(-1)})[0] == -1
    for run in (lambda f: rlx.interpret(g, f), compiled.run):
        with pytest.raises(FaultError, match=r"test_control.py:\d+: .*still true after 8 rounds"):
            run({"x": np.float32(1)})


def bad(error: type[Exception], match: str, call: Callable[[rlx.Graph, rlx.Value], Any]) -> Any:
    return pytest.param(error, match, call, id=match)


@pytest.mark.parametrize(
    ("error", "match", "call"),
    [
        bad(DTypeError, "condition is 3xf32, expected a bool",
            lambda g, x: rlx.cond(x, lambda: x, lambda: x)),
        bad(ShapeError, "condition has the shape",
            lambda g, x: rlx.cond(x > 0, lambda: x, lambda: x)),
        bad(ShapeError, "second body gives",
            lambda g, x: rlx.cond(x.sum() > 0, lambda: x, x.sum)),
        bad(GraphError, "one function gives a Value and the other a tuple",
            lambda g, x: rlx.cond(x.sum() > 0, lambda: x, lambda: (x,))),
        bad(GraphError, "holds a float, expected a Value",
            lambda g, x: rlx.cond(x.sum() > 0, lambda: (1.0,), lambda: (x,))),
        bad(GraphError, "gives no values",
            lambda g, x: rlx.cond(x.sum() > 0, lambda: (), lambda: ())),
        bad(ShapeError, "its body gives",
            lambda g, x: rlx.while_loop(lambda v: v.sum() > 0, lambda v: v.sum(), x)),
        bad(DTypeError, "its test is f32",
            lambda g, x: rlx.while_loop(lambda v: v.sum(), lambda v: v, x)),
        bad(GraphError, "expected one bool",
            lambda g, x: rlx.while_loop(lambda v: (v > 0, v), lambda v: v, x)),
        bad(GraphError, "limit is -5", lambda g, x: rlx.while_loop(
            lambda v: v.sum() > 0, lambda v: v, x, limit=-5)),
        bad(ShapeError, "scan: without xs of rank 1 or more it needs a length",
            lambda g, x: rlx.scan(lambda c, _: (c, None), x)),
        bad(ShapeError, "scan: without xs of rank 1 or more",
            lambda g, x: rlx.scan(lambda c, e: (c, e), x, x.sum())),
        bad(GraphError, r"scan: its body gives a Value, expected a pair \(carry, y\)",
            lambda g, x: rlx.scan(lambda c, e: c + e, x.sum(), x)),
        bad(GraphError, "scan: its body gives a tuple, expected a pair",
            lambda g, x: rlx.scan(lambda c, e: (c, e, e), x.sum(), x)),
        bad(ShapeError, r"scan: its body carries on \(3xf32\), expected \(f32\)",
            lambda g, x: rlx.scan(lambda c, e: (x, None), x.sum(), x)),
        bad(ShapeError, "scan: it runs 5 rounds over 3xf32, whose first axis must be as long",
            lambda g, x: rlx.scan(lambda c, e: (c, e), x.sum(), x, length=5)),
        bad(ShapeError, r"scan: its body carries on \(f32\), expected \(3xf32\)",
            lambda g, x: rlx.fori(4, lambda i, c: c.sum(), x)),
        bad(GraphError, "fori: what is carried holds a float, expected a Value",
            lambda g, x: rlx.fori(4, lambda i, c: (1.0,), x)),
        bad(ShapeError, "a dim is an int >= 0 or a name such as 'batch', found -4",
            lambda g, x: rlx.fori(-4, lambda i, c: c, x)),
        bad(ShapeError, "a dim is an int >= 0 or a name such as 'batch', found -3",
            lambda g, x: rlx.scan(lambda c, e: (c, e), x.sum(), x, length=-3)),
        bad(GraphError, "fori: what is carried is a NoneType, expected a Value or a tuple",
            lambda g, x: rlx.fori(4, lambda i, c: None, x)),
        bad(GraphError, "scan: y is an int, expected a Value or a tuple of them",
            lambda g, x: rlx.scan(lambda c, e: (c, 3), x.sum(), x)),
        bad(GraphError, "while_loop: init is a NoneType, expected a Value",
            lambda g, x: rlx.while_loop(lambda v: v > 0, lambda v: v, None)),
        bad(GraphError, "cond: args holds an int, expected a Value",
            lambda g, x: rlx.cond(x.sum() > 0, lambda a: a, lambda a: a, 3)),
        bad(GraphError, "scan: 'body' is 3, expected a function",
            lambda g, x: rlx.scan(3, x.sum(), x)),
        bad(GraphError, "cond: 'otherwise' is None, expected a function",
            lambda g, x: rlx.cond(x.sum() > 0, lambda: x, None)),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(error: Any, match: str, call: Any) -> None:
    g = rlx.Graph()
    x = g.input("x", [3])
    with pytest.raises(error, match=match) as caught:
        call(g, x)
    assert "test_control.py" in str(caught.value)


def test_a_body_with_a_param_of_its_own_is_refused() -> None:
    g, body = rlx.Graph(), rlx.Graph("body")
    body.set_outputs(body.input("x0", [2]) + body.param("w", [2]))
    x = g.input("x", [2])
    with pytest.raises(GraphError, match="has the param 'w'"):
        Cond(x.sum() > 0, x, then=body, otherwise=body)  # type: ignore[arg-type]


def test_an_error_in_a_body_is_the_users_own() -> None:
    x = rlx.Graph().input("x", [3])
    with pytest.raises(ZeroDivisionError):
        rlx.fori(4, lambda i, c: c * (1 / 0), x)


def body_of(*shapes: list[int]) -> rlx.Graph:
    """A body that takes tensors of these shapes, the first an i64, and gives back the last."""
    g = rlx.Graph("body")
    kinds = ["i64", *["f32"] * len(shapes)]
    g.set_outputs([g.input(f"x{i}", s, kinds[i]) for i, s in enumerate(shapes)][-1])
    return g


@pytest.mark.parametrize(
    ("error", "match", "call"),
    [
        bad(GraphError, r"cond: its first body takes \(i64\), expected \(3xf32\)",
            lambda g, x: Cond(x.sum() > 0, x, then=body_of([]), otherwise=body_of([]))),
        bad(GraphError, "attribute 'then' must be Graph, found 3",
            lambda g, x: Cond(x.sum() > 0, x, then=3, otherwise=body_of([]))),
        bad(ShapeError, "scan: the length is -1, expected 0 or more",
            lambda g, x: Scan(x, body=body_of([], [3]), length=(-1,), carries=1, scanned=0)),
        bad(GraphError, "scan: 1 carried and 1 scanned of 1 operands over a length",
            lambda g, x: Scan(x, body=body_of([], [3]), length=(3,), carries=1, scanned=1)),
        bad(GraphError, r"operands over a length \(3, 3\) of one dim have no meaning",
            lambda g, x: Scan(x, body=body_of([], [3]), length=(3, 3), carries=1, scanned=0)),
    ],
)  # fmt: skip
def test_a_control_op_whose_body_does_not_fit_is_refused(error: Any, match: str, call: Any) -> None:
    test_what_does_not_fit_is_refused(error, match, call)


def test_nothing_carried_is_refused() -> None:
    g = rlx.Graph()
    with pytest.raises(GraphError, match="carries 0 of 0"):
        WhileLoop(test=g, body=g, carries=0)  # type: ignore[call-arg]

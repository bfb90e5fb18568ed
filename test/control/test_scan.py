"""scan and fori: what moves with the rounds, what is carried, and bounds of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx.errors import DTypeError, ShapeError
from rlx.types import DTYPES
from support.control import check, outcomes

X = np.arange(24, dtype=np.float32).reshape(4, 3, 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reverse", [False, True])
def test_elements_of_any_type(dtype: str, reverse: bool) -> None:
    """The carry goes into the trajectory, and each element behind it."""

    def build(g: rlx.Graph) -> Any:
        x, c = g.input("x", [4, 3], dtype), g.input("c", [3], dtype)
        return rlx.scan(lambda c, e: (e, (c, e)), c, x, reverse=reverse)[1]

    kind = DTYPES[dtype].numpy
    x = np.arange(12).reshape(4, 3) % 2 if dtype == "bool" else np.arange(12).reshape(4, 3)
    x, c = x.astype(kind), np.ones(3).astype(kind)
    before = [*x[1:], c] if reverse else [c, *x[:-1]]
    check(build, {"x": x, "c": c}, np.stack(before), x)


def test_the_rows_of_a_view() -> None:
    """xs that are transposed, sliced and broadcast lie where they do: no copy is launched."""

    def build(g: rlx.Graph) -> Any:
        x = g.input("x", [4, 3, 2])
        views = (x.transpose([2, 1, 0]), x[::2], x[0, 0].reshape(1, 2).expand(2, 2))

        def one_round(c: rlx.Value, e: Any) -> Any:
            return c + e[0].sum() * e[1].sum() + e[2].sum(), e[2] * c

        return rlx.scan(one_round, x.sum(), views)

    c, ys = X.sum(), []
    for i in range(2):
        ys.append(X[0, 0] * c)
        c = c + X[:, :, i].sum() * X[2 * i].sum() + X[0, 0].sum()
    check(build, {"x": X}, c, np.stack(ys))


def test_what_is_carried_changes_places() -> None:
    def build(g: rlx.Graph) -> Any:
        a, b, x = g.input("a", [3]), g.input("b", [3]), g.input("x", [5, 3])

        def one_round(c: Any, e: rlx.Value) -> Any:
            return (c[1], c[0], c[1] * 2, e), (c[0], c[3] + c[2])

        (p, q, r, s), ys = rlx.scan(one_round, (a, b, a, b), x)
        return [p, q, r, s, *ys]

    a, b, x = np.float32([1, 2, 3]), np.float32([4, 5, 6]), X.reshape(8, 3)[:5]
    p, q, r, s, first, second = a, b, a, b, [], []
    for e in x:
        first.append(p)
        second.append(s + r)
        p, q, r, s = q, p, q * 2, e
    check(build, {"a": a, "b": b, "x": x}, p, q, r, s, np.stack(first), np.stack(second))


def test_what_is_carried_is_updated_in_place_where_nothing_reads_it_later() -> None:
    """A kernel on elements writes over them; what reads other ones, or the old value, is copied."""

    def launches(function: Callable[..., Any]) -> int:
        g = rlx.Graph()
        v = g.input("v", [64, 64])
        g.set_outputs(rlx.fori(3, function, v))
        body = rlx.inspect_pipeline(g).lir.split("scf.for")[1]
        return body.count("func.call")

    assert launches(lambda i, v: v * 2 + 1) == 1
    assert launches(lambda i, v: v.transpose([1, 0]) + v) == 2
    assert launches(lambda i, v: v.softmax()) == 2

    def kept(i: rlx.Value, c: Any) -> Any:
        return c[0] + 1, c[0] * 2

    def build(g: rlx.Graph) -> Any:
        x = g.input("x", [3])
        return rlx.fori(4, kept, (x, x))

    x = np.float32([1, 2, 3])
    check(build, {"x": x}, x + 4, (x + 3) * 2)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_length_without_xs(n: int) -> None:
    def build(g: rlx.Graph) -> Any:
        x = g.input("x", [2])
        return rlx.scan(lambda c, _: (c * 2, c), x, length=n)

    x = np.float32([1, 3])
    check(build, {"x": x}, x * 2**n, np.reshape([x * 2**i for i in range(n)], (n, 2)))


def test_nothing_carried_is_a_map() -> None:
    def build(g: rlx.Graph) -> Any:
        x = g.input("x", [4, 3, 2])
        return rlx.scan(lambda _, e: ((), e.sum(0)), (), x)[1]

    check(build, {"x": X}, X.sum(1))


def test_scan_in_scan_in_while() -> None:
    """Places move with two loops, inside a third that runs as long as the data says."""

    def build(g: rlx.Graph) -> Any:
        x, limit = g.input("x", [4, 3, 2]), g.input("n", [])

        def row(c: rlx.Value, e: rlx.Value) -> Any:
            return rlx.scan(lambda c, v: (c + v.sum(), c * v), c, e, reverse=True)

        def body(c: rlx.Value, _: rlx.Value) -> Any:
            return rlx.scan(row, c, x)

        start = (limit * 0, g.constant(np.zeros((4, 3, 2), np.float32)))
        return rlx.while_loop(lambda c, _: c < limit, body, start)

    c, ys = np.float32(0), np.zeros((4, 3, 2), np.float32)
    while c < 500:
        for i in range(4):
            for j in reversed(range(3)):
                ys[i, j] = c * X[i, j]
                c = c + X[i, j].sum()
    check(build, {"x": X, "n": np.float32(500)}, c, ys)


def test_a_while_loop_in_a_cond_in_a_scan() -> None:
    def build(g: rlx.Graph) -> Any:
        x = g.input("x", [6], "i64")

        def one_round(c: rlx.Value, e: rlx.Value) -> Any:
            def grown() -> rlx.Value:
                return rlx.while_loop(lambda v: v < 20, lambda v: v * 2 + e, c + 1)

            c = rlx.cond(e > 2, grown, lambda: c - e)
            return c, c

        return rlx.scan(one_round, x[0], x)

    x, c, ys = np.arange(6), 0, list[int]()
    for e in range(6):
        if e > 2:
            c += 1
            while c < 20:
                c = c * 2 + e
        else:
            c -= e
        ys.append(c)
    check(build, {"x": x}, c, ys)


def test_params_are_scanned_and_packed_once() -> None:
    """A stack of weights, as of layers: a round reads its own; a weight that all read is packed."""
    g = rlx.Graph()
    x = g.input("x", [4, 32])
    layers, shared = g.param("layers", [3, 32, 32]), g.param("w", [32, 32])
    g.set_outputs(rlx.scan(lambda c, w: ((c @ w) @ shared, None), x, layers)[0])
    rng = np.random.default_rng(0)
    ws, w, a = (rng.standard_normal(s).astype(np.float32) / 6
                for s in ((3, 32, 32), (32, 32), (4, 32)))  # fmt: skip
    f = rlx.Session().compile(g)
    f.set_param("layers", ws)
    f.set_param("w", w)
    expected = a
    for layer in ws:
        expected = expected @ layer @ w
    np.testing.assert_allclose(f.run({"x": a})[0], expected, rtol=1e-4, atol=1e-4)
    prologue, _ = rlx.inspect_pipeline(g).lir.split("func.func @main")
    assert prologue.count("call @pack") == 1


def test_a_symbolic_number_of_rounds() -> None:
    g = rlx.Graph()
    x = g.input("x", ["n", 2])
    g.set_outputs(rlx.scan(lambda c, e: (c + e, c), x[0], x)[1])
    f = rlx.Session().compile(g)
    for n in (1, 4):
        x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
        expected = x[0] + np.concatenate([np.zeros((1, 2)), x.cumsum(0)[:-1]])
        np.testing.assert_allclose(f.run({"x": x})[0], expected)


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (2, 5), (3, 3), (5, 2), (-3, 2)])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("given", ["numbers", "stop", "both"])
def test_the_bounds_of_fori(start: int, stop: int, reverse: bool, given: str) -> None:
    def build(g: rlx.Graph) -> Any:
        x = g.input("x", [], "i64")
        low, high = g.input("low", [], "i32"), g.input("high", [1], "i64")
        first = low if given == "both" else start
        last = stop if given == "numbers" else high
        out = rlx.fori(last, lambda i, c: c * 3 + i, x, reverse=reverse, start=first)
        return [out, low, high]

    c = 7
    for i in reversed(range(start, stop)) if reverse else range(start, stop):
        c = c * 3 + i
    low, high = np.int32(start), np.int64([stop])
    check(build, {"x": np.int64(7), "low": low, "high": high}, c, low, high)


def test_bounds_that_do_not_fit_are_refused() -> None:
    g = rlx.Graph()
    x, n = g.input("x", []), g.input("n", [2], "i64")
    with pytest.raises(DTypeError, match=r"test_scan.py:\d+: fori: stop is f32, expected an integ"):
        rlx.fori(x, lambda i, c: c, x)
    with pytest.raises(ShapeError, match="fori: start is 2xi64, expected one element"):
        rlx.fori(3, lambda i, c: c, x, start=n)
    with pytest.raises(ShapeError, match="fori: from 1 up to the dim n; start from 0"):
        rlx.fori("n", lambda i, c: c, x, start=1)
    with pytest.raises(ShapeError, match="fori: stop is 'n', expected an int or a Value beside"):
        rlx.fori("n", lambda i, c: c, x, start=n[0])


def test_nothing_of_xs_or_ys_is_copied_as_a_whole() -> None:
    g = rlx.Graph()
    x = g.input("x", [1000, 64])
    g.set_outputs(rlx.scan(lambda c, e: (c + e, c * e), x[0], x))
    text = rlx.inspect_pipeline(g).lir
    loop = text.split("scf.for")[1].split("return")[0]
    assert "lir.bytes = 512000" not in text
    assert loop.count("moves = array<i64: 256>") >= 2


ELEMENT = st.integers(-4, 4)

# What a round may do to two carried values a and b, given an element e: in a graph, and in Python.
STEPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "carry": (lambda a, b, e: (a + 1, b * a),) * 2,
    "xs": (lambda a, b, e: (a, b + e),) * 2,
    "both": (lambda a, b, e: (a * e, b - a),) * 2,
    "swap": (lambda a, b, e: (b, a),) * 2,
    "scan": (
        lambda a, b, e: (rlx.scan(lambda s, _: (s + b, None), a, length=2)[0], a),
        lambda a, b, e: (a + 2 * b, a),
    ),
    "cond": (
        lambda a, b, e: (rlx.cond(e.sum() > 0, lambda: a - b, lambda: e), b),
        lambda a, b, e: (a - b if e.sum() > 0 else e, b),
    ),
}


@settings(max_examples=15)
@given(
    st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
    st.lists(st.tuples(ELEMENT, ELEMENT), min_size=1, max_size=4),
    st.booleans(),
)
def test_rounds_of_random_steps(steps: list[str], rows: list[tuple[int, int]], back: bool) -> None:
    """Any mixture of updates in place, exchanges and inner control flow, against Python."""
    xs = np.array(rows, np.int64)

    def one_round(side: int) -> Callable[..., Any]:
        def function(c: Any, e: Any) -> Any:
            a, b = c
            for name in steps:
                a, b = STEPS[name][side](a, b, e)
            return (a, b), (c[0], b)

        return function

    def build(g: rlx.Graph) -> Any:
        x = g.input("x", xs.shape, "i64")
        (a, b), ys = rlx.scan(one_round(0), (x[0], x[-1]), x, reverse=back)
        return [a, b, *ys]

    carry, first, second = (xs[0], xs[-1]), np.empty_like(xs), np.empty_like(xs)
    for i in reversed(range(len(xs))) if back else range(len(xs)):
        carry, (first[i], second[i]) = one_round(1)(carry, xs[i])
    for found in outcomes(build, {"x": xs}):
        for got, expected in zip(found, (*carry, first, second), strict=True):
            np.testing.assert_array_equal(got, expected)

"""Derivatives of control ops against those of the same computation without them: unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import UnsupportedError
from rlx.ops.movement.movement import zeros
from support.ad import grad, jvp, vjp
from support.control import outcomes

Values = Sequence[rlx.Value]
Function = Callable[..., Values]
Array = np.ndarray[Any, Any]

ROWS = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32) / 2
START = np.float32([0.5, -1, 2])
MATRIX = np.random.default_rng(1).standard_normal((3, 3)).astype(np.float32) / 2


def derived(function: Function, arrays: Sequence[Any], forwards: bool) -> list[list[Array]]:
    """What a function and its derivative give; one way: the cotangents of what is float, the other
    way the tangents of all results."""
    feeds = {f"a{i}": np.asarray(a) for i, a in enumerate(arrays)}

    def build(g: rlx.Graph) -> Values:
        xs = [g.input(k, a.shape, str(a.dtype)) for k, a in feeds.items()]
        ys = function(*xs)
        floats = [x for x in xs if x.dtype.is_float]
        given: list[rlx.Value | None] = []
        for i, v in enumerate(floats if forwards else ys):
            array = np.random.default_rng(i).standard_normal(v.type.static_shape)
            has = v.dtype.is_float
            feeds.update({f"d{i}": array.astype(v.dtype.numpy)} if has else {})
            given.append(g.input(f"d{i}", v.shape, v.dtype) if has else None)
        found = (jvp if forwards else vjp)(ys, floats, given)
        wanted = ys if forwards else floats
        return [
            *ys,
            *(
                zeros(x.shape, x.dtype) if v is None else v
                for x, v in zip(wanted, found, strict=True)
                if x.dtype.is_float
            ),
        ]

    return outcomes(build, feeds)


def agree(looped: Function, unrolled: Function, *arrays: Any, backwards: bool = True) -> None:
    """Both functions and their derivatives, by the interpreter and compiled, give the same."""
    for forwards in (True, False) if backwards else (True,):
        expected = derived(unrolled, arrays, forwards)[0]
        for found in derived(looped, arrays, forwards):
            assert len(found) == len(expected)
            for a, e in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)


def stacked(rows: Sequence[rlx.Value]) -> rlx.Value:
    """Rows along a new first axis."""
    return rlx.Graph().concat([r.reshape(1, *r.shape) for r in rows], axis=0)


@pytest.mark.parametrize("n", [-1, 3])
def test_cond(n: int) -> None:
    """The branches use different operands, and what is around them."""

    def branch(a: rlx.Value, b: rlx.Value, positive: bool) -> Values:
        return ((a * b).sin(), a.sum()) if positive else (b.exp(), (b * b).sum())

    def looped(a: rlx.Value, b: rlx.Value, i: rlx.Value) -> Values:
        return rlx.cond(i > 0, lambda: branch(a, b, True), lambda: branch(a, b, False))

    agree(looped, lambda a, b, _: branch(a, b, n > 0), START, START + 1, np.int64(n))


def rnn(c: rlx.Value, x: rlx.Value, w: rlx.Value, b: rlx.Value) -> tuple[rlx.Value, rlx.Value]:
    new = (c.reshape(1, 3) @ w).reshape(3).tanh() + x * b
    return new, (new * x).sum()


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse: bool) -> None:
    """Of what is carried, scanned, and read in every round."""

    def looped(c: rlx.Value, xs: rlx.Value, w: rlx.Value, b: rlx.Value) -> Values:
        c, ys = rlx.scan(lambda c, x: rnn(c, x, w, b), c, xs, reverse=reverse)
        return [c, ys]

    def unrolled(c: rlx.Value, xs: rlx.Value, w: rlx.Value, b: rlx.Value) -> Values:
        ys: dict[int, rlx.Value] = {}
        for i in reversed(range(4)) if reverse else range(4):
            c, ys[i] = rnn(c, xs[i], w, b)
        return [c, stacked([ys[i] for i in range(4)])]

    agree(looped, unrolled, START, ROWS, MATRIX, START)


def test_scan_over_carries_that_change_places_and_integers() -> None:
    def looped(a: rlx.Value, b: rlx.Value, n: rlx.Value) -> Values:
        return rlx.fori(3, lambda i, c: (c[1] * 2, c[0] * c[2].cast("f32"), c[2] + i), (a, b, n))

    def unrolled(a: rlx.Value, b: rlx.Value, n: rlx.Value) -> Values:
        for i in range(3):
            a, b, n = b * 2, a * n.cast("f32"), n + i
        return [a, b, n]

    agree(looped, unrolled, START, START - 1, np.int64(2))


@pytest.mark.parametrize("rounds", [0, 1])
def test_few_rounds(rounds: int) -> None:
    def looped(c: rlx.Value, w: rlx.Value) -> Values:
        return [rlx.fori(rounds, lambda i, c: c * w, c), w.sum()]

    agree(looped, lambda c, w: [c * w if rounds else c + 0 * w, w.sum()], START, START)


def test_a_value_that_gets_a_derivative_in_the_second_round() -> None:
    """b starts as a number, and becomes a."""

    def with_constant(function: Function) -> Function:
        return lambda a: function(a, rlx.Graph().constant(START))

    def looped(a: rlx.Value, b: rlx.Value) -> Values:
        return rlx.fori(3, lambda i, c: (c[0] * 2, c[0] * c[1]), (a, b))

    def unrolled(a: rlx.Value, b: rlx.Value) -> Values:
        for _ in range(3):
            a, b = a * 2, a * b
        return [a, b]

    agree(with_constant(looped), with_constant(unrolled), START)


def test_scan_in_cond_in_scan() -> None:
    def inner(c: rlx.Value, x: rlx.Value) -> rlx.Value:
        return rlx.cond(
            x.sum() > 0,
            lambda: rlx.scan(lambda s, e: ((s * e).sin(), None), c, x)[0],
            lambda: c * x.sum(),
        )

    def looped(c: rlx.Value, xs: rlx.Value) -> Values:
        c, ys = rlx.scan(lambda c, x: (inner(c, x), c.sum()), c, xs)
        return [c, ys]

    def unrolled(c: rlx.Value, xs: rlx.Value) -> Values:
        ys: list[rlx.Value] = []
        for i, row in enumerate(ROWS):
            ys.append(c.sum())
            if row.sum() > 0:
                for j in range(3):
                    c = (c * xs[i][j]).sin()
            else:
                c = c * xs[i].sum()
        return [c, stacked(ys)]

    agree(looped, unrolled, START, ROWS)


def test_second_derivatives_of_scan() -> None:
    def squared(x: rlx.Value, f: Function) -> Values:
        (first,) = grad(f(x)[0].sum(), [x])
        return [first, *grad((first * first).sum(), [x])]

    def looped(x: rlx.Value) -> Values:
        return [rlx.fori(3, lambda i, c: (c * x).sin(), x)]

    def unrolled(x: rlx.Value) -> Values:
        c = x
        for _ in range(3):
            c = (c * x).sin()
        return [c]

    agree(lambda x: squared(x, looped), lambda x: squared(x, unrolled), START)


def test_while_loop_forwards() -> None:
    def looped(x: rlx.Value, w: rlx.Value, n: rlx.Value) -> Values:
        zero = n - n
        return rlx.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, (v * w).sin()), (zero, x))

    def unrolled(x: rlx.Value, w: rlx.Value, n: rlx.Value) -> Values:
        for _ in range(3):
            x = (x * w).sin()
        return [n, x]

    agree(looped, unrolled, START, START + 1, np.int64(3), backwards=False)


def test_while_loop_backwards_is_refused_with_its_line() -> None:
    g = rlx.Graph()
    x = g.input("x", [])
    y = rlx.while_loop(lambda v: v < 9, lambda v: v * 2, x)
    with pytest.raises(UnsupportedError, match=r"test_derivatives.py:\d+: .*use fori or scan"):
        grad(y, [x])
    z = g.input("z", [])
    assert grad(y * z, [z])[0].type == z.type, "what does not go through the loop is there"

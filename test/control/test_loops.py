"""Loops that become one kernel: what does, what does not and why, and what it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx.compiler.driver import compile_graph
from rlx.errors import FaultError
from rlx.targets import find_target
from rlx.types import DTYPES
from support.control import check, outcomes

Build = Callable[[rlx.Graph], Any]


def report(build: Build) -> tuple[str, str]:
    """What a compile says of its dispatch and its fusions."""
    g = rlx.Graph()
    out = build(g)
    g.set_outputs(out if isinstance(out, rlx.Value) else list(out))
    made = compile_graph(g, find_target("cpu"))[1].compilation
    return str(made.dispatch), str(made.fusion)


def one_kernel(build: Build) -> bool:
    dispatch = report(build)[0]
    return "loop: " in dispatch and "control: " not in dispatch


def collatz(g: rlx.Graph) -> Any:
    """The steps of all numbers below n."""

    def step(v: rlx.Value, s: rlx.Value) -> Any:
        half = v / 2
        return rlx.cond((v - half * 2).eq(0), lambda: half, lambda: v * 3 + 1), s + 1

    def number(i: rlx.Value, s: rlx.Value) -> rlx.Value:
        return rlx.while_loop(lambda v, _: v.ne(1), step, (i, s))[1]

    return rlx.fori(g.input("n", [], "i64"), number, g.constant(0), start=1)


def test_nested_loops_and_branches_are_one_launch() -> None:
    steps = 0
    for n in range(1, 30):
        v = n
        while v != 1:
            v, steps = v // 2 if v % 2 == 0 else 3 * v + 1, steps + 1
    check(collatz, {"n": np.int64(30)}, steps)
    assert one_kernel(collatz)
    g = rlx.Graph()
    g.set_outputs(collatz(g))
    text = rlx.inspect_pipeline(g).lir
    assert text.count("call @") == 1
    assert "scf." not in text


@pytest.mark.parametrize("dtype", [n for n, d in DTYPES.items() if d.is_float or d.is_int])
def test_values_of_any_type(dtype: str) -> None:
    """Every step rounds to the value's own type, as steps of the schedule do."""

    def build(g: rlx.Graph) -> Any:
        x, n = g.input("x", [3], dtype), g.input("n", [], "i64")

        def body(i: rlx.Value, c: Any) -> Any:
            a, flag = c
            return (a * 3 + i.cast(dtype)) / 2, flag.logical_and(a > 2).logical_not()

        return rlx.fori(n, body, (x, x > 1))

    assert one_kernel(build)
    x = np.array([1, 2, 3]).astype(DTYPES[dtype].numpy)
    expected, *others = outcomes(build, {"x": x, "n": np.int64(4)})
    for found in others:
        for a, e in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, e)


def test_small_tensors_and_what_moves_and_reduces_them() -> None:
    def build(g: rlx.Graph) -> Any:
        x, m = g.input("x", [3]), g.input("m", [3, 3])

        def body(i: rlx.Value, v: rlx.Value) -> rlx.Value:
            turned = (m.transpose([1, 0]) * v).sum(1)
            joined = g.concat([turned[1:], v[:1]], axis=0)
            return joined / joined.abs().max() + m.min(axes=0) * m.reshape(9)[4:5].prod()

        return rlx.fori(5, body, x)

    assert one_kernel(build)
    m = np.arange(9, dtype=np.float32).reshape(3, 3) / 8
    v = x = np.float32([1, -2, 3])
    for _ in range(5):
        turned = (m.T * v).sum(1)
        joined = np.concatenate([turned[1:], v[:1]])
        v = joined / np.abs(joined).max() + m.min(0) * m[1, 1]
    check(build, {"x": x, "m": m}, v)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_reads_and_writes_its_rows(reverse: bool) -> None:
    """More rows than registers would hold: xs and ys are memory."""

    def build(g: rlx.Graph) -> Any:
        xs, flags = g.input("xs", [100, 2]), g.input("flags", [100], "bool")

        def body(c: rlx.Value, e: Any) -> Any:
            new = e[1].where(c * 0.5 + e[0], c)
            return new, (new.sum(), c > 0, e[0])

        return _flat(rlx.scan(body, g.constant(np.float32([1, 2])), (xs, flags), reverse=reverse))

    assert one_kernel(build)
    rng = np.random.default_rng(0)
    xs, flags = rng.standard_normal((100, 2)).astype(np.float32), rng.random(100) < 0.7
    c, sums, signs = np.float32([1, 2]), np.empty(100, np.float32), np.empty((100, 2), bool)
    for i in reversed(range(100)) if reverse else range(100):
        new = c * np.float32(0.5) + xs[i] if flags[i] else c
        sums[i], signs[i], c = new.sum(), c > 0, new
    check(build, {"xs": xs, "flags": flags}, c, sums, signs, xs)


def _flat(pair: Any) -> list[rlx.Value]:
    return [pair[0], *pair[1]]


def test_values_from_outside_and_the_same_value_twice() -> None:
    """Operands that are constants, params, equal, and views with gaps."""

    def build(g: rlx.Graph) -> Any:
        x, p = g.input("x", [2, 2]), g.param("p", [], value=np.float32(3))
        row, two = x.transpose([1, 0])[0], g.constant(2.0)
        return rlx.while_loop(
            lambda a, b, c: c.max() < 50, lambda a, b, c: (b, a, c * two + p), (row, row, row)
        )

    x = np.float32([[1, 2], [3, 4]])
    c = x.T[0]
    while c.max() < 50:
        c = c * 2 + 3
    check(build, {"x": x}, x.T[0], x.T[0], c)
    assert one_kernel(build)


def test_limits_of_nested_loops_are_told_apart() -> None:
    """The first that is met is the fault, and stops those around it."""

    def build(g: rlx.Graph) -> Any:
        x, y = g.input("x", []), g.input("y", [])

        def outer(v: rlx.Value) -> rlx.Value:
            return rlx.while_loop(lambda w: w < y, lambda w: w + 1, v * 0, limit=3) * 0 + v + 1

        return rlx.while_loop(lambda v: v < x, outer, x * 0, limit=5)

    assert one_kernel(build)
    check(build, {"x": np.float32(5), "y": np.float32(3)}, 5)
    g = rlx.Graph()
    g.set_outputs(build(g))
    f = rlx.Session().compile(g)
    for x, y, rounds in ((6, 3, 5), (5, 4, 3), (9, 9, 3)):
        with pytest.raises(FaultError, match=f"test_loops.py:.*still true after {rounds} rounds"):
            f.run({"x": np.float32(x), "y": np.float32(y)})
    assert f.run({"x": np.float32(2), "y": np.float32(1)})[0] == 2


def large(g: rlx.Graph) -> Any:
    return rlx.fori(3, lambda i, v: v + 1, g.input("x", [17]))


def matrix(g: rlx.Graph) -> Any:
    return rlx.fori(3, lambda i, v: v @ v, g.input("x", [2, 2]))


def halves(g: rlx.Graph) -> Any:
    return rlx.fori(3, lambda i, v: v + v.sum(), g.input("x", [2], "f16"))


def long(g: rlx.Graph) -> Any:
    def body(i: rlx.Value, v: rlx.Value) -> rlx.Value:
        for _ in range(20):
            v = v.sin() + 1.0
        return v

    return rlx.fori(3, body, g.input("x", [16]))


def stacks(g: rlx.Graph) -> Any:
    xs = g.input("x", [4])
    return rlx.fori(3, lambda i, v: rlx.scan(lambda c, e: (c + e, None), v, xs)[0], xs[0])


def empty(g: rlx.Graph) -> Any:
    return rlx.fori(3, lambda i, v: v + g.input("x", [0]).max() * 0, g.input("y", []))


def broad(g: rlx.Graph) -> Any:
    x = g.input("x", [1, 2]).expand(9, 2)
    return rlx.scan(lambda c, e: (c + e, None), g.input("y", [2]), x)[0]


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (large, "nothing to fuse"),
        (broad, "nothing to fuse"),
        (matrix, "loop of fori: matmul has no meaning for one element"),
        (halves, "reduce_sum of f16"),
        (long, "more than about 4096 instructions"),
        (stacks, "a scan inside reads or stacks elements"),
    ],
)
def test_what_stays_steps_of_the_schedule(build: Build, why: str) -> None:
    dispatch, fusion = report(build)
    assert "control: scan" in dispatch
    assert why.removeprefix("loop of fori: ") in fusion


NUMBERS = st.integers(-3, 3)

Pair = tuple[Any, Any]

LEAVES: dict[str, Callable[[Any, Any], Pair]] = {
    "add": lambda a, b: (a + b, b),
    "mul": lambda a, b: (a * b, a),
    "swap": lambda a, b: (b, a),
    "less": lambda a, b: (b - a * 2, b - 1),
}


def block(run: Callable[..., Pair], parts: list[Any], a: Any, b: Any) -> Pair:
    """Programs one after another: a leaf, or a loop or branch around programs."""
    for p in parts:
        a, b = LEAVES[p](a, b) if isinstance(p, str) else run(*p, a, b)
    return a, b


def traced(kind: str, parts: list[Any], a: rlx.Value, b: rlx.Value) -> Any:
    if kind == "for":
        return rlx.fori(3, lambda i, c: block(traced, parts, c[0] + i, c[1]), (a, b))
    if kind == "if":
        return rlx.cond(a < b, lambda: block(traced, parts, a, b), lambda: (b, a))

    def more(n: rlx.Value, a: rlx.Value, b: rlx.Value) -> rlx.Value:
        return (n < 4).logical_and(a < b + 2)

    def body(n: rlx.Value, a: rlx.Value, b: rlx.Value) -> Any:
        return n + 1, *block(traced, parts, a, b)

    return rlx.while_loop(more, body, (a * 0, a, b))[1:]


def python(kind: str, parts: list[Any], a: Any, b: Any) -> Pair:
    if kind == "for":
        for i in range(3):
            a, b = block(python, parts, a + i, b)
    elif kind == "if":
        a, b = block(python, parts, a, b) if a < b else (b, a)
    else:
        n = 0
        while n < 4 and a < b + 2:
            n, (a, b) = n + 1, block(python, parts, a, b)
    return a, b


@settings(max_examples=20)
@given(
    st.recursive(
        st.sampled_from(sorted(LEAVES)),
        lambda inner: st.tuples(
            st.sampled_from(["for", "while", "if"]), st.lists(inner, min_size=1, max_size=3)
        ),
        max_leaves=6,
    ),
    NUMBERS,
    NUMBERS,
)
def test_random_programs_agree_with_python(program: Any, a: int, b: int) -> None:
    """Trees of loops and branches over two scalars."""
    with np.errstate(over="ignore"):
        expected = python("for", [program], np.int64(a), np.int64(b))

    def build(g: rlx.Graph) -> Any:
        return traced("for", [program], g.input("a", [], "i64"), g.input("b", [], "i64"))

    for found in outcomes(build, {"a": np.int64(a), "b": np.int64(b)}):
        assert [int(v) for v in found] == [int(v) for v in expected]


def test_a_sum_over_nothing_stays_a_step_of_the_schedule() -> None:
    def build(g: rlx.Graph) -> Any:
        empty, x = g.input("e", [2, 0]), g.input("x", [])
        return rlx.fori(g.input("n", [], "i64"), lambda i, c: c + empty.max(axes=0).sum() + 1.0, x)

    def nothing(g: rlx.Graph) -> Any:
        empty, x = g.input("e", [0]), g.input("x", [])
        return rlx.fori(g.input("n", [], "i64"), lambda i, c: c + empty.sum() + 1.0, x)

    feeds = {"x": np.float32(1), "n": np.int64(3)}
    check(nothing, {**feeds, "e": np.ones(0, np.float32)}, 4.0)
    check(build, {**feeds, "e": np.ones((2, 0), np.float32)}, 4.0)

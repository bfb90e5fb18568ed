"""What the derivative of scan in reverse mode keeps, and what it runs again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compiler.driver import compile_graph
from rlx.ir.graph import Graph, with_bodies
from rlx.ops.control import scan_reverse
from rlx.ops.control.control import Scan
from rlx.targets import find_target
from support.compiled import agrees

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


@pytest.fixture(params=["whole", "segments"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With everything kept, and in segments."""
    monkeypatch.setattr(scan_reverse, "RECORD_BYTES", 1 << 30 if request.param == "whole" else 0)
    yield request.param


def rnn(rounds: int, reverse: bool = False, width: int = 3, looped: bool = True) -> Graph:
    """A loss of a recurrence that uses the round, what is fixed, what is scanned and an integer
    that is carried; and of what it stacks."""
    g = Graph("rnn")
    xs, w = g.input("xs", [rounds, width], "f64"), g.param("w", [width, width], "f64")
    start = g.input("start", [width], "f64")
    n = g.constant(0)

    def one(i: Any, c: rlx.Value, n: rlx.Value, x: rlx.Value) -> Any:
        new = (c.reshape(1, -1) @ w).reshape(-1).tanh() * (x + 1) + i * 0.01 * n.cast("f64")
        return new, n + 1, new * x

    if looped:

        def body(carry: Any, x: Any) -> Any:
            c, i, n = carry
            c, n, y = one(i.cast("f64"), c, n, x)
            return (c, i + (-1 if reverse else 1), n), y

        first = g.constant(rounds - 1 if reverse else 0)
        (c, _, n), ys = rlx.scan(body, (start, first, n), xs, reverse=reverse)
    else:
        c, found = start, {}
        for i in reversed(range(rounds)) if reverse else range(rounds):
            c, n, found[i] = one(i, c, n, xs[i])
        ys = g.stack([found[i] for i in range(rounds)])
    weights = g.iota([rounds, 1]).cast("f64") + 1
    g.set_outputs((c * c).sum() + (ys * weights).sum() * 0.1)
    return g


def feeds(rounds: int, width: int = 3) -> dict[str, Array]:
    return {
        "xs": RNG.standard_normal((rounds, width)),
        "w": RNG.standard_normal((width, width)) / 2,
        "start": RNG.standard_normal(width),
    }


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rounds", [1, 4, 11])
def test_gradients(kept: str, rounds: int, reverse: bool) -> None:
    """11 rounds leave some that fill no segment."""
    given = feeds(rounds)
    names = ["xs", "w", "start"]
    made = rlx.value_and_grad(rnn(rounds, reverse), names)
    expected = rlx.interpret(rlx.value_and_grad(rnn(rounds, reverse, looped=False), names), given)
    for a, e in zip(agrees(made, given), expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-10, atol=1e-12)


def test_second_derivatives(kept: str) -> None:
    given = feeds(5)
    tangents = {f"tangent_{n}": RNG.standard_normal(given[n].shape) for n in ("w", "start")}
    for transform in (
        lambda g: rlx.hvp(g, ["w", "start"]),
        lambda g: rlx.jacrev(rlx.grad(g, "start"), ["start", "w"]),
        lambda g: rlx.hessian(g, "start"),
    ):
        looped, unrolled = transform(rnn(5)), transform(rnn(5, looped=False))
        here = {str(v.name): {**given, **tangents}[str(v.name)] for v in
                (*looped.inputs, *looped.params)}  # fmt: skip
        for a, e in zip(rlx.interpret(looped, here), rlx.interpret(unrolled, here), strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-9, atol=1e-11)


def test_in_batches(kept: str) -> None:
    made = rlx.vmap(rlx.grad(rnn(6), ["w", "xs"]), {"xs": 1, "w": 0}, 2, out_axes=[0, -1])
    given = feeds(6)
    xs = np.stack([given["xs"], given["xs"] * 0.5], axis=1)
    w = np.stack([given["w"], given["w"] + 0.1])
    found = agrees(made, {"xs": xs, "w": w, "start": given["start"]})
    for n in range(2):
        alone = rlx.interpret(
            rlx.grad(rnn(6), ["w", "xs"]), {"xs": xs[:, n], "w": w[n], "start": given["start"]}
        )
        np.testing.assert_allclose(found[0][n], alone[0], rtol=1e-10)
        np.testing.assert_allclose(found[1][..., n], alone[1], rtol=1e-10)


def rounds_run(g: Graph, times: int = 1) -> Counter[str]:
    """How often each op runs in all, loops counted."""
    found: Counter[str] = Counter()
    for op in g.nodes():
        found[op.name] += times
        for a in op.attr_fields:
            if a.kind == "Graph":
                inner = op.rounds if isinstance(op, Scan) else 1
                assert isinstance(inner, int)
                found += rounds_run(op.attrs[a.name], times * inner)
    return found


@pytest.mark.parametrize(("limit", "times"), [(1 << 30, 2), (300, 3)])
def test_how_often_a_round_runs(monkeypatch: pytest.MonkeyPatch, limit: int, times: int) -> None:
    """Whole: forwards, and again within the rounds backwards. In segments: and once more for what
    is carried. Nothing runs only to keep what another run has computed."""
    monkeypatch.setattr(scan_reverse, "RECORD_BYTES", limit)
    made = rlx.value_and_grad(rnn(16), "w")
    assert rounds_run(made)["mir.tanh"] == times * 16
    assert sum(isinstance(op, Scan) for op in made.nodes()) == 2


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 times the rounds take about twice the memory, beside inputs and gradients; and 64 rounds in
    segments less than half of what they take whole."""

    def arena(rounds: int, limit: int) -> int:
        monkeypatch.setattr(scan_reverse, "RECORD_BYTES", limit)
        g = Graph("deep")
        w = g.param("w", [512])
        c = rlx.fori(rounds, lambda i, c: (c * w).sin() + c, g.input("x", [64, 512]))
        g.set_outputs(c.sum())
        return compile_graph(rlx.grad(g, "w"), find_target("cpu"))[0].variants[0].arena_bytes

    assert arena(64, 0) < 0.5 * arena(64, 1 << 40)
    assert arena(256, 0) < 2.2 * arena(64, 0)
    assert arena(256, 1 << 40) > 3.5 * arena(64, 1 << 40)


def test_nested_scans(kept: str) -> None:
    def build(looped: bool) -> Graph:
        g = Graph("nested")
        x, w = g.input("x", [3], "f64"), g.param("w", [3], "f64")

        def outer(c: rlx.Value) -> rlx.Value:
            if looped:
                return rlx.fori(4, lambda i, d: (d * w).sin() + c, c)
            d = c
            for _ in range(4):
                d = (d * w).sin() + c
            return d

        c = x
        if looped:
            c = rlx.fori(5, lambda i, c: outer(c) * 0.5, c)
        else:
            for _ in range(5):
                c = outer(c) * 0.5
        g.set_outputs(c.sum())
        return g

    given = {"x": RNG.standard_normal(3), "w": RNG.standard_normal(3)}
    expected = rlx.interpret(rlx.grad(build(False), ["x", "w"]), given)
    for a, e in zip(agrees(rlx.grad(build(True), ["x", "w"]), given), expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-10)


def test_rounds_of_unknown_number_are_kept_whole(kept: str) -> None:
    g = Graph("symbolic")
    xs = g.input("xs", ["n", 3], "f64")
    c, _ = rlx.scan(lambda c, x: ((c * x).sin(), None), g.input("c", [3], "f64"), xs)
    g.set_outputs(c.sum())
    made = rlx.grad(g, ["xs", "c"])
    assert sum(isinstance(op, Scan) for op in with_bodies(made.nodes())) == 2
    given = {"xs": RNG.standard_normal((4, 3)), "c": RNG.standard_normal(3)}
    bound = g.bind({"n": 4})
    for a, e in zip(
        rlx.interpret(made, given), rlx.interpret(rlx.grad(bound, ["xs", "c"]), given), strict=True
    ):
        np.testing.assert_allclose(a, e)


def test_only_what_is_asked_for_is_carried_backwards() -> None:
    """By w: the cotangents of what is carried and depends on it, and of w; not those of xs, nor of
    another value that is carried."""
    g = Graph("two")
    xs, w = g.input("xs", [4, 3], "f64"), g.param("w", [3], "f64")
    step = g.input("step", [3], "f64")

    def body(carry: Any, x: rlx.Value) -> Any:
        c, t = carry
        return ((c * w + x * t).sin(), t + step), None

    (c, t), _ = rlx.scan(body, (g.input("c", [3], "f64"), g.input("t", [3], "f64")), xs)
    g.set_outputs((c * t).sum())
    for wrt, results in (("w", 2), ("xs", 2), ("step", 3), (["w", "xs", "t"], 4)):
        made = rlx.grad(g, wrt)
        (back,) = (op for op in made.nodes() if isinstance(op, Scan) and op.reverse)
        assert len(back.results) == results, wrt


def test_a_region_makes_the_cotangents_that_are_asked_for() -> None:
    g = Graph("region")
    x, w = g.input("x", [4, 4]), g.param("w", [4, 4])
    g.set_outputs(rlx.checkpoint(lambda h: (h @ w).sin())(x).sum())
    for wrt, products in (("w", 2), (["w", "x"], 3)):  # again, and the cotangents
        times = rounds_run(rlx.grad(g, wrt))
        assert times["mir.matmul"] + times["mir.dot_general"] == products


def test_a_loop_that_no_cotangent_gets_through() -> None:
    """What is carried is replaced, so that nothing of the start is left, nor is it asked for."""
    g = Graph("replaced")
    x, w = g.input("x", [3], "f64"), g.input("w", [3], "f64")
    (c, d), _ = rlx.scan(lambda c, _: ((c[1], w * 2), None), (x, w.sin()), length=3)
    g.set_outputs((c + d + x).sum() + rlx.fori(2, lambda i, c: c.round(), x).sum())
    dx, dw = rlx.interpret(rlx.grad(g, ["x", "w"]), {"x": np.ones(3), "w": np.ones(3)})
    assert dx.tolist() == [1, 1, 1] and dw.tolist() == [4, 4, 4]
    assert (
        rlx.interpret(rlx.grad(g, "x"), {"x": np.ones(3), "w": np.ones(3)})[0].tolist() == [1] * 3
    )

"""Collectives of many ranks: the reference, and ``vmap`` with an axis name, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError, RlxError, ShapeError
from support.collectives import CASES, RANKS, Array, Build, arrays, graph


@pytest.mark.parametrize("n", RANKS)
@pytest.mark.parametrize("case", CASES)
def test_they_are_what_they_are_in_numpy(case: str, n: int) -> None:
    build, peer = CASES[case]
    x, g = arrays(n), graph(build, n)
    every = rlx.distributed.interpret(g, rlx.Mesh(data=n), [{"x": v} for v in x])
    (at_once,) = rlx.interpret(rlx.vmap(g, "x", n, axis_name="data"), {"x": x})
    np.testing.assert_array_equal(np.stack([a for (a,) in every]), peer(x))
    np.testing.assert_array_equal(at_once, peer(x))


def total(build: Build) -> Build:
    return lambda x, d: (build(x, d) * x.sum()).sin().sum()


@pytest.mark.parametrize("case", CASES)
def test_tangents_and_gradients_agree(case: str) -> None:
    """The gradients of all ranks and the tangents of all are one bilinear form."""
    n, x = 3, arrays(3) / 30
    g = graph(total(CASES[case][0]), n)
    mesh, t = rlx.Mesh(data=n), np.random.default_rng(1).standard_normal(x.shape)
    found = rlx.distributed.interpret(rlx.grad(g, "x"), mesh, [{"x": v} for v in x])
    forward = rlx.jvp(g, "x")
    name = str(forward.inputs[-1].name)
    pairs = [{"x": v, name: s} for v, s in zip(x, t, strict=True)]
    moved = rlx.distributed.interpret(forward, mesh, pairs)
    whole = sum((a * s).sum() for (a,), s in zip(found, t, strict=True))
    np.testing.assert_allclose(sum(m[-1] for m in moved), whole, rtol=1e-3, atol=1e-3)


def test_a_replicated_sum_counts_once() -> None:
    """The pair of tensor parallelism: a param of all ranks, and a sum that all of them hold."""

    def loss(
        leaves: Any,
        start: Callable[[Any], Any] = lambda v: v,
        end: Callable[[Any], Any] = lambda v: v,
    ) -> Any:
        x, a, b = leaves
        return end((start(x) @ a).tanh() @ b).sin().sum()

    shapes = ([3, 8], [8, 8], [8, 8])
    d, names = rlx.Mesh(model=4)["model"], ["x", "a", "b"]
    one, rank = rlx.Graph("one"), rlx.Graph("rank")
    one.set_outputs(loss([one.input(n, s) for n, s in zip(names, shapes, strict=True)]))
    parts = ([3, 8], [8, 2], [2, 8])
    leaves = [rank.input(n, s) for n, s in zip(names, parts, strict=True)]
    held = loss(leaves, lambda v: v.vary(d), lambda v: v.all_reduce(d, replicated=True))
    rank.set_outputs(held)
    rng = np.random.default_rng(0)
    x, a, b = (rng.standard_normal(s).astype(np.float32) for s in ((3, 8), (8, 8), (8, 8)))
    expected = rlx.interpret(rlx.grad(one, names), {"x": x, "a": a, "b": b})
    pairs = zip(np.split(a, 4, 1), np.split(b, 4, 0), strict=True)
    feeds = [{"x": x, "a": p, "b": q} for p, q in pairs]
    every = rlx.distributed.interpret(rlx.grad(rank, names), rlx.Mesh(model=4), feeds)
    for found in every:
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-6)
    whole = np.concatenate([f[1] for f in every], 1), np.concatenate([f[2] for f in every], 0)
    np.testing.assert_allclose(whole[0], expected[1], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(whole[1], expected[2], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_a_batch_beside_the_ranks(case: str) -> None:
    build, peer = CASES[case]
    x = np.stack([arrays(2), 2 * arrays(2)], 1)  # ranks, examples, ...
    g = rlx.vmap(graph(build, 2), "x", 2)
    found = rlx.distributed.interpret(g, rlx.Mesh(data=2), [{"x": v} for v in x])
    expected = np.stack([peer(x[:, i]) for i in range(2)], 1)
    np.testing.assert_array_equal(np.stack([a for (a,) in found]), expected)


def test_ranks_meet_inside_loops_and_branches() -> None:
    g, d = rlx.Graph("loop"), rlx.Mesh(data=3)["data"]
    x = g.input("x", [2])
    total = rlx.fori(4, lambda i, v: v.all_reduce(d) * 0.25, x)
    pick = rlx.cond(total.sum() > 0.0, lambda v: v.all_reduce(d, "max"), lambda v: v, total + x)
    g.set_outputs(pick + g.axis_index(d).cast("f32"))
    xs = np.arange(6, dtype=np.float32).reshape(3, 2)
    v = xs.sum(0) / 4 * 0.75**3
    expected = np.stack([v + xs.max(0) + r for r in range(3)])
    found = rlx.distributed.interpret(g, rlx.Mesh(data=3), [{"x": v} for v in xs])
    np.testing.assert_allclose(np.stack([a for (a,) in found]), expected, rtol=1e-6)
    many = rlx.vmap(g, "x", 3, axis_name="data")
    np.testing.assert_allclose(rlx.interpret(many, {"x": xs})[0], expected, rtol=1e-6)


def test_bodies_differ_from_rank_to_rank_though_operands_do_not() -> None:
    g, d = rlx.Graph("loop"), rlx.Mesh(data=3)["data"]
    x = g.input("x", [2])
    g.set_outputs(rlx.fori(2, lambda i, v: v + v.graph.axis_index(d).cast("f32"), x))
    many = rlx.vmap(g, {}, 3, axis_name="data")
    found = rlx.interpret(many, {"x": np.zeros(2, np.float32)})[0]
    np.testing.assert_array_equal(found, [[0, 0], [2, 2], [4, 4]])


def test_functions_over_named_ranks() -> None:
    d = rlx.Mesh(data=4)["data"]
    f = rlx.vmap(lambda x: x / x.all_reduce(d), axis_name="data")
    x = np.array([1, 2, 3, 4], np.float32)
    np.testing.assert_allclose(f(x), x / 10)


def test_a_mesh_numbers_its_ranks() -> None:
    mesh = rlx.Mesh(data=2, model=3)
    assert mesh.size == 6 and mesh.axes == (mesh["data"], mesh["model"])
    assert mesh.coordinates(4) == {"data": 1, "model": 1}
    assert mesh.group(4, "data") == (1, 4) and mesh.group(4, "model") == (3, 4, 5)
    assert repr(mesh) == "Mesh(data=2, model=3)" and mesh == rlx.Mesh(data=2, model=3)
    assert hash(mesh) == hash(rlx.Mesh(data=2, model=3)) and mesh != rlx.Mesh(model=3, data=2)


def along() -> Any:
    return rlx.Mesh(data=2)["data"]


REFUSED: dict[str, tuple[Callable[[], object], type[RlxError], str]] = {
    "no axes": (rlx.Mesh, GraphError, "one axis or more"),
    "no number": (lambda: rlx.Mesh(data="4"), GraphError, "has '4' ranks"),  # type: ignore[arg-type]
    "no ranks": (lambda: rlx.Mesh(data=0), GraphError, "has 0 ranks, expected from 1"),
    "a name": (lambda: rlx.Mesh(**{"a b": 2}), GraphError, "letters, digits"),
    "unknown axis": (lambda: rlx.Mesh(data=2)["date"], RlxError, "did you mean 'data'"),
    "rank out of range": (lambda: rlx.Mesh(data=2).coordinates(2), GraphError, "rank 2 of a mesh"),
    "an axis by name": (
        lambda: rlx.Graph("g").input("x", [2]).all_reduce("data"),  # type: ignore[arg-type]
        GraphError,
        r"axis is 'data', expected one of a mesh: mesh\['data'\]",
    ),
    "a mean of integers": (
        lambda: rlx.Graph("g").input("x", [2], "i32").all_reduce(along(), "mean"),
        RlxError,
        "a mean is of floats, found i32",
    ),
    "one rank of many": (
        lambda: rlx.interpret(graph(CASES["sum"][0], 2), {"x": arrays(2)[0]}),
        GraphError,
        "all_reduce is over the 2 ranks along 'data', and the interpreter runs one",
    ),
    "another mesh": (
        lambda: rlx.distributed.interpret(
            graph(CASES["sum"][0], 2), rlx.Mesh(model=2), [{"x": v} for v in arrays(2)]
        ),
        GraphError,
        r"over 2 ranks along 'data', and runs on Mesh\(model=2\)",
    ),
    "no mesh": (
        lambda: rlx.distributed.interpret(graph(CASES["sum"][0], 2), 2, []),  # type: ignore[arg-type]
        GraphError,
        "mesh is 2, expected a Mesh",
    ),
    "too few feeds": (
        lambda: rlx.distributed.interpret(graph(CASES["sum"][0], 2), rlx.Mesh(data=2), [{}]),
        GraphError,
        "1 feeds for the 2 ranks",
    ),
    "other ranks than examples": (
        lambda: rlx.vmap(graph(CASES["sum"][0], 2), "x", 3, axis_name="data"),
        ShapeError,
        "over 2 ranks along 'data', and vmap has 3 examples",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        call()


def test_a_rank_that_waits_in_vain_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.base.meeting.LIMIT", 0.05)
    graphs = [graph(CASES["sum"][0], 2), graph(lambda x, d: x, 2)]
    with pytest.raises(RlxError, match="waited for others, which never came"):
        rlx.distributed.interpret(graphs, rlx.Mesh(data=2), [{"x": v} for v in arrays(2)])


def test_the_error_of_a_rank_ends_all() -> None:
    feeds: list[dict[str, Array]] = [{"x": arrays(2)[0]}, {}]
    with pytest.raises(RlxError, match="nothing was given for 'x'"):
        rlx.distributed.interpret(graph(CASES["sum"][0], 2), rlx.Mesh(data=2), feeds)

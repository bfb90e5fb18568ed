"""Graphs of a rank on whole arrays: tensor parallelism against one rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import P
from rlx.distributed import current_rank, run_threads
from rlx.errors import RlxError
from rlx.ir.value import Value

Array = np.ndarray[Any, Any]
Leaves = dict[str, Value]

MODEL, HIDDEN, HEADS, TOKENS = 64, 128, 8, 6


def weights() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {
        "wq": (MODEL, MODEL), "wk": (MODEL, MODEL), "wv": (MODEL, MODEL), "wo": (MODEL, MODEL),
        "gate": (MODEL, HIDDEN), "up": (MODEL, HIDDEN), "down": (HIDDEN, MODEL),
        "norm1": (MODEL,), "norm2": (MODEL,),
    }  # fmt: skip
    found = {n: rng.standard_normal(s) * s[0] ** -0.5 for n, s in shapes.items()}
    found |= {n: np.abs(found[n]) + 1 for n in ("norm1", "norm2")}
    return {n: a.astype(np.float32) for n, a in found.items()}


CUTS = {
    **dict.fromkeys(("wq", "wk", "wv", "gate", "up"), P(None, "model")),
    **dict.fromkeys(("wo", "down"), P("model")),
}


def block(g: rlx.Graph, x: Value, w: Leaves, mesh: rlx.Mesh | None) -> Value:
    """A block as llama's: attention over heads and a gated layer, with two sums over the ranks."""
    axis = None if mesh is None else mesh["model"]
    heads = HEADS if axis is None else HEADS // axis.ranks

    def spread(v: Value) -> Value:
        return v if axis is None else v.vary(axis)

    def total(v: Value) -> Value:
        return v if axis is None else v.all_reduce(axis, replicated=True)

    h = spread(x.rms_norm(w["norm1"]))
    q, k, v = (h @ w[n] for n in ("wq", "wk", "wv"))
    attended = g.attention(q, k, v, num_heads=heads, head_dim=MODEL // HEADS, mask_kind="causal")
    x = x + total(attended @ w["wo"])
    h = spread(x.rms_norm(w["norm2"]))
    return x + total(((h @ w["gate"]).silu() * (h @ w["up"])) @ w["down"])


def leaves(g: rlx.Graph, mesh: rlx.Mesh | None, make: str) -> Leaves:
    found: Leaves = {}
    for name, value in weights().items():
        spec = CUTS.get(name, P())
        shape = value.shape if mesh is None else spec.part(value, mesh, 0).shape
        found[name] = getattr(g, make)(name, shape)
    return found


def x_of() -> Array:
    return np.random.default_rng(1).standard_normal((1, TOKENS, MODEL)).astype(np.float32)


def close(a: Array, b: Array) -> None:
    assert np.abs(a - b).max() <= 1e-5 * np.abs(b).max()


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_block_is_that_of_one_rank(ranks: int) -> None:
    one = rlx.Graph("one")
    one.set_outputs(
        block(one, one.input("x", [1, TOKENS, MODEL]), leaves(one, None, "input"), None)
    )
    (expected,) = rlx.Session("cpu").compile(one).run({"x": x_of(), **weights()})
    mesh = rlx.Mesh(model=ranks)
    g = rlx.Graph("rank")
    g.set_outputs(block(g, g.input("x", [1, TOKENS, MODEL]), leaves(g, mesh, "param"), mesh))
    sharded = rlx.shard(g, mesh, CUTS, manual=True)

    def rank(number: int) -> Array:
        assert current_rank(mesh) == mesh.rank == number
        f = sharded.compile(rlx.Session("cpu"))
        for name, value in sharded.parts(weights(), number).items():
            f.set_param(name, value)
        return f.run({"x": x_of()})[0]

    for found in run_threads(mesh, rank):
        close(found, expected)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_gradients_of_a_block_are_those_of_one_rank(ranks: int) -> None:
    def graph(mesh: rlx.Mesh | None) -> rlx.Graph:
        g = rlx.Graph("block")
        x = g.input("x", [1, TOKENS, MODEL])
        g.set_outputs((block(g, x, leaves(g, mesh, "input"), mesh) ** 2.0).mean())
        return rlx.grad(g, ["x", *weights()])

    feeds = {"x": x_of(), **weights()}
    expected = list(rlx.Session("cpu").compile(graph(None)).run(feeds))
    mesh = rlx.Mesh(model=ranks)
    out = [P(), *(CUTS.get(name, P()) for name in weights())]
    sharded = rlx.shard(graph(mesh), mesh, CUTS, manual=True)
    session = rlx.Session("cpu")

    def run(rank: int) -> list[Array]:
        return sharded.compile(session).run(sharded.parts(feeds, rank))

    for rank, found in enumerate(run_threads(mesh, run)):
        for a, b, spec in zip(found, expected, out, strict=True):
            close(a, spec.part(b, mesh, rank))


def test_a_spec_cuts_as_numpy_splits() -> None:
    mesh, a = rlx.Mesh(data=2, model=3), np.arange(48).reshape(4, 12)
    for rank in range(6):
        row, column = divmod(rank, 3)
        expected = np.split(np.split(a, 2, 0)[row], 3, 1)[column]
        np.testing.assert_array_equal(P("data", "model").part(a, mesh, rank), expected)
        np.testing.assert_array_equal(P().part(a, mesh, rank), a)
    assert repr(P("data", None)) == "P('data', None)" and P("data") == P("data")


def small() -> rlx.Graph:
    g = rlx.Graph("small")
    g.set_outputs(g.input("x", [2, 4]) * 2.0)
    return g


def sized() -> rlx.Graph:
    g = rlx.Graph("sized")
    g.set_outputs(g.input("x", [rlx.Dim("n") * 2]) * 2.0)
    return g


def of_a_rank() -> rlx.Graph:
    g = rlx.Graph("of a rank")
    g.set_outputs(g.input("x", [2]).all_reduce(MESH["data"]))
    return g


MESH = rlx.Mesh(data=2)

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "an axis twice": (lambda: P("data", "data"), "names an axis twice"),
    "no name": (lambda: P(3), "names of axes, or None, found 3"),  # type: ignore[arg-type]
    "no even cut": (lambda: P("data").part(np.ones(3), MESH, 0), "no multiple of 2"),
    "too many dims": (
        lambda: rlx.shard(small(), MESH, {"x": P(None, None, "data")}, manual=True),
        "'x' has 2 dims",
    ),
    "unknown axis": (
        lambda: rlx.shard(small(), MESH, {"x": P("date")}, manual=True),
        "did you mean 'data'",
    ),
    "unknown name": (
        lambda: rlx.shard(small(), MESH, {"y": P("data")}, manual=True),
        "no input or param is called 'y'",
    ),
    "no spec": (
        lambda: rlx.shard(small(), MESH, {"x": "data"}, manual=True),  # type: ignore[dict-item]
        "the spec of 'x' is 'data', expected a P",
    ),
    "too many outputs": (
        lambda: rlx.shard(small(), MESH, {}, out=[P(), P()]),
        "2 specs for 1 outputs",
    ),
    "outputs of a rank": (
        lambda: rlx.shard(small(), MESH, {}, out=P(), manual=True),
        "results are those of a rank",
    ),
    "no spec of an output": (
        lambda: rlx.shard(small(), MESH, {}, out=["data"]),  # type: ignore[list-item]
        "the spec of output 0 is 'data', expected a P",
    ),
    "unequal parts": (
        lambda: rlx.shard(small(), rlx.Mesh(data=3), {"x": P("data")}),
        "dim 0 of 'x' has 2 elements, which are not cut in equal parts",
    ),
    "an expression": (
        lambda: rlx.shard(sized(), MESH, {"x": P("data")}),
        r"dim 0 of 'x' is 2\*n; only a number or a name is cut",
    ),
    "collectives": (lambda: rlx.shard(of_a_rank(), MESH, {}), "has a collective, all_reduce"),
    "no graph": (lambda: rlx.shard(3, MESH, {}), "takes a Graph, found an int"),  # type: ignore[arg-type]
    "no mesh": (lambda: rlx.shard(small(), 2, {}), "mesh is 2, expected a Mesh"),  # type: ignore[arg-type]
    "no rank": (
        lambda: rlx.shard(small(), MESH, {}, manual=True).compile(rlx.Session("cpu")),
        r"this process is no rank, expected one of Mesh\(data=2\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(RlxError, match=message):
        call()


def test_a_rank_of_another_mesh() -> None:
    sharded = rlx.shard(small(), rlx.Mesh(model=2), {}, manual=True)
    with pytest.raises(RlxError, match=r"this is a rank of Mesh\(data=2\)"):
        run_threads(MESH, lambda rank: sharded.compile(rlx.Session("cpu")))

"""Ranks that train together come to what one rank does on the whole batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.distributed import run_threads
from rlx.errors import GraphError, RlxError
from rlx.ops.collective.base import Collective
from rlx.training.graphs import Plan, gradient_half
from rlx.training.ranks import Ranks

BATCH, STEPS = 32, 20


def model(batch: int, seed: int = 2) -> rlx.Graph:
    """Three layers and a loss, and how many are right."""
    g, rng = rlx.Graph("mlp"), np.random.default_rng(seed)
    h, y = g.input("x", [batch, 16]), g.input("y", [batch], "i64")
    for n, (rows, columns) in enumerate([(16, 64), (64, 64), (64, 10)]):
        w = rng.standard_normal((rows, columns)) * np.sqrt(2 / rows)
        h = (h.relu() if n else h) @ g.param(f"w{n}", value=w.astype(np.float32))
        h = h + g.param(f"b{n}", value=np.zeros(columns, np.float32))
    right = h.argmax(axis=1).eq(y).cast("f32").mean()
    g.set_outputs([h.softmax_cross_entropy(y).mean(), right])
    return g


def batches() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(1)
    centres = 2 * rng.standard_normal((10, 16))
    found = []
    for _ in range(STEPS):
        y = rng.integers(0, 10, BATCH)
        x = (centres[y] + rng.standard_normal((BATCH, 16))).astype(np.float32)
        found.append((x, y))
    return found


def train(
    rank: int, ranks: int, mesh: rlx.Mesh | None, **options: Any
) -> tuple[list[float], list[float], dict[str, Any]]:
    step = rlx.compile_training(
        model(BATCH // ranks, 2 + rank), rlx.optim.AdamW(lr=1e-2), metrics=["right"], mesh=mesh,
        clip=rlx.optim.ClipNorm(1.0), ema=0.9, **options,
    )  # fmt: skip
    losses, right = [], []
    for x, y in batches():
        part = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
        result = step({"x": x[part], "y": y[part]})
        losses.append(result.loss)
        right.append(float(result.metrics["right"]))
    return losses, right, step.params()


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_train_as_one_does(ranks: int) -> None:
    """Also where the others begin with other params: the first rank's are taken."""
    mesh = rlx.Mesh(data=ranks)
    losses, right, params = train(0, 1, None)
    every = run_threads(mesh, lambda rank: train(rank, ranks, mesh))
    for found in every:
        np.testing.assert_allclose(found[0], losses, rtol=1e-5)
        np.testing.assert_allclose(found[1], right, rtol=1e-5)
        for name, value in params.items():
            np.testing.assert_allclose(found[2][name], value, rtol=1e-3, atol=1e-5)
            assert found[2][name].tobytes() == every[0][2][name].tobytes()
    assert losses[-1] < losses[0] / 2


def test_accumulated_batches() -> None:
    mesh = rlx.Mesh(data=2)
    losses, _, params = train(0, 1, None, accumulate=2)
    for found in run_threads(mesh, lambda rank: train(rank, 2, mesh, accumulate=2)):
        np.testing.assert_allclose(found[0], losses, rtol=1e-5)
        for name, value in params.items():
            np.testing.assert_allclose(found[2][name], value, rtol=1e-3, atol=1e-5)


def test_small_gradients_are_reduced_together() -> None:
    plan = Plan(
        model(8), rlx.optim.SGD(lr=0.1), ("w0", "b0", "w1"), ranks=Ranks(rlx.Mesh(data=2)["data"])
    )
    found = [n for n in gradient_half(plan).graph.nodes() if isinstance(n, Collective)]
    assert len(found) == 1  # the loss and the metric are with them


def embedding(batch: int) -> rlx.Graph:
    """The mean of some rows of a table of words, and one of places, of which a batch takes all."""
    g, rng = rlx.Graph("words"), np.random.default_rng(5)
    ids, y = g.input("ids", [batch, 4], "i64"), g.input("y", [batch], "i64")
    words = g.param("words", value=rng.standard_normal((500, 8)).astype(np.float32))
    places = g.param("places", value=rng.standard_normal((4, 8)).astype(np.float32))
    h = words.gather(ids) + places.gather(np.arange(4))
    g.set_outputs([(h.mean(axes=1)).softmax_cross_entropy(y).mean()])
    return g


def test_rows_of_a_table_are_exchanged_and_not_the_table() -> None:
    """Words that several ranks have add up."""
    mesh, rng = rlx.Mesh(data=2), np.random.default_rng(6)
    ids, y = rng.integers(0, 9, (STEPS, 8, 4)), rng.integers(0, 8, (STEPS, 8))

    def trained(rank: int, ranks: int) -> dict[str, Any]:
        step = rlx.compile_training(
            embedding(8 // ranks), rlx.optim.SGD(lr=0.5), mesh=mesh if ranks > 1 else None
        )
        part = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
        for n in range(STEPS):
            step({"ids": ids[n, part], "y": y[n, part]})
        return step.params()

    alone = trained(0, 1)
    for found in run_threads(mesh, lambda rank: trained(rank, 2)):
        for name, value in alone.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)
    plan = Plan(embedding(4), rlx.optim.SGD(lr=0.1), ("words", "places"), ranks=Ranks(mesh["data"]))
    found = [n for n in gradient_half(plan).graph.nodes() if isinstance(n, Collective)]
    assert [n.kind for n in found].count("all_gather") == 2  # of words: the rows, and which
    assert max(n.x.type.nbytes for n in found) == 4 * 4 * 8 * 4


def test_each_rank_draws_numbers_of_its_own() -> None:
    g = rlx.Graph("noise")
    w, key = g.param("w", value=np.ones(64, np.float32)), g.input("key", [2], "u32")
    g.set_outputs([(w.dropout(key, 0.5) * g.input("x", [64])).sum()])

    def rank(number: int) -> Any:
        mesh = rlx.Mesh(data=2)
        step = rlx.compile_training(g, rlx.optim.SGD(lr=1.0), key="key", mesh=mesh)
        step({"x": np.ones(64, np.float32)})
        return step.params()["w"]

    first, second = run_threads(rlx.Mesh(data=2), rank)
    np.testing.assert_array_equal(first, second)
    # A gradient is 2 where an element was kept: by both, by one or by none.
    assert {0.0, 1.0, 2.0} == {float(v) for v in np.round(1.0 - first, 3)}


def test_refusals() -> None:
    with pytest.raises(GraphError, match="mesh is 2, expected a Mesh"):
        rlx.compile_training(model(8), rlx.optim.SGD(lr=0.1), mesh=2)  # type: ignore[arg-type]
    with pytest.raises(RlxError, match="the mesh has no axis 'data'"):
        rlx.compile_training(model(8), rlx.optim.SGD(lr=0.1), mesh=rlx.Mesh(model=2))

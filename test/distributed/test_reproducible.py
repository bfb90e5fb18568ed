"""Training that has the same bits on any number of ranks: losses, metrics and params."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed.test_training import BATCH, batches, model
from distributed.test_training import train as train_at_once

import rlx
from rlx.distributed import run_threads
from rlx.errors import DTypeError, GraphError, NonFiniteError, RlxError, ShapeError
from rlx.training.parts import sum_of_tree
from rlx.training.ranks import PARTS

STEPS = 6


def train(rank: int, mesh: rlx.Mesh | None, **options: Any) -> tuple[list[Any], dict[str, Any]]:
    """Losses and metrics of some steps, and the params after them."""
    ranks = 1 if mesh is None else mesh.size
    step = rlx.compile_training(
        model(BATCH // PARTS, 2 + rank), rlx.optim.AdamW(lr=1e-2), metrics=["right"], mesh=mesh,
        reproducible=True, clip=rlx.optim.ClipNorm(1.0), ema=0.9, **options,
    )  # fmt: skip
    found: list[Any] = []
    for x, y in batches()[:STEPS]:
        mine = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
        result = step({"x": x[mine], "y": y[mine]})
        found += [result.loss, float(result.metrics["right"])]
    return found, step.params() | {f"average {n}": a for n, a in step.params(True).items()}


def test_any_number_of_ranks_has_the_same_bits() -> None:
    losses, params = train(0, None)
    at_once, right, _ = train_at_once(0, 1, None)
    np.testing.assert_allclose(losses[::2], at_once[:STEPS], rtol=1e-5)
    np.testing.assert_allclose(losses[1::2], right[:STEPS], rtol=1e-6)
    for ranks in (1, 2, 4, 8):
        mesh = rlx.Mesh(data=ranks)
        for found, after in run_threads(mesh, lambda rank, mesh=mesh: train(rank, mesh)):
            assert found == losses
            for name, value in params.items():
                assert after[name].tobytes() == value.tobytes(), (ranks, name)


def noisy(rank: int, mesh: rlx.Mesh | None) -> tuple[list[float], Any]:
    """Batches that are added up, of half floats with a scaled loss, whose noise has a key; of a
    size that no number of ranks divides."""
    g = rlx.Graph("noise")
    w, key = g.param("w", value=np.ones(65, np.float16)), g.input("key", [2], "u32")
    x = g.input("x", ["rows", 65], "f16")
    g.set_outputs([(x * w.dropout(key, 0.5) * g.input("factor", [], "f16")).mean()])
    step = rlx.compile_training(
        g, rlx.optim.SGD(lr=1.0), mesh=mesh, reproducible=True, key="key", accumulate=2,
        loss_scale=rlx.training.LossScale(initial=8.0),
    )  # fmt: skip
    rng, losses = np.random.default_rng(0), list[float]()
    ranks = 1 if mesh is None else mesh.size
    for _ in range(4):
        whole = rng.standard_normal((16, 65)).astype(np.float16)
        mine = whole[rank * 16 // ranks : (rank + 1) * 16 // ranks]
        losses.append(step({"x": mine, "factor": np.float16(3)}).loss)
    return losses, step.params()["w"]


def test_random_keys_and_accumulated_batches() -> None:
    losses, w = noisy(0, None)
    mesh = rlx.Mesh(data=4)
    for found, after in run_threads(mesh, lambda rank: noisy(rank, mesh)):
        assert found == losses and after.tobytes() == w.tobytes()
    assert np.isfinite(w).all() and len(set(w)) > 10


def test_sums_keep_few_lists() -> None:
    """Of 8 parts no more than 4 are there at once."""
    live, most = 0, 0

    def parts() -> Any:
        nonlocal live, most
        for n in range(8):
            live += 1
            most = max(most, live)
            yield [f"{n}"]

    def add(total: Any, more: Any) -> None:
        nonlocal live
        live -= 1
        total[0] = f"({total[0]}+{more[0]})"

    assert sum_of_tree(parts(), add) == ["(((0+1)+(2+3))+((4+5)+(6+7)))"]
    assert (live, most) == (1, 4)


def test_a_batch_that_has_no_such_parts() -> None:
    step = rlx.compile_training(model(4), rlx.optim.SGD(lr=0.1), metrics=["right"],
                                reproducible=True)  # fmt: skip
    with pytest.raises(
        ShapeError, match=r"has 8 parts, each of 4 rows of 'x', found an array of \[4, 16\]"
    ):
        step({"x": np.zeros((4, 16), np.float32), "y": np.zeros(32, np.int64)})
    with pytest.raises(RlxError, match="y"):
        step({"x": np.zeros((32, 16), np.float32)})
    assert step.position == 0


def test_refusals() -> None:
    g = rlx.Graph("count")
    x = g.input("x", [4]) * g.param("w", value=np.ones(4, np.float32))
    g.set_outputs([x.sum(), x.argmax()])
    with pytest.raises(DTypeError, match="metric 'at' is i64, and the parts"):
        rlx.compile_training(g, rlx.optim.SGD(), metrics=["at"], reproducible=True)
    with pytest.raises(GraphError, match="8 parts, which 3 ranks cannot share evenly"):
        rlx.compile_training(
            model(4), rlx.optim.SGD(), metrics=["right"], reproducible=True, mesh=rlx.Mesh(data=3)
        )


@pytest.mark.parametrize("reproducible", [False, True])
def test_nan_is_named_by_the_rank_that_has_it(reproducible: bool) -> None:
    def rank(number: int) -> str:
        g = rlx.Graph("log")
        x, w = g.input("x", [1]), g.param("w", value=np.ones(1, np.float32))
        g.set_outputs([(x * w).log().mean()])
        step = rlx.compile_training(
            g, rlx.optim.SGD(), mesh=rlx.Mesh(data=2), reproducible=reproducible
        )
        x = np.ones(4 if reproducible else 1, np.float32)
        x[-1] = 1 - 2 * number
        with pytest.raises(NonFiniteError) as found:
            step({"x": x})
        return found.value.message

    first, second = run_threads(rlx.Mesh(data=2), rank)
    assert first == "batch 0: nan or infinity in the batch of another rank, whose error names it"
    assert "log is the first to give nan" in second


def test_nan_in_a_graph_of_collectives() -> None:
    mesh = rlx.Mesh(data=1, model=2)

    def rank(number: int) -> str:
        g = rlx.Graph("log")
        x, w = g.input("x", [1]), g.param("w", value=np.ones(1, np.float32))
        g.set_outputs([(x * w).all_reduce(mesh["model"]).log().mean()])
        step = rlx.compile_training(g, rlx.optim.SGD(), mesh=mesh)
        with pytest.raises(NonFiniteError) as found:
            step({"x": -np.ones(1, np.float32)})
        return found.value.message

    assert "in a graph of collectives" in run_threads(mesh, rank)[0]

"""Ranks that hold slices of the state train as ranks that hold all of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed.test_training import BATCH, batches, model

import rlx
from rlx.distributed import run_threads
from rlx.errors import GraphError, UnsupportedError
from rlx.training.ranks import PARTS

STEPS = 5


def train(rank: int, mesh: rlx.Mesh, zero: int, **options: Any) -> tuple[Any, ...]:
    """The losses, the params and averages after them, and the bytes that a rank takes."""
    each = BATCH // mesh.size
    rows = BATCH // PARTS if options.get("reproducible") else each
    settings: dict[str, Any] = {"clip": rlx.optim.ClipNorm(0.5), **options}
    step = rlx.compile_training(
        model(rows, 2 + rank),
        rlx.optim.AdamW(lr=1e-2),
        metrics=["right"],
        mesh=mesh,
        ema=0.9,
        zero=zero,
        **settings,
    )
    losses: list[float] = []
    for x, y in batches()[:STEPS]:
        mine = slice(rank * each, (rank + 1) * each)
        losses.append(step({"x": x[mine], "y": y[mine]}).loss)
    return losses, step.params(), step.params(averaged=True), step.memory()


def test_slices_train_as_the_whole() -> None:
    ranks = 3
    mesh, rows = rlx.Mesh(data=ranks), dict[int, Any]()
    for zero in (0, 1, 3):
        rows[zero] = run_threads(mesh, lambda rank, zero=zero: train(rank, mesh, zero))
    for zero in (1, 3):
        for found, expected in zip(rows[zero], rows[0], strict=True):
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
            assert found[0] == rows[zero][0][0]
            for mine, whole in zip(found[1:3], expected[1:3], strict=True):
                for name, value in whole.items():
                    np.testing.assert_allclose(mine[name], value, rtol=1e-4, atol=1e-6)
                    assert (
                        mine[name].tobytes()
                        == rows[zero][0][1 + (mine is found[2])][name].tobytes()
                    )
    full, first, third = (rows[zero][0][3] for zero in (0, 1, 3))
    for what in ("gradients", "optimizer", "ema"):
        assert first[what] == third[what]
        assert full[what] / ranks <= first[what] < full[what] / ranks * 1.1
    assert full["params"] == first["params"] > third["params"] * (ranks - 0.5)
    assert third["between kernels"] > 0


def test_slices_have_the_same_bits_where_that_is_asked_for() -> None:
    options: dict[str, Any] = {"reproducible": True, "accumulate": 2}
    one, two, four = (rlx.Mesh(data=n) for n in (1, 2, 4))
    expected = run_threads(one, lambda rank: train(rank, one, 0, **options))[0]
    for mesh, zero in [(one, 3), (two, 3), (four, 1)]:
        for found in run_threads(
            mesh, lambda rank, mesh=mesh, zero=zero: train(rank, mesh, zero, **options)
        ):
            assert found[0] == expected[0]
            for mine, whole in zip(found[1:3], expected[1:3], strict=True):
                for name, value in whole.items():
                    assert mine[name].tobytes() == value.tobytes(), (mesh, zero, name)


def halves(rank: int, zero: int) -> tuple[list[float], Any]:
    """Params of half floats, one of a single element, one not trained, and a scaled loss."""
    g = rlx.Graph("halves")
    w = g.param("w", value=np.ones((3, 5), np.float16))
    b, c = g.param("b", value=np.zeros(1, np.float32)), g.param("c", value=np.float32(1))
    fixed = g.param("fixed", value=np.full(5, 2, np.float32))
    y = (g.input("x", [4, 3], "f16") @ w).cast("f32") * c + b - fixed
    g.set_outputs([(y * y).mean()])
    step = rlx.compile_training(
        g, rlx.optim.NAdamW(lr=0.03), clip=rlx.optim.ClipValue(0.5), wrt=["b", "c", "w"],
        mesh=rlx.Mesh(data=2), zero=zero,
        loss_scale=rlx.training.LossScale(initial=2.0**24, interval=2),
    )  # fmt: skip
    x = np.random.default_rng(rank).standard_normal((4, 3)).astype(np.float16)
    found = [step({"x": x}).loss for _ in range(9)]
    assert {a.dtype.name for a in step.params().values()} == {"float16", "float32"}
    return found, step.params()


def test_params_of_16_bits_and_a_scaled_loss() -> None:
    mesh = rlx.Mesh(data=2)
    expected, params = run_threads(mesh, lambda rank: halves(rank, 0))[0]
    assert expected[-1] < expected[0]
    for zero in (1, 3):
        for found, after in run_threads(mesh, lambda rank, zero=zero: halves(rank, zero)):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
            for name, value in params.items():
                np.testing.assert_allclose(after[name], value, rtol=1e-3, atol=1e-6)


def test_refusals() -> None:
    mesh = rlx.Mesh(data=2)

    def refused(match: str, error: type[Exception], optimizer: Any = None, **given: Any) -> None:
        options: dict[str, Any] = {"mesh": mesh, **given}
        with pytest.raises(error, match=match):
            rlx.compile_training(
                model(8), optimizer or rlx.optim.AdamW(), metrics=["right"], **options
            )  # fmt: skip

    refused("zero is 2, expected 0", GraphError, zero=2)
    refused("zero is True, expected 0", GraphError, zero=True)
    refused("to the ranks of a mesh, and there is none", GraphError, zero=1, mesh=None)
    refused("Muon updates it as a whole .other ops", UnsupportedError, rlx.optim.Muon(), zero=1)
    refused("Lamb updates it as a whole .reduce_sum", UnsupportedError, rlx.optim.Lamb(), zero=3)
    refused("updates it as a whole .a slot of", UnsupportedError, rlx.optim.Adafactor(), zero=3)
    refused("and clip is ", UnsupportedError, zero=1, clip=dict)

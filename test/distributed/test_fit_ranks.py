"""``fit`` on many ranks: each has its part of a batch, one shows it, and all stop together."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.distributed import run_threads
from rlx.errors import GraphError, NameError, ShapeError
from rlx.training import Batches

ROWS = {
    "x": np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32),
    "y": np.arange(40, dtype=np.float32).reshape(40, 1) / 40,
}


def make(rows: int, **options: Any) -> rlx.training.TrainStep:
    g = rlx.Graph("line")
    error = g.input("x", [rows, 3]) @ g.param("w", value=np.zeros((3, 1), np.float32))
    error = error - g.input("y", [rows, 1])
    g.set_outputs([(error * error).mean(), error.abs().mean()])
    return rlx.compile_training(g, rlx.optim.SGD(lr=0.1), metrics=["off"], **options)


def test_ranks_have_parts_of_the_same_batches() -> None:
    whole, mesh = Batches(ROWS, 8, seed=3), rlx.Mesh(data=4)
    every = run_threads(mesh, lambda rank: Batches(ROWS, 8, seed=3, mesh=mesh))
    assert {len(b) for b in every} == {len(whole)}
    for n in (0, 3, 7):
        parts = [b[n] for b in every]
        for name, a in whole[n].items():
            np.testing.assert_array_equal(np.concatenate([p[name] for p in parts]), a)
    assert len(Batches(ROWS, 8, mesh=rlx.Mesh(data=1))[0]["x"]) == 8
    # Ranks along another axis have the same rows.
    square = rlx.Mesh(data=2, model=2)
    rows = run_threads(square, lambda rank: Batches(ROWS, 8, mesh=square)[0]["y"])
    assert (rows[0] == rows[1]).all() and not (rows[0] == rows[2]).any()


def test_batches_that_cannot_be_shared() -> None:
    with pytest.raises(ShapeError, match="a batch of 9 rows is not shared by 2 ranks"):
        Batches(ROWS, 9, mesh=rlx.Mesh(data=2))
    with pytest.raises(GraphError, match="Batches: mesh is 2, expected a Mesh"):
        Batches(ROWS, 8, mesh=2)  # type: ignore[arg-type]
    with pytest.raises(NameError, match="no axis 'rows'"):
        Batches(ROWS, 8, mesh=rlx.Mesh(data=2), axis="rows")
    with pytest.raises(GraphError, match="this process is no rank"):
        Batches(ROWS, 8, mesh=rlx.Mesh(data=2))


def test_one_rank_shows_what_all_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mesh, path = rlx.Mesh(data=2), tmp_path / "run"
    straight = rlx.fit(make(8), Batches(ROWS, 8), epochs=2, show=False)

    def rank(number: int, epochs: int) -> rlx.training.History:
        step = make(4, mesh=mesh)
        data = Batches(ROWS, 8, mesh=mesh)
        return rlx.fit(step, data, epochs=epochs, checkpoint=path, every=2, show=True)

    first = run_threads(mesh, lambda n: rank(n, 1))
    assert capfd.readouterr().err.count("trained 5 steps") == 1
    second = run_threads(mesh, lambda n: rank(n, 2))
    told = capfd.readouterr().err
    assert told.count(f"resumed from {path} at batch 5 of 10") == 1
    for history in (first, second):
        assert history[0].losses == history[1].losses
    np.testing.assert_allclose(first[1].losses + second[1].losses, straight.losses, rtol=1e-5)
    off = [s.metrics["off"] for s in (*first[1].steps, *second[1].steps)]
    np.testing.assert_allclose(off, [s.metrics["off"] for s in straight.steps], rtol=1e-5)


def test_all_ranks_stop_after_the_same_batch(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As when Ctrl-C reaches one of them in its second batch."""
    fit_module = sys.modules["rlx.training.fit"]
    mesh = rlx.Mesh(data=2)
    stopped: dict[str, list[int]] = {}

    @contextlib.contextmanager
    def interruptible() -> Any:
        yield stopped.setdefault(threading.current_thread().name, [])

    def note(step: rlx.training.TrainStep, result: Any) -> None:
        if step.rank == 1 and step.position == 2:
            stopped[threading.current_thread().name].append(2)

    def rank(number: int) -> rlx.training.History:
        data = Batches(ROWS, 8, mesh=mesh)
        return rlx.fit(make(4, mesh=mesh), data, epochs=1, on_step=note, show=False)

    monkeypatch.setattr(fit_module, "_interruptible", interruptible)
    every = run_threads(mesh, rank)
    assert [len(h.steps) for h in every] == [2, 2] and all(h.interrupted for h in every)
    assert capfd.readouterr().err.count("interrupted after 2 of 5 batches") == 1

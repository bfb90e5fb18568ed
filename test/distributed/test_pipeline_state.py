"""Pipelines that clip by the norm of all gradients, and go on from checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed.test_pipeline import AT, MICRO, batches, model

import rlx
from rlx.distributed import Pipeline, pipeline, run_threads
from rlx.errors import CheckpointError, GraphError, NonFiniteError
from rlx.optim import AdamW, ClipNorm, ClipValue
from rlx.training import PipelineStep

ROWS = 2 * MICRO
BATCHES = batches(6, ROWS)


def staged(stages: int, **axes: int) -> Pipeline:
    mesh = rlx.Mesh(**axes, stage=stages)
    return pipeline(model(2), mesh, AT[: stages - 1], microbatches=MICRO // axes.get("data", 1))


OPTIMIZER = AdamW(lr=1e-2)


def step_of(made: Pipeline, optimizer: Any = OPTIMIZER, **options: Any) -> PipelineStep:
    return PipelineStep(made, optimizer, **options)


def losses(step: Any, given: list[dict[str, Any]]) -> list[float]:
    return [step(b).loss for b in given]


def alone(optimizer: Any = OPTIMIZER, **options: Any) -> rlx.training.TrainStep:
    return rlx.compile_training(model(ROWS), optimizer, metrics=["middle", "last"], **options)


@pytest.mark.parametrize("clip", [ClipNorm(0.05), ClipValue(0.002)], ids=repr)
def test_gradients_are_clipped_as_on_one_rank(clip: Any) -> None:
    """The last stage shares its table with the first, which counts once."""
    sgd, made = rlx.optim.SGD(lr=0.5), staged(3)
    one, free = alone(sgd, clip=clip), alone(sgd)
    wanted = [one(b).loss for b in BATCHES]
    assert abs([free(b).loss for b in BATCHES][-1] - wanted[-1]) > 1e-3, "it clips nothing"
    for found in run_threads(made.mesh, lambda r: losses(step_of(made, sgd, clip=clip), BATCHES)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """A checkpoint of three stages after three batches, and the losses of the next three."""
    made, path = staged(3), tmp_path_factory.mktemp("run") / "checkpoint"

    def run(rank: int) -> list[float]:
        step = step_of(made)
        assert not step.finds(path)
        losses(step, BATCHES[:2])
        step.save(path)
        losses(step, BATCHES[2:3])
        step.save(path)
        return losses(step, BATCHES[3:])

    return path, run_threads(made.mesh, run)[0]


def test_as_many_stages_go_on_with_the_same_bits(saved: tuple[Path, list[float]]) -> None:
    made, (path, wanted) = staged(3), saved

    def run(rank: int) -> list[float]:
        step = step_of(made)
        assert step.finds(path) and "AdamW" in step.load(path) and step.position == 3
        return losses(step, BATCHES[3:])

    assert run_threads(made.mesh, run) == [wanted] * 3
    assert [p.name for p in path.iterdir() if p.is_dir()] == ["2"], "the one before is gone"


@pytest.mark.parametrize("stages", [{"stages": 2}, {"stages": 2, "data": 2}], ids=str)
def test_other_stages_go_on(saved: tuple[Path, list[float]], stages: dict[str, int]) -> None:
    made, (path, wanted) = staged(**stages), saved

    def run(rank: int) -> list[float]:
        step = step_of(made)
        step.load(path)
        each = ROWS // stages.get("data", 1)
        mine = slice(each * (rank // 2), each * (rank // 2 + 1))
        return losses(
            step, [{n: a[mine] if np.ndim(a) else a for n, a in b.items()} for b in BATCHES[3:]]
        )

    for found in run_threads(made.mesh, run):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_run_without_stages_goes_on_and_back(
    saved: tuple[Path, list[float]], tmp_path: Path
) -> None:
    path, wanted = saved
    one = alone()
    one.load(path)
    assert one.state["run/scale"] == 1  # from which a LossScale goes on
    np.testing.assert_allclose([one(b).loss for b in BATCHES[3:4]], wanted[:1], rtol=1e-5)
    one.save(tmp_path / "file")
    made = staged(2)

    def run(rank: int) -> list[float]:
        step = step_of(made)
        step.load(tmp_path / "file")
        return losses(step, BATCHES[4:])

    for found in run_threads(made.mesh, run):
        np.testing.assert_allclose(found, wanted[1:], rtol=1e-5)


def test_pipelines_side_by_side_write_parts(tmp_path: Path) -> None:
    """Each rank along "data" writes a slice of what its stage has."""
    made, path = staged(2, data=2), tmp_path / "run"

    def run(rank: int) -> float:
        step = step_of(made)
        half = [{n: a[: ROWS // 2] if np.ndim(a) else a for n, a in b.items()} for b in BATCHES]
        losses(step, half[:1])
        step.save(path)
        after = losses(step, half[1:2])
        step.load(path)
        assert losses(step, half[1:2]) == after
        return after[0]

    run_threads(made.mesh, run)
    sizes = {p.name: p.stat().st_size for p in (path / "1").iterdir()}
    assert len(sizes) == 4 and max(sizes.values()) < 2 * min(sizes.values())


def test_fit_trains_stages_and_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one, made, path = alone(), staged(2), tmp_path / "run"
    straight = rlx.fit(one, BATCHES, epochs=1, show=False)

    def fit(steps: int) -> list[rlx.training.History]:
        def rank(number: int) -> rlx.training.History:
            return rlx.fit(step_of(made), BATCHES, steps=steps, checkpoint=path, show=True)

        return run_threads(made.mesh, rank)

    first, second = fit(4), fit(len(BATCHES))
    told = capfd.readouterr().err
    assert told.count("trained 4 steps") == told.count("resumed from") == 1
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a.losses + b.losses, straight.losses, rtol=1e-5)
    middle = second[1].steps[-1].metrics["middle"]
    np.testing.assert_allclose(middle, straight.steps[-1].metrics["middle"], rtol=1e-4, atol=1e-5)


def test_a_batch_that_is_not_finite_changes_no_stage() -> None:
    g = rlx.Graph("roots")
    x = g.input("x", [2], "f64") * g.param("a.w", value=np.ones(2))
    g.set_outputs({"loss": (x * g.param("b.w", value=np.full(2, 4.0))).sqrt().sum()})
    made = pipeline(g, rlx.Mesh(data=2, stage=2), ["b"], microbatches=2)

    def run(rank: int) -> None:
        step = PipelineStep(made, rlx.optim.SGD(lr=0.1))
        step({"x": np.ones(4)})
        before = step.params()
        assert all(a.dtype == np.float64 for a in before.values())
        for bad, said in ((-1, "the loss is nan"), (0, "the gradient of '[ab].w' is not finite")):
            with pytest.raises(NonFiniteError, match=f"batch 1: {said}"):
                step({"x": np.array([1.0, 1.0, 1.0, bad])})
        assert step.position == 1
        for name, a in step.params().items():
            np.testing.assert_array_equal(a, before[name])
        step({"x": np.ones(4)})

    run_threads(made.mesh, run)


def test_refusals(saved: tuple[Path, list[float]], tmp_path: Path) -> None:
    made, (path, _) = staged(2), saved
    with pytest.raises(GraphError, match="a stage has some of the gradients, and clip is 1"):
        run_threads(made.mesh, lambda rank: step_of(made, clip=1))
    g = rlx.Graph("frozen first")
    x = g.input("x", [8]) * g.param("first", [8], "i32").cast("f32")
    g.set_outputs([(x * g.param("second", [8])).sum()])
    frozen = pipeline(g, made.mesh, ["second"], microbatches=1)
    with pytest.raises(GraphError, match="the first stage has no param of floats"):
        step_of(frozen)
    text = (path / "manifest.json").read_text()
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.json").write_text(text.replace('"parted": "stage"', '"parted": "model"'))

    def load(rank: int) -> None:
        with pytest.raises(CheckpointError, match="is no manifest of a checkpoint: KeyError"):
            step_of(made).load(other)
        with pytest.raises(CheckpointError, match="has no 'optimizer/momentum"):
            PipelineStep(made, rlx.optim.SGD(momentum=0.9)).load(path)

    run_threads(made.mesh, load)

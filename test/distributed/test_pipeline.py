"""Graphs in stages come to what they are on one rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.distributed import Pipeline, pipeline, run_threads
from rlx.errors import DTypeError, GraphError, NameError, RlxError, ShapeError, UnsupportedError
from rlx.training import PipelineStep

MICRO, SIZE = 4, 8


def model(rows: int) -> rlx.Graph:
    """Layers with residuals and a mask that stages compute themselves, a value of the first stage
    that the last one needs, a param that both have, an output of the middle."""
    g, rng = rlx.Graph("model"), np.random.default_rng(0)

    def param(name: str, *shape: int) -> Any:
        return g.param(name, value=rng.standard_normal(shape).astype(np.float32) / SIZE)

    ids, labels = g.input("ids", [rows], "i64"), g.input("labels", [rows], "i64")
    scale = g.input("scale", [])
    table = param("table", 11, SIZE)
    first = x = table.gather(ids) * scale
    mask = ids.ne(0).cast("f32").reshape([rows, 1])
    middle = x
    for n in range(3):
        x = x + (x @ param(f"layers.{n}.up", SIZE, 16)).gelu() @ param(f"layers.{n}.down", 16, SIZE)
        x = x * mask
        middle = x if n == 1 else middle
    x = (x + first).rms_norm(param("norm", SIZE))
    loss = (x @ table.transpose()).softmax_cross_entropy(labels).mean()
    g.set_outputs({"loss": loss, "middle": middle, "last": x.argmax(axis=1)})
    return g


def batches(count: int, rows: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    return [
        {"ids": rng.integers(0, 11, rows), "labels": rng.integers(0, 11, rows),
         "scale": np.float32(2)}
        for _ in range(count)
    ]  # fmt: skip


AT = ["layers.1", "layers.2"]


def test_three_stages_are_the_graph_and_train_like_it() -> None:
    mesh, rows = rlx.Mesh(stage=3), 2 * MICRO
    made = pipeline(model(2), mesh, AT, microbatches=MICRO)
    given = batches(5, rows)
    wanted = rlx.Session("cpu").compile(model(rows)).run(given[0])
    one = rlx.compile_training(model(rows), rlx.optim.AdamW(lr=1e-2), metrics=["middle", "last"])
    losses = [one(b).loss for b in given]
    params = one.params()

    def run(rank: int) -> None:
        compiled = made.compile()
        for name, value in made.graph.param_values.items():
            compiled.set_param(name, value)
        with pytest.raises(NameError, match=r"no param is called 'layers\.9'"):
            compiled.set_param("layers.9", np.zeros(3))
        for found, expected in zip(compiled.run(given[0]), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        step = PipelineStep(made, rlx.optim.AdamW(lr=1e-2))
        found = [step(b).loss for b in given]
        np.testing.assert_allclose(found, losses, rtol=1e-5)
        assert set(step.params()) == set(made.stages[rank].params)
        for name, value in step.params().items():
            np.testing.assert_allclose(value, params[name], rtol=1e-4, atol=1e-6)

    run_threads(mesh, run)


def test_pipelines_train_on_parts_of_the_data() -> None:
    mesh, rows = rlx.Mesh(data=2, stage=2), 2 * MICRO
    made = pipeline(model(2), mesh, AT[:1], microbatches=MICRO)
    given = batches(3, 2 * rows)
    one = rlx.compile_training(model(2 * rows), rlx.optim.SGD(lr=0.1), metrics=["middle", "last"])
    losses = [one(b).loss for b in given]

    def run(rank: int) -> list[float]:
        step = PipelineStep(made, rlx.optim.SGD(lr=0.1))
        mine = slice(rank // 2 * rows, (rank // 2 + 1) * rows)
        parts = [{n: a[mine] if np.ndim(a) else a for n, a in b.items()} for b in given]
        return [step(b).loss for b in parts]

    first, *others = run_threads(mesh, run)
    assert others == [first] * 3, "a mean over all"
    np.testing.assert_allclose(first, losses, rtol=1e-5)


def test_the_report() -> None:
    said = str(pipeline(model(2), rlx.Mesh(stage=3), AT, microbatches=MICRO))
    assert "3 stages along 'stage', 4 micro-batches: bubbles 33.3 %" in said
    assert "sends 128 B" in said.splitlines()[2], "what the last stage needs of the first, too"
    made = pipeline(model(2), rlx.Mesh(stage=3), AT, microbatches=MICRO)
    assert made.stages[1].params == ("layers.1.up", "layers.1.down")
    assert 0.3 < made.busy < 2 / 3 and repr(made) == "<Pipeline: 3 stages, 4 micro-batches>"


def symbolic() -> rlx.Graph:
    g = rlx.Graph("symbolic")
    g.set_outputs((g.input("x", ["n", 4]) @ g.param("a.w", [4, 4])).mean())
    return g


def collective() -> rlx.Graph:
    g = rlx.Graph("collective")
    g.set_outputs(g.input("x", [4]).all_reduce(rlx.Mesh(data=2)["data"]) * g.param("a.w", [4]))
    return g


MESH = rlx.Mesh(stage=2)
BAD: dict[str, tuple[dict[str, Any], type[RlxError], str]] = {
    "graph": ({"graph": 1}, GraphError, "pipeline takes a Graph, found an int"),
    "mesh": ({"mesh": 2}, GraphError, "pipeline: mesh is 2, expected a Mesh"),
    "none": ({"microbatches": 0}, GraphError, "microbatches is 0, expected 1 or more"),
    "names": ({"at": "layers.1"}, GraphError, "expected names of layers"),
    "unknown": ({"at": ["layers.9"]}, NameError, "no param is of the layer 'layers.9'"),
    "twice": ({"at": AT[:1] * 2}, GraphError, "at names 'layers.1' twice"),
    "ranks": ({"at": AT}, GraphError, "at names 2 layers, for 3 stages, and there are 2 ranks"),
    "nothing": ({"at": ["layers.0"], "graph": symbolic()}, RlxError, "n are not known; bind them"),
    "empty": ({"at": AT[::-1]}, GraphError, "stage 1 of 3 has no ops; leave its name away"),
    "collective": ({"graph": collective(), "at": ["a"]}, UnsupportedError, "has a collective, all"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_pipeline(name: str) -> None:
    other, error, said = BAD[name]
    given: dict[str, Any] = {"graph": model(2), "mesh": MESH, "at": AT[:1], "microbatches": 2}
    with pytest.raises(error, match=said):
        pipeline(**{**given, **other})


def small(*, loss: bool = True, value: bool = True) -> Pipeline:
    g = rlx.Graph("small")
    x = g.input("x", [2, 4]) @ g.param("a.w", [4, 4], value=np.eye(4) if value else None)
    x = x @ g.param("b.w", [4, 4], value=np.eye(4))
    g.set_outputs(x.mean() if loss else x)
    return pipeline(g, rlx.Mesh(stage=2), ["b"], microbatches=2)


def test_batches_that_do_not_fit() -> None:
    made = small()

    def run(rank: int) -> None:
        compiled = made.compile()
        with pytest.raises(NameError, match="the input 'x' has no value"):
            compiled.run({})
        with pytest.raises(NameError, match="the input 'y' is none of the graph's"):
            compiled.run({"x": np.ones((4, 4)), "y": 1})
        # The first stage alone takes it, and all refuse it.
        with pytest.raises(ShapeError, match=r"'x' is \[2, 4\], expected \[4, 4\], for 2 micro"):
            compiled.run({"x": np.ones((2, 4), np.float32)})
        with pytest.raises(DTypeError, match="input 'x' is f32, found int64"):
            compiled.run({"x": np.ones((4, 4), np.int64)})

    run_threads(made.mesh, run)


STEPS: dict[str, tuple[Any, Any, type[RlxError], str]] = {
    "no pipeline": (lambda: 1, rlx.optim.SGD(), GraphError, "found 1, expected a Pipeline"),
    "optimiser": (small, 1, GraphError, "an optimiser of rlx.optim is expected, found 1"),
    "loss": (lambda: small(loss=False), rlx.optim.SGD(), ShapeError, "the loss, one float; found"),
    "value": (lambda: small(value=False), rlx.optim.SGD(), GraphError, "'a.w' has no value to"),
}


@pytest.mark.parametrize("name", STEPS)
def test_what_does_not_train(name: str) -> None:
    made, optimizer, error, said = STEPS[name]
    with pytest.raises(error, match=said):
        run_threads(rlx.Mesh(stage=2), lambda rank: PipelineStep(made(), optimizer))


@pytest.mark.parametrize(
    ("params", "error", "said"),
    [
        ({"b.v": np.eye(4)}, NameError, "no param is called 'b.v'"),
        ({"b.w": 1.0}, ShapeError, r"param 'b.w' has shape \[4, 4\], found \[\]"),
        ({"b.w": "x"}, DTypeError, "param 'b.w' is f64, found <U1"),
    ],
)
def test_params_that_do_not_fit(params: Any, error: type[RlxError], said: str) -> None:
    made = small()

    def run(rank: int) -> None:
        with pytest.raises(error, match=said):
            PipelineStep(made, rlx.optim.SGD(), params=params)

    run_threads(made.mesh, run)


def test_other_axes() -> None:
    mesh = rlx.Mesh(model=1, stage=2)
    made = pipeline(model(2), mesh, AT[:1], microbatches=2)
    with pytest.raises(GraphError, match="has axes beside 'stage' and 'data'"):
        run_threads(mesh, lambda rank: PipelineStep(made, rlx.optim.SGD()))

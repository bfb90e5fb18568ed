"""Outputs keep the names that they are given, through every form that a graph takes."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx._mlir import ir
from rlx.dialects.context import make_context
from rlx.errors import GraphError, IRError, NameError
from rlx.ir.interpreter import interpret
from rlx.ir.results import Results, by_name
from rlx.lowering.functions import functions, output_names
from rlx.runtime.cache.fingerprint import structure
from rlx.text import graph_text, parse_graph

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
NAMES = ("logits", 'a "quoted" µ', "norm")


def graph(rows: int | str = 2) -> rlx.Graph:
    g = rlx.Graph("named")
    x, w = g.input("x", [rows, 3]), g.param("w", [3], value=np.ones(3, np.float32))
    y = (x * w).exp()
    g.set_outputs(dict(zip(NAMES, [y, x, (y * y).sum()], strict=True)))
    return g


def test_numbers_are_names_as_others_are(tmp_path: Path) -> None:
    """Also where they are what unnamed outputs are called in artifacts and text."""
    g = rlx.Graph()
    x = g.input("x", [2])
    g.set_outputs({"0": x + 1.0, "1": x * 2.0})
    feeds = {"x": np.ones(2, np.float32)}
    f = rlx.Session("cpu").compile(g)
    path = tmp_path / "g.rlx"
    rlx.compile_artifact(g).save(path)
    runs: list[Any] = [
        f.run(feeds),
        rlx.interpret(g, feeds),
        rlx.interpret(parse_graph(graph_text(g)), feeds),
        rlx.Session("cpu").load(path).run(feeds),
    ]
    for found in runs:
        assert found["0"].tolist() == found["1"].tolist() == [2, 2]


def expected() -> list[Any]:
    y = np.exp(X)
    return [y, X, (y * y).sum()]


def check(found: Any) -> None:
    assert issubclass(type(found), list) and found.names == NAMES
    for i, (name, value) in enumerate(zip(NAMES, expected(), strict=True)):
        np.testing.assert_allclose(found[name], value, rtol=1e-6)
        assert found[name] is found[i]


@pytest.mark.parametrize("device", ["cpu", "interpret"])
@pytest.mark.parametrize("rows", [2, "n"])
def test_results_are_a_list_that_knows_names(device: str, rows: int | str) -> None:
    f = rlx.Session(device).compile(graph(rows))
    check(f.run({"x": X}))
    check(f.run({"x": X.tolist()}))
    assert len(f.run_slots(X)) == 3


def test_the_interpreter_knows_them() -> None:
    check(interpret(graph(), {"x": X}))


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_precision_keeps_them(precision: str) -> None:
    assert rlx.Session("cpu", precision).compile(graph("n")).run({"x": X}).names == NAMES  # type: ignore[attr-defined]


@pytest.mark.parametrize("stage", ["hir", "mir", "fused", "lir"])
def test_every_level_has_them(stage: str) -> None:
    module = rlx.GraphModule.of(graph()).to(stage)
    check(rlx.Session("cpu").compile_module(module).run({"x": X}))


def test_text_has_them_and_is_mlirs(tmp_path: Path) -> None:
    g = graph("n")
    text = graph_text(g)
    assert parse_graph(text).output_names == NAMES
    assert graph_text(parse_graph(str(g.to_mlir()))).count("rlx.output") == 3
    with make_context():
        module = ir.Module.parse(text)
        assert output_names(functions(module)["main"]) == list(NAMES)
    rlx.save(g, tmp_path / "g.mlir")
    check(rlx.Session("cpu").compile(rlx.load(tmp_path / "g.mlir")).run({"x": X}))


def test_artifacts_have_them(tmp_path: Path) -> None:
    made = rlx.compile_artifact(graph())
    assert [name for name, _, _ in made.outputs] == list(NAMES)
    made.save(tmp_path / "g.rlx")
    f = rlx.Session("cpu").load(tmp_path / "g.rlx")
    check(f.run({"x": X}))
    assert f.graph.output_names == NAMES


def test_they_are_part_of_the_structure() -> None:
    named, plain = graph(), graph()
    plain.set_outputs(plain.outputs)
    assert structure(named) != structure(plain)
    assert structure(named.bind({})) == structure(named)


def test_what_is_left_of_a_run_in_place_has_its_names() -> None:
    g = rlx.Graph("state")
    s = g.input("s", [3])
    g.set_outputs({"sum": s.sum(), "next": s + 1.0, "max": s.max()})
    f = rlx.Session("cpu").compile(g, donate=[(0, 1)])
    state = np.zeros(3, np.float32)
    found = f.run_in_place({}, {"s": state})
    assert isinstance(found, Results) and found.names == ("sum", "max")
    assert state.tolist() == [1, 1, 1]


def test_transforms_name_what_they_add() -> None:
    g = rlx.Graph("loss")
    x = g.input("x", [3])
    g.set_outputs({"loss": (x * x).sum()})
    assert rlx.grad(g, "x").output_names == ("grad_x",)
    assert rlx.value_and_grad(g, "x").output_names == ("loss", "grad_x")
    assert rlx.vjp(g, "x").output_names == ("loss", "cotangent_x")
    assert rlx.jvp(g, "x").output_names == ("loss", "tangent_loss")
    assert rlx.vmap(g, "x", 4).output_names == ("loss",)
    assert rlx.jacfwd(g, "x").output_names == rlx.jacrev(g, "x").output_names == ("loss_by_x",)
    assert rlx.hvp(g, "x").output_names == ("loss", "grad_x", "tangent_loss", "tangent_grad_x")
    assert rlx.hessian(g, "x").output_names == ("loss_by_x_by_x",)


def test_a_name_that_is_taken_gets_a_number() -> None:
    g = rlx.Graph("loss")
    x = g.input("x", [3])
    y = x.sum()
    g.set_outputs({"tangent_y": y, "y": y})
    assert rlx.jvp(g, "x").output_names == (
        "tangent_y", "y", "tangent_tangent_y", "tangent_y_2",
    )  # fmt: skip
    inner = x.sum() * 2.0
    g.set_outputs({"loss": inner})
    assert rlx.grad(g, [inner.op.present[0]]).output_names == ("grad_reduce_sum",)  # type: ignore[union-attr]


def test_metrics_are_called_after_the_outputs() -> None:
    g = rlx.Graph("fit")
    x, w = g.input("x", [3]), g.param("w", [3], value=np.ones(3, np.float32))
    error = (x * w).sum()
    g.set_outputs({"loss": error * error, "error": error})
    step = rlx.compile_training(g, rlx.optim.SGD(lr=0.0))
    assert list(step({"x": np.ones(3, np.float32)}).metrics) == ["error"]


def test_a_list_of_outputs_takes_names_away() -> None:
    g = rlx.Graph("plain")
    x = g.input("x", [2])
    g.set_outputs({"y": x})
    g.set_outputs([x])
    assert g.output_names == ()
    assert type(rlx.Session("cpu").compile(g).run({"x": [1, 2]})) is list


def test_a_copy_of_results_keeps_names() -> None:
    found: Any = by_name([1, 2], ("a", "b"))
    for again in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert again == [1, 2] and again["b"] == 2
    assert found[:1] == [1] and [*found] == [1, 2]


def test_wrong_names_are_refused() -> None:
    g = graph()
    found = rlx.Session("cpu").compile(g).run({"x": X})
    with pytest.raises(NameError, match="no output is called 'logit'; did you mean 'logits'"):
        found["logit"]  # type: ignore[call-overload]
    bad: list[Any] = [{1: g.outputs[0]}, {"": g.outputs[0]}, {"a\0": g.outputs[0]}]
    for outputs in bad:
        with pytest.raises(NameError, match="a name"):
            g.set_outputs(outputs)
    with pytest.raises(GraphError, match="at least one output"):
        g.set_outputs({})


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        (('{rlx.output = "y"}', ""), "'y'"),
        (('{rlx.output = "y"}', '{rlx.output = "y"}'), "'y', 'y'"),
        (('{rlx.output = "y"}', '{rlx.output = ""}'), "'y', ''"),
    ],
)
def test_text_names_all_results_apart_or_none(marks: tuple[str, str], found: str) -> None:
    text = (
        'func.func @main(%x: tensor<2xf32> {rlx.input = "x"})'
        f" -> (tensor<2xf32> {marks[0]}, tensor<2xf32> {marks[1]})"
        " { return %x, %x : tensor<2xf32>, tensor<2xf32> }"
    )
    with pytest.raises(IRError, match=f"2 results have the names {found}; each has its own"):
        parse_graph(text)
    with make_context():
        module = ir.Module.parse(text)
        with pytest.raises(IRError, match=r"2 outputs have the names .*each has its"):
            output_names(functions(module)["main"])


def test_a_body_names_no_results() -> None:
    text = (
        'func.func private @b(%x: tensor<f32>) -> (tensor<f32> {rlx.output = "y"})'
        " { return %x : tensor<f32> }"
    )
    with pytest.raises(IRError, match=r"a result of @b has no attribute 'rlx\.output'"):
        parse_graph(text)

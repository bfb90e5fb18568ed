"""GraphModule: a graph at a level, moved by the compiler's passes."""

from __future__ import annotations

import pytest

import rlx
from rlx.compiler.graph_module import (
    FusionPolicy,
    GraphModule,
    GraphStage,
    HirModule,
    LirModule,
    MirModule,
)
from rlx.errors import GraphError, IRError, RlxError, ShapeError, UnsupportedError
from rlx.inspect import inspect_pipeline
from rlx.lowering.pipeline import STAGES

CPU = "cpu:x86-64-v3"


def mlp() -> rlx.Graph:
    g = rlx.Graph("mlp")
    x = g.input("x", [4, 16])
    g.set_outputs(g.linear(x, g.param("w", [16, 32]), g.param("b", [32]), activation="gelu"))
    return g


def test_stages_are_those_of_the_pipeline() -> None:
    assert list(GraphStage) == list(STAGES)


def test_each_level_is_that_of_the_pipeline() -> None:
    found = inspect_pipeline(mlp(), CPU)
    module: GraphModule = GraphModule.of(mlp())
    for stage, kind in (
        ("hir", HirModule),
        ("mir", MirModule),
        ("fused", MirModule),
        ("lir", LirModule),
    ):
        at_once, by_steps = GraphModule.of(mlp()).to(stage, CPU), module.to(stage, CPU)
        assert isinstance(by_steps, kind)
        assert by_steps.stage == stage
        assert by_steps.name == "mlp" or stage == "lir"
        if stage != "hir":
            assert by_steps.text == at_once.text == getattr(found, stage)
        module = by_steps
    assert module.to("lir") is module


def test_places_survive_the_levels() -> None:
    g = mlp()
    line = f'{g.nodes()[0].location[0]}":{g.nodes()[0].location[1]}'
    assert line in GraphModule.of(g).to("lir", CPU).located
    assert GraphModule.of(g).lower().graph().nodes()[0].location == g.nodes()[0].location


def test_graphs_come_back_from_hir_and_mir() -> None:
    m = GraphModule.of(mlp())
    assert [op.name for op in m.graph().nodes()] == ["hir.linear"]
    assert [op.name for op in m.lower().graph().nodes()] == ["mir.matmul", "mir.add", "mir.gelu"]
    with pytest.raises(UnsupportedError, match="a fused module is no graph any more"):
        m.to("fused", CPU).graph()


@pytest.mark.parametrize("stage", GraphStage)
def test_text_of_any_level_is_parsed(stage: GraphStage) -> None:
    text = GraphModule.of(mlp()).to(stage, CPU).text
    again = GraphModule.parse(text, CPU)
    assert (again.stage, again.to("lir").stage) == (stage, "lir")
    assert GraphModule.parse(again.located).text == again.text


def test_an_edited_level_is_what_is_lowered() -> None:
    mir = GraphModule.of(mlp()).lower()
    edited = GraphModule.parse(mir.text.replace("mir.gelu", "mir.silu"))
    assert "contraction" in edited.to("lir", CPU).text
    assert "silu" in edited.to("fused", CPU).text


def test_what_a_module_refuses() -> None:
    m = GraphModule.of(mlp())
    with pytest.raises(IRError, match="no level is called 'mirr'; there are hir, mir, fused, lir"):
        m.to("mirr")
    with pytest.raises(UnsupportedError, match="is mir already; it cannot go back to hir"):
        m.lower().to("hir")
    with pytest.raises(GraphError, match="a fusion policy is one of fusable, direct"):
        m.lower("always")
    assert m.lower(FusionPolicy.DIRECT, CPU).stage == "fused"
    with pytest.raises(GraphError, match="no option is called 'fused'; did you mean 'fuse'"):
        m.to("lir", CPU, fused=True)
    with pytest.raises(RlxError):
        GraphModule.parse("module {")
    g = rlx.Graph()
    g.set_outputs(g.input("x", ["n"]).exp())
    with pytest.raises(ShapeError, match="symbolic dim n"):
        GraphModule.of(g).to("lir", CPU)
    assert GraphModule.of(g, {"n": 3}).to("lir", CPU).stage == "lir"

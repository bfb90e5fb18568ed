"""Options in one object, pipelines for some ops, and what fusion changed in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError, PassError, UnsupportedError
from rlx.runtime.cache.key import artifact_parts

CPU = "cpu:x86-64-v3"


def mlp(rows: int | str = 4) -> rlx.Graph:
    g = rlx.Graph("mlp")
    x = g.input("x", [rows, 8])
    w = g.param("w", value=np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3))
    g.set_outputs(g.linear(x, w, g.param("b", value=np.ones(3, np.float32)), activation="gelu"))
    return g


def unclean() -> rlx.Graph:
    """A product with two uses, which no epilogue takes."""
    g = rlx.Graph()
    y = g.input("x", [8, 16]) @ g.param("w", value=np.ones((16, 32), np.float32))
    g.set_outputs([y.gelu(), y.silu()])
    return g


FEEDS = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)}


# -- CompileOptions ------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["graph", "hir", "mir", "lir"])
def test_graphs_and_modules_are_compiled_by_options(form: str) -> None:
    session, options = rlx.Session("cpu"), rlx.CompileOptions(fuse=False)
    if form == "graph":
        f = session.compile_with(mlp(), options)
    elif form == "hir":
        f = session.compile_hir_with(rlx.GraphModule.of(mlp()), options)
    else:
        f = session.compile_module_with(rlx.GraphModule.of(mlp()).to(form, fuse=False), options)
    expected = session.compile(mlp()).run(FEEDS)[0]
    np.testing.assert_allclose(f.run(FEEDS)[0], expected, rtol=1e-6)
    if form != "lir":
        assert f.options["fuse"] is False


def test_precision_and_policy_of_the_options() -> None:
    session = rlx.Session("cpu", "f16")
    assert session.compile_with(mlp(), rlx.CompileOptions()).precision is not None
    assert session.compile_with(mlp(), rlx.CompileOptions(precision="f32")).precision is None
    exact = rlx.Session("cpu").compile(mlp()).run(FEEDS)[0]
    for options in (
        rlx.CompileOptions(precision="bf16"), rlx.CompileOptions(policy="auto_mixed_bf16"),
        rlx.CompileOptions(policy={"compute": "bf16"}),
    ):  # fmt: skip
        f = rlx.Session("cpu").compile_with(mlp(), options)
        assert f.precision is not None
        error = np.abs(f.run(FEEDS)[0] - exact).max()
        assert 0 < error < 0.05
    assert session.precision == "f16"


def test_dims_of_the_options_and_of_the_call() -> None:
    options = rlx.CompileOptions(dims={"n": 4})
    f = rlx.Session("cpu").compile_with(mlp("n"), options)
    assert f.run(FEEDS)[0].shape == (4, 3) and not f.graph.symbols
    g = rlx.Session("cpu").compile_with(mlp("n"), options, dims={"n": 2})
    assert g.signature[0][0][1].shape == (2, 8)


def test_ops_that_may_be_used() -> None:
    claim = ("mir.matmul", "mir.add", "mir.gelu", "mir.expand", "mir.reshape")
    session, options = rlx.Session("cpu"), rlx.CompileOptions(supported_ops=claim)
    for source in (mlp(), rlx.GraphModule.of(mlp())):
        f = session.compile_with(source, options)
        assert {op.name for op in f.graph.nodes()} <= {*claim, "mir.constant"}
        expected = session.compile(mlp()).run(FEEDS)[0]
        np.testing.assert_allclose(f.run(FEEDS)[0], expected, rtol=1e-6)
    with pytest.raises(UnsupportedError, match=r"needs mir\.gelu"):
        session.compile_with(mlp(), options.with_options(supported_ops=claim[:2]))


def test_options_are_checked() -> None:
    wrong: list[tuple[Any, str]] = [
        (lambda: rlx.CompileOptions(precision="f99"), "f99"),
        (lambda: rlx.CompileOptions(policy="always_f17"), "did you mean 'always_f16'"),
        (lambda: rlx.CompileOptions(supported_ops=["mir.ad"]), "unknown op 'mir.ad'"),
        (lambda: rlx.CompileOptions(verbose=1), "verbose is True or False, found 1"),  # type: ignore[arg-type]
        (lambda: rlx.CompileOptions().with_options(fused=1), "no option is called 'fused'"),
        (lambda: rlx.Session("cpu").compile_with(mlp(), {}), "found a dict; write compile"),  # type: ignore[arg-type]
    ]  # fmt: skip
    for call, why in wrong:
        with pytest.raises(GraphError, match=why):
            call()


# -- what options do -----------------------------------------------------------------------


def test_missed_fusions_may_be_refused_by_an_option() -> None:
    for _ in range(2):  # compiled, and from the cache
        rlx.Session("cpu").compile(unclean())
        with pytest.raises(PassError, match="1 fusions were missed"):
            rlx.Session("cpu").compile(unclean(), assert_fusion_clean=True)
    rlx.Session("cpu").compile(mlp(), assert_fusion_clean=True)


def test_a_look_at_the_levels_refuses_them_as_well() -> None:
    with pytest.raises(PassError, match="1 fusions were missed"):
        rlx.inspect_pipeline(unclean(), assert_fusion_clean=True)
    assert "missed" in rlx.inspect_pipeline(unclean()).fusion


def test_reports_are_printed_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    rlx.Session("cpu").compile(mlp())
    assert not capsys.readouterr().err
    rlx.Session("cpu").compile(mlp(), verbose=True)
    said = capsys.readouterr().err
    assert "fusion of graph 'mlp' for cpu" in said and "dispatch of graph 'mlp'" in said


def test_options_of_reports_are_no_part_of_a_key() -> None:
    def parts(**options: Any) -> Any:
        return artifact_parts(mlp(), "cpu", "x86-64-v3", rlx.FusionOptions(**options), ())

    assert parts(verbose=True, assert_fusion_clean=True) == parts()
    assert parts(constant_folding=False) != parts()


def test_literals_are_folded_or_left_to_kernels() -> None:
    g = rlx.Graph()
    table = g.constant(np.arange(6, dtype=np.float32)).exp() * 2.0
    g.set_outputs(g.input("x", [6]) + table)
    texts = [rlx.GraphModule.of(g).to("fused", CPU, constant_folding=c).text for c in (True, False)]
    assert ["mir.exp" in t for t in texts] == [False, True]
    runs = [
        rlx.Session("cpu").compile(g, constant_folding=c).run({"x": np.ones(6, np.float32)})[0]
        for c in (True, False)
    ]
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-6)


def test_what_fusion_changed_in_numbers() -> None:
    for report in (
        rlx.CompilePipeline(CPU).compile_graph(mlp()).fusion,
        rlx.Session("cpu").compile(mlp()).reports[0].compilation.fusion,
        rlx.Session("cpu").compile(mlp()).reports[0].compilation.fusion,
    ):
        assert (report.nodes_before, report.matmul_before) == (3, 1)
        assert (report.nodes_after, report.matmul_after) == (1, 0)
        assert report.before["mir.gelu"] == 1 and report.after == {"mir.fused": 1}
    apart = rlx.CompilePipeline(CPU, rlx.FusionOptions(fuse=False)).compile_graph(mlp())
    assert apart.fusion.matmul_after == 1 and "mir.fused" not in apart.fusion.after


# -- pipelines -----------------------------------------------------------------------------


def test_a_pipeline_is_changed_by_a_word() -> None:
    p = rlx.CompilePipeline(CPU)
    assert p.with_kernel_dispatch("common").compile_graph(mlp()).dispatch.common
    assert p.with_options(fuse=False).options.fuse is False and p.options.fuse
    assert not p.assert_fusion_clean
    with pytest.raises(PassError, match="fusions were missed"):
        p.with_assert_fusion_clean().compile_graph(unclean())
    clean = p.with_assert_fusion_clean().with_assert_fusion_clean(False)
    assert clean.compile_graph(unclean()).fusion.missed


def test_a_pipeline_for_some_ops() -> None:
    claim = ["mir.matmul", "mir.add", "mir.relu", "mir.gelu"]
    p = rlx.CompilePipeline(CPU).with_supported_ops(claim)
    for source in (mlp(), rlx.GraphModule.of(mlp())):
        assert p.compile_module(source).fusion.fused["contraction: matmul+add+gelu"] == 1
    few = rlx.CompilePipeline(CPU, supported_ops=claim[:3])
    for call in (few.compile_graph, few.lower_hir, few.optimize, few.with_options().plan_lir):
        with pytest.raises(UnsupportedError, match=r"hir\.linear, which needs mir\.gelu"):
            call(mlp())


def test_a_result_is_compiled_for_other_sizes() -> None:
    p = rlx.CompilePipeline(CPU)
    four = p.compile_graph(mlp("n"), {"n": 4})
    assert four.has_dynamic_dims() and four.dynamic_symbols() == ("n",)
    seven = four.specialize(p, {"n": 7})
    assert "7x8" in seven.lir.text and "7x8" not in four.lir.text
    assert seven.lir.text == p.specialize_lir(mlp("n"), {"n": 7}).text
    fixed = p.compile_graph(mlp())
    assert not fixed.has_dynamic_dims()
    with pytest.raises(GraphError, match="what was compiled has none"):
        fixed.specialize(p, {"n": 7})


def test_blocks_are_lowered_directly() -> None:
    hir = rlx.GraphModule.of(mlp())
    apart, direct = hir.lower(rlx.FusionPolicy.FUSABLE), hir.lower("direct", CPU)
    assert apart.stage == "mir" and "mir.fused" not in apart.text
    assert direct.stage == "fused" and "mir.fused" in direct.text
    expected = rlx.Session("cpu").compile(mlp()).run(FEEDS)[0]
    f = rlx.Session("cpu").compile_module(hir.lower("direct"))
    np.testing.assert_allclose(f.run(FEEDS)[0], expected, rtol=1e-6)
    with pytest.raises(GraphError, match="one of fusable, direct, found 'fast'"):
        hir.lower("fast")


def test_a_pipeline_is_looked_at_with_its_own_target() -> None:
    p = rlx.CompilePipeline(CPU, rlx.FusionOptions(fuse=False))
    for source in (mlp(), rlx.GraphModule.of(mlp())):
        found = rlx.inspect_pipeline(p, source)
        assert found.lir == p.compile_module(source).lir.text
        assert "mir.fused" not in found.fused
    with pytest.raises(GraphError, match="takes a Graph, found a CompilePipeline"):
        rlx.inspect_pipeline(p, 7)
    fused = rlx.GraphModule.of(mlp()).to("fused")
    assert "fused" in rlx.inspect_mir(fused) and "fused" in rlx.inspect_mir_stats(fused)

"""Extensions of graphs, what graphs ask for, models in variants, and the modules of names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from copy import copy

import numpy as np
import pytest

import rlx
from rlx.compat import extensions, names
from rlx.compat.declined import DECLINED, DIFFERENCES
from rlx.errors import GraphError, NameError


def model(rows: int | str = 2, name: str = "model") -> rlx.Graph:
    g = rlx.Graph(name)
    x = g.input("x", [rows, 3])
    w = g.param("layers.0.w", value=np.eye(3, dtype=np.float32))
    y = g.linear(x, w, g.param("layers.0.b", value=np.ones(3, np.float32)), activation="relu")
    g.set_outputs({"y": y * g.param("scale", value=np.full(3, 2, np.float32))})
    return g


# -- extensions ----------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def none_registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(extensions, "_registered", {})
    yield


def halved(graph: rlx.Graph) -> rlx.Graph:
    found = copy(graph)
    found.set_outputs([v * 0.5 for v in found.outputs])
    return found


def shifted(graph: rlx.Graph) -> rlx.Graph:
    found = copy(graph)
    found.set_outputs([v + 1.0 for v in found.outputs])
    return found


def test_extensions_are_applied_in_order_and_leave_the_graph() -> None:
    rlx.register_hir_extension("half", halved)
    rlx.register_hir_extension("shift", shifted)
    assert rlx.registered_hir_extensions() == ("half", "shift")
    g, feeds = model(), {"x": np.ones((2, 3), np.float32)}

    def value(graph: rlx.Graph) -> float:
        return float(rlx.interpret(graph, feeds)[0][0, 0])

    assert value(g) == 4 and value(rlx.apply_hir_extensions(g)) == 3
    assert value(rlx.apply_hir_extensions_named(g, ["shift"])) == 5
    assert value(rlx.apply_hir_extensions_named(g, ["shift", "half"])) == 3
    rlx.register_hir_extension("half", halved)
    assert value(rlx.apply_hir_extensions(g)) == 2.5, "the last to be registered comes last"
    rlx.unregister_hir_extension("half")
    assert value(rlx.apply_hir_extensions(g)) == 5 and value(g) == 4


def test_extensions_that_are_none() -> None:
    with pytest.raises(GraphError, match="an extension's name is text, found 3"):
        rlx.register_hir_extension(3, halved)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="extension 'x' is a function of a graph, found 3"):
        rlx.register_hir_extension("x", 3)  # type: ignore[arg-type]
    with pytest.raises(NameError, match=r"no extension is called 'half'.*there are none"):
        rlx.apply_hir_extensions_named(model(), ["half"])
    rlx.register_hir_extension("none", lambda graph: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(GraphError, match="extension 'none' gave None, expected a Graph"):
        rlx.apply_hir_extensions(model())


# -- reflection ----------------------------------------------------------------------------


def test_what_a_graph_asks_for_and_gives() -> None:
    found = rlx.reflect(model())
    assert isinstance(found, rlx.HirReflection)
    assert (found.name, found.node_count) == ("model", 2)
    assert found.kinds == {"hir.linear": 1, "mir.mul": 1}
    assert [(n, str(t)) for n, t in found.inputs] == [("x", "2x3xf32")]
    assert [(n, str(t)) for n, t in found.outputs] == [("y", "2x3xf32")]
    (label,) = found.block_labels
    assert label.startswith("hir.linear at ") and "test_models.py" in label
    module = rlx.GraphModule.of(model())
    assert rlx.reflect(module).kinds == found.kinds
    mir = rlx.reflect(module.lower())
    assert type(mir) is rlx.MirReflection and mir.kinds["mir.relu"] == 1
    assert mir.inputs == found.inputs


def test_what_must_be_bound() -> None:
    m = rlx.BindingManifest.of(model())
    assert m.weight_blocks() == {"layers.0": ("layers.0.w", "layers.0.b"), "": ("scale",)}
    assert m.weight_bytes() == 4 * (9 + 3 + 3)
    assert not m.diff(rlx.BindingManifest.of(rlx.GraphModule.of(model())))
    other = rlx.Graph()
    x, w = other.input("x", [2, 4]), other.param("v", [4, 4])
    other.param("scale", [3])
    other.set_outputs(x @ w)
    d = m.diff(rlx.BindingManifest.of(other))
    assert d and d.added == ("v",) and d.removed == ("layers.0.w", "layers.0.b")
    assert d.changed == (("x", "2x3xf32", "2x4xf32"),)
    assert str(d) == "+ v\n- layers.0.w\n- layers.0.b\n~ x: 2x3xf32 -> 2x4xf32"


# -- models in variants --------------------------------------------------------------------


def test_variants_are_compiled_once_each() -> None:
    built: list[rlx.ModelVariant] = []

    def build(variant: rlx.ModelVariant) -> rlx.Graph:
        built.append(variant)
        return model("n", f"{variant.phase}")

    part, session = rlx.ModelComponent("m", build), rlx.Session("cpu")
    prefill = rlx.ModelVariant(rlx.ModelPhase.PREFILL, {"n": 4})
    decode = rlx.ModelVariant("decode", {"n": 1})
    feeds = {"x": np.ones((4, 3), np.float32)}
    compiled = {mode: part.compile(session, prefill, mode) for mode in rlx.CompilationMode}
    for mode, f in compiled.items():
        assert part.compile(session, prefill, mode) is f
        assert f.run(feeds)[0].tolist() == [[4.0] * 3] * 4
    assert len({id(f) for f in compiled.values()}) == 3
    assert compiled[rlx.CompilationMode.LAZY].run({"x": feeds["x"][:2]})[0].shape == (2, 3)
    assert not compiled[rlx.CompilationMode.EAGER].graph.symbols
    assert part.compile(session, decode) is not compiled[rlx.CompilationMode.EAGER]
    assert part.compile(session, prefill, fuse=False) is not compiled[rlx.CompilationMode.EAGER]
    keys = [part.cache_key(v) for v in (prefill, decode, rlx.ModelVariant("prefill", {"n": 4}))]
    assert keys[0] == keys[2] != keys[1]


def test_components_that_build_no_graph_and_modes_that_are_none() -> None:
    variant = rlx.ModelVariant()
    with pytest.raises(GraphError, match="component 'm' built None, expected a Graph"):
        rlx.ModelComponent("m", lambda v: None).graph(variant)  # type: ignore[arg-type,return-value]
    with pytest.raises(GraphError, match="a mode is one of eager, lazy, aot, found 'now'"):
        rlx.ModelComponent("m", lambda v: model()).compile(rlx.Session("cpu"), variant, "now")


def test_a_model_that_is_traced_once() -> None:
    @rlx.rlx_model
    def doubled(t: rlx.Tracer) -> list[rlx.TracedTensor]:
        return [t.input("x", (3,), "f32") * 2.0]

    run = doubled.compiled()
    assert doubled.compiled() is run and doubled.graph().name == "doubled"
    np.testing.assert_array_equal(run.run({"x": np.ones(3, np.float32)})[0], [2, 2, 2])
    g = rlx.Graph()
    assert doubled(g)[0].graph is g
    assert rlx.op_registry["mir.tanh"].name == "mir.tanh"
    with pytest.raises(GraphError, match="decorates a function of a graph, found 3"):
        rlx.rlx_model(3)  # type: ignore[arg-type]


# -- modules and lists of names ------------------------------------------------------------


def test_the_modules_of_the_original_have_its_names() -> None:
    assert rlx.ir.Graph is rlx.Graph and rlx.ir.DType is rlx.DType
    assert rlx.opt.fusion_passes is rlx.fusion_passes and rlx.opt.grad is rlx.grad
    assert rlx.macros.rlx_model is rlx.rlx_model
    assert rlx.driver.Device is rlx.Device and rlx.driver.CommandStream is rlx.CommandStream
    for module, areas in names.MODULES.items():
        for name in (n for area in areas for n in names.AREAS[area]):
            assert getattr(getattr(rlx, module), name) is getattr(rlx, name)
        with pytest.raises(
            AttributeError, match=f"module 'rlx.{module}' has no attribute 'nothing'"
        ):
            getattr(rlx, module).nothing
    with pytest.raises(AttributeError, match="did you mean 'Device'"):
        rlx.driver.Devicee
    assert "CompilePipeline" in dir(rlx.opt)
    code = (
        "from rlx.opt import CompilePipeline; from rlx.driver import Device; import rlx.ir as ir;"
    )
    code += "print(ir.Graph('g').name, Device.CPU, CompilePipeline.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["g", "cpu", "CompilePipeline"]
    assert rlx.LowerError is GraphError


def test_what_is_declined_is_not_there_and_has_a_reason() -> None:
    for name, why in {**DECLINED, **DIFFERENCES}.items():
        assert name and len(why) > 20
    for name in ("Result", "DeviceArena", "BackendsManifest"):
        assert f"`{name}`" in DECLINED and not hasattr(rlx, name)
    with pytest.raises(rlx.LowerError, match="needs its operand"):
        g = rlx.Graph()
        g.linear(g.input("x", [2, 3]), None)  # type: ignore[arg-type]

"""What a target or a claim makes of a graph: all that it refuses at once, and which way the rest
goes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError, UnsupportedError
from rlx.runtime import backend
from rlx.runtime.backend import InterpreterBackend


def mixed() -> rlx.Graph:
    """Nodes that WGSL has, between nodes of f64, which it has not."""
    g = rlx.Graph("mixed")
    x, w = g.input("x", [4, 4]), g.param("w", [4, 4])
    y = (x @ w).gelu().cast("f64").exp()
    g.set_outputs([y.sin(), y.cast("f32") @ w])
    return g


def test_all_offenders_are_said_and_then_the_report() -> None:
    g = mixed()
    kinds = [op.name for op in g.nodes()]
    wide = [i for i, op in enumerate(g.nodes())
            if any(v.dtype.name == "f64" for v in (*op.present, *op.results))]  # fmt: skip
    for call in (rlx.legalize_for_backend, rlx.legalize_graph_for_device,
                 rlx.dispatch_report_for_device):  # fmt: skip
        with pytest.raises(UnsupportedError) as caught:
            call(g, "webgpu")
        lines = caught.value.message.splitlines()
        assert lines[0].startswith("WebGPU does not run mir.cast of f32, f64: f64: ")
        assert [line.split()[1] for line in lines[1 : len(wide)]] == [kinds[i] for i in wide[1:]]
        assert all(f"node {i})" in line for i, line in zip(wide[1:], lines[1:], strict=False))
        assert lines[len(wide)].startswith("target    webgpu:")
        assert "contraction: matmul" in caught.value.message
        assert lines[-1].startswith("compile-ready: no, for nodes ")


def test_a_report_of_what_is_not_compiled_says_what_the_rest_would_be() -> None:
    g = mixed()
    report = rlx.analyze_dispatch(g, "webgpu")
    assert not report.compile_ready and report.native["contraction: matmul"] == 1
    assert [kind for _, kind in report.still_unsupported].count("mir.exp") == 1
    whole = rlx.analyze_dispatch(g, "cpu")
    assert whole.compile_ready and not whole.still_unsupported
    assert str(whole) == str(rlx.dispatch_report_for_device(g, "cpu"))
    assert rlx.format_dispatch_report(whole).endswith("compile-ready: yes")
    said = rlx.format_dispatch_report(report)
    assert "no way   " in said and "mir.sin x 1" in said and "compile-ready: no" in said


def test_a_graph_of_which_everything_is_refused() -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", [4], "f64").exp())
    report = rlx.analyze_dispatch(g, "opengl")
    assert report.still_unsupported == [(0, "mir.exp")] and not report.native


def test_prepared_graphs_come_with_their_report() -> None:
    module, report = rlx.prepare_graph_for_backend_with_report(mixed(), "cpu", dispatch="common")
    assert isinstance(module, rlx.MirModule) and report.common and not report.native
    module, report = rlx.prepare_graph_for_backend_with_report(mixed(), "webgpu")
    assert module is None and not report.compile_ready


def test_dims_are_bound_in_reports() -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", ["n", 4]).softmax())
    module, report = rlx.prepare_graph_for_backend_with_report(g, "cpu", {"n": 3})
    assert module is not None and "3x4" in module.text and report.native


CLAIM = ("mir.matmul", "mir.add", "mir.relu")


def test_a_claim_stands_in_the_place_of_a_target() -> None:
    g = rlx.Graph()
    x, w = g.input("x", [2, 4]), g.param("w", [4, 4])
    g.set_outputs(g.linear(x, w, activation="relu"))
    module, report = rlx.prepare_graph_for_backend_with_report(g, CLAIM)
    assert isinstance(module, rlx.GraphModule) and "hir." not in module.text
    assert report.rewritten == {"hir.linear": 1} and report.compile_ready
    assert "hir.linear" in rlx.legalize_for_backend(g, [*CLAIM, "hir.linear"]).text
    h = rlx.Graph()
    h.set_outputs((h.input("x", [4]) + 1.0).sin().cos())
    with pytest.raises(UnsupportedError) as caught:
        rlx.legalize_for_backend(h, CLAIM)
    said = caught.value.message
    assert said.startswith("a backend of this claim does not run mir.sin of f32: mir.sin is not in")
    assert "nor mir.cos" in said and "native    mir.add x 1" in said
    assert "no way    mir.cos x 1" in said


@pytest.mark.parametrize("call", [rlx.legalize_for_backend, rlx.dispatch_report_for_device])
def test_what_is_no_graph(call: Any) -> None:
    with pytest.raises(GraphError, match="a Graph is expected, found a HirModule"):
        call(rlx.GraphModule.of(mixed()), "cpu")


def test_an_error_of_nothing_refused() -> None:
    assert rlx.format_legalize_error("webgpu", []) == "WebGPU runs every node"


def test_devices_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    class Claiming(InterpreterBackend):
        supported_ops = CLAIM

    monkeypatch.setattr(backend, "_registry", dict(backend._registry))
    rlx.register_backend("claims", Claiming)
    rlx.register_backend("silent", InterpreterBackend)
    g = rlx.Graph()
    x, w = g.input("x", [2, 2]), g.param("w", value=np.eye(2, dtype=np.float32))
    g.set_outputs(g.linear(x, w, activation="relu"))
    legal, report = rlx.legalize_graph_for_device_with_report(g, "claims")
    assert "hir." not in legal.text and report.target == "claims"
    for call in (rlx.legalize_graph_for_device, rlx.dispatch_report_for_device):
        with pytest.raises(UnsupportedError, match=r"backend has no supported_ops; it says as it"):
            call(g, "silent")

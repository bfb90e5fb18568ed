"""The names that the original system's API documents promise exist, and do something real."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import os
import subprocess
import sys
import typing
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compat import names as compat
from rlx.errors import DeviceError, GraphError, PassError, RlxError, UnsupportedError
from rlx.lowering.registry import PASSES
from rlx.targets import TARGETS
from rlx.text import graph_text

CPU = "cpu:x86-64-v3"

PROMISED = """
Graph NodeId Node Shape DType Element QuantScheme QuantMap Op OpKind
Activation BinaryOp CmpOp MaskKind ChainStep ChainOperand
GraphModule GraphStage HirModule HirOp FusionPolicy MirModule LirModule NodeOrigin node_label
FusionTarget FusionOptions FusionReport MissedFusion MissReason
fusion_passes fusion_passes_for_supported supported_for_target supports_op Pass
CompilePipeline CompileResult legalize_for_backend
KernelDispatchConfig KernelDispatchPolicy KernelDispatchReport
Precision PrecisionPolicy CalibrationRecord
jvp hvp vmap grad grad_with_loss
Session CompiledGraph Backend register_backend backend_for
Device available_devices is_available full_name supports supports_graph first_unsupported_op
legalize_graph_for_device dispatch_report_for_device
available_apple_devices legalize_graph_for_device_with_report
DevicePolicy DevicePickStrategy DeviceCandidate DeviceFallbackError DeviceBenchResult GraphDevices
benchmark_devices warm_all fastest_device_for fastest_device_for_with_policy graph_param_names
fastest_device fastest_among DEVICE_PRIORITY devices_for drain_device supports_run_slots
CompileOptions CompileCache
inspect_graph inspect_hir inspect_mir inspect_lir inspect_graph_diff inspect_mir_diff
inspect_hir_stats inspect_mir_stats inspect_mir_with_diff inspect_pipeline PipelineInspect
maybe_dump_pipeline Error If While Scan run_if run_while SubgraphCache
""".split()  # noqa: SIM905 (a table)


def mlp(rows: int | str = 4) -> rlx.Graph:
    g = rlx.Graph("mlp")
    x = g.input("x", [rows, 8])
    w = g.param("w", value=np.arange(24, dtype=np.float32).reshape(8, 3) / 24)
    g.set_outputs(g.linear(x, w, g.param("b", value=np.ones(3, np.float32)), activation="gelu"))
    return g


FEEDS = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)}


# -- the table -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROMISED)
def test_a_promised_name_is_there(name: str) -> None:
    assert name in compat.NAMES
    assert getattr(rlx, name) is getattr(rlx.prelude, name)


def test_names_of_the_table_are_said_once() -> None:
    said = [n for names in compat.AREAS.values() for n in names]
    assert len(said) == len(set(said))
    for name in set(rlx.NAMES) & set(compat.NAMES):
        assert compat.NAMES[name].target == f"{rlx.NAMES[name]}:{name}"


def test_the_prelude_has_every_name() -> None:
    scope: dict[str, Any] = {}
    exec("from rlx.prelude import *", scope)
    assert set(rlx.NAMES) | set(compat.NAMES) == set(scope) - {"__builtins__"}
    with pytest.raises(AttributeError, match=r"'rlx\.prelude' has no attribute 'nothing'"):
        rlx.prelude.nothing  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError, match="'rlx' has no attribute 'nothing'"):
        rlx.nothing  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError, match="'Sesion'; did you mean 'Session'"):
        rlx.Sesion  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError, match=r"'rlx\.ops' has no attribute 'nothing'"):
        rlx.ops.nothing  # pyright: ignore[reportAttributeAccessIssue]


def test_the_prelude_loads_no_compiler_and_needs_none() -> None:
    code = """
import sys, importlib.abc
class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("torch_mlir", "llvmlite"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
from rlx.prelude import *
assert not {"rlx._mlir", "rlx.compiler.driver"} & set(sys.modules)
g = Graph("g")
g.set_outputs(g.input("x", [2]) + 1.0)
try:
    compile_artifact(g)
except Error as e:
    assert "pip install" in str(e), e
else:
    raise AssertionError
"""
    env = {**os.environ, "RLX_CACHE": "off"}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


def test_namespaces_come_with_rlx() -> None:
    names = "rlx.ops.Activation.GELU, rlx.knobs.cpu.variable, rlx.autodiff, rlx.quant"
    code = f"import rlx; print({names})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("gelu RLX_CPU <module 'rlx.autodiff'")
    assert set(dir(rlx)) == {*rlx.__all__, *rlx.NAMESPACES}


def test_importing_names_loads_no_compiler() -> None:
    light = [
        "Precision",
        "Device",
        "available_devices",
        "Activation",
        "CompileCache",
        "GraphModule",
    ]
    code = (
        f"import rlx, sys; [getattr(rlx, n) for n in {light}]; print('torch_mlir' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# -- kinds of ops --------------------------------------------------------------------------


def test_kinds_are_the_names_that_builders_take() -> None:
    g = rlx.Graph()
    x = g.input("x", [2, 4])
    for kind in rlx.ops.Activation:
        assert x.activation(kind).op.short == kind
    for kind in rlx.ops.BinaryOp:
        assert g.binary(kind, x, x).shape == (2, 4)
    for kind in rlx.ops.CmpOp:
        assert g.compare(kind, x, x).dtype.name == "bool"
    for kind in rlx.ops.ReduceOp:
        assert x.reduce(kind, axes=0).shape == (4,)
    # Those of the original; there may be more.
    named = (
        "GELU GELU_APPROX SILU RELU SIGMOID TANH EXP LOG SQRT RSQRT NEG ABS SIN COS TAN ATAN ROUND"
    )
    assert set(named.split()) <= set(rlx.ops.Activation.__members__)
    assert len(rlx.ops.BinaryOp) == 7
    assert len(rlx.ops.CmpOp) == 6 and len(rlx.ops.ReduceOp) == 5 and len(rlx.ops.MaskKind) == 5
    q = g.input("q", [1, 2, 3, 4])
    assert q.attention(q, q, layout="bhsd", mask_kind=rlx.ops.MaskKind.CAUSAL).shape == (1, 2, 3, 4)


def test_kinds_of_ops_are_the_librarys() -> None:
    assert set(rlx.OpKind) == set(rlx.ops.OP_MODULES)
    assert rlx.OpKind.GELU == "mir.gelu"
    assert issubclass(rlx.ir.op.op_class("hir.linear"), rlx.HirOp)
    assert isinstance(mlp().nodes()[0], rlx.Node)


@pytest.mark.parametrize("name", ["Activatoin", "_private"])
def test_a_kind_that_there_is_not(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'rlx.ops' has no attribute '{name}'"):
        getattr(rlx.ops, name)


def test_chains_are_programs() -> None:
    step = rlx.ChainStep("mir.neg", (0,), (rlx.f32,), rlx.f32)
    assert all(isinstance(a, rlx.ChainOperand) for a in step.args)


# -- fusion and compiling ------------------------------------------------------------------


def test_targets_and_their_claims() -> None:
    assert list(rlx.FusionTarget) == list(TARGETS)
    claim = rlx.supported_for_target(rlx.FusionTarget.CPU)
    assert "contraction" in claim
    assert rlx.supports_op(claim, "attention")
    assert not rlx.supports_op(claim, "solve")
    assert rlx.supports_op((), "solve")


def test_fusion_passes_are_the_pipelines() -> None:
    every = rlx.fusion_passes(rlx.FusionTarget.CPU)
    assert all(isinstance(p, rlx.Pass) for p in every)
    names = [p.name for p in every]
    assert {"simplify", "legalize"} < set(names) and names[-1] == "fuse"
    for apart in (
        rlx.fusion_passes("cpu", rlx.FusionOptions(fuse=False)),
        rlx.fusion_passes(
            "cpu", rlx.KernelDispatchConfig(dispatch=rlx.KernelDispatchPolicy.COMMON)
        ),
        rlx.fusion_passes_for_supported(()),
    ):
        assert [p.name for p in apart] == names[:-1]


def test_a_pipeline_stage_by_stage() -> None:
    p = rlx.CompilePipeline(CPU)
    assert [q.name for q in p.passes] == list(PASSES)
    mir = p.lower_hir(mlp())
    fused, report = p.optimize_with_report(mir)
    lir = p.plan_lir(fused)
    whole = p.compile_graph(mlp())
    assert isinstance(report, rlx.FusionReport)
    assert report.fused["contraction: matmul+add+gelu"] == 1
    assert (mir.stage, fused.stage, lir.stage) == ("mir", "fused", "lir")
    assert lir.text == whole.lir.text == rlx.inspect_pipeline(mlp(), CPU).lir
    assert whole.dispatch.native["contraction: matmul+expand+add+gelu"] == 1
    assert p.compile_module(lir).lir is lir
    assert "launches: " in str(whole) and "fused 1 x" in str(whole)
    assert rlx.CompilePipeline(CPU).compile_graph(mlp("n"), {"n": 4}).lir.text == lir.text


def test_missed_fusions_have_a_kind_and_may_be_refused() -> None:
    g = rlx.Graph()
    x, w = g.input("x", [8, 16]), g.param("w", [16, 32])
    y = x @ w
    g.set_outputs([y.gelu(), y.silu()])
    result = rlx.CompilePipeline(CPU).compile_graph(g)
    (miss,) = [m for m in result.fusion.missed if m.pattern == "contraction"]
    assert isinstance(miss, rlx.MissedFusion)
    assert miss.kind is rlx.MissReason.SEVERAL_USES
    with pytest.raises(PassError, match=r"fusions were missed:\n.*has 2 uses"):
        rlx.CompilePipeline(CPU, assert_fusion_clean=True).compile_graph(g)
    rlx.CompilePipeline(CPU, assert_fusion_clean=True).compile_graph(mlp())


def test_legal_graphs_and_dispatch_reports() -> None:
    legal = rlx.legalize_graph_for_device(mlp(), "cpu", fuse=False)
    assert legal.stage == "mir" and "hir." not in legal.text
    blocks = rlx.Graph()
    blocks.set_outputs(blocks.input("x", [2, 4]).softmax(axis=0))
    common = rlx.legalize_for_backend(blocks, dispatch="common")
    assert "mir.softmax" not in common.text
    report = rlx.dispatch_report_for_device(mlp("n"), "cpu", {"n": 2})
    assert isinstance(report, rlx.KernelDispatchReport)
    assert report.native


def test_options_are_checked() -> None:
    assert issubclass(rlx.CompileOptions, rlx.FusionOptions)
    assert rlx.FusionOptions is rlx.KernelDispatchConfig
    assert [p.value for p in rlx.KernelDispatchPolicy] == ["native", "common"]
    with pytest.raises(GraphError, match="'native' or 'common'"):
        rlx.CompileOptions(dispatch=typing.cast(Any, "fast"))


# -- sessions ------------------------------------------------------------------------------


def test_sessions_compile_options_and_modules_of_every_level() -> None:
    session = rlx.Session("cpu").with_policy(rlx.PrecisionPolicy.ALWAYS_F32)
    expected = session.compile(mlp()).run(FEEDS)[0]
    options = rlx.CompileOptions(fuse=False)
    unfused = session.compile_with(mlp(), options)
    assert "fused" not in str(unfused.reports[0].compilation.fusion)
    np.testing.assert_allclose(unfused.run(FEEDS)[0], expected, rtol=1e-6)
    for stage in rlx.GraphStage:
        f = session.compile_module(rlx.GraphModule.of(mlp()).to(stage))
        np.testing.assert_array_equal(f.run(FEEDS)[0], expected)
    f = session.compile_hir(rlx.GraphModule.of(mlp("n")), dims={"n": 4})
    np.testing.assert_array_equal(f.run(FEEDS)[0], expected)


def test_a_module_of_saved_text_keeps_the_values_of_params() -> None:
    module = rlx.GraphModule.parse(graph_text(mlp()))
    expected = rlx.Session("cpu").compile(mlp()).run(FEEDS)[0]
    for stage in rlx.GraphStage:
        f = rlx.Session("cpu").compile_module(module.to(stage))
        np.testing.assert_array_equal(f.run(FEEDS)[0], expected)


def test_a_lowered_module_is_run_as_it_was_edited() -> None:
    fused = rlx.GraphModule.of(mlp()).to("fused")
    edited = rlx.GraphModule.parse(fused.located.replace("mir.gelu", "mir.relu"), fused.target)
    f = rlx.Session("cpu").compile_module(edited)
    for name, value in mlp().param_values.items():
        f.set_param(name, value)
    w, b = mlp().param_values["w"], mlp().param_values["b"]
    np.testing.assert_allclose(f.run(FEEDS)[0], np.maximum(FEEDS["x"] @ w + b, 0), rtol=1e-5)
    assert f.signature[0][0][0] == "x"
    assert str(f.signature[1][0]) == "4x3xf32"


def test_constants_of_a_lowered_module() -> None:
    g = rlx.Graph()
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    g.set_outputs([g.input("x", [4, 3]) + g.constant(table), g.constant([1, 2])])
    f = rlx.Session("cpu").compile_module(rlx.GraphModule.of(g).to("lir"))
    total, literal = f.run({"x": table})
    assert total.tolist() == (2 * table).tolist()
    assert literal.tolist() == [1, 2]


def test_what_modules_and_sessions_refuse() -> None:
    lir = rlx.GraphModule.of(mlp()).to("lir")
    with pytest.raises(GraphError, match="has its dims already"):
        rlx.Session("cpu").compile_module(lir, dims={"n": 1})
    with pytest.raises(UnsupportedError, match="'interpret' starts from hir or mir, found lir"):
        rlx.Session("interpret").compile_module(lir)
    foreign = rlx.GraphModule.of(mlp()).to("fused", "cuda")
    with pytest.raises(UnsupportedError, match=r"runs on the target cpu, found 'cuda:"):
        rlx.Session("cpu").compile_module(foreign)


def test_precisions_and_policies() -> None:
    assert rlx.Session(precision=rlx.Precision.BF16).precision == "bf16"
    assert len(rlx.PrecisionPolicy) == 6
    for policy in rlx.PrecisionPolicy:
        if policy != "custom":
            assert rlx.Session("cpu").with_policy(policy).policy == policy
    with pytest.raises(GraphError, match="did you mean 'always_f16'"):
        rlx.Session("cpu").with_policy("always_f17")


# -- devices -------------------------------------------------------------------------------


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rlx.available_devices()[:2] == ("cpu", "interpret")
    assert rlx.is_available(rlx.Device.CPU)
    assert not rlx.is_available("cuda")
    with pytest.raises(DeviceError, match="did you mean 'cpu'"):
        rlx.is_available("cpuu")
    assert rlx.fastest_device() == "cpu"
    with monkeypatch.context() as m:  # on Linux MLX, where it is installed, is the processor
        m.setattr("rlx.targets.graph.devices.is_software", lambda device: False)
        assert rlx.fastest_among(["cpu", "metal", "mlx"]) == "mlx"
    assert rlx.fastest_among([]) == "cpu"
    assert rlx.fastest_among(filter(rlx.is_available, ["metal", "cpu"])) == "cpu"
    assert rlx.DEVICE_PRIORITY.index("cuda") < rlx.DEVICE_PRIORITY.index("cpu")
    assert rlx.full_name("cpu").startswith("CPU (")
    assert rlx.Session(rlx.Device.CPU).device == "cpu"
    rlx.drain_device("cpu")
    rlx.drain_device("rocm")
    assert rlx.supports_run_slots("cpu") and rlx.supports_run_slots("cuda")
    assert rlx.supports_run_slots("mlx") and not rlx.supports_run_slots("webgpu")


def test_what_devices_run() -> None:
    g = mlp()
    assert rlx.supports("cpu", "mir.gelu") and rlx.supports("cpu", type(g.nodes()[0]))
    assert rlx.supports("cpu", rlx.Activation.SIN) and rlx.supports("cpu", rlx.BinaryOp.ADD)
    assert not rlx.supports("cuda", "mir.gelu")
    assert rlx.supports_graph("cpu", g) and not rlx.supports_graph("cuda", g)
    assert rlx.devices_for(g) == rlx.available_devices()
    assert rlx.first_unsupported_op("cpu", g) is None
    assert rlx.first_unsupported_op("cuda", g) == (0, g.nodes()[0])
    with pytest.raises(GraphError, match="unknown op"):
        rlx.supports("cpu", "mir.gelo")


def test_control_flow_on_devices() -> None:
    g = rlx.Graph()
    p, x = g.input("p", [], "bool"), g.input("x", [2])
    g.set_outputs(rlx.cond(p, x.exp, lambda: x))
    assert isinstance(g.nodes()[0], rlx.If)
    assert rlx.supports("cpu", rlx.If) and rlx.supports("cpu", "control.while_loop")
    assert rlx.devices_for(g) == rlx.available_devices()
    scanned = rlx.Graph()
    scanned.set_outputs(rlx.fori(3, lambda i, c: c + c, scanned.input("x", [2])))
    assert rlx.supports_graph("interpret", scanned) and rlx.supports_graph("cpu", scanned)
    assert rlx.Session("cpu").compile(scanned).run({"x": np.ones(2, np.float32)})[0].tolist() == [
        8,
        8,
    ]


# -- the cache of a process ----------------------------------------------------------------


def test_a_compile_cache_keeps_what_was_used_last() -> None:
    cache, made = rlx.CompileCache(2), list[str]()

    def get(key: str) -> str:
        return cache.get_or_compile(key, lambda: made.append(key) or key.upper())

    assert [get(k) for k in "abacab"] == list("ABACAB")
    assert made == ["a", "b", "c", "b"]
    assert (cache.hits, cache.misses, len(cache)) == (2, 4, 2)
    cache.clear()
    assert len(cache) == 0
    with pytest.raises(GraphError, match="at least 1 entry"):
        rlx.CompileCache(0)


def test_a_failed_build_is_not_kept() -> None:
    cache = rlx.CompileCache()

    def fail() -> None:
        raise RlxError("no")

    with pytest.raises(RlxError):
        cache.get_or_compile("k", fail)
    assert cache.get_or_compile("k", lambda: 3) == 3


def test_equal_graphs_share_a_compile_and_others_do_not() -> None:
    cache, session = rlx.CompileCache(), rlx.Session("cpu")
    first = cache.compile(session, mlp())
    assert cache.compile(session, mlp()) is first
    other = mlp()
    other.param_values["b"] = np.zeros(3, np.float32)
    different = [
        rlx.CompileCache.key(session, mlp()),
        rlx.CompileCache.key(session, other),
        rlx.CompileCache.key(session, mlp(5)),
        rlx.CompileCache.key(session, mlp("n")),
        rlx.CompileCache.key(session, mlp("n"), dims={"n": 4}),
        rlx.CompileCache.key(session, mlp(), fuse=False),
        rlx.CompileCache.key(rlx.Session("interpret"), mlp()),
    ]
    assert len(set(different)) == len(different)

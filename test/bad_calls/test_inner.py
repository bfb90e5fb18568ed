"""Refusals that no call of the public API reaches alone: of an installation that lacks a part, of
the toolchain, of ops and rules that someone adds, and of kernels that a family asks for."""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import rlx
import rlx.models
from rlx import _mlir, knobs
from rlx.base.dims import SymDim
from rlx.codegen.builder import Kernel
from rlx.codegen.program import Program
from rlx.compiler.driver import compile_graph
from rlx.dialects.context import parse
from rlx.errors import (
    DTypeError,
    FaultError,
    GraphError,
    IRError,
    ModelError,
    PassError,
    RlxError,
    ShapeError,
    ToolchainError,
    UnsupportedError,
)
from rlx.ir.graph import topological
from rlx.ir.interpreter import evaluate
from rlx.ir.op import Op, op_class, type_of
from rlx.kernels.attention.args import Arguments, AttentionConfig
from rlx.kernels.fallback import emit as common
from rlx.kernels.matmul import pack
from rlx.kernels.matmul import plan as contraction_plan
from rlx.kernels.matmul.plan import ContractionConfig
from rlx.kernels.rowwise.plan import RowProgram, RowwiseConfig, plan
from rlx.kernels.rowwise.region import NotRowwise
from rlx.lowering.rules import Rule
from rlx.lowering.select.rowwise.match import row_region
from rlx.models import Embed
from rlx.ops.movement.constant import Iota
from rlx.ops.nn.normalization import LayerNorm
from rlx.ops.reduction.cumulative import Cumsum
from rlx.targets.cpu import make_target
from rlx.targets.llvm import machine
from rlx.tools import opt
from rlx.tools.commands import view
from rlx.types import f16, f32, f64
from support import raise_sites, tiny_bert
from support.bad_calls import Bad, check
from support.text import transformed

TARGET = make_target("x86-64-v3")


# -- an installation that lacks a part ---------------------------------------------------------


class Unmapped(ModuleType):
    """A package whose libraries the loader has no memory for."""

    def __getattr__(self, name: str) -> None:
        raise ImportError("failed to map segment")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, r"torch-mlir is not installed.*pip install"),
        (Unmapped("torch_mlir"), "torch-mlir cannot be loaded: failed to map segment; free"),
    ],
    ids=["absent", "broken"],
)
def test_without_mlir(found: ModuleType | None, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_mlir", found)
    path = str(_mlir.__file__)
    spec = spec_from_file_location(
        "rlx._mlir_again", path, loader=raise_sites.Loader("rlx._mlir_again", path)
    )
    assert spec is not None and spec.loader is not None
    again = module_from_spec(spec)
    with pytest.raises(ToolchainError, match=says):
        spec.loader.exec_module(again)


def test_without_the_c_api_of_mlir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_mlir, "_loaded", [])
    monkeypatch.setattr(_mlir, "ir", SimpleNamespace(__file__=str(tmp_path / "ir.py")))
    with pytest.raises(ToolchainError, match="has no C API library in _mlir_libs"):
        _mlir._c_api()


def test_without_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    with pytest.raises(ToolchainError, match=r"llvmlite is not installed.*pip install"):
        machine._load.__wrapped__()


def test_without_tokenizers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = Embed.from_dir(tiny_bert.write(tmp_path), device="interpret")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    check(
        Bad(
            ModelError,
            r"package tokenizers: pip install.*encode_ids does not",
            lambda: model.encode(["a"]),
        )
    )


# -- the toolchain -----------------------------------------------------------------------------


def test_what_mlir_cannot_translate() -> None:
    module = parse("func.func @f() { return }")
    with pytest.raises(IRError, match="MLIR cannot translate to LLVM IR: .*"):
        _mlir.translate_to_llvm_ir(module.operation)
    ctx = _mlir.context()
    for text, passes, kind, said in (
        ("func.func @f( {", "", IRError, "cannot parse the MLIR text: .*"),
        ("func.func @f() { return }", "", IRError, "MLIR cannot translate to LLVM IR: .*"),
        (
            'func.func @f() { "arith.none"() : () -> () return }',
            "convert-func-to-llvm",
            IRError,
            "cannot parse the MLIR text: .*arith.none",
        ),
        (
            "func.func @f() { return }",
            "arith-emulate-unsupported-floats{source-types=f99 target-type=f32}",
            PassError,
            "a compiler pass failed: .*'f99'",
        ),
    ):
        with pytest.raises(kind, match=said):
            pipeline = _mlir.Pipeline(f"builtin.module({passes})", ctx)
            _mlir.text_to_llvm_ir(text, [pipeline], ctx)
    with (
        pytest.raises(PassError, match="doing it: no such thing"),
        _mlir.mlir_errors("doing it", PassError),
    ):
        raise ValueError("no such thing\nand more")


def test_what_llvm_cannot_emit(monkeypatch: pytest.MonkeyPatch) -> None:
    real = machine._c_api()
    fake = SimpleNamespace(
        **{n: getattr(real, n) for n in ("LLVMPY_GetBufferStart", "LLVMPY_GetBufferSize")}
    )

    def refuse(target: Any, module: Any, kind: int, reason: Any) -> None:
        reason._owned, reason._ptr = False, ctypes.c_char_p(b"no such machine")

    fake.LLVMPY_TargetMachineEmitToMemory = refuse
    monkeypatch.setattr(machine, "_c_api", lambda: fake)
    with pytest.raises(
        ToolchainError, match="LLVM cannot emit the code of a kernel: no such machine"
    ):
        machine.emit_object("define void @f() { ret void }", TARGET.features.machine)
    text = "define i32 @f() { %b = add i32 %a, 1 %a = add i32 1, 2 ret i32 %b }"
    with pytest.raises(
        ToolchainError, match="LLVM refused the code of a kernel: .*dominate"
    ) as caught:
        machine.emit_object(text, TARGET.features.machine)
    kept: list[Any] = [caught]
    kept.append(kept)  # a cycle, which only the collector takes
    del kept, caught
    gc.collect()


def exp_graph() -> rlx.Graph:
    g = rlx.Graph("exp")
    g.set_outputs(g.input("x", [4]).exp())
    return g


@pytest.mark.parametrize(
    ("target", "module", "stage", "change", "says"),
    [
        (
            "vulkan",
            "rlx.targets.vulkan.emit",
            "spirv",
            ("MAGIC", 0),
            "does not begin with its magic number",
        ),
        (
            "vulkan",
            "rlx.targets.vulkan.emit",
            "spirv",
            ("_only", None),
            "gave 0 .* ops, where one was expected",
        ),
        ("cuda", "rlx.targets.cuda.emit", "ptx", ("PIPELINE", "lost"), "lost their gpu.module"),
    ],
)
def test_what_mlir_makes_of_a_gpu_kernel(
    target: str,
    module: str,
    stage: str,
    change: Any,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emit = importlib.import_module(module)
    name, value = change
    if name == "_only":
        real = emit._only
        monkeypatch.setattr(emit, name, lambda m, _: real(m, "gpu.nothing"))
    elif value == "lost":
        monkeypatch.setattr(
            _mlir,
            "run_pipeline",
            lambda m, *_: [v.operation.erase() for v in list(m.body.operations)],
        )
    else:
        monkeypatch.setattr(emit, name, value)
    text = str(exp_graph().to_mlir())
    with pytest.raises(ToolchainError, match=says):
        transformed(text, f"{stage}@{target}")


def test_a_module_that_does_not_parse_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    from rlx.tools.opt import output

    monkeypatch.setattr(output, "parse", lambda text, context: parse("module {}", context))
    path = tmp_path / "exp.mlir"
    path.write_text(str(exp_graph().to_mlir()))
    assert opt.main([str(path), "--verify-roundtrip"]) == 1
    assert "the text that is printed does not parse back to the same IR" in capsys.readouterr().err


# -- what someone adds -------------------------------------------------------------------------


def test_an_op_that_is_declared_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GraphError, match="op 'mir.exp' is declared twice"):
        type("Again", (Op,), {}, name="mir.exp")
    with pytest.raises(GraphError, match="unknown op 'mir.expp'; did you mean 'mir.exp'"):
        op_class("mir.expp")
    with pytest.raises(DTypeError, match="unknown element type in '2xf99'"):
        type_of("2xf99")
    node = exp_graph().nodes()[0]
    node.reference = lambda x: x.astype(np.float64)
    with pytest.raises(RlxError, match="its reference gave float64"):
        evaluate(node, [np.ones(4, np.float32)])


def test_an_op_without_a_loop_nest(monkeypatch: pytest.MonkeyPatch) -> None:
    g = rlx.Graph()
    g.set_outputs(g.cumsum(g.input("x", [4]), axis=0))
    owner = next(c for c in Cumsum.__mro__ if "loops" in vars(c))
    monkeypatch.delattr(owner, "loops")
    with pytest.raises(
        UnsupportedError,
        match=r"no kernel and no loop nest on cpu for: mir\.cumsum x 1 \(first at .*test_inner\.py:\d+\)",
    ):
        compile_graph(g, TARGET)


def test_loops_that_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def emit(node: Op) -> None:
        common._build("k", common.CommonConfig.of(node), TARGET.kernels)

    g = rlx.Graph()
    monkeypatch.setattr(Iota, "loops", lambda self, b: None)
    with pytest.raises(GraphError, match=r"mir\.iota: its loops never call parallel"):
        emit(Iota((4,)))
    monkeypatch.setattr(LayerNorm, "loops", lambda self, b: b.load(1, (0,)), raising=False)
    with pytest.raises(GraphError, match="its loops read operand 1, which is absent"):
        emit(LayerNorm(g.input("x", [2, 4]), axis=1))


def test_a_rule_and_a_knob_that_are_wrong() -> None:
    with pytest.raises(PassError, match="no op of mir is called 'negg'; did you mean 'neg'"):
        Rule("odd", "negg(x) --> x")
    with pytest.raises(PassError, match="cast on the right side needs to=name"):
        Rule("odd", "neg(x) --> cast(x)")
    with pytest.raises(ValueError, match="two knobs are called RLX_CPU"):
        knobs.Knob("RLX_CPU", "", str, "machine", "", "")
    with pytest.raises(AttributeError, match=r"rlx\.models.* has no attribute 'Embedd'"):
        rlx.models.Embedd
    with pytest.raises(AttributeError, match="'rlx' has no attribute 'Grpah'"):
        rlx.Grpah
    with pytest.raises(AttributeError, match=r"no attribute 'kernels'; write import rlx\.kernels"):
        rlx.__getattr__("kernels")


# -- graphs that need more than a line ---------------------------------------------------------


def test_graphs_with_odd_dims() -> None:
    n = SymDim.symbol("n")
    g = rlx.Graph()
    g.set_outputs(g.input("x", [n * n + 1]).exp())
    f = rlx.Session("interpret").compile(g)
    check(
        Bad(
            ShapeError,
            r"no input tells the size of n; compile with dims",
            lambda: f.run({"x": np.ones(3, np.float32)}),
        )
    )
    h = rlx.Graph()
    h.set_outputs(h.input("x", [n * 2 + 1]).exp())
    pairs = rlx.Session("interpret").compile(h)
    assert len(pairs.run({"x": np.ones(7, np.float32)})[0]) == 7
    check(
        Bad(
            ShapeError,
            r"'x' has a dim 2\*n\+1 that is 8, which is 7 with n = 3",
            lambda: pairs.run({"x": np.ones(8, np.float32)}),
        )
    )
    q, five = g.input("q", ["b", "s", "d"]), g.input("five", [1, 2, 3, 4, 5])
    check(
        Bad(
            ShapeError,
            "head and feature dims of attention must be numbers",
            lambda: g.attention(q, q, q, num_heads=2),
        )
    )
    check(Bad(ShapeError, "layout 'bshd' cannot be that of", lambda: g.attention(five, five, five)))
    flags = g.input("flags", [2], "bool")
    check(Bad(DTypeError, "the number 2 does not fit bool", lambda: flags.logical_and(2)))


def test_faults_of_the_slow_path_and_of_no_known_site() -> None:
    g = rlx.Graph()
    table, index = g.input("table", [3, 2]), g.input("i", [1], "i64")
    g.set_outputs(table.gather(index))
    f = rlx.Session("cpu").compile(g)
    out = np.empty((1, 2), np.float32)
    feeds = {"table": np.ones((3, 2), np.float32), "i": np.array([9])}
    with pytest.raises(FaultError, match=r"test_inner\.py:\d+: gather: index out of range"):
        f.run_into(feeds, [out])
    assert f._fast is not None
    lost = f._fast.fault(SimpleNamespace(site=99, code=1, detail=""))
    assert str(lost) == "a kernel reported fault 1 at the unknown site 99"


def test_what_a_rank_waits_is_more_than_nothing() -> None:
    with pytest.raises(ValueError, match="out of range"):
        knobs.comm_timeout.parse("0")


def test_a_run_of_standard_input_is_refused_by_the_view() -> None:
    with pytest.raises(IRError, match="--run needs a file, found standard input"):
        view._profile("<stdin>", argparse.Namespace(), cast("Any", None))


# -- kernels -----------------------------------------------------------------------------------


def test_kernels_that_no_family_should_ask_for() -> None:
    with pytest.raises(TypeError, match="A is f32 and B is f64; cast"):
        ContractionConfig(f32, f64, Program((f32,), (), (0,)))
    with pytest.raises(ValueError, match="inputs are the product and the operands"):
        ContractionConfig(f32, f32, Program((f32, f32), (), (0,)))
    config = ContractionConfig(f32, f32, Program((f32,), (), (0,)))
    with pytest.raises(ValueError, match="0 operands, 1 strides"):
        contraction_plan.launch(config, TARGET.kernels, m=4, n=4, k=4, operands=[(0, 0)])
    with pytest.raises(ValueError, match="adjacent columns have the stride 1, not 4"):
        pack.launch(
            pack.PackConfig(f32, True), TARGET.kernels, k=4, n=4, row_stride=1, column_stride=4
        )
    k = Kernel("k", TARGET.kernels)
    with pytest.raises(Exception, match="f16 is a memory format; make the constant an f32"):
        k.const(float("inf"), f16)
    arguments = Arguments(Kernel("k", TARGET.kernels), AttentionConfig())
    assert not hasattr(arguments, "nothing")


def test_an_output_of_one_value_a_row_that_has_many() -> None:
    program = RowProgram((f32,), (), (0,))
    with pytest.raises(ValueError, match="output 0 has one value a row, but value 0 has many"):
        plan(RowwiseConfig(program, (("one",),), (("zero",),)))


def regions() -> dict[str, Any]:
    g = rlx.Graph()
    x, b = g.input("x", [4, 5]), g.input("b", [4])
    folded = x.sum(axes=-1)
    twice = folded.sum(axes=-1)
    return {
        "meets a reduced value without its axis and a whole one": [folded + b.exp()],
        "folds what is reduced already": [twice],
        "expand spreads a reduced value without its axis": [folded.expand([3, 4])],
        "is shared by rows of": [x.exp(), g.input("c", [5])],
    }


@pytest.mark.parametrize("reason", regions())
def test_what_is_no_region_of_rows(reason: str) -> None:
    outs = regions()[reason]
    nodes = topological(outs)
    found = row_region(nodes, outs)
    assert isinstance(found, NotRowwise) and reason in found.reason

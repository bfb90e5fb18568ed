"""Kernels as PTX: structure, what NVIDIA's assembler takes, and what is refused."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rlx.codegen.builder import Kernel, KernelText
from rlx.codegen.reg import Reg
from rlx.errors import DeviceError, ToolchainError, UnsupportedError
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.targets import find_target
from rlx.targets.cpu import make_target as cpu_target
from rlx.targets.cuda import make_target
from rlx.targets.cuda.features import DEFAULT, PRESETS
from rlx.targets.llvm.kernels import INTRINSICS, with_intrinsics
from rlx.types import DTYPES, DType, bf16, bool_, f16, f32, f64, i8, i64
from support import cuda_emulator
from support.gpu import assemble, emit_by_families, emit_samples, hello, kernel_of, kernels_of, mlp
from support.tolerances import assert_close

# An array is data; kernels of graphs read it from memory.
REFUSED = {"mir.axis_index", "mir.constant"}


def ptx_of(kernels: list[KernelText], isa: str = DEFAULT) -> str:
    return make_target(isa).emitter.emit(kernels, "ptx").decode()


one = partial(kernel_of, make_target())
"""A kernel of one function, element by element."""


@pytest.mark.parametrize("isa", PRESETS)
@pytest.mark.parametrize("graph", [hello(), mlp()], ids=lambda g: g.name)
def test_graphs_become_ptx(graph: Graph, isa: str, tmp_path: Path) -> None:
    target = find_target(f"cuda:{isa}")
    kernels = kernels_of(graph, target)
    ptx = target.emitter.emit(kernels, "ptx")
    assert re.findall(rb"\.visible \.entry (\w+)", ptx) == [k.name.encode() for k in kernels]
    assert f".target {isa}".encode() in ptx
    assemble(ptx, isa, tmp_path)


def attention(dt: DType) -> Graph:
    """What the families have kernels for: products, attention, rows and sums."""
    g = Graph("attention")
    x = g.input("x", [1, 2, 64, 32], dt)
    y = g.attention(x, x, x, layout="bhsd")
    z = y.reshape([128, 32]) @ g.param("w", [32, 64], dt)
    g.set_outputs([z.gelu().softmax(axis=-1), z.sum(axis=1)])
    return g


@pytest.mark.parametrize("isa", PRESETS)
def test_the_families_kernels_assemble(isa: str, tmp_path: Path) -> None:
    target = find_target(f"cuda:{isa}")
    for dt in (f32, f16):
        assemble(target.emitter.emit(kernels_of(attention(dt), target, "native"), "ptx"), isa,
                 tmp_path)  # fmt: skip


FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "tanh", "sinh", "cosh",
    "asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "erfinv", "sqrt", "rsqrt", "gelu",
    "sigmoid", "softplus", "pow", "atan2", "remainder",
)  # fmt: skip
"""Functions of one number, and three of two."""


@pytest.mark.parametrize("dt", [f32, f64], ids=str)
def test_the_math_library_computes_what_the_interpreter_does(dt: DType) -> None:
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 88.7, -103.0, 1e30]
    values = [*special, *rng.uniform(-1, 1, 500), *rng.uniform(-100, 100, 500)]
    x = np.array(values, dt.numpy)
    g = Graph("functions")
    a, b = g.input("a", [x.size], dt), g.input("b", [x.size], dt)
    g.set_outputs([getattr(a, name)(*[b] * (name in FUNCTIONS[-3:])) for name in FUNCTIONS])
    feeds = {"a": x, "b": rng.permutation(x)}
    found = cuda_emulator.compiled(g, fuse=False).run(feeds)
    for name, y, expected in zip(FUNCTIONS, found, interpret(g, feeds), strict=True):
        try:
            assert_close(y, expected)
        except AssertionError as e:
            pytest.fail(f"{name}: {e}")


def test_the_ops_of_the_mlp_are_all_there() -> None:
    names = [k.text for k in kernels_of(mlp(), make_target())]
    assert len(names) >= 5, "matmul, bias, gelu, matmul and the parts of a softmax"
    assert [k.name for k in kernels_of(hello(), make_target())] == ["common_0"]


def blocks() -> Graph:
    """What blocks of threads compute: products of both kinds, attention, rows, columns by parts."""
    g = Graph("blocks")
    x, w = g.input("x", [300, 70], "f16"), g.input("w", [70, 90], "f16")
    heads = [g.input(n, [1, 4, 33, 40], "bf16") for n in "qkv"]
    attended = g.attention(
        *heads, num_heads=4, kv_heads=4, scale=0.2, layout="bhsd", mask_kind="causal", softcap=2.0
    )
    columns = g.input("c", [50000, 3]).max(axis=0)
    g.set_outputs([g.gelu(x @ w), x.narrow(0, 0, 1) @ w, attended, x.softmax(axis=-1), columns])
    return g


@pytest.mark.parametrize("isa", [DEFAULT, "sm_120"])
def test_blocks_share_memory(isa: str, tmp_path: Path) -> None:
    target = find_target(f"cuda:{isa}")
    kernels = kernels_of(blocks(), target, "native")
    families = {k.name.rsplit("_", 1)[0] for k in kernels}
    assert families == {"gpu_contraction", "gpu_attention", "rowwise", "gpu_reduce"}
    ptx = target.emitter.emit(kernels, "ptx")
    for entry in ptx.decode().split(".visible .entry ")[1:]:
        assert "bar.sync" in entry
    assemble(ptx, isa, tmp_path)


def test_parameters_are_buffers_then_the_numbers() -> None:
    kernel = kernels_of(hello(), make_target())[0]
    assert len(kernel.buffers) == 3 and kernel.sizes == ("range",)
    ptx = ptx_of([kernel])
    assert re.findall(r"\.param \.(\w+).*common_0_param_(\d)", ptx.split("{")[0]) == [
        ("u64", "0"), ("u64", "1"), ("u64", "2"), ("u64", "3"),
    ]  # fmt: skip
    assert ".maxntid 128, 1, 1" in ptx


def test_products_and_sums_are_not_fused() -> None:
    # Sums of two exact terms, on which the polynomials stand, need every rounding. The assembler
    # fuses what does not say .rn.
    ptx = ptx_of([one(lambda k, a, b, c: a * b + c, f32, f32, f32)])
    assert "mul.rn.f32" in ptx and "add.rn.f32" in ptx and "fma" not in ptx
    assert "fma.rn.f32" in ptx_of([one(lambda k, a, b, c: k.fma(a, b, c), f32, f32, f32)])


def test_functions_of_the_hardware_need_no_library() -> None:
    def all_of(k: Kernel, x: Reg) -> Reg:
        return k.sqrt(k.abs(x)) + k.floor(x) + k.ceil(x) + k.round_even(x)

    for dt in (f32, f64):
        ptx = ptx_of([one(all_of, dt, out=dt)])
        assert f"sqrt.rn.{dt}" in ptx and ".extern" not in ptx and "call" not in ptx


def test_only_listed_functions_become_intrinsics() -> None:
    assert with_intrinsics("call float @__nv_sqrtf(float %x)") == (
        "call float @llvm.sqrt.f32(float %x)"
    )
    assert with_intrinsics("@__nv_rint(") == "@llvm.roundeven.f64("
    assert with_intrinsics("@__nv_tanhf(") == "@__nv_tanhf("
    assert "tanh" not in INTRINSICS


@pytest.mark.parametrize("name", ["tanh", "exp", "sin", "erf"])
def test_a_library_function_is_refused_and_does_not_end_the_process(name: str) -> None:
    kernel = one(lambda k, x: k.unary(f"math.{name}", x), f32)
    with pytest.raises(ToolchainError, match=rf"__nv_{name}f"):
        ptx_of([kernel])


def test_a_kernel_for_a_cpu_is_refused() -> None:
    k = Kernel("k", cpu_target("x86-64-v3").kernels)
    k.parallel(lambda i: None)
    with pytest.raises(ToolchainError, match="kernel k was built for a CPU frame"):
        ptx_of([k.text()])


def test_features_by_name() -> None:
    assert make_target().features.name == DEFAULT
    assert make_target("sm_90a").features.machine.attributes == "+ptx80"
    with pytest.raises(DeviceError, match=r"'sm_91'.*did you mean 'sm_90'"):
        make_target("sm_91")
    with pytest.raises(UnsupportedError, match="no stage 'object'"):
        make_target().emitter.emit([], "object")


@pytest.mark.parametrize("dt", [f16, bf16, f64, i64, i8, bool_], ids=str)
def test_types_in_memory(dt: DType, tmp_path: Path) -> None:
    ptx = ptx_of([one(lambda k, x: x, dt, out=dt)])
    assert f"ld.global.b{dt.bits}" in ptx and f"st.global.b{dt.bits}" in ptx
    assemble(ptx.encode(), DEFAULT, tmp_path)


def test_samples(tmp_path: Path) -> None:
    emitted = emit_samples(make_target(), [f32], every=5)
    assert set(emitted.refused) <= REFUSED, emitted.refused
    assert len(emitted.kernels) > 60
    assemble(emitted.file, DEFAULT, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("isa", PRESETS)
@pytest.mark.parametrize("dt", DTYPES.values(), ids=str)
def test_every_sample_of_every_type(dt: DType, isa: str, tmp_path: Path) -> None:
    emitted = emit_samples(make_target(isa), [dt])
    assert set(emitted.refused) == REFUSED, emitted.refused
    assemble(emitted.file, isa, tmp_path)


@pytest.mark.slow
def test_every_sample_by_the_families(tmp_path: Path) -> None:
    assemble(emit_by_families(make_target()).file, DEFAULT, tmp_path)

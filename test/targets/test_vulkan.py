"""Kernels as SPIR-V: structure, what Khronos's validator takes, and what is refused."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.codegen.builder import Kernel, KernelText
from rlx.errors import DeviceError, ToolchainError, UnsupportedError
from rlx.ir.graph import Graph
from rlx.targets import find_target
from rlx.targets.cpu.target import kernel_target
from rlx.targets.vulkan import make_target
from rlx.targets.vulkan.emit import MAGIC
from rlx.targets.vulkan.features import EXTRAS, PRESETS
from rlx.tools import opt
from rlx.types import DTYPES, DType, bf16, bool_, f16, f32, f64, i8, i64
from support.gpu import emit_by_families, emit_samples, hello, kernels_of, mlp, validate
from support.jit import host, jit

# An array is data; kernels of graphs read it from memory.
REFUSED = {"mir.axis_index", "mir.constant"}

# Without the types that Vulkan leaves optional: bools in memory, indices of tokens, masks, pixels
# and packed weights.
OPTIONAL = (
    "all_reduce", "argmax", "argmin", "attention", "attention_grad", "bitcast", "cast",
    "dequant_grouped_matmul",
    "dequant_matmul", "dequant_matmul_rows", "dequantize", "dequantize_blocks", "det", "dropout",
    "dynamic_slice", "dynamic_update_slice", "eq", "fake_quantize", "fake_quantize_backward",
    "fake_quantize_lsq_backward_scale", "fake_quantize_lsq_backward_x", "gather", "ge",
    "grouped_matmul", "grouped_outer", "gt", "inv", "iota", "isfinite", "isinf", "isnan", "le",
    "logsumexp", "lstsq", "lt", "max_pool_backward", "max_pool_indices", "ne", "paged_attention",
    "pinv", "position", "q_conv2d", "q_matmul", "quantize", "quantize_rows", "random_bits",
    "rasterize_gaussians", "rasterize_gaussians_tangent", "sample", "scaled_conv",
    "scaled_matmul", "scatter", "scatter_add", "searchsorted", "slogdet", "softmax_cross_entropy",
    "sort", "topk", "where",
)  # fmt: skip
REFUSED_IN_BASE = {
    "hir.attention_block",
    "hir.bert_layer",
    "hir.llama_decoder_block",
    "hir.resize",
    "hir.qwen35_mtp_head",
    *REFUSED,
    *(f"mir.{name}" for name in OPTIONAL),
}

# Opcodes and numbers of the SPIR-V specification, sections 3.31 (capabilities) and 3.52.
CAPABILITIES = {1: "Shader", 9: "Float16", 10: "Float64", 11: "Int64", 22: "Int16", 39: "Int8",
                4433: "StorageBuffer16BitAccess", 4448: "StorageBuffer8BitAccess"}  # fmt: skip
OP_ENTRY_POINT, OP_CAPABILITY, OP_TYPE_INT, OP_TYPE_FLOAT = 15, 17, 21, 22
OP_TYPE_RUNTIME_ARRAY, OP_DECORATE, OP_F_ADD, OP_F_MUL = 29, 71, 129, 133
BINDING, NO_CONTRACTION = 33, 42


def spirv_of(kernels: list[KernelText], profile: str = "vulkan1.2") -> bytes:
    return make_target(profile).emitter.emit(kernels, "spirv")


def instructions(spirv: bytes, wanted: int) -> Iterator[tuple[int, ...]]:
    """The operand words of every instruction of an opcode."""
    words = struct.unpack(f"<{len(spirv) // 4}I", spirv)
    at = 5
    while at < len(words):
        count, opcode = words[at] >> 16, words[at] & 0xFFFF
        if opcode == wanted:
            yield words[at + 1 : at + count]
        at += count


def capabilities(spirv: bytes) -> set[str]:
    found = {CAPABILITIES.get(n) for (n,) in instructions(spirv, OP_CAPABILITY)}
    return {name for name in found if name is not None}


def copy_of(dt: DType, profile: str = "vulkan1.2", out: DType | None = None) -> KernelText:
    k = Kernel("k", make_target(profile).kernels)
    x, y = k.buffer("x", dt), k.buffer("y", out or dt)
    k.parallel(lambda i: k.store(k.load(x, i), y, i))
    return k.text()


def entry_names(spirv: bytes) -> list[str]:
    """The names of the entry points: literal strings after the model and the function's id."""
    out: list[str] = []
    for operands in instructions(spirv, OP_ENTRY_POINT):
        text = struct.pack(f"<{len(operands) - 2}I", *operands[2:])
        out.append(text.split(b"\0", 1)[0].decode())
    return out


@pytest.mark.parametrize("profile", PRESETS)
@pytest.mark.parametrize("graph", [hello(), mlp()], ids=lambda g: g.name)
def test_graphs_become_spirv(graph: Graph, profile: str, tmp_path: Path) -> None:
    target = find_target(f"vulkan:{profile}")
    kernels = kernels_of(graph, target)
    spirv = target.emitter.emit(kernels, "spirv")
    assert struct.unpack_from("<I", spirv)[0] == MAGIC
    assert sorted(entry_names(spirv)) == sorted(k.name for k in kernels)
    assert capabilities(spirv) == {"Shader"}, "f32 and 32-bit indices need nothing optional"
    validate(spirv, tmp_path)


def test_bindings_are_buffers_then_sizes() -> None:
    kernel = kernels_of(hello(), make_target())[0]
    assert len(kernel.buffers) == 3 and kernel.sizes == ("range",)
    spirv = spirv_of([kernel])
    decorations = list(instructions(spirv, OP_DECORATE))
    assert sorted(d[2] for d in decorations if d[1] == BINDING) == [0, 1, 2, 3]
    assert len(list(instructions(spirv, OP_TYPE_RUNTIME_ARRAY))) == 1, "one type, f32"


# The traps: without its capability MLIR makes an array of f32 of any smaller float type, and one
# of i32 of any smaller integer.
@pytest.mark.parametrize(
    ("dt", "needed", "width", "kind"),
    [
        (bf16, ("Int16", "StorageBuffer16BitAccess"), 16, OP_TYPE_INT),
        (f16, ("Float16", "StorageBuffer16BitAccess"), 16, OP_TYPE_FLOAT),
        (i8, ("Int8", "StorageBuffer8BitAccess"), 8, OP_TYPE_INT),
        (bool_, ("Int8", "StorageBuffer8BitAccess"), 8, OP_TYPE_INT),
        (i64, ("Int64",), 64, OP_TYPE_INT),
        (f64, ("Float64",), 64, OP_TYPE_FLOAT),
    ],
    ids=str,
)
def test_types_in_memory(
    dt: DType, needed: tuple[str, ...], width: int, kind: int, tmp_path: Path
) -> None:
    spirv = spirv_of([copy_of(dt)])
    ids = {operands[0] for operands in instructions(spirv, kind) if operands[1] == width}
    arrays = [operands[1] for operands in instructions(spirv, OP_TYPE_RUNTIME_ARRAY)]
    assert len(arrays) == 1 and arrays[0] in ids, f"the buffers are arrays of {width} bits"
    assert capabilities(spirv) == {"Shader", *needed}
    validate(spirv, tmp_path)


@pytest.mark.parametrize("dt", [bf16, f16, i8, bool_, i64, f64], ids=str)
def test_a_type_that_the_device_lacks_is_refused(dt: DType) -> None:
    with pytest.raises(UnsupportedError, match=r"which vulkan1\.1 lacks: .* vulkan1\.1\+\w+ does"):
        copy_of(dt, "vulkan1.1")


def test_the_refusal_of_an_op_names_it_and_its_types() -> None:
    g = rlx.Graph("angles")
    g.set_outputs([g.sin(g.input("x", [2, 3], "f64"))])
    with pytest.raises(UnsupportedError, match=r"mir\.sin on \(2x3xf64\): .* f64, .*\+float64"):
        kernels_of(g, make_target("vulkan1.1"))


def test_no_product_and_sum_may_be_fused() -> None:
    k = Kernel("k", make_target().kernels)
    x, y = k.buffer("x", f32), k.buffer("y", f32)
    k.parallel(lambda i: k.store(k.load(x, i) * 3.0 + 1.0, y, i))
    spirv = spirv_of([k.text()])
    sums = {o[1] for opcode in (OP_F_ADD, OP_F_MUL) for o in instructions(spirv, opcode)}
    marked = {d[0] for d in instructions(spirv, OP_DECORATE) if d[1] == NO_CONTRACTION}
    assert len(sums) == 2 and sums == marked


def test_rounding_to_f16_leaves_nothing_to_a_device() -> None:
    # Every f16 and its neighbours half way, in f32, of both signs.
    exact = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    half = ((exact[:-1].astype(np.float64) + exact[1:]) / 2).astype(np.float32)
    edge = np.array([65504, 65519.996, 65520, 1e30, np.inf, np.nan, 2e-45], np.float32)
    near = [np.nextafter(half, np.float32(s)) for s in (-np.inf, np.inf)]
    x = np.concatenate([exact, half, *near, edge])
    x = np.concatenate([x, -x])
    k = Kernel("k", kernel_target(host()))
    a, b = k.buffer("a", f32), k.buffer("b", f32)
    k.parallel(lambda i: k.store(k.rounded_to_f16(k.load(a, i)), b, i))
    found = np.zeros_like(x)
    jit(k.text())(0, x.size, [x, found])
    with np.errstate(over="ignore"):
        want = x.astype(np.float16).astype(np.float32)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(found[numbers].view(np.uint32), want[numbers].view(np.uint32))
    assert np.isnan(found[~numbers]).all()
    assert "0xFFFFE000" in copy_of(f32, out=f16).text or "4294959104" in copy_of(f32, out=f16).text


def test_more_elements_than_an_index_can_count() -> None:
    g = rlx.Graph("large")
    g.set_outputs([g.input("x", [1 << 16, 1 << 16], "f32").sum(axis=1)])
    with pytest.raises(UnsupportedError, match=r"reaches element 4294967295.*32 bits"):
        kernels_of(g, make_target())
    assert kernels_of(g, find_target("cuda")), "indices there have 64 bits"
    g = rlx.Graph("long")
    g.set_outputs([g.exp(g.input("x", [1 << 32], "f32"))])
    with pytest.raises(UnsupportedError, match=r"range or stride of 4294967296 elements"):
        kernels_of(g, find_target("cuda"))


def test_a_kernel_for_a_cpu_is_refused() -> None:
    k = Kernel("k", kernel_target(host()))
    k.parallel(lambda i: None)
    with pytest.raises(ToolchainError, match="kernel k was built for a CPU frame"):
        spirv_of([k.text()])


def test_features_by_name() -> None:
    assert make_target("vulkan1.1+int64").features.name == "vulkan1.1+int64"
    assert make_target("vulkan1.1+int64").features.capabilities == ("Shader", "Int64")
    assert set(make_target().features.has) == {*EXTRAS, "buffers10", "buffers16"}
    assert make_target("vulkan1.2+buffers32").features.name == "vulkan1.2+buffers32"
    with pytest.raises(DeviceError, match=r"'vulkan1\.3'.*RLX emits SPIR-V for"):
        make_target("vulkan1.3")
    with pytest.raises(DeviceError, match=r"unknown extra 'int46'.*did you mean 'int64'"):
        make_target("vulkan1.1+int46")
    with pytest.raises(UnsupportedError, match="no stage 'ptx'"):
        make_target().emitter.emit([], "ptx")


def test_the_command_line_writes_the_file_as_it_is(tmp_path: Path) -> None:
    source, result = tmp_path / "hello.mlir", tmp_path / "hello.spv"
    source.write_text(str(hello().to_mlir()))
    command = [str(source), "--target=vulkan", "--dispatch=common", "--emit=spirv"]
    assert opt.main([*command, "-o", str(result)]) == 0
    assert result.read_bytes() == spirv_of(kernels_of(hello(), make_target()))
    assert opt.main([*command, "--split-input-file"]) == 2


@pytest.mark.parametrize(
    ("profile", "refused"), [("vulkan1.2", REFUSED), ("vulkan1.1", REFUSED_IN_BASE)]
)
def test_samples(profile: str, refused: set[str], tmp_path: Path) -> None:
    emitted = emit_samples(make_target(profile), [f32], every=5)
    assert set(emitted.refused) <= refused, emitted.refused
    assert len(emitted.kernels) > 40
    validate(emitted.file, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("dt", DTYPES.values(), ids=str)
def test_every_sample_of_every_type(dt: DType, tmp_path: Path) -> None:
    emitted = emit_samples(make_target(), [dt])
    assert set(emitted.refused) == REFUSED, emitted.refused
    validate(emitted.file, tmp_path)


def test_products_and_rows_have_kernels_of_their_own() -> None:
    names = [k.name.rsplit("_", 1)[0] for k in kernels_of(mlp(), make_target(), "native")]
    assert names == ["gpu_contraction", "gpu_contraction", "rowwise"], "bias and gelu are fused"


@pytest.mark.slow
def test_every_sample_by_the_families(tmp_path: Path) -> None:
    validate(emit_by_families(make_target()).file, tmp_path)

"""Constants keep their bits from MLIR through LLVM 24's text to LLVM 22's parser."""

from __future__ import annotations

import ctypes
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx import _mlir
from rlx.errors import ToolchainError
from rlx.targets.llvm.bridge import to_llvm22

# MLIR's name, LLVM's name, bits.
FORMATS = [("f16", "half", 16), ("bf16", "bfloat", 16), ("f32", "float", 32), ("f64", "double", 64)]

# Signed zeros, subnormals, the largest numbers, infinities, quiet and signalling nans.
EDGES = {
    16: [0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFFFF,
         0x7F80, 0x7F81, 0x7FC1, 0xFF80, 0x007F, 0x0080],
    32: [0, 1 << 31, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001,
         0x7FC00000, 0xFFC12345, 0x3DCCCCCD, 0x2EDBE6FF],
    64: [0, 1 << 63, 1, (1 << 52) - 1, 1 << 52, (0x7FF << 52) - 1, 0x7FF << 52, 0xFFF << 52,
         (0x7FF << 52) | 1, (0x7FF8 << 48) | 0x123456789, 0x3FB999999999999A],
}  # fmt: skip


def through_mlir(kind: str, patterns: list[int], width: int) -> str:
    """LLVM 24 text of a table of constants, each also as a splat and beside an instruction."""
    digits = width // 4
    values = ", ".join(f"0x{p:0{digits}X}" for p in patterns)
    scalars = "\n".join(
        f"llvm.func @f{n}(%x: {kind}) -> {kind} {{"
        f" %c = llvm.mlir.constant(0x{p:0{digits}X} : {kind}) : {kind}"
        f" %y = llvm.fadd %x, %c : {kind} llvm.return %y : {kind} }}"
        for n, p in enumerate(patterns)
    )
    table = f"!llvm.array<{len(patterns)} x {kind}>"
    module = _mlir.parse_module(
        f"module {{ llvm.mlir.global constant @table(dense<[{values}]> : "
        f"tensor<{len(patterns)}x{kind}>) : {table}\n{scalars} }}",
        _mlir.context(),
    )
    return _mlir.translate_to_llvm_ir(module.operation)


def read_back(text: str, count: int, width: int) -> list[int]:
    """Compile the table by llvmlite and read its bits from memory."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine()
    with llvm.create_mcjit_compiler(module, machine) as engine:
        engine.finalize_object()
        raw = ctypes.string_at(engine.get_global_value_address("table"), count * width // 8)
    return list(struct.unpack(f"<{count}{ {16: 'H', 32: 'I', 64: 'Q'}[width] }", raw))


@pytest.mark.parametrize(("kind", "name", "width"), FORMATS)
@settings(max_examples=40)
@given(data=st.data())
def test_bits_survive(kind: str, name: str, width: int, data: st.DataObject) -> None:
    words = st.integers(0, (1 << width) - 1) | st.sampled_from(EDGES[width])
    patterns = data.draw(st.lists(words, min_size=1, max_size=12))
    text = to_llvm22(through_mlir(kind, patterns, width))
    assert read_back(text, len(patterns), width) == patterns


@pytest.mark.parametrize(("kind", "name", "width"), FORMATS)
def test_edges_survive(kind: str, name: str, width: int) -> None:
    text = to_llvm22(through_mlir(kind, EDGES[width], width))
    assert read_back(text, len(EDGES[width]), width) == EDGES[width]


def test_scalar_operand_takes_the_type_of_its_instruction() -> None:
    assert to_llvm22("  %2 = fmul float %1, 1.000000e-01") == (
        "  %2 = fmul float %1, 0x3FB99999A0000000"
    )


def test_each_constant_takes_the_nearest_type() -> None:
    line = "  %3 = call double @f(float 1.0, double 5.000000e-01, half +inf)"
    assert to_llvm22(line) == (
        "  %3 = call double @f(float 0x3FF0000000000000, double 0x3FE0000000000000, half 0xH7C00)"
    )


def test_an_intrinsic_has_the_name_of_its_version() -> None:
    kinds = "<vscale x 4 x float> {}(<vscale x 4 x float>, <vscale x 8 x bfloat>)"
    line = "declare " + kinds.format("@llvm.aarch64.sve.fmmla.nxv4f32.nxv8bf16")
    assert to_llvm22(line) == "declare " + kinds.format("@llvm.aarch64.sve.bfmmla")


@pytest.mark.parametrize(
    "line",
    [
        '@s = constant [9 x i8] c"float 1.5"',
        "; float 1.5e+00",
        'source_filename = "float 1.5"',
        "  %inf.5 = getelementptr float, ptr %nan, i64 1",
        "  %1 = call <8 x float> @llvm.fma.v8f32(<8 x float> %0, <8 x float> %0, <8 x float> %0)",
        "define float @f1.5(float %0) {",
        "define float @f(float nofpclass(nan inf) %0) {",
        "  %3 = fadd nnan ninf float %1, %2",
    ],
)
def test_what_is_no_constant_stays(line: str) -> None:
    assert to_llvm22(line) == line


def test_decimal_is_rounded_once() -> None:
    # 1 + 2^-24 + 2^-60 lies above the middle of two floats; as a double it is the middle.
    line = "  ret float 1.00000005960464477626"
    assert to_llvm22(line) == "  ret float 0x3FF0000020000000"


def test_constant_of_a_foreign_type_is_refused() -> None:
    with pytest.raises(ToolchainError, match=r"1\.5.*not half, bfloat, float or double"):
        to_llvm22("  ret fp128 1.5")

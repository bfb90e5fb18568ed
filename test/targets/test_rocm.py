"""Kernels as HSACO: structure, what LLVM's disassembler reads, and what is refused."""

from __future__ import annotations

import re
import struct
from functools import partial
from pathlib import Path

import pytest

from rlx.codegen.builder import Kernel, KernelText
from rlx.codegen.reg import Reg
from rlx.errors import DeviceError, ToolchainError, UnsupportedError
from rlx.ir.graph import Graph
from rlx.targets import find_target
from rlx.targets.base import Target
from rlx.targets.cpu import make_target as cpu_target
from rlx.targets.llvm import machine
from rlx.targets.llvm.elf import HEADER, Object
from rlx.targets.rocm import make_target
from rlx.targets.rocm.emit import to_llvm
from rlx.targets.rocm.features import DEFAULT, PRESETS, Features, best
from rlx.targets.rocm.link import link
from rlx.types import DTYPES, DType, bf16, bool_, f16, f32, f64, i8, i64
from support.gpu import disassemble, emit_samples, hello, kernel_of, kernels_of, mlp
from support.hsaco import Hsaco, check_hsaco, unpacked

# An array is data; kernels of graphs read it from memory.
REFUSED = {"mir.axis_index", "mir.constant"}


def checked(kernels: list[KernelText], target: Target) -> Hsaco:
    """The HSACO of kernels, read and found to have them."""
    file = target.emitter.emit(kernels, "hsaco")
    return check_hsaco(file, target.features.isa, target.features.wave, kernels)


def assembly(kernels: list[KernelText], isa: str = DEFAULT) -> str:
    return make_target(isa).emitter.emit(kernels, "asm").decode()


one = partial(kernel_of, make_target())
"""A kernel of one function, element by element."""


@pytest.mark.parametrize("isa", PRESETS)
@pytest.mark.parametrize("graph", [hello(), mlp()], ids=lambda g: g.name)
def test_graphs_become_hsaco(graph: Graph, isa: str, tmp_path: Path) -> None:
    target = find_target(f"rocm:{isa}")
    kernels = kernels_of(graph, target)
    checked(kernels, target)
    disassemble(target.emitter.emit(kernels, "hsaco"), tmp_path)


def test_parameters_are_buffers_then_one_of_numbers() -> None:
    kernel = kernels_of(hello(), make_target())[0]
    assert len(kernel.buffers) == 3 and kernel.sizes == ("range",)
    (said,) = checked([kernel], make_target()).metadata["amdhsa.kernels"]
    kinds = [(a[".value_kind"], a[".address_space"]) for a in said[".args"]]
    assert kinds == [("global_buffer", "global")] * 4
    assert said[".kernarg_segment_size"] == 32, "and no hidden argument"


def test_memory_is_known_to_be_global() -> None:
    text = assembly(kernels_of(mlp(), make_target()))
    assert "global_load" in text and not re.search(r"\bflat_(load|store)", text)


def test_products_and_sums_are_not_fused() -> None:
    # Sums of two exact terms, on which the polynomials stand, need every rounding.
    for isa in PRESETS:
        text = assembly([one(lambda k, a, b, c: a * b + c, f32, f32, f32)], isa)
        assert "v_mul_f32" in text and "v_add_f32" in text and "v_fma" not in text
        assert "v_mac" not in text and "v_mad_f32" not in text
        assert "v_fma" in assembly([one(lambda k, a, b, c: k.fma(a, b, c), f32, f32, f32)], isa)


def test_subnormal_numbers_are_kept() -> None:
    for isa in PRESETS:
        text = assembly([one(lambda k, x: x, f32)], isa)
        assert ".amdhsa_float_denorm_mode_32 3" in text
        assert ".amdhsa_float_denorm_mode_16_64 3" in text


def test_functions_of_the_hardware_need_no_library() -> None:
    def all_of(k: Kernel, x: Reg) -> Reg:
        return k.sqrt(k.abs(x)) + k.floor(x) + k.ceil(x) + k.round_even(x)

    for dt in (f32, f64):
        kernel = one(all_of, dt, out=dt)
        found = checked([kernel], make_target())
        assert set(found.symbols) == {"k", "k.kd"}
        assert "v_sqrt" in assembly([kernel]) or dt is f64


@pytest.mark.parametrize("name", ["tanh", "exp", "sin", "erf"])
def test_a_library_function_is_refused_and_does_not_end_the_process(name: str) -> None:
    kernel = one(lambda k, x: k.unary(f"math.{name}", x), f32)
    with pytest.raises(ToolchainError, match=rf"__ocml_{name}_f32|llvm\.{name}"):
        make_target().emitter.emit([kernel], "hsaco")


def test_a_kernel_for_a_cpu_is_refused() -> None:
    k = Kernel("k", cpu_target("x86-64-v3").kernels)
    k.parallel(lambda i: None)
    with pytest.raises(ToolchainError, match="kernel k was built for a CPU frame"):
        make_target().emitter.emit([k.text()], "hsaco")


def test_features_by_name() -> None:
    assert make_target().features.name == DEFAULT
    assert make_target("gfx1100").features.machine.attributes == "+wavefrontsize32"
    with pytest.raises(DeviceError, match=r"'gfx943'.*did you mean 'gfx942'"):
        make_target("gfx943")
    assert best(frozenset(["gfx90a"])).isa == "gfx90a"
    with pytest.raises(DeviceError, match="the GPU is gfx1030, and RLX emits code for gfx90a,"):
        best(frozenset(["gfx1030"]))
    with pytest.raises(UnsupportedError, match="no stage 'ptx'"):
        make_target().emitter.emit([], "ptx")


@pytest.mark.parametrize("dt", [f16, bf16, f64, i64, i8, bool_], ids=str)
def test_types_in_memory(dt: DType) -> None:
    kernel = one(lambda k, x: x, dt, out=dt)
    checked([kernel], make_target())
    words = {8: "byte", 16: "short", 64: "dwordx2"}
    assert f"global_store_{words[8 * dt.bytes]}" in assembly([kernel])


# -- the linker ----------------------------------------------------------------------------


def object_of(kernels: list[KernelText], features: Features) -> bytes:
    return machine.emit_object(to_llvm(kernels, features), features.machine)


def test_the_linked_code_is_that_of_the_object() -> None:
    features = make_target().features
    kernels = kernels_of(mlp(), make_target())
    obj = object_of(kernels, features)
    source, found = Object.read(obj), Hsaco.read(link(obj))
    (code,) = (s.data for s in source.sections if s.name == ".text")
    for symbol in source.symbols:
        if symbol.name in {k.name for k in kernels}:
            assert found.code(symbol.name) == code[symbol.value : symbol.value + symbol.size]


def test_one_bit_of_a_descriptor_makes_it_another() -> None:
    # That the reader of these tests sees what it says it sees.
    file = make_target().emitter.emit([one(lambda k, x: x, f32)], "hsaco")
    at = Hsaco.read(file).symbols["k.kd"][0]  # read-only data lies where it does in the file
    kernel = one(lambda k, x: x, f32)
    check_hsaco(file, DEFAULT, 64, [kernel])
    for offset in (0, 8, 16, 57):
        changed = bytearray(file)
        changed[at + offset] ^= 4
        with pytest.raises(AssertionError):
            check_hsaco(bytes(changed), DEFAULT, 64, [kernel])


def test_what_the_linker_refuses() -> None:
    obj = bytearray(object_of([one(lambda k, x: x, f32)], make_target().features))
    other = bytearray(obj)
    struct.pack_into("<H", other, 18, 62)
    with pytest.raises(ToolchainError, match="machine 62 is not one of an AMD GPU"):
        link(bytes(other))

    source = Object.read(bytes(obj))
    headers, names = HEADER.unpack_from(obj)[6], {s.name: n for n, s in enumerate(source.sections)}

    def with_flags(name: str, flags: int) -> bytes:
        changed = bytearray(obj)
        struct.pack_into("<Q", changed, headers + 64 * names[name] + 8, flags)
        return bytes(changed)

    with pytest.raises(ToolchainError, match=r"writable data in \.rodata"):
        link(with_flags(".rodata", 3))
    with pytest.raises(ToolchainError, match="has no kernel"):
        link(with_flags(".text", 0))
    at = struct.unpack_from("<Q", obj, headers + 64 * names[".rela.rodata"] + 24)[0]
    obj[at + 8] = 3  # R_AMDGPU_ABS64
    with pytest.raises(ToolchainError, match="needs k by a relocation of type 3"):
        link(bytes(obj))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x07", 7), (b"\xff", -1), (b"\xcd\x01\x00", 256), (b"\xd9\x02ab", "ab"),
        (b"\x82\xa1a\xc3\xa1b\x92\xc0\xc2", {"a": True, "b": [None, False]}),
    ],
)  # fmt: skip
def test_message_pack(data: bytes, value: object) -> None:
    assert unpacked(data) == (value, len(data))


# -- samples -------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", PRESETS)
def test_samples_of_every_architecture(isa: str, tmp_path: Path) -> None:
    target = make_target(isa)
    emitted = emit_samples(target, [f32, f16, i64], every=60)
    assert len(emitted.kernels) > 40
    check_hsaco(emitted.file, isa, target.features.wave, emitted.kernels)
    disassemble(emitted.file, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("isa", PRESETS)
@pytest.mark.parametrize("dt", DTYPES.values(), ids=str)
def test_every_sample_of_every_type(dt: DType, isa: str, tmp_path: Path) -> None:
    target = make_target(isa)
    emitted = emit_samples(target, [dt])
    assert set(emitted.refused) == REFUSED, emitted.refused
    check_hsaco(emitted.file, isa, target.features.wave, emitted.kernels)
    disassemble(emitted.file, tmp_path)


@pytest.mark.parametrize("isa", PRESETS)
def test_samples_by_the_families(isa: str, tmp_path: Path) -> None:
    target = make_target(isa)
    emitted = emit_samples(target, [f32, f16], "native", every=80)
    found = check_hsaco(emitted.file, isa, target.features.wave, emitted.kernels)
    assert any(found.descriptor(k.name).group_segment for k in emitted.kernels), "LDS"
    disassemble(emitted.file, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("isa", PRESETS)
def test_every_sample_by_the_families(isa: str, tmp_path: Path) -> None:
    target = make_target(isa)
    emitted = emit_samples(target, [f32, f16, i64], "native")
    assert not emitted.refused
    check_hsaco(emitted.file, isa, target.features.wave, emitted.kernels)
    disassemble(emitted.file, tmp_path)

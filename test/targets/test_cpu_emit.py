"""Kernels become stand-alone objects for each CPU, and do what they say on this one."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from llvmlite import binding

from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.reg import Reg
from rlx.errors import IRError, ToolchainError
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import PRESETS, Features
from rlx.targets.cpu.target import kernel_target
from rlx.targets.llvm.elf import Object
from rlx.targets.llvm.join import joined
from rlx.targets.llvm.machine import undefined_symbols
from rlx.types import bf16, bool_, f16, f32, f64, i32, i64
from support.jit import host, jit, load

EM_X86_64, EM_AARCH64, EM_RISCV = 62, 183, 243


def scaled_sum(features: Features, name: str = "scaled_sum") -> KernelText:
    """y[i] = sum of row i, through scratch, in every memory format."""
    k = Kernel(name, kernel_target(features))
    x, y, flags = k.buffer("x", bf16), k.buffer("y", f16), k.buffer("flags", bool_)
    width = k.size("width")
    part = k.scratch(f32, 64)
    lanes = k.target.lanes(f32)

    def row(i: Reg) -> None:
        k.store(0.0, part, 0, lanes)

        def add(j: Reg, n: int) -> None:
            k.store(k.load(part, 0, n) + k.load(x, i * width + j, n), part, 0)

        k.prefetch(x, i * width)
        k.vector_loop(width, lanes, add)
        total = k.reduce("add", k.load(part, 0, lanes))
        k.store(total, y, i)
        k.store(total > 0.0, flags, i)

    k.parallel(row)
    return k.text()


def expected(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64).sum(1)


def test_runs_over_a_part_of_the_range() -> None:
    x = np.arange(5 * 37).reshape(5, 37) % 7 - 3.0
    bits = (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    y, flags = np.full(5, 99, np.float16), np.full(5, 7, np.uint8)
    jit(scaled_sum(host()))(1, 4, [bits, y, flags], [37], scratch_bytes=256)
    want = expected(x)
    np.testing.assert_array_equal(y, [99, *want[1:4], 99])
    np.testing.assert_array_equal(flags, [7, *(want[1:4] > 0), 7])


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("opt", [0, 2])
def test_objects_stand_alone(name: str, opt: int) -> None:
    features = PRESETS[name]
    obj = emit.compile_kernels([scaled_sum(features)], features, opt=opt)
    assert obj.startswith(b"\x7fELF\x02\x01")
    machine = struct.unpack_from("<H", obj, 18)[0]
    assert machine == {"aarch64": EM_AARCH64, "riscv64": EM_RISCV}.get(features.arch, EM_X86_64)
    assert undefined_symbols(obj) == []


@pytest.mark.parametrize("name", PRESETS)
def test_every_function_compiles_for_every_cpu(name: str) -> None:
    """No elementary function may need a library, or an instruction that LLVM cannot select."""
    target = kernel_target(PRESETS[name])
    kernels = []
    for dt in (f32, f64):
        k = Kernel(f"all_{dt}", target)
        x, y = k.buffer("x", dt), k.buffer("y", dt)

        def body(i: Reg, k: Kernel = k, x=x, y=y, dt=dt) -> None:
            for lanes in (0, target.lanes(dt)):
                v = k.load(x, i, lanes)
                for n in target.math:
                    two = n in ("atan2", "rem")
                    v = k.pow(v, v) if n == "pow" else k.call(n, *[v] * (1 + two))
                k.store(v, y, i)

        k.parallel(body)
        kernels.append(k.text())
    emit.compile_kernels(kernels, PRESETS[name], opt=1)


def test_wide_vectors_stay_whole() -> None:
    """LLVM's tuning of AVX-512 machines prefers 256 bits, which must not touch our vectors."""
    features = PRESETS["x86-64-v4"]
    k = Kernel("k", kernel_target(features))
    x = k.buffer("x", f32)
    k.parallel(lambda i: k.store(k.exp(k.load(x, i, 16)), x, i))
    text = emit.to_assembly([k.text()], features)
    assert "-prefer-256-bit" in features.machine.attributes
    assert "zmm" in text
    assert "ymm" not in text


def test_several_kernels_share_an_object() -> None:
    features = host()
    pair = [scaled_sum(features, "first"), scaled_sum(features, "second")]
    obj = emit.compile_kernels(pair, features)
    for name in ("first", "second"):
        bits, y, flags = (
            np.full((1, 3), 0x3F80, np.uint16),
            np.zeros(1, np.float16),
            np.zeros(1, "?"),
        )
        load(obj, name)(0, 1, [bits, y, flags], [3], scratch_bytes=256)
        assert y[0] == 3
        assert flags[0]


def doubled_or_more(name: str, factor: float) -> KernelText:
    """x times a factor, and then twice that, by a function that all of these share."""
    k = Kernel(name, kernel_target(host()))
    x = k.buffer("x", f32)

    def double(i: Reg) -> None:
        # A table, which lies beside the code.
        k.store(k.load(x, i) * k.cast(k.reduce("add", k.constants([7, 5, -3, -7], i32)), f32), x, i)

    def body(i: Reg) -> None:
        k.store(k.load(x, i) * factor, x, i)
        k.outline("double", [x], [i], double, shared=True)

    k.parallel(body)
    return k.text()


def test_kernels_share_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compiled once, is local to each object, and once in an object of both."""
    monkeypatch.setattr(emit, "_parts", {})
    pair = [doubled_or_more("once", 1.0), doubled_or_more("thrice", 3.0)]
    (function,) = {f.name: f for k in pair for f in k.shared}.values()
    made = [emit.compile_kernels([k], host()) for k in pair]
    assert [name for name, *_ in emit._parts] == [function.name]
    both = emit.compile_kernels(pair, host())
    for obj, names in ((made[0], ["once"]), (made[1], ["thrice"]), (both, ["once", "thrice"])):
        parsed = binding.ObjectFileRef.from_data(obj)  # LLVM reads it as we write it
        assert sum(s.is_text() for s in parsed.sections()) == 2
        found = Object.read(obj).symbols
        assert [s.name for s in found if not s.local] == names
        assert [s.name for s in found].count(function.name) == 1
        for name in names:
            x = np.full(4, 1.5, np.float32)
            load(obj, name)(1, 3, [x], [])
            wanted = 2 * 1.5 * {"once": 1.0, "thrice": 3.0}[name]
            np.testing.assert_array_equal(x, [1.5, wanted, wanted, 1.5])
    # In text there is no other object: a definition and two calls.
    assert emit.to_llvm(pair, host()).count(f"@{function.name}(") == 3


def test_a_shared_function_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "_parts", {})
    kernel = doubled_or_more("twice", 1.0)
    with monkeypatch.context() as broken, pytest.raises(ToolchainError, match="no memory"):
        broken.setattr(emit.machine, "emit_object", refuse)
        emit.compile_kernels([kernel], host())
    assert not emit._parts
    assert emit.compile_kernels([kernel], host())


def refuse(*_: object, **__: object) -> bytes:
    raise ToolchainError("no memory")


def test_parts_that_need_another_one() -> None:
    kernel = doubled_or_more("alone", 1.0)
    text = emit.framed([kernel], 64, apart=True)
    obj = emit.machine.emit_object(text, host().machine, linked=lambda name: True)
    with pytest.raises(ToolchainError, match=kernel.shared[0].name):
        joined(obj, [])
    with pytest.raises(ToolchainError, match=f"the function {kernel.shared[0].name}"):
        emit.machine.emit_object(text, host().machine)


def test_equal_kernels_give_equal_bytes() -> None:
    a, b = (emit.compile_kernels([scaled_sum(host())], host()) for _ in range(2))
    assert a == b


def test_more_arguments_than_registers() -> None:
    k = Kernel("many", kernel_target(host()))
    buffers = [k.buffer(f"b{n}", i64) for n in range(9)]
    sizes = [k.size(f"n{n}") for n in range(9)]
    k.parallel(
        lambda i: [k.store(k.cast(n, i64), b, i) for b, n in zip(buffers, sizes, strict=True)]
    )
    arrays = [np.zeros(2, np.int64) for _ in buffers]
    jit(k.text())(0, 2, arrays, range(10, 19))
    np.testing.assert_array_equal(np.array(arrays)[:, 1], range(10, 19))


def test_two_kernels_of_one_name() -> None:
    with pytest.raises(ToolchainError, match="both called scaled_sum"):
        emit.to_llvm([scaled_sum(host())] * 2, host())


def test_a_gpu_kernel_is_refused() -> None:
    k = Kernel("k", KernelTarget("gpu", 0, 0, {}, frame="gpu"))
    k.parallel(lambda i: None)
    with pytest.raises(ToolchainError, match="kernel k was built for a GPU"):
        emit.to_llvm([k.text()], host())


def test_malformed_text_names_the_place() -> None:
    k = Kernel("k", kernel_target(host()))
    k.line("%x = arith.nonsense")
    with pytest.raises(IRError, match=r"cannot parse the MLIR text.*nonsense"):
        emit.to_llvm([k.text()], host())


def test_a_library_call_is_refused() -> None:
    k = Kernel("k", KernelTarget("bare", 32, 16, {}))
    x = k.buffer("x", f32)
    k.parallel(lambda i: k.store(k.unary("math.tanh", k.load(x, i)), x, i))
    with pytest.raises(ToolchainError, match=r"llvm\.tanh\.f32"):
        emit.compile_kernels([k.text()], host())

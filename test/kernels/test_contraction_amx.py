"""Products by AMX: the code for CPUs that have it, and what it computes.

This machine may have no AMX. Then each tile instruction is replaced by loops over memory, so that
all around it, addresses, strips and tails, is run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from rlx.kernels import amx, contraction, pack
from rlx.kernels.builder import Kernel
from rlx.kernels.contraction import ContractionConfig
from rlx.kernels.contraction_tile import accumulate_type
from rlx.kernels.pack import PackConfig
from rlx.kernels.program import Program, Step
from rlx.kernels.reg import Buffer, Reg
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DType, bf16, f16, f32, i8, i32, u8
from support.jit import host, jit
from support.runkernel import guarded

Array = np.ndarray[Any, Any]

AMX = preset("x86-64-v4+amx-tile+amx-bf16+amx-int8")
TARGET = kernel_target(AMX)
TYPES = [(bf16, bf16), *((a, b) for a in (i8, u8) for b in (i8, u8))]
HAS_AMX = AMX.has <= host().has

INSTRUCTIONS = {
    (bf16, bf16): "tdpbf16ps",
    (i8, i8): "tdpbssd",
    (i8, u8): "tdpbsud",
    (u8, i8): "tdpbusd",
    (u8, u8): "tdpbuud",
}


def config_of(a: DType, b: DType) -> ContractionConfig:
    """The product plus a row."""
    sums = accumulate_type(a, b)
    add = Step("mir.add", (0, 1), (sums, sums), sums)
    return ContractionConfig(
        a, b, Program((sums, sums), (add,), (2,)), ("row",), 4 // b.bytes, True
    )


# -- code --------------------------------------------------------------------------------------


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_code(types: tuple[DType, DType]) -> None:
    """The object is emitted; the loop over K has six products and seven loads, and spills none."""
    kernel = contraction.emit("product", config_of(*types), TARGET)
    assert emit.compile_kernels([kernel], AMX).startswith(b"\x7fELF")
    asm = emit.to_assembly([kernel], AMX)
    assert asm.count("ldtilecfg") == 1 and asm.count("tilerelease") == 1
    loops = [b.count(INSTRUCTIONS[types]) for b in re.split(r"^\.L\w+:", asm, flags=re.M)]
    assert sorted(n for n in loops if n) == [3, 6]
    assert asm.count("tileloadd") == (3 + 4) + (3 + 1) and asm.count("tilestored") == 6 + 3


def test_what_it_serves() -> None:
    for name, a, b, k, served in (
        ("x86-64-v4+amx-tile+amx-bf16", bf16, bf16, 64, True),
        ("x86-64-v4+amx-tile+amx-bf16", bf16, bf16, 48, False),
        ("x86-64-v4+amx-tile+amx-bf16", i8, i8, 64, False),
        ("x86-64-v4+amx-tile+amx-int8", u8, i8, 64, True),
        ("x86-64-v4+amx-tile+amx-int8", i8, i8, 32, False),
        ("x86-64-v4+amx-tile+amx-bf16", f16, f16, 64, False),
        ("x86-64-v4+amx-bf16", bf16, bf16, 64, False),
    ):
        assert amx.serves(kernel_target(preset(name)), a, b, k) is served, name


# -- tiles in memory ---------------------------------------------------------------------------


@dataclass
class View:
    """A tile that is read from memory."""

    buffer: Buffer
    at: Reg
    row: Reg

    def get(self, k: Kernel, i: Reg, j: Reg, dt: DType) -> Reg:
        return k.cast(k.load(self.buffer, self.at + i * self.row + j), dt)


def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile of sums becomes a part of an array on the stack, by its offset, that is changed in
    place; one of an operand the place that it is read from."""
    arrays: dict[Kernel, Buffer] = {}

    def grid(k: Kernel, body: Any) -> None:
        k.loop(0, 16, 1, lambda i: k.loop(0, 16, 1, lambda j: body(i, j)))

    def zero(k: Kernel, tile: DType, n: int) -> Reg:
        sums = f32 if tile.name.endswith("f32>") else i32
        array = arrays.setdefault(k, k.stack(sums, 6 * 256))
        grid(k, lambda i, j: k.store(0, array, i * 16 + j + n * 256))
        return k.index(n * 256)

    def multiply(k: Kernel, x: View, y: View, total: Reg, o: amx.Block) -> Reg:
        array, group = arrays[k], 4 // o.b.dtype.bytes

        def element(i: Reg, j: Reg) -> None:
            def step(p: Reg, value: Reg) -> Reg:
                for q in range(group):
                    left = x.get(k, i, p * group + q, array.dtype)
                    value = value + left * y.get(k, p, j * group + q, array.dtype)
                return value

            at = total + i * 16 + j
            k.store(k.loop(0, 16, 1, step, [k.load(array, at)])[0], array, at)

        grid(k, element)
        return total

    def store(k: Kernel, x: Reg, b: Buffer, at: Reg, row: Reg) -> None:
        grid(k, lambda i, j: k.store(k.load(arrays[k], x + i * 16 + j), b, at + i * row + j))

    monkeypatch.setattr(amx, "_zero", zero)
    monkeypatch.setattr(amx, "_load", lambda k, b, at, row, tile, columns: View(b, at, row))
    monkeypatch.setattr(amx, "_multiply", multiply)
    monkeypatch.setattr(amx, "_store", store)


def values(rng: np.random.Generator, shape: tuple[int, ...], dt: DType) -> Array:
    if dt.is_int:
        info = np.iinfo(dt.numpy)
        return rng.integers(info.min, info.max + 1, shape).astype(dt.numpy)
    return rng.uniform(-1, 1, shape).astype(dt.numpy)


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_products(types: tuple[DType, DType], monkeypatch: pytest.MonkeyPatch) -> None:
    if not HAS_AMX:
        in_memory(monkeypatch)
    config = config_of(*types)
    sums = config.accumulate
    product = jit(contraction.emit("product", config, TARGET), AMX if HAS_AMX else None)
    packing = PackConfig(types[1], True, config.group)
    pack_kernel = jit(pack.emit("pack", packing, TARGET), AMX if HAS_AMX else None)
    rng = np.random.default_rng(0)
    k = 3 * amx.ROW_BYTES // types[0].bytes
    for m, n in (
        (1, 5),
        (1, 200),
        (16, 48),
        (17, 50),
        (31, 200),
        (32, 96),
        (33, 49),
        (70, 250),
        (150, 48),
    ):
        a, b = guarded(values(rng, (m, k), types[0])), guarded(values(rng, (k, n), types[1]))
        row = guarded(values(rng, (n,), sums if sums is f32 else i8).astype(sums.numpy))
        panels = guarded(np.zeros(pack.packed_bytes(TARGET, types[1], k, n), np.uint8))
        launch = pack.launch(packing, TARGET, k=k, n=n, row_stride=n)
        pack_kernel(0, launch.range, [b, panels], launch.sizes)
        c = guarded(np.zeros((m, n), sums.numpy))
        launch = contraction.launch(config, TARGET, m=m, n=n, k=k, operands=[(0, 0)])
        product(0, launch.range, [a, panels, row, c], launch.sizes, launch.scratch)
        if sums is f32:
            x, y = a.astype(np.float64), b.astype(np.float64)
            bound = 2.0**-24 * ((k + 1) * (np.abs(x) @ np.abs(y)) + 2)
            assert (np.abs(c - (x @ y + row)) <= bound).all(), (m, n)
        else:
            assert (c == a.astype(np.int32) @ b.astype(np.int32) + row).all(), (m, n)

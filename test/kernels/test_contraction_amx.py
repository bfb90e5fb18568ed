"""Products by AMX: the code for CPUs that have it, and what it computes.

This machine may have no AMX. Then the tile instructions of the emitted text are calls of what they
compute (``support.amx``), and all around them is run as it is.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from rlx.codegen.program import Program, Step
from rlx.kernels.matmul import amx, pack
from rlx.kernels.matmul import emit as contraction
from rlx.kernels.matmul.emit import ContractionConfig
from rlx.kernels.matmul.pack import PackConfig
from rlx.kernels.matmul.tile import accumulate_type
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DType, bf16, f16, f32, i8, u8
from support.amx import Tiles, jit_with_tiles
from support.jit import host, jit
from support.products import values
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


# -- arithmetic -----------------------------------------------------------------------------------


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_products(types: tuple[DType, DType]) -> None:
    config = config_of(*types)
    sums = config.accumulate
    kernel, tiles = contraction.emit("product", config, TARGET), Tiles()
    product = jit(kernel, AMX) if HAS_AMX else jit_with_tiles(kernel, AMX, tiles)
    assert HAS_AMX or tiles.counts[INSTRUCTIONS[types]] == 6 + 3
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

"""Products by matrix units: how the makers' fragments lie, what the kernels compute, what they are
compiled to."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx.codegen.program import Program, Step
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul import gpu as contraction
from rlx.kernels.matmul.gpu_matrix_tile import Fragments
from rlx.kernels.matmul.gpu_matrix_units import UNITS, unit_for
from rlx.kernels.matmul.gpu_tile import Tile
from rlx.targets import find_target
from rlx.types import DType, bf16, f16, f32
from support.gpu import assemble, disassemble
from support.hsaco import check_hsaco
from support.simt import MAPS, run_blocks

NUMPY = {f16: np.float16, bf16: ml_dtypes.bfloat16}

TARGETS = [
    ("cuda:sm_75", "mma.m16n8k8", (f16,)),
    ("cuda:sm_80", "mma.m16n8k16", (f16, bf16)),
    ("cuda:sm_120", "mma.m16n8k16", (f16, bf16)),
    ("rocm:gfx90a", "mfma.16x16x16.bf16", (bf16,)),
    ("rocm:gfx942", "mfma.16x16x16", (f16, bf16)),
    ("rocm:gfx950", "mfma.16x16x32", (f16, bf16)),
    ("rocm:gfx1100", "wmma.rdna3", (f16, bf16)),
    ("rocm:gfx1201", "wmma.rdna4", (f16, bf16)),
]
CASES = [(target, unit, dt) for target, unit, dtypes in TARGETS for dt in dtypes]


def map_of(unit: str) -> Any:
    return MAPS[unit.removesuffix(".bf16")]


@pytest.mark.parametrize("name", UNITS)
def test_fragments_lie_as_the_documents_say(name: str) -> None:
    unit, document = UNITS[name], map_of(name)
    assert (unit.wave, unit.m, unit.n, unit.k) == (
        document.wave, document.m, document.n, document.k,
    )  # fmt: skip
    for lane in range(unit.wave):
        row, column, depth = (s.of(lane) for s in (unit.row, unit.column, unit.depth))
        a = [(row + p, depth + s + e) for p, s in unit.a_pieces for e in range(unit.run)]
        b = [(depth + s + e, column + p) for p, s in unit.b_pieces for e in range(unit.run)]
        sums = [(unit.sum_row.of(lane) + r, unit.sum_column.of(lane) + c) for r, c in unit.sums]
        assert a == [document.a(lane, i) for i in range(len(a))]
        assert b == [document.b(lane, i) for i in range(len(b))]
        assert sums == [document.d(lane, i) for i in range(len(sums))]


@pytest.mark.parametrize("name", MAPS)
def test_the_documents_have_every_element(name: str) -> None:
    m = MAPS[name]
    for place, rows, columns, once in (
        (m.a, m.m, m.k, False), (m.b, m.k, m.n, False), (m.d, m.m, m.n, True),
    ):  # fmt: skip
        count = -(-rows * columns // m.wave) * (1 if once or name != "wmma.rdna3" else 2)
        found = [place(lane, i) for lane in range(m.wave) for i in range(count)]
        assert set(found) == {(r, c) for r in range(rows) for c in range(columns)}
        assert not once or len(found) == rows * columns


def program(dt: DType, operand: bool) -> Program:
    """relu(product + operand), or the product."""
    if not operand:
        return Program((dt,), (), (0,))
    steps = (Step("mir.add", (0, 1), (dt, dt), dt), Step("mir.relu", (2,), (dt,), dt))
    return Program((dt, dt), steps, (3,))


def product(
    target: str,
    dt: DType,
    shape: tuple[int, ...],
    turned: tuple[bool, bool] = (False, False),
    operand: bool = False,
    tile: Fragments | None = None,
) -> None:
    """Run a product in the simulator, of [batch,] m, n, k, and compare it with NumPy's."""
    *batch, m, n, k = shape
    rng = np.random.default_rng([m, n, k])
    kind = NUMPY[dt]
    lead = tuple(batch)

    def matrix(rows: int, columns: int, turn: bool) -> tuple[Any, tuple[int, ...]]:
        size = (*lead, columns, rows) if turn else (*lead, rows, columns)
        x = rng.integers(-8, 9, size).astype(np.float32) / 4
        inner = (1, rows) if turn else (columns, 1)
        return x.astype(kind), (*([rows * columns] if batch else []), *inner)

    (a, a_strides), (b, b_strides) = matrix(m, k, turned[0]), matrix(k, n, turned[1])
    extra, _ = matrix(1, n, False)
    out = np.full((*lead, m, n), np.nan, kind)
    strides = [a_strides, b_strides]
    if operand:  # a row for all
        strides.append((*([n] if batch else []), 0, 1))
    strides.append((*([m * n] if batch else []), n, 1))
    kernels = find_target(target).kernels
    config, launch = contraction.launch(
        program(dt, operand), kernels, (dt, dt), shape, [tuple(s) for s in strides]
    )
    assert isinstance(config.shape, Fragments)
    tile = tile or config.shape
    text = contraction.emit("k", replace(config, shape=tile), kernels)
    blocks = math.prod(batch) * ceil_div(m, tile.height) * ceil_div(n, tile.width)
    assert blocks == launch.range or tile != config.shape
    given = iter(launch.sizes)
    numbers = [blocks if s == "range" else next(given) for s in text.sizes]
    words = [x.reshape(-1) for x in (a, b, *([extra] if operand else []), out)]
    # In the memory of a GPU a bf16 is an integer.
    buffers = [w.view(np.uint16) if dt is bf16 else w for w in words]
    run_blocks(text, blocks, buffers, numbers)
    left, right = (x.swapaxes(-1, -2) if t else x for x, t in zip((a, b), turned, strict=True))
    expected = (left.astype(np.float64) @ right.astype(np.float64)).astype(kind)
    if operand:
        expected = np.maximum((expected.astype(np.float32) + extra).astype(kind), kind(0))
    np.testing.assert_array_equal(out.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize(("target", "unit", "dt"), CASES)
def test_products(target: str, unit: str, dt: DType) -> None:
    kernels = find_target(target).kernels
    found = unit_for(kernels, dt, dt)
    assert found is not None and found.name == unit
    product(target, dt, (37, 45, 50))


def test_b_lies_in_columns() -> None:
    product("cuda:sm_80", f16, (20, 33, 36), (False, True))
    product("rocm:gfx942", bf16, (20, 33, 36), (False, True))


def test_a_lies_in_columns() -> None:
    product("rocm:gfx1100", f16, (33, 20, 36), (True, False))


def test_batches() -> None:
    product("rocm:gfx1201", f16, (3, 12, 17, 20))


@pytest.mark.parametrize("target", ["cuda:sm_80", "rocm:gfx950", "rocm:gfx1100"])
def test_an_epilogue(target: str) -> None:
    product(target, bf16, (33, 40, 24), operand=True)


@pytest.mark.parametrize("target", ["cuda:sm_80", "rocm:gfx942", "rocm:gfx1100"])
@pytest.mark.parametrize("number", [0, 1])
def test_larger_tiles(target: str, number: int) -> None:
    unit = unit_for(find_target(target).kernels, f16, f16)
    assert unit is not None
    tile = Fragments.tiles(unit)[number]
    product(target, f16, (tile.height + 3, tile.width + 5, 40), tile=tile)


def test_large_products_have_large_tiles() -> None:
    for target, _, dt in CASES:
        kernels = find_target(target).kernels
        sizes = [contraction.choose(kernels, (dt, dt), 1, n, n) for n in (4096, 1024, 64, 4)]
        assert [getattr(s, "height", None) for s in sizes] == [128, 64, 32, None]
        assert all(s.fits(kernels) for s in sizes if isinstance(s, Fragments))
        assert isinstance(contraction.choose(kernels, (f32, f32), 1, 64, 64), Tile)


def test_subnormal_numbers_are_not_lost() -> None:
    # Where a unit takes those of f16 for 0, it is not used for them.
    assert unit_for(find_target("rocm:gfx90a").kernels, f16, f16) is None
    assert unit_for(find_target("rocm:gfx942").kernels, f16, bf16) is None


INSTRUCTIONS = {
    "mma.m16n8k8": "mma.sync.aligned.m16n8k8.row.col.f32.{f16}.{f16}.f32",
    "mma.m16n8k16": "mma.sync.aligned.m16n8k16.row.col.f32.{dt}.{dt}.f32",
    "mfma.16x16x16.bf16": "v_mfma_f32_16x16x16bf16_1k",
    "mfma.16x16x16": "v_mfma_f32_16x16x16_{dt}",
    "mfma.16x16x32": "v_mfma_f32_16x16x32_{dt}",
    "wmma.rdna3": "v_wmma_f32_16x16x16_{dt}",
    "wmma.rdna4": "v_wmma_f32_16x16x16_{dt}",
}


@pytest.mark.parametrize(("name", "unit", "dt"), CASES)
def test_every_tile_is_compiled(name: str, unit: str, dt: DType, tmp_path: Path) -> None:
    target = find_target(name)
    config, _ = contraction.launch(
        program(dt, True), target.kernels, (dt, dt), (64, 64, 64), [(64, 1)] * 4
    )
    kernels = [
        contraction.emit(f"k{n}", replace(config, shape=tile), target.kernels)
        for n, tile in enumerate(Fragments.tiles(UNITS[unit]))
    ]
    file = target.emitter.emit(kernels, target.stages[-1])
    text = target.emitter.emit(kernels[:1], "ptx" if target.name == "cuda" else "asm").decode()
    assert INSTRUCTIONS[unit].format(dt=dt, f16="f16") in text
    if target.name == "cuda":
        assemble(file, target.features.isa, tmp_path)
    else:
        check_hsaco(file, target.features.isa, target.features.wave, kernels)
        disassemble(file, tmp_path)

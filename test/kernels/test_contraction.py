"""Packed products against numpy in double precision, and the promises that they make."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlx.codegen.builder import Kernel
from rlx.codegen.program import Program, Step
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.matmul import (
    emit as contraction,
)
from rlx.kernels.matmul import (
    pack,
    pack_strided,
)
from rlx.kernels.matmul import (
    plan as contraction_plan,
)
from rlx.kernels.matmul import (
    products as contraction_products,
)
from rlx.kernels.matmul import (
    tile as contraction_tile,
)
from rlx.kernels.matmul.emit import ContractionConfig
from rlx.kernels.matmul.pack import PackConfig
from rlx.kernels.matmul.pack_strided import PackAcrossConfig
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DType, bf16, f16, f32, f64, i8, u8
from support.jit import host, jit
from support.runkernel import guarded, run_launch

Array = np.ndarray[Any, Any]

TARGET = kernel_target(host())
KINDS = ("row", "full", "column", "scalar")
EPSILON = {f16: 2.0**-11, bf16: 2.0**-8, f32: 2.0**-24, f64: 2.0**-53}


def plain(dt: DType) -> Program:
    return Program((dt,), (), (0,))


def adds(dt: DType, count: int) -> Program:
    """The product plus ``count`` operands, one after the other."""
    steps = [Step("mir.add", (i + count if i else 0, i + 1), (dt, dt), dt) for i in range(count)]
    return Program((dt,) * (count + 1), tuple(steps), (2 * count,))


def values(rng: np.random.Generator, shape: tuple[int, ...], dt: DType) -> Array:
    return rng.uniform(-1, 1, shape).astype(dt.numpy)


def packed(b: Array, dt: DType, pieces: int = 1) -> Array:
    """B of shape [batch, K, N], any strides, as panels."""
    batch, k, n = b.shape
    at, row, column = (s // b.itemsize for s in b.strides)
    config = PackConfig(dt, adjacent_columns=column == 1)
    size = pack.packed_bytes(TARGET, dt, k, n, batch) // dt.bytes
    out = np.full(size, np.nan, dt.numpy)
    launch = pack.launch(
        config,
        TARGET,
        k=k,
        n=n,
        row_stride=row,
        column_stride=column,
        batch=batch,
        source_batch=at,
    )
    run_launch(pack, config, launch, [b, out], pieces)
    return out


def product(
    a: Array,
    panels: Array,
    n: int,
    config: ContractionConfig,
    operands: tuple[Array, ...] = (),
    *,
    pieces: int = 1,
    **strides: Any,
) -> Array:
    """C of shape [batch, M, N] for A of shape [batch, M, K]; operands are dense per batch."""
    batch, m, k = a.shape
    c = np.full((batch, m, n), np.nan, config.c.numpy)
    rows = {"row": (0, n), "full": (n, m * n), "column": (1, m), "scalar": (0, 1)}
    launch = contraction.launch(
        config,
        TARGET,
        m=m,
        n=n,
        k=k,
        batch=batch,
        operands=[rows[kind] for kind in config.operands],
        **strides,
    )
    run_launch(contraction, config, launch, [a, panels, *operands, c], pieces)
    return c


def check(found: Array, a: Array, b: Array, dt: DType, extra: Array | float = 0.0) -> None:
    """Within the bound of a sum of K rounded products, then rounded to the result's type."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    want = a @ b + extra
    sums = EPSILON[f64 if dt is f64 else f32] * (a.shape[-1] + 1) * (np.abs(a) @ np.abs(b) + 1)
    error = np.abs(found.astype(np.float64) - want)
    assert (error <= sums + 4 * EPSILON[dt] * (np.abs(want) + np.abs(extra) + 1)).all(), error.max()


@pytest.mark.parametrize("dt", [f32, f64, f16, bf16], ids=str)
@pytest.mark.parametrize("n", [1, 16, 50])
@pytest.mark.parametrize("m", [*range(1, 14), 20, 131])
def test_shapes(m: int, n: int, dt: DType) -> None:
    rng = np.random.default_rng(m * 100 + n)
    a, b = values(rng, (1, m, 19), dt), values(rng, (1, 19, n), dt)
    c = product(a, packed(b, dt), n, ContractionConfig(dt, dt, plain(dt)))
    check(c, a, b, dt)


@pytest.mark.parametrize("seed", range(40))
def test_random_shapes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = (int(rng.integers(0, high)) for high in (300, 200, 300))
    a, b = values(rng, (1, m, k), f32), values(rng, (1, k, n), f32)
    c = product(a, packed(b, f32), n, ContractionConfig(f32, f32, plain(f32)))
    check(c, a, b, f32)


@pytest.mark.parametrize("dt", [f32, f64, f16, bf16], ids=str)
@pytest.mark.parametrize("m", [3, 40])
def test_every_kind_of_operand(dt: DType, m: int) -> None:
    rng = np.random.default_rng(m)
    n, k = 37, 24
    a, b = values(rng, (2, m, k), dt), values(rng, (2, k, n), dt)
    shapes = {"row": (2, 1, n), "full": (2, m, n), "column": (2, m, 1), "scalar": (2, 1, 1)}
    operands = tuple(values(rng, shapes[kind], dt) for kind in KINDS)
    config = ContractionConfig(dt, dt, adds(dt, 4), KINDS)
    c = product(a, packed(b, dt), n, config, operands)
    check(c, a, b, dt, sum(x.astype(np.float64) for x in operands))


def test_mixed_types() -> None:
    """f32 activations, bf16 weights, an f64 operand is refused, an f16 result is rounded once."""
    rng = np.random.default_rng(0)
    a, b = values(rng, (1, 9, 33), f32), values(rng, (1, 33, 20), bf16)
    check(product(a, packed(b, bf16), 20, ContractionConfig(f32, bf16, plain(f32))), a, b, f32)
    half = a.astype(np.float16)
    wide = product(half, packed(b, bf16), 20, ContractionConfig(f16, bf16, plain(f32)))
    narrow = product(half, packed(b, bf16), 20, ContractionConfig(f16, bf16, plain(f16)))
    assert (narrow == wide.astype(np.float16)).all()
    with pytest.raises(TypeError, match="A is f64 and B is f32"):
        ContractionConfig(f64, f32, plain(f64))


def test_the_product_is_rounded_before_the_epilogue() -> None:
    a = np.full((1, 1, 2), 1.0, np.float16)
    b = np.array([[[2048.0], [1.0]]], np.float16)  # 2049 is no f16: it rounds to 2048
    config = ContractionConfig(f16, f16, adds(f16, 1), ("scalar",))
    c = product(a, packed(b, f16), 1, config, (np.array([1.0], np.float16),))
    assert c.item() == 2048.0


def test_batch_that_shares_b() -> None:
    rng = np.random.default_rng(1)
    a, b = values(rng, (3, 7, 20), f32), values(rng, (1, 20, 33), f32)
    c = product(a, packed(b, f32), 33, ContractionConfig(f32, f32, plain(f32)), b_batch=0)
    check(c, a, b, f32)


def test_distances_between_rows() -> None:
    rng = np.random.default_rng(2)
    wide_a, b = values(rng, (70, 50), f32), values(rng, (1, 30, 21), f32)
    wide_c = np.full((70, 40), 7.0, np.float32)
    config = ContractionConfig(f32, f32, plain(f32))
    launch = contraction.launch(config, TARGET, m=70, n=21, k=30, lda=50, ldc=40)
    run_launch(contraction, config, launch, [wide_a, packed(b, f32), wide_c])
    check(wide_c[:, :21], wide_a[:, :30], b[0], f32)
    assert (wide_c[:, 21:] == 7.0).all()


@pytest.mark.parametrize("m", [1, 7, 8, 20])
def test_sums_of_nothing(m: int) -> None:
    row = values(np.random.default_rng(m), (50,), f32)
    config = ContractionConfig(f32, f32, adds(f32, 1), ("row",))
    a, b = np.zeros((1, m, 0), np.float32), np.zeros((1, 0, 50), np.float32)
    assert (product(a, packed(b, f32), 50, config, (row,)) == row).all()


def gelu_and_add() -> Program:
    """An epilogue that is too long for the registers of a tile: gelu of the product, plus one."""
    steps = (Step("mir.gelu", (0,), (f32,), f32), Step("mir.add", (2, 1), (f32, f32), f32))
    return Program((f32, f32), steps, (3,))


@pytest.mark.parametrize("epilogue", [adds(f32, 1), gelu_and_add()], ids=["short", "long"])
@pytest.mark.parametrize("m", [5, 7, 15, 16, 45])
def test_in_place_residual(m: int, epilogue: Program) -> None:
    """C may be the buffer of a full operand: every element is read and written once, in whole tiles
    and panels, in those that lack rows or columns, and after more than one block of K."""
    rng = np.random.default_rng(3)
    config = ContractionConfig(f32, f32, epilogue, ("full",))
    for n, k in ((96, 10), (70, 10), (100, contraction_plan.BLOCK_DEPTH + 2)):
        a, b, x = (values(rng, s, f32) for s in ((1, m, k), (1, k, n), (1, m, n)))
        apart = product(a, packed(b, f32), n, config, (x,))
        sums = product(a, packed(b, f32), n, ContractionConfig(f32, f32, plain(f32)))
        if epilogue == adds(f32, 1):
            assert (apart == sums + x).all()
        launch = contraction.launch(config, TARGET, m=m, n=n, k=k, operands=[(n, 0)])
        run_launch(contraction, config, launch, [a, packed(b, f32), x, x])
        assert (x == apart).all()


@pytest.mark.parametrize("dt", [f32, f64], ids=str)
@pytest.mark.parametrize("m", [1, 3, 8, 13, 150])
def test_a_left_operand_that_lies_across(m: int, dt: DType) -> None:
    """The columns of A are contiguous: the same bits as of a copy, from memory that ends with A."""
    rng = np.random.default_rng(m)
    n, k = 75, 40
    a, b = values(rng, (2, k, m), dt), values(rng, (2, k, n), dt)
    panels, config = packed(b, dt), ContractionConfig(dt, dt, plain(dt))
    copied = product(np.ascontiguousarray(a.transpose(0, 2, 1)), panels, n, config)
    across = ContractionConfig(dt, dt, plain(dt), across=True)
    c = np.full((2, m, n), np.nan, dt.numpy)
    launch = contraction.launch(across, TARGET, m=m, n=n, k=k, batch=2)
    run_launch(contraction, across, launch, [guarded(a), panels, c])
    assert (c == copied).all()
    with pytest.raises(ValueError, match="lies across is not copied, found bf16"):
        ContractionConfig(bf16, bf16, plain(bf16), across=True)


@pytest.mark.parametrize("dt", [f32, f64], ids=str)
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("m", [1, 3, 8, 13, 70])
def test_a_right_operand_as_it_lies(m: int, narrow: bool, dt: DType) -> None:
    """The same bits as of packed panels, from memory that ends with B, over two blocks of K."""
    rng = np.random.default_rng(m)
    config = ContractionConfig(dt, dt, adds(dt, 1), ("full",))
    plain_b = replace(config, plain_b=True, narrow=narrow)
    width, k = plain_b.shape(TARGET).width, contraction_plan.BLOCK_DEPTH + 90
    for n in (width, 2 * width + 1, 4 * width - 1):
        a, b, x = (values(rng, s, dt) for s in ((2, m, k), (2, k, n), (2, m, n)))
        want = product(a, packed(b, dt), n, config, (x,))
        for pieces in (1, 3):
            found = product(a, guarded(b), n, plain_b, (x,), pieces=pieces)
            assert (found == want).all(), n
        wide = values(rng, (k, n + 5), dt)
        shared = product(a, guarded(wide[:, 5:]), n, plain_b, (x,), b_batch=0)
        launch = contraction.launch(
            plain_b, TARGET, m=m, n=n, k=k, ldb=n + 5, batch=2, b_batch=0, operands=[(n, m * n)]
        )
        c = np.full((2, m, n), np.nan, dt.numpy)
        run_launch(contraction, plain_b, launch, [a, wide[:, 5:], x, c])
        assert (c == shared).all()
        # Rows that are one and the same row.
        rows = np.broadcast_to(wide[:1, 5:], (k, n)).copy()
        repeated = contraction.launch(
            plain_b, TARGET, m=m, n=n, k=k, ldb=0, batch=2, b_batch=0, operands=[(n, m * n)]
        )
        run_launch(contraction, plain_b, repeated, [a, guarded(wide[0, 5:]), x, c])
        assert (c == product(a, guarded(rows), n, plain_b, (x,), b_batch=0)).all()


@pytest.mark.parametrize("dt", [f32, f64], ids=str)
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("m", [1, 3, 8, 13, 70])
def test_a_right_operand_with_adjacent_rows(m: int, narrow: bool, dt: DType) -> None:
    """The same bits as of packed panels, from memory that ends with B, whatever K is cut into."""
    rng = np.random.default_rng(m)
    config = ContractionConfig(dt, dt, adds(dt, 1), ("full",))
    turned = replace(config, turned=True, narrow=narrow)
    width = turned.shape(TARGET).width
    for k in (5, contraction_plan.TURNED_DEPTH + 90, contraction_plan.LONG_DEPTH + 3):
        long = k > contraction_plan.LONG_DEPTH
        for n in (1, width, 2 * width + 1) if not long else (width + 3,):
            a, b, x = (values(rng, s, dt) for s in ((2, m, k), (2, k, n), (2, m, n)))
            want = product(a, packed(b, dt), n, replace(config, long=long), (x,))
            lying = guarded(np.ascontiguousarray(b.swapaxes(1, 2)))
            here = replace(turned, long=long)
            for pieces in (1, 3):
                found = product(a, lying, n, here, (x,), pieces=pieces, ldb=k)
                assert (found == want).all(), (k, n)


def test_right_operands_that_must_be_packed() -> None:
    with pytest.raises(ValueError, match="has adjacent columns or rows, not both"):
        ContractionConfig(f32, f32, plain(f32), plain_b=True, turned=True)
    with pytest.raises(ValueError, match="f32 and bf16 are not multiplied as they lie"):
        ContractionConfig(f32, bf16, plain(f32), plain_b=True)
    with pytest.raises(ValueError, match="packed panels have the width of the wide tile"):
        ContractionConfig(f32, f32, plain(f32), narrow=True)
    config = ContractionConfig(f32, f32, plain(f32), plain_b=True)
    width = config.shape(TARGET).width
    with pytest.raises(ValueError, match=f"a plain B has {width} columns or more, not {width - 1}"):
        contraction.launch(config, TARGET, m=4, n=width - 1, k=4)


@pytest.mark.parametrize("dt", [f32, f64, bf16], ids=str)
@pytest.mark.parametrize("shape", [(1, 16, 48), (2, 37, 100), (1, 5, 50), (3, 64, 7)])
def test_panels_of_a_matrix_that_lies_across(shape: tuple[int, int, int], dt: DType) -> None:
    """Rows that are adjacent are transposed in registers: the same panels as of a copy."""
    rng = np.random.default_rng(5)
    b = values(rng, shape, dt)
    turned = guarded(np.ascontiguousarray(b.transpose(0, 2, 1))).transpose(0, 2, 1)
    config = PackAcrossConfig(dt)
    out = np.full(pack.packed_bytes(TARGET, dt, *shape[1:], shape[0]) // dt.bytes, 7, dt.numpy)
    launch = pack_strided.launch(
        config, TARGET, k=shape[1], n=shape[2], column_stride=shape[1],
        batch=shape[0], source_batch=shape[1] * shape[2],
    )  # fmt: skip
    run_launch(pack_strided, config, launch, [turned, out])
    assert (out == packed(b, dt)).all()


@pytest.mark.parametrize("dt,group", [(bf16, 2), (i8, 4), (u8, 4)], ids=str)
@pytest.mark.parametrize("shape", [(1, 64, 48), (2, 100, 70), (1, 8, 50), (3, 68, 7)])
def test_panels_of_groups_of_a_matrix(shape: tuple[int, int, int], dt: DType, group: int) -> None:
    """Groups are panels of [K / group][width][group], however the matrix lies."""
    batch, k, n = shape
    width = pack.panel_width(TARGET, dt)
    panels = -(-n // width)
    rng = np.random.default_rng(6)
    b = rng.integers(0, 100, shape).astype(dt.numpy)
    wide = np.zeros((batch, k, panels * width), dt.numpy)
    wide[:, :, :n] = b
    want = wide.reshape(batch, k // group, group, panels, width).transpose(0, 3, 1, 4, 2).ravel()
    across = PackAcrossConfig(dt, group=group)
    out = np.full(want.size, 7, dt.numpy)
    launch = pack_strided.launch(
        across, TARGET, k=k, n=n, column_stride=k, batch=batch, source_batch=k * n
    )
    turned = guarded(np.ascontiguousarray(b.transpose(0, 2, 1)))
    run_launch(pack_strided, across, launch, [turned, out])
    assert (out == want).all()
    for adjacent, given, strides in ((True, guarded(b), (n, 1)), (False, turned, (1, k))):
        config = PackConfig(dt, adjacent, group)
        out[:] = 7
        launch = pack.launch(
            config, TARGET, k=k, n=n, row_stride=strides[0], column_stride=strides[1],
            batch=batch, source_batch=k * n,
        )  # fmt: skip
        run_launch(pack, config, launch, [given, out])
        assert (out == want).all()


@pytest.mark.parametrize("dt", [f32, bf16], ids=str)
def test_bits_do_not_depend_on_rows_or_cuts(dt: DType) -> None:
    rng = np.random.default_rng(4)
    m, n, k = 150, 75, 200
    a, b = values(rng, (1, m, k), dt), values(rng, (1, k, n), dt)
    panels, row = packed(b, dt), values(rng, (n,), dt)
    config = ContractionConfig(dt, dt, adds(dt, 1), ("row",))
    whole = product(a, panels, n, config, (row,))
    for rows in (*range(1, 20), 64, 129):
        part = np.ascontiguousarray(a[:, m - rows :])
        assert (product(part, panels, n, config, (row,)) == whole[:, m - rows :]).all(), rows
    for pieces in (2, 3, 7):
        assert (product(a, panels, n, config, (row,), pieces=pieces) == whole).all()
    single = product(a.reshape(m, 1, k), panels, n, config, (np.tile(row, m),), b_batch=0)
    assert (single.reshape(whole.shape) == whole).all()


@pytest.mark.parametrize("m", [10, 12, 21])
def test_bits_do_not_depend_on_blocks_of_k(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of whole tiles, and not those of the last rows, by one panel or side by side."""
    rng = np.random.default_rng(m)
    n, k = 100, 1100
    a, b = values(rng, (1, m, k), f32), values(rng, (1, k, n), f32)
    panels, config = packed(b, f32), ContractionConfig(f32, f32, plain(f32))
    blocks = product(a, panels, n, config)
    check(blocks, a, b, f32)
    single = product(a.reshape(m, 1, k), panels, n, config, b_batch=0)
    assert (blocks.reshape(single.shape) == single).all()
    for steps in (4, 76, 4096):
        monkeypatch.setattr(contraction_plan, "BLOCK_DEPTH", steps)
        assert (product(a, panels, n, config) == blocks).all()


@pytest.mark.parametrize("n", [290, 400])
def test_bits_do_not_depend_on_the_order_of_tasks(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By panels or by rows, with several of both, as the smaller of A and B says."""
    rng = np.random.default_rng(n)
    a, b, x = (values(rng, s, f32) for s in ((2, 300, 20), (2, 20, n), (2, 300, n)))
    config = ContractionConfig(f32, f32, adds(f32, 1), ("full",))

    def found(pieces: int) -> Array:
        return product(a, packed(b, f32), n, config, (x,), pieces=pieces)

    by_size = found(1)
    check(by_size, a, b, f32, x)
    sizes = [contraction.launch(config, TARGET, m=300, n=n, k=20, operands=[(n, 0)]).sizes]
    monkeypatch.setattr(contraction_plan, "LAST_BYTES", 0)
    sizes.append(contraction.launch(config, TARGET, m=300, n=n, k=20, operands=[(n, 0)]).sizes)
    assert (sizes[0] != sizes[1]) == (n >= 300)
    assert (found(3) == by_size).all()


@pytest.mark.parametrize("tiles", [1, 3, 17])
def test_a_kernel_without_tiles_for_a_rest(tiles: int) -> None:
    """It serves the rows that fill tiles, with the same bits, and refuses others."""
    rng = np.random.default_rng(tiles)
    config = ContractionConfig(f32, f32, plain(f32))
    rows = config.shape(TARGET).rows
    m, n, k = rows * tiles, 75, 40
    whole = config.for_sizes(TARGET, m, 5)
    assert not whole.rest and config.for_sizes(TARGET, m + 1, 5) == config
    a, b = values(rng, (2, m, k), f32), values(rng, (2, k, n), f32)
    assert (product(a, packed(b, f32), n, whole) == product(a, packed(b, f32), n, config)).all()
    with pytest.raises(ValueError, match=f"{rows + 1} rows fill no tiles of {rows}; use for_sizes"):
        contraction.launch(whole, TARGET, m=rows + 1, n=n, k=k)


def test_bits_do_not_depend_on_where_a_column_is() -> None:
    """The same column as a lane of a vector, and as one of the last columns."""
    rng = np.random.default_rng(9)
    a, b = values(rng, (1, 5, 30), f32), values(rng, (1, 30, 64), f32)
    gelu = Program((f32,), (Step("mir.gelu", (0,), (f32,), f32),), (1,))
    config = ContractionConfig(f32, f32, gelu)
    whole = product(a, packed(b, f32), 64, config)
    for n in (1, 7, 31, 61):
        assert (product(a, packed(b[:, :, :n], f32), n, config) == whole[:, :, :n]).all()


# -- packing -----------------------------------------------------------------------------------


def as_panels(b: Array, dt: DType) -> Array:
    k, n = b.shape
    width = pack.panel_width(TARGET, dt)
    whole = np.zeros((k, -(-n // width) * width), b.dtype)
    whole[:, :n] = b
    return whole.reshape(k, -1, width).transpose(1, 0, 2).ravel()


@pytest.mark.parametrize("dt", [f32, f64, f16, bf16], ids=str)
@pytest.mark.parametrize("order", ["rows", "columns", "neither"])
def test_pack(dt: DType, order: str) -> None:
    rng = np.random.default_rng(5)
    for k, n in ((1, 1), (5, 16), (17, 48), (40, 100)):
        b = {
            "rows": values(rng, (2, k + 1, n + 3), dt)[:, :k, :n],
            "columns": values(rng, (2, n + 3, k + 1), dt).swapaxes(1, 2)[:, :k, :n],
            "neither": values(rng, (2, 2 * k, 2 * n), dt)[:, ::2, ::2],
        }[order]
        want = np.concatenate([as_panels(x, dt) for x in b])
        for pieces in (1, 2):
            assert (packed(b, dt, pieces) == want).all()


@pytest.mark.parametrize("parts", [(32, 16, 48), (5, 20, 3), (1, 1, 70)])
def test_pack_side_by_side(parts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(6)
    k, n = 12, sum(parts)
    b = values(rng, (k, n), f32)
    out = np.full(pack.packed_bytes(TARGET, f32, k, n) // 4, np.nan, np.float32)
    config, column = PackConfig(f32, adjacent_columns=True), 0
    for width in parts:
        part = np.ascontiguousarray(b[:, column : column + width])
        launch = pack.launch(
            config,
            TARGET,
            k=k,
            n=width,
            row_stride=width,
            column=column,
            fill=column + width == n,
        )
        run_launch(pack, config, launch, [part, out])
        column += width
    assert (out == as_panels(b, f32)).all()


# -- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dt", [f32, f16], ids=str)
@pytest.mark.parametrize("m", [1, 3, 7, 20])
def test_nothing_beyond_the_buffers_is_touched(dt: DType, m: int) -> None:
    rng = np.random.default_rng(7)
    n, k = 37, 21
    a, b = (guarded(values(rng, s, dt)) for s in ((1, m, k), (k, n)))
    row, full, column = (guarded(values(rng, s, dt)) for s in ((n,), (m, n), (m, 1)))
    c = guarded(np.zeros((m, n), dt.numpy))
    for source in (b, guarded(np.ascontiguousarray(b.T)).T):
        panels = guarded(packed(source[None], dt))
        config = ContractionConfig(dt, dt, adds(dt, 3), ("row", "full", "column"))
        strides = [(0, 0), (n, 0), (1, 0)]
        launch = contraction.launch(config, TARGET, m=m, n=n, k=k, operands=strides)
        run_launch(contraction, config, launch, [a, panels, row, full, column, c])
        extra = sum(x.astype(np.float64) for x in (row, full, column))
        check(c, a[0], b, dt, extra)


def test_padding_of_the_last_panel_does_not_reach_c() -> None:
    rng = np.random.default_rng(8)
    a, b = values(rng, (1, 10, 6), f32), values(rng, (1, 6, 20), f32)
    panels = packed(b, f32).reshape(-1, 6, pack.panel_width(TARGET, f32))
    panels[-1, :, 20 % panels.shape[-1] :] = np.nan
    check(product(a, panels, 20, ContractionConfig(f32, f32, plain(f32))), a, b, f32)


# -- other targets -----------------------------------------------------------------------------


@pytest.mark.parametrize("vector_bytes, registers", [(64, 32), (16, 32), (16, 16), (0, 8)])
def test_tiles_of_other_targets(vector_bytes: int, registers: int) -> None:
    """The code for other register files, run on this machine, which splits what is too wide."""
    target = replace(TARGET, vector_bytes=vector_bytes, registers=registers)
    config = ContractionConfig(f32, f32, adds(f32, 1), ("row",))
    plain_b = replace(config, plain_b=True, narrow=registers == 32)
    pack_config = PackConfig(f32, adjacent_columns=False)
    product_kernel = jit(contraction.emit("product", config, target))
    plain_kernel = jit(contraction.emit("product", plain_b, target))
    pack_kernel = jit(pack.emit("pack", pack_config, target))
    rng = np.random.default_rng(10)
    k, n = contraction_plan.BLOCK_DEPTH + 23, 250
    b, row = values(rng, (k, n), f32), values(rng, (n,), f32)
    panels = np.full(pack.packed_bytes(target, f32, k, n) // 4, np.nan, np.float32)
    packing = pack.launch(pack_config, target, k=k, n=n, row_stride=n)
    pack_kernel(0, packing.range, [b, panels], packing.sizes)
    for m in (1, 2, 3, 5, 8, 9, 21):
        a, c = values(rng, (m, k), f32), np.full((m, n), np.nan, np.float32)
        launch = contraction.launch(config, target, m=m, n=n, k=k, operands=[(0, 0)])
        product_kernel(0, launch.range, [a, panels, row, c], launch.sizes, launch.scratch)
        check(c, a, b, f32, row)
        launch = contraction.launch(plain_b, target, m=m, n=n, k=k, operands=[(0, 0)])
        found = np.full((m, n), np.nan, np.float32)
        plain_kernel(0, launch.range, [a, b, row, found], launch.sizes, launch.scratch)
        assert (found == c).all()


# -- code --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_every_number_of_rows_has_a_tile(cpu: str) -> None:
    """Those fewer than a whole tile has, of panels whose sums and columns have registers."""
    target = kernel_target(preset(cpu))
    for dt in (f32, bf16):
        shape = contraction_tile.tile_shape(target, dt)
        assert [rows for rows, _ in shape.tail] == [*range(1, shape.rows)]
        for rows, panels in shape.tail[1:]:
            assert rows * panels <= shape.rows
            assert (rows + 1) * panels * shape.vectors < target.registers


def test_only_matrices_are_requested_for_an_epilogue() -> None:
    config = ContractionConfig(f32, f32, adds(f32, 4), KINDS)
    text = contraction.emit("product", config, TARGET).text
    shape = config.shape(TARGET)
    requests = [text.count(f"memref.prefetch %operand{i}") for i in range(4)]
    assert requests == [0, shape.width * f32.bytes // 64 + 1, 0, 0]  # and where it ends


@pytest.mark.parametrize("m", [8, 16, 24, 40])
def test_tiles_request_what_comes_after_them(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line of the next panel, and at the end of a strip that of the next block of K, beside
    what tiles request of their own panel; and a single tile nothing else. Requests are counted in
    an operand that is twice as large as B: what comes after the last panel lies behind it."""
    monkeypatch.setattr(contraction_plan, "BLOCK_DEPTH", 16)
    monkeypatch.setattr(contraction_products, "PREFETCH_STEPS", 0)
    shape = contraction_tile.tile_shape(TARGET, f32)
    k, n, line = 64, 4 * shape.width, min(16, shape.width)  # whole blocks

    def count(self: Kernel, b: Buffer, at: Reg, write: bool = False) -> None:
        counts = next(x for x in self._buffers if x.name == "%operand0")
        if b.name == "%b":
            at = at / line * line
            self.store(self.load(counts, at) + 1.0, counts, at)

    monkeypatch.setattr(Kernel, "prefetch", count)
    config = ContractionConfig(f32, f32, adds(f32, 1), ("scalar",), rest=False)
    panels, counts = np.zeros(k * n, np.float32), np.zeros(2 * k * n, np.float32)
    tiles = m // shape.rows
    product(np.zeros((1, m, k), np.float32), panels, n, config, (counts,))
    lines = counts[: k * n].reshape(n // shape.width, -1, line)[..., 0]
    depth = contraction.launch(config, TARGET, m=m, n=n, k=k, operands=[(0, 1)]).sizes[12]
    first = np.zeros(lines.shape, bool)  # of all: nothing came before
    first[0, : depth * shape.width // line] = True
    assert (lines[first] >= tiles).all()
    if m > shape.rows:
        assert (lines[~first] > tiles).all()
    else:
        assert (lines > tiles).sum() <= 2 * len(lines)


@pytest.mark.parametrize("cpu, masks", [("x86-64-v3", False), ("x86-64-v4", True)])
@pytest.mark.parametrize("a", [f32, bf16], ids=str)
def test_the_last_columns_are_a_part_of_a_vector(cpu: str, masks: bool, a: DType) -> None:
    """Where the target has masks, nothing is done one by one: not C, and not the rows of A that are
    copied."""
    target = kernel_target(preset(cpu))
    config = ContractionConfig(a, f32, gelu_and_add(), ("full",))
    text = contraction.emit("product", config, target).text
    assert text.count("vector.maskedstore") == (1 + config.copies if masks else 0)
    assert bool(re.search(r"memref.store %\S+, %c\[", text)) != masks


KINDS_OF_B: dict[str, dict[str, Any]] = {
    "packed": {},
    "plain": {"plain_b": True},
    "narrow": {"plain_b": True, "narrow": True},
}


@pytest.mark.parametrize(
    "dt, b",
    [*((dt, "packed") for dt in (f32, f64, f16, bf16)), (f32, "plain"), (f32, "narrow")],
    ids=str,
)
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_the_tile_stays_in_registers(cpu: str, dt: DType, b: str) -> None:
    """Loops over K of the largest tile have every accumulator, and move no vector to memory but the
    panel that a tile packs."""
    features = preset(cpu)
    target = kernel_target(features)
    config = ContractionConfig(dt, dt, plain(dt), **KINDS_OF_B[b])
    shape = config.shape(target)
    kernel = contraction.emit("product", config, target)
    blocks = re.split(r"^\.L\w+:", emit.to_assembly([kernel], features), flags=re.M)
    fma = re.compile(r"^\s*(?:vfmadd|fmla)", re.M)
    count = shape.rows * shape.vectors
    loops = [block for block in blocks if len(fma.findall(block)) == count]
    assert max(len(fma.findall(block)) for block in blocks) == count
    assert len(loops) >= (1 if b == "packed" else 2)
    for loop in loops:
        assert not re.search(r"mm\d+.*\(%rsp\)|\(%rsp\).*mm\d+|\bq\d+.*\[sp", loop)


@pytest.mark.parametrize("b", KINDS_OF_B)
def test_a_long_epilogue_takes_no_registers_of_a_tile(b: str) -> None:
    """Its constants are those of a function, whether it stands in one place or in several."""
    features = preset("x86-64-v4")
    config = ContractionConfig(f32, f32, gelu_and_add(), ("full",), **KINDS_OF_B[b])
    shape = config.shape(kernel_target(features))
    for rest in (False, True):
        kernel = contraction.emit("product", replace(config, rest=rest), kernel_target(features))
        blocks = re.split(r"^\.L\w+:", emit.to_assembly([kernel], features), flags=re.M)
        tiles = [x for x in blocks if x.count("vfmadd") >= 12 and "vbroadcastss\t(%r" in x]
        assert len(tiles) >= (len(shape.tail) - 1 if rest else 1)
        for tile in tiles:
            assert not re.search(r"mm\d+.*\(%rsp\)|\(%rsp\).*mm\d+", tile)


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_objects_for_every_cpu(cpu: str) -> None:
    features = preset(cpu)
    target = kernel_target(features)
    kernels = [
        contraction.emit("product", ContractionConfig(f16, f16, adds(f16, 4), KINDS), target),
        contraction.emit("long", ContractionConfig(f32, f32, gelu_and_add(), ("full",)), target),
        pack.emit("pack_rows", PackConfig(bf16, adjacent_columns=True), target),
        pack.emit("pack_columns", PackConfig(f64, adjacent_columns=False), target),
    ]
    assert emit.compile_kernels(kernels, features).startswith(b"\x7fELF")

"""Products of small numbers by the instructions that multiply groups, and by widening."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from rlx.codegen.program import Program
from rlx.kernels.matmul import emit as contraction
from rlx.kernels.matmul import pack
from rlx.kernels.matmul.dot import group_of, takes_alike
from rlx.kernels.matmul.emit import ContractionConfig
from rlx.kernels.matmul.pack import PackConfig
from rlx.kernels.matmul.tile import accumulate_type, tile_shape
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DType, bf16, f16, f32, i8, u8
from support.jit import host
from support.products import values
from support.runkernel import guarded, run_launch

Array = np.ndarray[Any, Any]

TARGET = kernel_target(host())
BYTES = [(a, b) for a in (i8, u8) for b in (i8, u8)]


def packed(b: Array, dt: DType, group: int, source: DType | None = None) -> Array:
    k, n = b.shape
    row, column = (s // b.itemsize for s in b.strides)
    config = PackConfig(dt, column == 1, group, source)
    out = guarded(np.full(pack.packed_bytes(TARGET, dt, k, n) // dt.bytes, 77).astype(dt.numpy))
    launch = pack.launch(config, TARGET, k=k, n=n, row_stride=row, column_stride=column)
    run_launch(pack, config, launch, [b, out])
    return out


def product(a: Array, b: Array, types: tuple[DType, DType], group: int, pieces: int = 1) -> Array:
    (m, k), n = a.shape, b.shape[1]
    sums = accumulate_type(*types)
    config = ContractionConfig(*types, Program((sums,), (), (0,)), (), group)
    c = guarded(np.zeros((m, n), sums.numpy))
    launch = contraction.launch(config, TARGET, m=m, n=n, k=k)
    run_launch(contraction, config, launch, [a, packed(b, types[1], group), c], pieces)
    return c


needs_group = pytest.mark.parametrize("dt", [bf16, i8], ids=str)


def supported(a: DType, b: DType) -> int:
    group = group_of(TARGET, a, b)
    if group == 1:
        pytest.skip(f"this CPU has no instruction for groups of {a} and {b}")
    return group


def as_groups(b: Array, group: int) -> Array:
    k, n = b.shape
    width = pack.panel_width(TARGET, f32)
    whole = np.zeros((k, -(-n // width) * width), b.dtype)
    whole[:, :n] = b
    return whole.reshape(k // group, group, -1, width).transpose(2, 0, 3, 1).ravel()


@pytest.mark.parametrize("dt, group", [(bf16, 2), (i8, 4), (u8, 4)], ids=str)
@pytest.mark.parametrize("order", ["rows", "columns"])
def test_pack(dt: DType, group: int, order: str) -> None:
    rng = np.random.default_rng(5)
    for k, n in ((4, 1), (8, 48), (40, 100)):
        b = values(rng, (k, n), dt)
        b = np.asfortranarray(b) if order == "columns" else b
        assert (packed(b, dt, group) == as_groups(b, group)).all()
        if dt is bf16:
            wide = b.astype(np.float32) * np.float32(1 + 2**-9)  # rounding is to be seen
            assert (packed(wide, bf16, 2, f32) == as_groups(wide.astype(bf16.numpy), 2)).all()


@pytest.mark.parametrize("m", [*range(1, 14), 131])
@pytest.mark.parametrize("n", [1, 50, 200])
def test_bf16(m: int, n: int) -> None:
    """Within the bound of a sum of exact products, each rounding to nearest in f32."""
    group = supported(bf16, bf16)
    rng = np.random.default_rng(m + n)
    a, b = guarded(values(rng, (m, 38), bf16)), values(rng, (38, n), bf16)
    found = product(a, b, (bf16, bf16), group)
    x, y = a.astype(np.float64), b.astype(np.float64)
    bound = 2.0**-24 * (38 + 1) * (np.abs(x) @ np.abs(y))
    assert (np.abs(found - x @ y) <= bound).all()


def test_bf16_non_finite_and_subnormal() -> None:
    """nan and inf stay; subnormal operands, and sums below 2**-126, may count as 0."""
    group = supported(bf16, bf16)
    rows = [[np.inf, 1, 1, 1], [np.inf, -np.inf, 1, 1], [np.nan, 1, 1, 1], [2.0**-130] * 4]
    a, b = np.array(rows).astype(bf16.numpy), np.ones((4, 3)).astype(bf16.numpy)
    found = product(a, b, (bf16, bf16), group)
    assert np.isposinf(found[0]).all() and np.isnan(found[1:3]).all()
    assert (np.abs(found[3]) <= 4 * 2.0**-130).all()


@pytest.mark.parametrize("a_type, b_type", BYTES, ids=str)
@pytest.mark.parametrize("m", [1, 2, 3, 5, 8, 21, 131])
@pytest.mark.parametrize("group", [1, 4])
def test_bytes_are_exact(m: int, a_type: DType, b_type: DType, group: int) -> None:
    if group == 4:
        supported(a_type, b_type)
    rng = np.random.default_rng(m)
    for k, n in ((4, 1), (64, 50), (300, 100)):
        a, b = guarded(values(rng, (m, k), a_type)), values(rng, (k, n), b_type)
        found = product(a, b, (a_type, b_type), group)
        assert found.dtype == np.int32 and (found == a.astype(np.int32) @ b.astype(np.int32)).all()


@pytest.mark.parametrize("a_type, b_type", BYTES, ids=str)
def test_extremes_do_not_saturate(a_type: DType, b_type: DType) -> None:
    """All least, all most: pairs of products leave 16 bits, and sums of many wrap in 32."""
    group = supported(a_type, b_type)
    for low in (False, True):
        ends = [np.iinfo(t.numpy).min if low else np.iinfo(t.numpy).max for t in (a_type, b_type)]
        a = np.full((9, 70000), ends[0], a_type.numpy)
        b = np.full((70000, 3), ends[1], b_type.numpy)
        want = (70000 * ends[0] * ends[1] + 2**31) % 2**32 - 2**31
        assert (product(a, b, (a_type, b_type), group) == want).all()


@pytest.mark.parametrize("b_type", [bf16, f16, i8, u8], ids=str)
@pytest.mark.parametrize("m", [1, 2, 4, 7, 20])
def test_f32_rows_on_small_weights(m: int, b_type: DType) -> None:
    rng = np.random.default_rng(m)
    a, b = values(rng, (m, 33), f32), values(rng, (33, 130), b_type)
    found = product(a, b, (f32, b_type), 1)
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert (np.abs(found - x @ y) <= 2.0**-24 * 34 * (np.abs(x) @ np.abs(y))).all()


@needs_group
def test_bits_do_not_depend_on_rows_or_cuts(dt: DType) -> None:
    group = supported(dt, dt)
    rng = np.random.default_rng(4)
    a, b = values(rng, (150, 200), dt), values(rng, (200, 75), dt)
    whole = product(a, b, (dt, dt), group)
    for rows in (*range(1, 20), 64, 129):
        part = np.ascontiguousarray(a[150 - rows :])
        assert (product(part, b, (dt, dt), group) == whole[150 - rows :]).all(), rows
    for pieces in (2, 3, 7):
        assert (product(a, b, (dt, dt), group, pieces) == whole).all()


@pytest.mark.parametrize(
    "dt, machine, instruction",
    [
        (bf16, "x86-64-v4+avx512bf16", "vdpbf16ps"),
        (i8, "x86-64-v4+avx512vnni", "vpdpbusd"),
        (u8, "x86-64-v4+avx512vnni", "vpdpbusd"),
        (i8, "aarch64+dotprod", "sdot"),
        (u8, "aarch64+dotprod", "udot"),
    ],
    ids=str,
)
def test_the_tile_stays_in_registers(dt: DType, machine: str, instruction: str) -> None:
    """The loop over K of the largest tile is dots on registers, and so is that of the first one of
    a panel, which has a row more where sign bits are flipped."""
    features = preset(machine)
    target = kernel_target(features)
    group, sums = group_of(target, dt, dt), accumulate_type(dt)
    shape = tile_shape(target, dt)
    own = takes_alike(target)
    config = ContractionConfig(dt, dt, Program((sums,), (), (0,)), (), group, alike=own)
    kernel = contraction.emit("product", config, target)
    assert group > 1 and emit.compile_kernels([kernel], features).startswith(b"\x7fELF")
    blocks = re.split(r"^\.L\w+:", emit.to_assembly([kernel], features), flags=re.M)
    counts = [len(re.findall(rf"^\s*{instruction}\s", b, flags=re.M)) for b in blocks]
    most = (shape.rows + config.flips) * shape.vectors
    assert max(counts) == most
    for count in (most, shape.rows * shape.vectors):
        loop = blocks[counts.index(count)]
        assert not re.search(r"mm\d+.*\(%rsp\)|\(%rsp\).*mm\d+|\bq\d+.*\[sp\b", loop)


def test_groups_by_target() -> None:
    for name, a, b, group in (
        ("x86-64-v4", bf16, bf16, 1),
        ("x86-64-v4+avx512bf16", bf16, bf16, 2),
        ("x86-64-v4+avx512bf16", f32, bf16, 1),
        ("x86-64-v4+avx512vnni", i8, u8, 4),
        ("x86-64-v3", i8, i8, 1),
        ("aarch64", i8, i8, 1),
        ("aarch64+dotprod", u8, u8, 4),
        ("aarch64+dotprod", i8, u8, 1),
        ("aarch64+i8mm", i8, u8, 4),
    ):
        assert group_of(kernel_target(preset(name)), a, b) == group, name

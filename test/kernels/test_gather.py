"""Rows by index: every element width and index type, faults, strided tables, ragged rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.kernels.index import gather
from rlx.kernels.index.gather import GatherConfig
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DTYPES, i64
from support.runkernel import element_strides, run_launch

Array = np.ndarray[Any, Any]
WIDTHS = (8, 16, 32, 64)
SITE = 7


def table_of(width: int, *shape: int) -> Array:
    rng = np.random.default_rng(width)
    return rng.integers(0, 1 << width, shape, f"u{width // 8}", endpoint=False)


def run(
    table: Array, indices: Array, mode: str = "fault", pieces: int = 1, block: int = 4096
) -> tuple[Array, Array]:
    """The result [batch, outer, count, row], and the error record."""
    name = f"{indices.dtype.kind}{indices.itemsize * 8}"
    config = GatherConfig(table.itemsize * 8, DTYPES[name], mode)
    strides = element_strides(table)
    launch = gather.launch(config, table.shape, strides, indices.shape[1], site=SITE, block=block)
    batch, outer, _, row = table.shape
    # One element more, to see that nothing is written behind the end.
    out = np.zeros(batch * outer * indices.shape[1] * row + 1, table.dtype)
    error = np.zeros(2, np.int64)
    arrays = [table, indices, out, *([error] if mode == "fault" else [])]
    run_launch(gather, config, launch, arrays, pieces)
    assert out[-1] == 0
    return out[:-1].reshape(batch, outer, indices.shape[1], row), error


def expected(table: Array, indices: Array) -> Array:
    return np.stack([np.take(t, i, 1) for t, i in zip(table, indices, strict=True)])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("row", [1, 3, 8, 15, 16, 17, 37, 64, 100, 384, 5000])
def test_rows(row: int, width: int) -> None:
    table = table_of(width, 2, 3, 11, row)
    indices = np.random.default_rng(0).integers(-11, 11, (2, 5))
    for pieces in (1, 4):
        out, error = run(table, indices, pieces=pieces)
        np.testing.assert_array_equal(out, expected(table, indices))
        assert list(error) == [0, 0]


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_index_types(name: str) -> None:
    table = table_of(32, 1, 1, 200, 20)
    info = np.iinfo(DTYPES[name].numpy)
    low, high = max(-200, info.min), min(199, info.max)
    indices = np.array([[0, high, low, 5, high - 1]], DTYPES[name].numpy)
    out, error = run(table, indices)
    np.testing.assert_array_equal(out, expected(table, indices.astype(np.int64)))
    assert list(error) == [0, 0]
    far = np.array([[info.max, info.min, 3]], DTYPES[name].numpy)
    out, _ = run(table[:, :, :100], far, "clip")
    places = np.clip(far.astype(object), 0, 99).astype(np.int64)
    np.testing.assert_array_equal(out, expected(table, places))


@pytest.mark.parametrize("bad", [4, -5, 1 << 40, -(1 << 63), (1 << 63) - 1])
def test_an_index_out_of_range_is_recorded(bad: int) -> None:
    table = table_of(32, 1, 1, 4, 20)
    out, error = run(table, np.array([[1, bad, 2]]))
    assert list(error) == [1, SITE]
    np.testing.assert_array_equal(out[0, 0, [0, 2]], table[0, 0, [1, 2]])


@pytest.mark.parametrize("row", [1, 5, 100])
def test_wrapped_and_filled(row: int) -> None:
    table = table_of(32, 1, 2, 4, row)
    indices = np.array([[1, -9, 4, -1, 1 << 40]])
    out, _ = run(table, indices, "wrap")
    np.testing.assert_array_equal(out, expected(table, indices % 4))
    out, _ = run(table, indices, "fill")
    want = expected(table, np.array([[1, 0, 0, 3, 0]]))
    want[:, :, [1, 2, 4]] = 0
    np.testing.assert_array_equal(out, want)


def test_huge_unsigned_indices_do_not_count_from_the_end() -> None:
    table = table_of(32, 1, 1, 4, 20)
    indices = np.array([[2**64 - 1]], np.uint64)
    assert list(run(table, indices)[1]) == [1, SITE]
    np.testing.assert_array_equal(run(table, indices, "clip")[0][0, 0, 0], table[0, 0, 3])


@pytest.mark.parametrize("width", WIDTHS)
def test_strided_tables(width: int) -> None:
    whole = table_of(width, 4, 9, 5, 60)
    indices = np.random.default_rng(1).integers(0, 5, (2, 7))
    for table in (
        whole[::2, 1:8, :, 3:40],
        whole[:2, :, :, 7:8],
        np.broadcast_to(whole[:1, :3, :, :33], (2, 3, 5, 33)),
        whole.transpose(0, 2, 1, 3)[:2],
    ):
        out, _ = run(table, indices)
        np.testing.assert_array_equal(out, expected(table, indices))


def test_nothing_to_gather() -> None:
    for shape, count in (((1, 2, 4, 0), 3), ((1, 0, 4, 2), 3), ((1, 1, 0, 2), 0)):
        config = GatherConfig(32, i64, "fault")
        assert gather.launch(config, shape, (0, 0, 0, 1), count).range == 0


def test_pieces_and_blocks() -> None:
    table = table_of(16, 1, 2, 50, 70)
    indices = np.random.default_rng(2).integers(0, 50, (1, 30))
    for block in (1, 7, 64, 100):
        out, _ = run(table, indices, pieces=5, block=block)
        np.testing.assert_array_equal(out, expected(table, indices))


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_compiles_for(cpu: str) -> None:
    features = preset(cpu)
    kernels = [
        gather.emit(f"k{n}", GatherConfig(width, DTYPES[index], mode), kernel_target(features))
        for n, (width, index, mode) in enumerate(
            [(8, "i64", "fault"), (32, "u8", "clip"), (64, "i32", "fault")]
        )
    ]
    assert emit.compile_kernels(kernels, features).startswith(b"\x7fELF")

"""Kernels of blocks of threads: what they take of a GPU, and how sizes choose them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.program import Program
from rlx.codegen.reg import Reg
from rlx.codegen.strides import row_major
from rlx.errors import UnsupportedError
from rlx.kernels.attention import gpu as attention
from rlx.kernels.attention.emit import AttentionConfig, AttentionSizes, Strides
from rlx.kernels.matmul import gpu as contraction
from rlx.kernels.matmul.gpu import Split
from rlx.kernels.matmul.gpu_tile import Tile
from rlx.kernels.reduce import gpu as reduce
from rlx.kernels.registry import emit_kernel
from rlx.targets import find_target
from rlx.types import DType, bool_, f16, f32, f64

Sizes = tuple[int, ...]

VULKAN = find_target("vulkan").kernels
BYTES = {"i32": 4, "f32": 4, "f64": 8}


def gpu(threads: int, shared: int) -> KernelTarget:
    return replace(VULKAN, most_threads=threads, shared_bytes=shared)


def shared_bytes(text: KernelText) -> int:
    """What a block shares, by the kernel's own declarations."""
    found = re.findall(r"memref\.alloc\(\) : memref<(\d+)x(\w+),", text.text)
    return sum(int(n) * BYTES[dt] for n, dt in found)


def product(target: KernelTarget, dt: DType, m: int, n: int, k: int, batch: Sizes = ()) -> Any:
    shapes = ((*batch, m, k), (*batch, k, n), (*batch, m, n))
    epilogue = Program((dt,), (), (0,))
    strides = [row_major(s) for s in shapes]
    return contraction.launch(epilogue, target, (dt, dt), (*batch, m, n, k), strides)


def attend(target: KernelTarget, dt: DType, rows: int, dim: int) -> Any:
    step = Strides(rows * dim, rows * dim, dim)
    sizes = AttentionSizes(1, 1, 1, rows, rows, dim, 1.0, step, step, step, step)
    return attention.launch(AttentionConfig(dt), target, sizes)


@pytest.mark.parametrize("shared", [16 << 10, 48 << 10])
@pytest.mark.parametrize("threads", [128, 256, 1024])
@pytest.mark.parametrize("dt", [f16, f32, f64], ids=str)
def test_a_block_fits_its_target(dt: DType, threads: int, shared: int) -> None:
    target = gpu(threads, shared)
    kinds = [("gpu_contraction", product(target, dt, m, n, 70)) for m, n in ((1, 33), (8, 9000))]
    kinds += [("gpu_contraction", product(target, dt, n, n, 70)) for n in (33, 512, 4096)]
    kinds += [("gpu_attention", attend(target, dt, r, d)) for r, d in ((1, 64), (131, 33))]
    kinds += [("gpu_attention", attend(target, dt, 512, d)) for d in (64, 128, 300)]
    wide = ((7, 1001), (1001, 1))
    kinds += [
        ("gpu_reduce", reduce.launch("max", target, (dt, dt), (1, *s), (0, s[1], 1))) for s in wide
    ]
    for family, (config, launch) in kinds:
        text = emit_kernel(family, "k", config, target)
        assert launch.range > 0 and text.points == 1
        assert text.block <= threads, config
        assert shared_bytes(text) <= shared, config


def test_tiles_are_as_large_as_there_is_work_for() -> None:
    def shape(target: KernelTarget, m: int, n: int, batch: Sizes = ()) -> Tile | Split:
        return product(target, f32, m, n, 64, batch)[0].shape

    assert shape(VULKAN, 4096, 4096) == Tile(16, 16, 8, 8, 8)
    assert shape(gpu(1024, 48 << 10), 4096, 4096) == Tile(16, 16, 8, 8, 16)
    assert shape(gpu(128, 16 << 10), 4096, 4096) == Tile(8, 16, 8, 8, 16)
    assert shape(VULKAN, 1024, 1024) == Tile(16, 16, 4, 4, 16)
    assert shape(VULKAN, 64, 64) == Tile(16, 16, 1, 1, 16)
    assert shape(VULKAN, 64, 64, (100,)) == Tile(16, 16, 2, 2, 16), "a batch is work too"
    assert shape(VULKAN, 3, 4096) == Split(3, 32, 8)
    assert contraction.turns(4096, 3) and not contraction.turns(3, 4096)
    assert not contraction.turns(3, 3) and not contraction.turns(4096, 64)


def test_equal_strides_share_a_kernel() -> None:
    found = {
        product(VULKAN, f32, m, n, k)[0] for m, n, k in ((64, 64, 64), (33, 70, 9), (99, 12, 5))
    }
    assert len(found) == 1, "sizes are arguments"
    (config,) = found
    assert [a for a in config.accesses] == [("any", "one")] * 3


def test_a_batch_is_as_few_dims_as_its_strides_allow() -> None:
    config, launch = product(VULKAN, f32, 33, 20, 9, (2, 3))
    assert config.accesses == (("any", "any", "one"),) * 3
    assert launch.sizes[:4] == (6, 33, 20, 9)


def test_long_columns_are_cut_where_blocks_are_few() -> None:
    assert reduce.rows_of_part(VULKAN, (1, 1 << 20, 1)) == (1 << 20) // 128
    assert reduce.rows_of_part(VULKAN, (1, 1001, 33)) == 1001 // 15 + 1
    assert reduce.rows_of_part(VULKAN, (1, 100, 1)) == 100
    assert reduce.rows_of_part(VULKAN, (1 << 10, 1 << 20, 1)) == 1 << 20


def test_columns_are_read_by_neighbours() -> None:
    """Threads side by side have columns side by side, or rows where those are contiguous."""
    across = reduce.launch("sum", VULKAN, (f32, f32), (1, 300, 64), (0, 64, 1))[0]
    along = reduce.launch("sum", VULKAN, (f32, f32), (1, 300, 64), (0, 1, 300))[0]
    assert (across.columns, across.parts) == (along.columns, along.parts) == (32, 8)
    assert across.access == ("zero", "any", "one") and along.access == ("zero", "one", "any")


def test_bools_are_shared_as_words() -> None:
    config, _ = reduce.launch("max", VULKAN, (bool_, bool_), (1, 300, 1), (0, 1, 1))
    text = emit_kernel("gpu_reduce", "k", config, VULKAN).text
    assert re.findall(r"memref\.alloc\(\) : memref<256x(\w+)", text) == ["i32"]


def test_folds_take_turns_in_shared_memory() -> None:
    k = Kernel("k", VULKAN)
    x, y = k.buffer("x", f32), k.buffer("y", f32)

    def block(i: Reg, thread: Reg) -> None:
        found = [k.load(x, thread)] * 2
        for _ in range(3):
            found = k.block_fold(thread, found, lambda _, a, b: a + b, width=8)
        k.when(thread < 1, lambda: k.store(found[0] + found[1], y, i))

    k.parallel_blocks(64, block)
    assert shared_bytes(k.text()) == 2 * 64 * 4


def test_machine_code_declares_shared_memory_at_the_kernel() -> None:
    cuda = find_target("cuda:sm_90").kernels
    config, _ = product(cuda, f32, 512, 512, 64)
    text = emit_kernel("gpu_contraction", "k", config, cuda).text
    assert "memref.alloc()" not in text
    assert re.search(r"workgroup\(%t\d+: memref<\d+xf32, #gpu.address_space<workgroup>>", text)


@pytest.mark.parametrize("family", ["contraction", "attention"])
def test_a_target_that_shares_too_little_is_refused(family: str) -> None:
    small = gpu(256, 512)
    with pytest.raises(UnsupportedError, match=r"vulkan1\.2"):
        product(small, f32, 64, 64, 64) if family == "contraction" else attend(small, f32, 64, 64)

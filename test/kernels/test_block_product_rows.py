"""Products of rows in 8 bits by packed weights, against exact sums of the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels.test_block_product import INTEGERS, check, room_of, rows, sizes_of, weight

import rlx
from rlx.kernels.matmul import block_pack, block_product_tiles
from rlx.kernels.matmul.block_pack import BlockPackConfig
from rlx.kernels.matmul.block_product import packed_bytes
from rlx.kernels.matmul.block_product_tiles import BlockProductTilesConfig
from rlx.kernels.matmul.block_rows import TILE_ROWS
from rlx.kernels.matmul.block_weights import scheme_of
from rlx.ops.quant.affine import QuantizeRows
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import f32, i8, u8
from support.amx import Tiles, jit_with_tiles
from support.jit import host, jit

Array = np.ndarray[Any, Any]
SIZES = ((1, 1, 256), (1, 65, 512), (2, 17, 256), (3, 16, 768), (5, 100, 256), (8, 33, 512),
         (17, 48, 256), (30, 90, 2304), (40, 80, 512))  # fmt: skip


def rounded(x: Array) -> tuple[Array, Array]:
    g = rlx.Graph()
    q, scales = QuantizeRows(g.input("x", x.shape), 32).reference(x)
    return q, scales


def run(q: Array, scales: Array, packed: Array, scheme: str, **options: Any) -> Array:
    g = rlx.Graph("rows")
    leaves = g.input("q", q.shape, i8), g.input("scales", scales.shape, f32)
    w = g.param("w", packed.shape, u8)
    g.set_outputs(g.dequant_matmul_rows(*leaves, w, scheme=scheme))
    f = rlx.Session("cpu", **options).compile(g)
    dispatch = f.reports[0].compilation.dispatch
    assert dispatch.native == {"block_product_rows: dequant_matmul_rows": 1}
    f.set_param("w", packed)
    return f.run({"q": q, "scales": scales})[0]


CHOSEN = sizes_of(("x86-64-v3", "x86-64-v4", "x86-64-v4+avx512vnni", "native"), SIZES)
CHOSEN = {case: sizes for case, sizes in CHOSEN.items() if scheme_of(case[0]).whole}


@pytest.mark.parametrize(("scheme", "cpu"), CHOSEN)
def test_sizes(scheme: str, cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if cpu != "native":
        monkeypatch.setenv("RLX_CPU", cpu)
    for m, n, depth in CHOSEN[scheme, cpu]:
        (q, scales), packed = rounded(rows(m, depth)), weight(scheme, n, depth)
        wide = q * np.repeat(scales, 32, -1).astype(np.float64)
        check(run(q, scales, packed, scheme), wide, packed, scheme)


@pytest.mark.parametrize("scheme", INTEGERS)
def test_bits_depend_on_neither_rows_nor_threads_nor_the_machine(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (q, scales), packed = rounded(rows(45, 512)), weight(scheme, 100, 512)
    whole = run(q, scales, packed, scheme, threads=1)
    np.testing.assert_array_equal(run(q, scales, packed, scheme, threads=2), whole)
    for m in (1, 2, 3, 5, 7, 11, 15, 16, 17, 33):
        np.testing.assert_array_equal(run(q[:m], scales[:m], packed, scheme), whole[:m])
    for n in (1, 16, 31, 64):
        np.testing.assert_array_equal(run(q, scales, packed[:n], scheme), whole[:, :n])
    monkeypatch.setenv("RLX_CPU", "x86-64-v3")
    np.testing.assert_array_equal(run(q, scales, packed, scheme), whole)


@pytest.mark.parametrize("scheme", ["q4_1", "q4_k", "q8_0"])
def test_rows_near_the_largest_number(scheme: str) -> None:
    """The sum of a block of a row is beyond it, and no result is."""
    packed = weight(scheme, 20, 256, size=2.0**-20)
    for m in (1, 5):
        x = np.abs(rows(m, 256))
        x *= np.float32(1e38 / max(room_of(x, packed, scheme).max(), x.max()))
        assert x.reshape(-1, 32).astype(np.float64).sum(1).max() > np.finfo(np.float32).max
        q, scales = rounded(x)
        check(run(q, scales, packed, scheme), q * np.repeat(scales, 32, -1), packed, scheme)


AMX = preset("x86-64-v4+amx-tile+amx-int8")


def tiled(x: Array) -> Array:
    """What rows have of each block, ``[m, blocks, ...]``, by tiles of rows."""
    m = len(x)
    x = np.concatenate([x, np.zeros((-m % TILE_ROWS, *x.shape[1:]), x.dtype)])
    return np.ascontiguousarray(x.reshape(-1, TILE_ROWS, *x.shape[1:]).swapaxes(1, 2))


@pytest.mark.parametrize("scheme", ["q4_1", "q4_k", "q6_k", "q8_0"])
def test_amx_has_the_same_bits(scheme: str) -> None:
    target, has = kernel_target(AMX), AMX.has <= host().has
    config, m, n, depth = BlockProductTilesConfig(scheme), 20, 40, 1280
    kernel = block_product_tiles.emit("product", config, target)
    tiles = Tiles()  # kept as long as its functions are called
    product = jit(kernel, AMX) if has else jit_with_tiles(kernel, AMX, tiles)
    (q, scales), packed = rounded(rows(m, depth)), weight(scheme, n, depth)
    panels = np.zeros(packed_bytes(target, scheme, n, depth), np.uint8)
    launch = block_pack.launch(BlockPackConfig(scheme), target, 1, n, packed.shape[1])
    pack = jit(block_pack.emit("pack", BlockPackConfig(scheme), target), AMX if has else None)
    pack(0, launch.range, [packed, panels], launch.sizes)
    codes, y = q.reshape(m, -1, 32), np.zeros((m, n), np.float32)
    sums = codes.sum(-1).astype(np.float32)
    launch = block_product_tiles.launch(config, target, m, n, depth)
    buffers = [tiled(codes), tiled(scales), tiled(sums), panels, y]
    product(0, launch.range, buffers, launch.sizes, launch.scratch)
    np.testing.assert_array_equal(y, run(q, scales, packed, scheme))


@pytest.mark.parametrize("cpu", ["x86-64-v3", "native"])
@pytest.mark.parametrize("scheme", ["q4_0", "q4_1", "q6_k"])
def test_rows_rounded_for_a_product(scheme: str, cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if cpu != "native":
        monkeypatch.setenv("RLX_CPU", cpu)
    packed = weight(scheme, 20, 512)
    for m in (1, 3, 4, 9, 37):
        x = rows(m, 512)
        x[0, 64:96] = 0
        x[m - 1, 33] = np.nan
        g = rlx.Graph()
        q, scales = g.input("x", x.shape).quantize_rows(32)
        w = g.param("w", packed.shape, u8)
        g.set_outputs([q, scales, g.dequant_matmul_rows(q, scales, w, scheme=scheme)])
        f = rlx.Session("cpu").compile(g)
        f.set_param("w", packed)
        found, found_scales, y = f.run({"x": x})
        wanted, wanted_scales = rounded(x)
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(found_scales, wanted_scales)
        np.testing.assert_array_equal(y, run(wanted, wanted_scales, packed, scheme))
        assert np.isnan(y[m - 1]).all() and not np.isnan(y[: m - 1]).any()


@pytest.mark.parametrize("cpu", ["x86-64-v3", "native"])
def test_rows_in_8_bits_have_the_bits_of_the_reference(
    cpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cpu != "native":
        monkeypatch.setenv("RLX_CPU", cpu)
    x = np.random.default_rng(0).standard_normal((7, 5, 96), np.float32)
    x[0, 0, :32] = 0
    x[1, 1, 40], x[2, 2, 3], x[3, 3, 90] = np.nan, np.inf, -np.inf
    x[4] *= 1e-38
    x[5] *= 1e37
    x[6, 0, :32] = np.arange(-16, 16) + 0.5
    g = rlx.Graph()
    source = g.input("x", x.shape)
    g.set_outputs([*source.quantize_rows(32), *source.transpose((1, 0, 2)).quantize_rows(32)])
    f = rlx.Session("cpu").compile(g)
    assert f.reports[0].compilation.dispatch.native["block_rows: quantize_rows"] == 2
    q, scales, *turned = f.run({"x": x})
    wanted = rounded(x)
    np.testing.assert_array_equal(q, wanted[0])
    np.testing.assert_array_equal(scales, wanted[1])
    for found, want in zip(turned, wanted, strict=True):
        np.testing.assert_array_equal(found, want.transpose((1, 0, 2)))
    assert np.isnan(scales[1, 1, 1])
    assert np.isinf(scales[2, 2, 0])

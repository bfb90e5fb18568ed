"""Products by weights in packed blocks on the software devices, against the decoded weights in
double precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernels.test_block_product import INTEGERS, check, rows, weight

import rlx
from rlx import quant
from rlx.codegen.builder import KernelText
from rlx.codegen.family import Launch
from rlx.codegen.strides import ceil_div
from rlx.compiler.driver import compile_program
from rlx.errors import UnsupportedError
from rlx.kernels.matmul import gpu_block_panels, gpu_block_product, gpu_block_units
from rlx.kernels.matmul.block_weights import DECODERS, scheme_of
from rlx.kernels.matmul.gpu_block_panels import LANES, words_of
from rlx.kernels.matmul.gpu_block_product import Few
from rlx.kernels.matmul.gpu_block_units import Waves
from rlx.kernels.matmul.gpu_tile import Tile
from rlx.kernels.registry import emit_kernel
from rlx.targets import find_target
from rlx.types import DType, bf16, f16, f32, u8
from support.device import compiled
from support.simt import run_blocks
from support.sweeps import WHOLE

Array = np.ndarray[Any, Any]
FEW, TILED = ((1, 65, 512), (3, 17, 256), (7, 100, 256)), (19, 70, 256)
APIS = pytest.mark.parametrize("api", ["opencl", "vulkan", "gpu"])
VULKAN = find_target("vulkan").kernels


@APIS
def test_every_scheme_from_one_row_to_a_tile(api: str) -> None:
    """One program: what compiles a kernel takes longer than to run it. Those of Vulkan's devices
    take one scheme of each kind for few rows and for many, OpenCL's those that have a decoder of
    their own for either by turns."""
    every = [s for s in DECODERS if scheme_of(s).whole]
    schemes = (every if WHOLE else INTEGERS) if api == "opencl" else ("q4_0", "q6_k")
    sizes = [(s, size) for n, s in enumerate(schemes) for size in (FEW[n % 3], TILED)]
    if api == "opencl" and not WHOLE:
        sizes = [pair for n, pair in enumerate(sizes) if n % 4 in (0, 3)]
    cases = [(s, rows(m, k), weight(s, n, k)) for s, (m, n, k) in sizes]
    g = rlx.Graph("blocks")
    g.set_outputs(
        [
            g.input(f"x{n}", x.shape).dequant_matmul(g.param(f"w{n}", w.shape, u8), scheme=s)
            for n, (s, x, w) in enumerate(cases)
        ]
    )
    f = compiled(api, g)
    dispatch = compile_program(g, find_target(api))[1].compilation.dispatch
    assert dispatch.native == {"gpu_block_product: dequant_matmul": len(cases)}
    assert not dispatch.decoded and not dispatch.rewritten and not dispatch.common
    for n, (_, _, w) in enumerate(cases):
        f.set_param(f"w{n}", w)
    found = f.run({f"x{n}": x for n, (_, x, _) in enumerate(cases)})
    for y, (scheme, x, w) in zip(found, cases, strict=True):
        check(y, x, w, scheme)


def test_products_written_as_ops_and_weights_of_a_call() -> None:
    x, packed = rows(2, 256), weight("q4_k", 40, 256)
    g = rlx.Graph("ops")
    w = g.input("w", packed.shape, u8).dequantize_blocks("q4_k").transpose()
    g.set_outputs(g.input("x", x.shape) @ w)
    dispatch = compile_program(g, find_target("opencl"))[1].compilation.dispatch
    assert dispatch.native == {"gpu_block_product: dequant_matmul": 1}
    check(compiled("opencl", g).run({"x": x, "w": packed})[0], x, packed, "q4_k")


def test_rows_of_sixteen_bits_and_rows_that_lie_apart() -> None:
    packed = weight("q8_0", 40, 64)
    x = rows(3, 128).astype(np.float16)
    g = rlx.Graph("halves")
    wide, w = g.input("x", x.shape, "f16"), g.param("w", packed.shape, u8)
    parts = [wide[:, 64:], wide[:, 64:].cast(to="bf16"), wide[:, 64:].transpose().transpose()]
    g.set_outputs([v.dequant_matmul(w, scheme="q8_0") for v in parts])
    f = compiled("opencl", g)
    f.set_param("w", packed)
    exact = x[:, 64:].astype(np.float64) @ quant.dequantize(packed, "q8_0", (40, 64)).T
    for y, bits in zip(f.run({"x": x}), (10, 7, 10), strict=True):
        near = np.abs(exact).max() * 2.0**-bits  # of x and of y
        np.testing.assert_allclose(y.astype(np.float64), exact, rtol=2.0**-bits, atol=near)


def test_rows_of_integers() -> None:
    rng = np.random.default_rng(0)
    cases = [("q4_1", 2), ("q6_k", 20)]
    g, feeds = rlx.Graph("rows"), {}
    outs: list[Any] = []
    for n, (scheme, m) in enumerate(cases):
        feeds[f"q{n}"] = rng.integers(-127, 128, (m, 256)).astype(np.int8)
        feeds[f"s{n}"] = rng.random((m, 8), np.float32)
        feeds[f"w{n}"] = weight(scheme, 40, 256)
        leaves = [g.input(f"{c}{n}", feeds[f"{c}{n}"].shape, feeds[f"{c}{n}"].dtype) for c in "qsw"]
        outs.append(g.dequant_matmul_rows(*leaves, scheme=scheme))
    g.set_outputs(outs)
    dispatch = compile_program(g, find_target("opencl"))[1].compilation.dispatch
    assert dispatch.native == {"gpu_block_product: dequant_matmul_rows": len(cases)}
    for n, y in enumerate(compiled("opencl", g).run(feeds)):
        wide = (feeds[f"q{n}"] * np.repeat(feeds[f"s{n}"], 32, -1)).astype(np.float32)
        check(y, wide, feeds[f"w{n}"], cases[n][0])


def test_what_no_kernel_reads_is_decoded_and_said() -> None:
    g = rlx.Graph("expanded")
    w = g.param("w", [64, 84], u8)
    g.set_outputs(g.input("x", [2, 256]).dequant_matmul(w, scheme="q2_k"))
    dispatch = compile_program(g, find_target("opencl"))[1].compilation.dispatch
    assert dispatch.decoded == {"q2_k": 64 * 256 * 4}
    assert "q2_k to f32: 0.06 MiB" in str(dispatch)


@pytest.mark.parametrize("scheme", DECODERS)
def test_panels_take_as_much_memory_as_the_bytes(scheme: str) -> None:
    row = scheme_of(scheme)
    assert words_of(scheme, 2 * LANES, 512) * 4 == 2 * LANES * 512 // row.block * row.bytes


@pytest.mark.parametrize("shared", [16 << 10, 48 << 10])
@pytest.mark.parametrize("threads", [128, 256, 1024])
def test_a_block_fits_its_target(threads: int, shared: int) -> None:
    target = replace(VULKAN, most_threads=threads, shared_bytes=shared)
    for m, n in ((1, 64), (3, 1 << 15), (8, 4096), (16, 4096), (512, 4096), (4096, 4096)):
        config, launch = gpu_block_product.launch("q4_k", target, (f32, f32), m, n, 256, 256)
        text = emit_kernel("gpu_block_product", "k", config, target)
        assert launch.range > 0 and text.block <= threads
        form = config.shape
        held = form.shared_bytes(f32) if isinstance(form, Tile) else 4 * form.threads * form.sums
        assert held <= shared


def test_sizes_choose_what_a_block_computes() -> None:
    choose = gpu_block_product.choose
    assert choose(VULKAN, 1, 4096) == Few(1, 1, 8)
    assert choose(VULKAN, 1, 1 << 15) == Few(1, 2, 4), "panels enough to share the rows"
    assert choose(VULKAN, 8, 4096) == Few(4, 1, 8)
    assert choose(VULKAN, 32, 8192) == Tile(16, 16, 2, 2, 16)
    assert choose(VULKAN, 4096, 4096) == Tile(16, 16, 4, 4, 16)
    with pytest.raises(UnsupportedError, match=r"no tile fits the 512 bytes .*vulkan1\.2"):
        choose(replace(VULKAN, shared_bytes=512), 64, 64)


# -- matrix units --------------------------------------------------------------------------


def simulate(text: KernelText, launch: Launch, arrays: list[Array]) -> None:
    given = iter(launch.sizes)
    numbers = [launch.range if s == "range" else next(given) for s in text.sizes]
    run_blocks(text, ceil_div(launch.range, text.points), arrays, numbers)


@pytest.mark.parametrize(
    ("scheme", "target", "dt", "m"),
    [
        ("q4_0", "cuda:sm_90a", f16, 3),
        ("q4_1", "cuda:sm_80", bf16, 70),
        ("q8_0", "rocm:gfx942", f16, 20),
        ("q4_k", "rocm:gfx90a", bf16, 17),
        ("q5_k", "cuda:sm_90a", bf16, 5),
        ("q6_k", "cuda:sm_120", f16, 33),
    ],
)
def test_products_by_matrix_units(
    scheme: str, target: str, dt: DType, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the simulator, whose waves share what the makers' documents say."""
    monkeypatch.setattr(gpu_block_units, "ENOUGH_BLOCKS", 1 + m % 4)
    n, depth, kernels = 40, 512, find_target(target).kernels
    kind = {f16: np.float16, bf16: ml_dtypes.bfloat16}[dt]
    packed, x = weight(scheme, n, depth), rows(m, depth).astype(kind)
    words = np.zeros(words_of(scheme, n, depth), np.int32)
    config, launch = gpu_block_panels.launch(scheme, n, depth)
    text = emit_kernel("gpu_block_pack", "pack", config, kernels)
    simulate(text, launch, [packed.reshape(-1), words])
    config, launch = gpu_block_product.launch(scheme, kernels, (dt, f32), m, n, depth, depth)
    assert isinstance(config.shape, Waves) and config.shape.aligned
    text = emit_kernel("gpu_block_product", "product", config, kernels)
    out = np.full((m, n), np.nan, np.float32)
    simulate(text, launch, [x.reshape(-1), words, out.reshape(-1)])
    decoded = quant.dequantize(packed, scheme, (n, depth)).astype(kind).astype(np.float64)
    exact = x.astype(np.float64) @ decoded.T
    room = np.abs(x.astype(np.float64)) @ np.abs(decoded).T
    assert np.all(np.abs(out - exact) <= 2.0**-20 * room)


def test_matrix_units_are_for_rows_of_their_types() -> None:
    def shape(scheme: str, target: str, dt: DType, m: int, lda: int = 512) -> Any:
        kernels = find_target(target).kernels
        return gpu_block_product.launch(scheme, kernels, (dt, dt), m, 4096, 512, lda)[0].shape

    assert shape("q4_0", "cuda:sm_90a", f16, 512) == Waves("mma.m16n8k16", 4, 4, True)
    assert shape("q4_0", "cuda:sm_90a", f16, 64) == Waves("mma.m16n8k16", 2, 8, True)
    assert shape("q4_0", "cuda:sm_90a", f16, 16, 513) == Waves("mma.m16n8k16", 1, 16, False)
    assert isinstance(shape("q4_0", "cuda:sm_90a", f32, 512), Tile), "f32 rows stay as they are"
    assert isinstance(shape("q4_0", "cuda:sm_90a", f16, 1), Few)
    assert isinstance(shape("q5_0", "cuda:sm_90a", f16, 512), Tile), "its fifth bits lie apart"
    assert isinstance(shape("q4_0", "cuda:sm_75", f16, 512), Tile)

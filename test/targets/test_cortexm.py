"""Networks of integers as C for Cortex-M: layers against SciPy, and the program against the network
bit for bit, by the compiler of this machine and, where QEMU and GCC for Arm are, on boards.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import cortexm
from rlx.errors import DeviceError, GraphError, RlxError, ToolchainError, UnsupportedError
from rlx.targets.cortexm import firmware as building
from rlx.targets.cortexm.features import PRESETS, preset
from rlx.targets.integer.arithmetic import requantize_q31
from rlx.targets.integer.network import MeanPool, Product
from support.cortexm_boards import MISSING, needs_board, needs_cc, param

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)


def mlp() -> rlx.Graph:
    """Sizes that are no multiples of blocks and groups."""
    g = rlx.Graph("mlp")
    h = (g.input("x", ["n", 37]) @ param(g, "w0", 37, 21) + param(g, "b0", 21)).relu()
    g.set_outputs([(h @ param(g, "w1", 21, 5) + param(g, "b1", 5)).argmax(axis=-1)])
    return g


def cnn() -> rlx.Graph:
    """Padding, strides, pools, and the flattening of several channels."""
    g = rlx.Graph("cnn")
    h = g.input("x", ["n", 2, 9, 8]).conv2d(param(g, "c0", 6, 2, 3, 3), padding=1)
    h = (h + param(g, "b0", 6, 1, 1)).relu().max_pool2d(2)
    h = h.conv2d(param(g, "c1", 5, 6, 3, 2), stride=(2, 1), padding=(1, 0))
    g.set_outputs([h.flatten(1) @ param(g, "w", 30, 3)])
    return g


def keywords() -> rlx.Graph:
    """A depthwise separable network with a batch norm, a pool, and a mean at the end."""
    g = rlx.Graph("keywords")
    h = g.input("x", ["n", 1, 13, 6]).conv2d(param(g, "c0", 6, 1, 4, 3), stride=2, padding=(2, 1))
    gamma, beta, mean = param(g, "gamma", 6), param(g, "beta", 6), param(g, "mean", 6)
    h = h.batch_norm(mean, g.param("var", value=np.full(6, 0.5, np.float32)), gamma, beta).relu()
    h = h.conv2d(param(g, "d", 6, 1, 3, 3), param(g, "e", 6), padding=1, groups=6).relu()
    h = h.conv2d(param(g, "p", 8, 6, 1, 1), param(g, "q", 8)).relu().max_pool2d((2, 1))
    g.set_outputs([h.mean(axes=(2, 3)) @ param(g, "w", 8, 4)])
    return g


def means() -> rlx.Graph:
    """A mean of windows as the result, of 16 bits; windows whose rows are no whole words, where
    nothing is free between the copy of a window and the results."""
    g = rlx.Graph("means")
    h = g.input("x", ["n", 5, 8, 6]).conv2d(param(g, "c", 4, 5, 3, 1))
    g.set_outputs([h.mean_pool(3)])
    return g


def dense() -> rlx.Graph:
    g = rlx.Graph("dense")
    g.set_outputs([g.input("x", ["n", 256]) @ param(g, "w", 256, 64)])
    return g


MODELS: list[Callable[[], rlx.Graph]] = [mlp, cnn, keywords, means]


@cache
def quantized(make: Callable[[], rlx.Graph]) -> tuple[cortexm.Network, Array, Array]:
    """The network of a graph, images, and codes with the extremes."""
    graph = make()
    shape = [int(d) for d in graph.inputs[0].shape[1:]]
    images = RNG.uniform(-1, 1, (24, *shape)).astype(np.float32)
    found = rlx.quant.quantize_graph(graph, None, "int8", [{"x": images}])
    network = cortexm.network(found.graph, found.params)
    ends = [np.full(network.source, v, np.int8) for v in (-128, 127)]
    noise = RNG.integers(-128, 128, (4, *network.source)).astype(np.int8)
    return network, images, np.concatenate([network.codes(images), np.stack(ends), noise])


# -- networks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MODELS)
def test_a_network_is_near_the_floats(make: Callable[[], rlx.Graph]) -> None:
    graph = make()
    network, images, _ = quantized(make)
    (want,) = rlx.Session("cpu").compile(graph).run({"x": images})
    found = network.run(network.codes(images))
    if want.ndim == 1:
        assert (found[:, 0] == want).mean() >= 0.9
        return
    if want.ndim == 4:
        want = want.transpose(0, 2, 3, 1)
    found = found.reshape(want.shape)
    assert np.abs(found * network.result_scale - want).max() / np.abs(want).max() < 0.05


def test_layers_are_those_of_scipy() -> None:
    signal: Any = pytest.importorskip("scipy.signal")
    network, _, codes = quantized(keywords)
    layers = [layer for layer in network.layers if isinstance(layer, Product)]
    deep, mean = layers[1], next(x for x in network.layers if isinstance(x, MeanPool))
    assert deep.depthwise and deep.macs == deep.weights.size * deep.size[0] * deep.size[1]
    x = network.layers[0].run(codes)
    found = deep.run(x)
    for image, result in zip(x.astype(int), found, strict=True):
        for n, w in enumerate(deep.weights[..., 0].astype(int)):
            sums = signal.correlate2d(np.pad(image[:, :, n], 1), w, "valid") + deep.bias[n]
            real = sums * (float(deep.multiplier[n]) * 2.0 ** -(31 + deep.shift))
            assert np.abs(np.clip(real, 0, 127) - result[:, :, n]).max() <= 0.51
    wide = RNG.integers(-32768, 32768, (5, *mean.source))
    whole = float(mean.multiplier) * 2.0 ** -(31 + mean.shift)
    real = np.clip(wide.sum((1, 2)) * whole, mean.low, mean.high)
    assert np.abs(mean.run(wide)[:, 0, 0] - real).max() <= 0.51


def _rounded(x: rlx.Value, scale: float, zero: int, to: str = "i8") -> rlx.Value:
    """Numbers as codes, and back, as models in ONNX have it."""
    point = np.array(zero, "i1" if to == "i8" else "u1")
    codes = x.quantize(np.float32(scale), point, to=to)
    return codes.dequantize(np.float32(scale), point)


def _codes(g: rlx.Graph, name: str, *shape: int) -> rlx.Value:
    """Weights as codes with a scale for each output."""
    rng = np.random.default_rng(sum(map(ord, name)))
    codes = g.param(name, value=rng.integers(-127, 128, shape).astype(np.int8))
    return codes.dequantize(g.constant((rng.uniform(1, 2, shape[0]) / 900).astype("f4")), axis=0)


def zeros(to: str = "i8") -> rlx.Graph:
    """Zero points, also in padding and in a mean of codes; codes are rounded only as asked."""
    low = 0 if to == "u8" else -128
    g = rlx.Graph("zeros")
    h = _rounded(g.input("x", ["n", 2, 9, 8]), 0.01, low + 99, to)
    h = (h.conv2d(_codes(g, "a", 6, 2, 3, 3), padding=1) + param(g, "b", 6, 1, 1)).relu()
    h = _rounded(_rounded(h, 0.005, low, to).max_pool2d(2), 0.005, low, to)
    h = h.conv2d(_codes(g, "d", 6, 1, 3, 3), padding=1, groups=6) + param(g, "e", 6, 1, 1)
    h = _rounded(h, 0.012, low + 120, to).relu()
    h = _rounded(h, 0.012, low + 120, to).mean(axes=(2, 3))
    h = _rounded(_rounded(h, 0.008, low + 7, to), 0.008, low + 7, to)
    g.set_outputs([_rounded(h @ _codes(g, "w", 5, 6).transpose(), 0.01, low + 131, to)])
    return g


@needs_cc
@pytest.mark.parametrize("to", ["i8", "u8"])
def test_codes_with_zero_points(to: str, tmp_path: Path) -> None:
    """As quantizers of ONNX write them: each result is at most a code from the graph's."""
    graph = zeros(to)
    images = RNG.uniform(-1, 1, (40, 2, 9, 8)).astype(np.float32)
    network = cortexm.network(graph)
    codes = np.concatenate([network.codes(images), np.full((1, 9, 8, 2), 127, np.int8)])
    found = network.run(codes)
    (want,) = rlx.interpret(graph, {"x": images}, graph.param_values)
    whole = np.rint(want / network.result_scale) + network.result_zero
    off = np.abs(whole - found[:40])
    assert off.max() <= 1 and (off == 0).mean() > 0.8
    for core in ("m4", "m55"):
        firmware: Any = cortexm.export_cortexm(graph, tmp_path / core, target=f"cortexm:{core}")
        np.testing.assert_array_equal(_on_host(firmware, codes), found)
    assert f"MODEL_INPUT_ZERO ({network.zero})" in (tmp_path / "m4" / "model.h").read_text()
    if not MISSING:
        np.testing.assert_array_equal(firmware.run(codes[-3:]).results, found[-3:])


def test_models_of_onnxruntime(tmp_path: Path) -> None:
    tools: Any = pytest.importorskip("onnxruntime.quantization")
    ort: Any = pytest.importorskip("onnxruntime")
    g, path = rlx.Graph("plain"), str(tmp_path / "model.onnx")
    h = g.input("x", ["n", 2, 9, 8]).conv2d(param(g, "c0", 6, 2, 3, 3), padding=1).relu()
    h = h.max_pool2d(2).conv2d(param(g, "c1", 5, 6, 3, 2), stride=(2, 1)).relu()
    g.set_outputs([h.flatten(1) @ param(g, "w", 15, 3)])
    rlx.to_onnx(g, path)
    images = RNG.uniform(-1, 1, (24, 2, 9, 8)).astype(np.float32)

    class Reader(tools.CalibrationDataReader):
        rows = iter([{"x": images}])

        def get_next(self) -> Any:
            return next(self.rows, None)

    tools.quantize_static(path, path, Reader(), quant_format=tools.QuantFormat.QDQ)
    network = cortexm.network(rlx.from_onnx(path))
    (want,) = ort.InferenceSession(path).run(None, {"x": images})
    whole = np.rint(want / network.result_scale) + network.result_zero
    assert np.abs(whole - network.run(network.codes(images))).max() <= 2


# -- programs ------------------------------------------------------------------------------------


def _on_host(firmware: cortexm.Firmware, codes: Array) -> Array:
    """The results of model.c, compiled for this machine."""
    words = ["cc", "-O1", "-std=c11", "-Wall", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*words, "-o", "model.so", "model.c"], cwd=firmware.folder, check=True)
    library = ctypes.CDLL(str(firmware.folder / "model.so"))
    library.model_input.restype = library.model_run.restype = ctypes.c_void_p
    last = firmware.network.layers[-1]
    count = int(np.prod(last.size))
    kind = ctypes.c_int16 if last.bits == 16 else ctypes.c_int8
    out: list[Array] = []
    for image in codes:
        ctypes.memmove(library.model_input(), image.tobytes(), image.size)
        results = (kind * count).from_address(library.model_run())
        out.append(np.array(results, np.int64))
    return np.stack(out)


@needs_cc
def test_every_shift_rounds_as_the_arithmetic_does(tmp_path: Path) -> None:
    code, library = tmp_path / "requantize.c", tmp_path / "requantize.so"
    header = Path(building.__file__).with_name("kernels.h")
    code.write_text(
        f'#define RLX_GROUP 4\n#include "{header}"\nint32_t requantize(int32_t acc, int32_t shift)'
        " { return rlx_requantize(acc, 1 << 30, shift, 3, -30000, 30000); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(code)], check=True)
    requantize = ctypes.CDLL(str(library)).requantize
    near = [sign * ((1 << n) + d) for n in range(30) for d in (-1, 0, 1) for sign in (1, -1)]
    for shift in range(32):
        want = requantize_q31(np.array(near), 1 << 30, -shift, 3, -30000, 30000)
        assert [requantize(acc, shift) for acc in near] == list(want), shift


@needs_cc
@pytest.mark.parametrize("make", MODELS)
def test_the_program_gives_what_the_network_gives(
    make: Callable[[], rlx.Graph], tmp_path: Path
) -> None:
    network, _, codes = quantized(make)
    for core in ("m4", "m55"):  # groups of 4 elements, and of 16
        firmware = cortexm.export_cortexm(network, tmp_path / core, target=f"cortexm:{core}")
        np.testing.assert_array_equal(_on_host(firmware, codes), network.run(codes))


@needs_board
@pytest.mark.parametrize(("core", "make"), [
    ("m0", mlp), ("m3", cnn), ("m4", keywords), ("m55", keywords), ("m55", means),
])  # fmt: skip
def test_a_board_gives_what_the_network_gives(
    core: str, make: Callable[[], rlx.Graph], tmp_path: Path
) -> None:
    network, _, codes = quantized(make)
    firmware = cortexm.export_cortexm(network, tmp_path, target=f"cortexm:{core}")
    built, ran = firmware.build(), firmware.run(codes)
    np.testing.assert_array_equal(ran.results, network.run(codes))
    weights = sum(x.weights.size for x in network.layers if isinstance(x, Product))
    assert firmware.arena_bytes <= built.ram < firmware.arena_bytes + 16
    assert weights < built.flash < built.image < weights + 16000
    assert 0 < ran.instructions < 1e6


@needs_board
@pytest.mark.parametrize(("core", "most"), [("m4", 2.2), ("m33", 2.2), ("m55", 0.45)])
def test_dense_layers_use_the_instructions_of_the_core(
    core: str, most: float, tmp_path: Path
) -> None:
    network, _, codes = quantized(dense)
    firmware = cortexm.export_cortexm(network, tmp_path, target=f"cortexm:{core}")
    assert firmware.run(codes[:4]).instructions / (256 * 64) <= most


def test_a_project_is_whole(tmp_path: Path) -> None:
    network, _, _ = quantized(cnn)
    for core in PRESETS.values():
        firmware = cortexm.export_cortexm(network, tmp_path, target=core.name)
        header = (tmp_path / "model.h").read_text()
        assert f"#define MODEL_ARENA_BYTES {firmware.arena_bytes}\n" in header
        assert f"ORIGIN = {core.flash:#x}" in (tmp_path / "link.ld").read_text()
        assert core.board in (tmp_path / "Makefile").read_text()
    assert {p.name for p in tmp_path.iterdir()} == {
        "model.h", "model.c", "kernels.h", "startup.c", "main.c", "link.ld", "Makefile",
    }  # fmt: skip
    assert preset("m7").board == "mps2-an500"
    # Nothing is taken from a heap, or from a C library.
    own = (tmp_path / "kernels.h").read_text() + (tmp_path / "model.c").read_text()
    assert not re.search(r"\b(malloc|printf|(?<!__builtin_)memcpy)\b", own)


def test_tools_that_are_missing_or_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, _, codes = quantized(mlp)
    firmware = cortexm.export_cortexm(network, tmp_path, target="cortexm")
    assert firmware.core is PRESETS["m4"]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ToolchainError, match="arm-none-eabi-gcc is not on the PATH"):
        firmware.build()
    with pytest.raises(ToolchainError, match="qemu-system-arm is not on the PATH"):
        firmware.run(codes)
    with pytest.raises(ToolchainError, match="a tool failed:\nbecause"):
        building.run(["sh", "-c", "echo because; exit 1"], tmp_path, "a tool")


# -- refusals ------------------------------------------------------------------------------------


def _behind(then: Callable[[rlx.Graph, rlx.Value], rlx.Value], *, weight: int = 1) -> rlx.Graph:
    """What follows a convolution of codes."""
    from rlx.ops.quant.integer import ScaledConv

    g, scale = rlx.Graph("integers"), np.float32(0.01)
    w = g.param("w", value=np.full((4, 2, 1, 1), weight, np.int8))
    codes = g.input("x", ["n", 2, 4, 4]).quantize(scale)
    one: dict[str, Any] = {"stride": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1)}
    s = g.constant(scale)
    g.set_outputs([then(g, ScaledConv(codes, w, s, s, None, None, groups=1, **one).out)])
    return g


def _wide(g: rlx.Graph) -> rlx.Value:
    return g.param("w2", value=np.ones((1, 4, 1, 1), np.int16)).dequantize(np.float32(1))


def _two(g: rlx.Graph, x: rlx.Value, scale: float) -> rlx.Value:
    return _rounded(x, 0.01, 3).quantize(np.float32(scale), np.int8(3))


REFUSED: list[tuple[str, Callable[[rlx.Graph, rlx.Value], rlx.Value], int, type[RlxError]]] = [
    ("cortexm: exp is no layer of integers", lambda g, x: x.exp(), 1, UnsupportedError),
    ("with what is known on its right", lambda g, x: g.constant(np.float32(1)) - x, 1,
     UnsupportedError),
    ("turns a weight of -128", lambda g, x: x * np.float32(-2), -128, UnsupportedError),
    ("relu is taken before a mean", lambda g, x: x.mean_pool(2).relu(), 1, UnsupportedError),
    ("max_pool is taken before a mean", lambda g, x: x.mean_pool(2).max_pool2d(2), 1,
     UnsupportedError),
    ("mean_pool is taken in two dims, without padding", lambda g, x: x.mean_pool(2, padding=1), 1,
     UnsupportedError),
    ("over the rows and columns of", lambda g, x: x.mean(axes=(1, 2)), 1, UnsupportedError),
    ("mean_pool is taken behind a product, once", lambda g, x: x.mean_pool(2).mean_pool(2), 1,
     UnsupportedError),
    ("quantize is taken with one known scale, one zero point and 8-bit codes",
     lambda g, x: x.quantize(np.float32(1), to="i16"), 1, UnsupportedError),
    ("quantize rounds codes to another scale", lambda g, x: _two(g, x, 0.02), 1, UnsupportedError),
    ("with the scale and the zero point of its codes",
     lambda g, x: x.quantize(np.float32(1)).dequantize(np.float32(2)), 1, UnsupportedError),
    ("matmul multiplies floats",
     lambda g, x: _rounded(x, 0.1, 0).flatten(1) @ np.ones((64, 2), "f4"), 1, UnsupportedError),
    ("a mean of codes is taken before a quantize",
     lambda g, x: _rounded(x, 0.1, 0).mean(axes=(2, 3)), 1, UnsupportedError),
    ("conv needs codes of a known scale before it",
     lambda g, x: _rounded(x, 0.1, 0).mean_pool(2).conv2d(_codes(g, "w1", 1, 4, 1, 1)), 1,
     UnsupportedError),
    ("conv is taken with i8 weights",
     lambda g, x: _rounded(x, 0.1, 0).conv2d(_wide(g)), 1, UnsupportedError),
    ("finer than its sums'", lambda g, x: x.mean(axes=(2, 3)).quantize(np.float32(1e-9)), 1,
     GraphError),
]  # fmt: skip


@pytest.mark.parametrize(("match", "then", "weight", "error"), REFUSED)
def test_what_is_no_network_is_refused_by_name(
    match: str, then: Any, weight: int, error: type[RlxError]
) -> None:
    with pytest.raises(error, match=match):
        cortexm.network(_behind(then, weight=weight))


def test_what_else_is_refused(tmp_path: Path) -> None:
    network, _, _ = quantized(mlp)
    with pytest.raises(DeviceError, match="did you mean"):
        cortexm.export_cortexm(network, tmp_path, target="cortexm:m34")
    g = rlx.Graph("wide")
    from rlx.ops.quant.integer import ScaledConv

    s = g.constant(np.float32(0.01))
    codes = g.input("x", ["n", 1, 200, 200]).quantize(np.float32(0.01))
    w = g.param("w", value=np.ones((1, 1, 1, 1), np.int8))
    one: dict[str, Any] = {"stride": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1)}
    out = ScaledConv(codes, w, s, s, None, None, groups=1, **one).out
    g.set_outputs([out.mean(axes=(2, 3))])
    with pytest.raises(UnsupportedError, match="over 16384 elements at most, of 40000"):
        cortexm.network(g)
    quantised = rlx.quant.quantize_graph(
        means(), None, "int8", [{"x": np.ones((1, 5, 8, 6), "f4")}]
    )
    with pytest.raises(UnsupportedError, match="fpga: mean_pool is no layer of integers"):
        rlx.fpga.network(quantised.graph, quantised.params)

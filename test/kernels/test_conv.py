"""Convolution kernels against the op's reference, in all their tiles, layouts and cuts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import pytest

import rlx
from rlx.base.giving_way import compiles
from rlx.codegen.program import Program, Step
from rlx.compiler.driver import lowered
from rlx.ir.op import placeholders
from rlx.kernels.conv import (
    channels_plan as conv_channels_plan,
)
from rlx.kernels.conv import (
    layout as conv_layout,
)
from rlx.kernels.conv import (
    planes as conv,
)
from rlx.kernels.conv.layout import BlocksConfig, PlanesConfig
from rlx.kernels.conv.plan import tile_of
from rlx.kernels.conv.planes import ConvConfig, ConvShape, OperandKind, Planes
from rlx.lowering.compilation import Compilation
from rlx.lowering.select.conv import strategies as conv_ways
from rlx.ops.conv.conv import Conv
from rlx.targets import find_target
from rlx.targets.cpu.features import Features, preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DType, TensorType, f32, f64
from support.compiled import agrees, arrays
from support.jit import host
from support.runkernel import element_strides, features_of, guarded, run_launch
from support.sweeps import pairwise

Array = np.ndarray[Any, Any]
Way = Literal["columns", "channels", "images"]

ADD = Step("mir.add", (0, 1), (f32, f32), f32)
BIAS_RESIDUAL = Program((f32,) * 3, (ADD, Step("mir.add", (3, 2), (f32, f32), f32)), (4,))
RNG = np.random.default_rng(0)


def values(shape: tuple[int, ...], dt: DType = f32) -> Array:
    return RNG.uniform(-1, 1, shape).astype(dt.numpy)


def convolve(
    x: Array, w: Array, shape: ConvShape, dt: DType, features: Features,
    epilogue: Program | None = None, kinds: tuple[OperandKind, ...] = (),
    operands: tuple[Array, ...] = (), *, way: Way = "columns", raw: bool = True, pieces: int = 1,
    out: Array | None = None, hold: Callable[[Array], Array] = np.asarray,
) -> Array:  # fmt: skip
    """The kernel on x [N, C, D, H, W] and w [Co, C / groups, ...], with its vectors along the
    columns or the output channels, on planes or images; nan is all around them."""
    target, epilogue = kernel_target(features), epilogue or plain(dt)
    channels, images = way != "columns", way == "images"
    if images and not conv_channels_plan.on_images(target, shape, dt):
        pytest.skip("it reads planes")
    lanes = 1 if channels else tile_of(target, dt).lanes
    rows = conv_channels_plan.block_width(target, dt) if channels else tile_of(target, dt).rows
    read = conv_channels_plan.read_as(target, shape) if channels else shape
    image, channel, *axes = element_strides(x)
    layout = None if images else conv.planes(read, dt, lanes, raw)
    planes = x
    if layout is None:
        layout = Planes(shape.size, (1, 1, 1), image, channel)
    else:
        room = 0 if channels else lanes
        count = (shape.images - 1) * layout.image + x.shape[1] * layout.channel + room
        planes = hold(np.full(count, np.nan, dt.numpy))
        layer = PlanesConfig.of(dt, dt, read, axes[2])
        strides = (image, channel, (axes[0], axes[1], axes[2]))
        filling = conv_layout.planes_launch(layer, read, layout, strides)
        run_launch(conv_layout, layer, filling, [x, planes], pieces, features)
    blocks = hold(np.full(conv.packed_size(shape, rows), np.nan, dt.numpy))
    depth = shape.channels * shape.taps
    packer = BlocksConfig(dt, dt, rows)
    packing = conv_layout.blocks_launch(
        packer, shape, (shape.outputs * depth, depth, shape.taps, 1)
    )
    run_launch(conv_layout, packer, packing, [w, blocks], pieces, features)
    if out is None:
        out = np.full((x.shape[0], len(w), *shape.out), np.nan, epilogue.results[0].numpy)
    group = shape.channels * layout.channel
    if channels:
        config = conv_channels_plan.config_of(
            target, shape, layout, dt, epilogue, kinds, images=images
        )
        launch = conv_channels_plan.launch(config, target, shape, layout, group)
    else:
        config = ConvConfig(dt, shape.taps == 1, epilogue, kinds)
        launch = conv.launch(config, target, shape, layout, group)
    taps = [] if config.single or images else [np.asarray(layout.offsets(read))]
    run_launch(conv, config, launch, [planes, blocks, *taps, *operands, out], pieces, features)
    return out


def shape_of(
    x: tuple[int, ...], w: tuple[int, ...], stride: int = 1, low: int = 0, dilation: int = 1,
    groups: int = 1,
) -> tuple[ConvShape, Conv]:  # fmt: skip
    """A 2-D convolution with as much padding at both ends, and the node that it is."""
    two = {k: (v, v) for k, v in (("stride", stride), ("low", low), ("dilation", dilation))}
    types = [TensorType.of(x), TensorType.of(w)]
    node = Conv(*placeholders(types), **two, high=(low, low), groups=groups)
    out = node.out.type.static_shape
    shape = ConvShape(
        x[0], groups, x[1] // groups, w[0] // groups, (1, *x[2:]), (1, *out[2:]), (1, *w[2:]),
        (1, stride, stride), (0, low, low), (1, dilation, dilation),
    )  # fmt: skip
    return shape, node


def plain(dt: DType) -> Program:
    return Program((dt,), (), (0,))


CASES = [
    ((2, 3, 9, 11), (8, 3, 3, 3), {"low": 1}),
    ((1, 5, 8, 7), (11, 5, 3, 3), {"low": 1}),  # few columns, blocks with a rest
    ((2, 4, 15, 16), (9, 4, 3, 3), {"stride": 2, "low": 1}),
    ((1, 3, 21, 19), (16, 3, 7, 7), {"stride": 2, "low": 3}),
    ((1, 6, 12, 13), (6, 2, 3, 3), {"groups": 3, "low": 2, "dilation": 2}),
    ((2, 5, 10, 10), (5, 1, 3, 3), {"groups": 5, "low": 1}),
    ((1, 4, 3, 3), (8, 4, 3, 3), {}),  # one column
    ((1, 4, 12, 12), (8, 4, 3, 3), {}),  # as it lies
    ((1, 8, 7, 7), (17, 8, 1, 1), {}),
    ((4, 8, 3, 5), (8, 8, 1, 1), {}),  # images side by side
    ((2, 8, 9, 9), (8, 8, 1, 1), {"stride": 2}),
    ((1, 3, 16, 32), (8, 3, 1, 1), {}),  # channels that would crowd a cache set
    ((1, 2, 4, 40), (3, 2, 2, 3), {"stride": 3, "dilation": 2}),
    ((2, 5, 31, 31), (33, 5, 1, 1), {"stride": 2}),  # read as it lies, every other element
    ((1, 3, 5, 2), (40, 3, 3, 3), {"low": 1}),  # tiles of several rows, and of one row less
    ((1, 3, 19, 3), (33, 3, 3, 3), {}),  # rows of one window
    ((1, 3, 30, 1), (33, 3, 3, 3), {"low": 1}),  # taps that no window has
    ((2, 3, 14, 43), (33, 3, 5, 4), {"low": 4}),  # first, middle and last tiles of a line
    ((1, 3, 4, 30), (33, 3, 3, 3), {"low": 6, "dilation": 2}),  # lines and tiles of padding alone
]
WAYS = pytest.mark.parametrize("way", get_args(Way))


@pairwise(case=CASES, isa=["x86-64-v3", "x86-64-v4"], way=get_args(Way))
def test_layouts_and_tiles(case: Any, isa: str, way: Way) -> None:
    x, w = values(case[0]), values(case[1])
    shape, node = shape_of(*case[:2], **case[2])
    x5 = x[:, :, None]
    found = convolve(x5, w, shape, f32, features_of(isa), way=way, pieces=3)
    np.testing.assert_allclose(found[:, :, 0], node.reference(x, w), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", range(1, 100, 7))
@WAYS
def test_every_number_of_columns(columns: int, way: Way) -> None:
    """From less than a vector to several panels, the last of each width."""
    x, w = values((1, 3, 1, columns + 2)), values((9, 3, 1, 3))
    shape, node = shape_of(x.shape, w.shape)
    found = convolve(x[:, :, None], w, shape, f32, host(), way=way)
    np.testing.assert_allclose(found[:, :, 0], node.reference(x, w), rtol=1e-4, atol=1e-5)


@WAYS
def test_f64(way: Way) -> None:
    x, w = values((2, 3, 9, 9), f64), values((5, 3, 3, 3), f64)
    shape, node = shape_of(x.shape, w.shape, low=1)
    found = convolve(x[:, :, None], w, shape, f64, host(), way=way)
    want = node.with_operands(placeholders([TensorType.of(a.shape, "f64") for a in (x, w)]))
    np.testing.assert_allclose(found[:, :, 0], want.reference(x, w), rtol=1e-12)


@pytest.mark.parametrize("case", [CASES[0], CASES[4], CASES[8], CASES[9]], ids=str)
@WAYS
def test_an_epilogue_may_read_where_it_writes(case: Any, way: Way) -> None:
    """Bias and residual, and the residual is the very buffer of the result."""
    x, w = values(case[0]), values(case[1])
    shape, node = shape_of(*case[:2], **case[2])
    bias = values((len(w),))
    out = values((x.shape[0], len(w), *shape.out))
    want = node.reference(x, w) + bias[:, None, None] + out[:, :, 0]
    found = convolve(
        x[:, :, None], w, shape, f32, host(), BIAS_RESIDUAL, ("channel", "full"), (bias, out),
        way=way, out=out, pieces=2,
    )  # fmt: skip
    np.testing.assert_allclose(found[:, :, 0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("way", "isa"),
    [("columns", "x86-64-v3"), ("channels", "x86-64-v4"), ("images", "x86-64-v3")],
)
def test_a_long_epilogue_is_a_function(way: Way, isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its constants would leave too few registers for the sums."""
    x, w = values((2, 5, 9, 9)), values((20, 5, 3, 3))
    shape, node = shape_of(x.shape, w.shape, low=1)
    bias, residual = values((len(w),)), values((2, len(w), *shape.out))
    long = (*BIAS_RESIDUAL.steps, Step("mir.tanh", (4,), (f32,), f32))
    calls: list[int] = []
    emit = conv.emit

    def counting(*args: Any) -> Any:
        calls.append((made := emit(*args)).text.count("func.call"))
        return made

    monkeypatch.setattr(conv, "emit", counting)
    want = node.reference(x, w) + bias[:, None, None] + residual[:, :, 0]
    for steps, last, wanted in (BIAS_RESIDUAL.steps, 4, want), (long, 5, np.tanh(want)):
        found = convolve(
            x[:, :, None], w, shape, f32, features_of(isa), Program((f32,) * 3, steps, (last,)),
            ("channel", "full"), (bias, residual), way=way, pieces=2,
        )  # fmt: skip
        np.testing.assert_allclose(found[:, :, 0], wanted, rtol=1e-4, atol=1e-5)
    assert calls == [0, 1]


def test_bits_depend_neither_on_the_cut_nor_on_the_layout() -> None:
    x, w = values((2, 5, 14, 14)), values((20, 5, 3, 3))
    shape, _ = shape_of(x.shape, w.shape)
    one = convolve(x[:, :, None], w, shape, f32, host())
    for raw, pieces in ((True, 5), (False, 1), (False, 4)):
        for way in get_args(Way):
            again = convolve(x[:, :, None], w, shape, f32, host(), raw=raw, pieces=pieces, way=way)
            assert again.tobytes() == one.tobytes()
    first = convolve(x[:1, :, None], w, replace(shape, images=1), f32, host())
    assert first.tobytes() == one[:1].tobytes()


def test_parts_of_the_channels_and_of_the_input_keep_the_bits() -> None:
    """Deep enough for several parts, whose sums wait for the next."""
    x, w = values((2, 600, 9, 9)), values((70, 600, 3, 3))
    shape, _ = shape_of(x.shape, w.shape, low=1)
    one = convolve(x[:, :, None], w, shape, f32, host())
    for way in ("channels", "images"):
        again = convolve(x[:, :, None], w, shape, f32, host(), way=way, pieces=3)
        assert again.tobytes() == one.tobytes()


@pytest.mark.parametrize("case", CASES, ids=str)
@WAYS
def test_nothing_beyond_the_buffers_is_touched(case: Any, way: Way) -> None:
    """Every buffer ends where a page without access begins."""
    x, w = guarded(values(case[0])), guarded(values(case[1]))
    shape, node = shape_of(*case[:2], **case[2])
    bias, out = guarded(values((len(w),))), guarded(np.zeros((len(x), len(w), *shape.out), "f4"))
    found = convolve(
        x[:, :, None], w, shape, f32, host(), BIAS_RESIDUAL, ("channel", "full"), (bias, out),
        way=way, out=out, hold=guarded,
    )  # fmt: skip
    want = node.reference(x, w) + bias[:, None, None]
    np.testing.assert_allclose(found[:, :, 0], want, rtol=1e-4, atol=1e-5)


def test_strided_input() -> None:
    """Every other column of a larger tensor, whose channels are the last axis."""
    x = values((2, 9, 18, 3))[:, :, ::2].transpose(0, 3, 1, 2)
    w = values((4, 3, 3, 3))
    shape, node = shape_of(x.shape, w.shape, low=1)
    found = convolve(x[:, :, None], w, shape, f32, host(), raw=False)
    np.testing.assert_allclose(found[:, :, 0], node.reference(x, w), rtol=1e-4, atol=1e-5)


@WAYS
def test_a_large_layer_is_cut_for_threads(way: Way) -> None:
    for x, w, kind in (
        ((1, 512, 7, 7), (512, 512, 3, 3), {"low": 1}),
        ((1, 64, 56, 56), (64, 64, 3, 3), {"low": 1}),
        ((8, 2048, 7, 7), (512, 2048, 1, 1), {}),
    ):
        shape, _ = shape_of(x, w, **kind)
        target = kernel_target(preset("x86-64-v4"))
        layout = conv.planes(shape, f32, 16 if way == "columns" else 1, raw=True)
        layout = layout or Planes(shape.size, (1, 1, 1), 0, math.prod(shape.size))
        if way != "columns":
            images = way == "images" and shape.taps > 1
            config = conv_channels_plan.config_of(
                target, shape, layout, f32, plain(f32), (), images=images
            )
            found = conv_channels_plan.launch(config, target, shape, layout, 0)
        else:
            config = ConvConfig(f32, shape.taps == 1, plain(f32))
            found = conv.launch(config, target, shape, layout, 0)
        assert found.range >= 8 and found.grain < found.range / 4


@pytest.mark.parametrize("dilation", [1, 2])
def test_a_window_that_is_the_whole_image_is_one_place(dilation: int) -> None:
    """It is the convolution of as many channels, unless its taps lie apart."""
    x, w = RNG.standard_normal((2, 9, 3, 4)), RNG.standard_normal((5, 9, 3, 4))
    kernels, found = [], []
    for shape in ((9, 3, 4), (108, 1, 1)):
        g = rlx.Graph("whole")
        image = g.input("x", (2, *shape), "f32")
        weights = g.param("w", (5, *shape), "f32")
        apart = {"padding": [(0, 2), (0, 3)], "dilation": 2} if dilation == 2 else {}
        g.set_outputs([image.conv2d(weights, **apart if shape[0] == 9 else {})])
        with compiles:
            kernels.append(lowered(g, Compilation(find_target("cpu"))).kernels)
        f = rlx.Session("cpu").compile(g)
        f.set_param("w", w.astype(np.float32).reshape(5, *shape))
        found.append(f.run({"x": x.astype(np.float32).reshape(2, *shape)})[0])
    assert (kernels[0] == kernels[1]) == (dilation == 1)
    if dilation == 1:
        assert found[0].tobytes() == found[1].tobytes()
    taken = x[:, :, ::dilation, ::dilation], w[:, :, : -(-3 // dilation), : -(-4 // dilation)]
    np.testing.assert_allclose(found[0][..., 0, 0], np.einsum("nchw,ochw->no", *taken), rtol=1e-4)


def test_an_adjoint_of_one_place_sums_mirrored_weights() -> None:
    x, w = RNG.standard_normal((2, 4, 3, 3)), RNG.standard_normal((4, 5, 3, 3))
    g = rlx.Graph("whole")
    image, weights = g.input("x", x.shape, "f32"), g.param("w", w.shape, "f32")
    g.set_outputs([image.conv_transpose2d(weights, padding=2)])
    f = rlx.Session("cpu").compile(g)
    f.set_param("w", w.astype(np.float32))
    (found,) = f.run({"x": x.astype(np.float32)})
    wanted = np.einsum("nchw,cohw->no", x, w[:, :, ::-1, ::-1])
    np.testing.assert_allclose(found[..., 0, 0], wanted, rtol=1e-4, atol=1e-5)


def test_the_kernel_with_less_work_is_taken() -> None:
    target = kernel_target(preset("x86-64-v4"))

    def along_channels(x: tuple[int, ...], w: tuple[int, ...], **kind: int) -> bool:
        return conv_channels_plan.suits(target, shape_of(x, w, **kind)[0], f32)

    assert along_channels((1, 512, 7, 7), (512, 512, 3, 3), low=1)
    assert along_channels((1, 128, 56, 56), (128, 128, 3, 3), low=1, stride=2)
    assert not along_channels((1, 64, 56, 56), (64, 64, 1, 1))  # few channels to a sum
    assert not along_channels((1, 64, 28, 28), (8, 64, 3, 3), low=1)  # few output channels
    assert not along_channels((1, 96, 14, 14), (96, 1, 3, 3), low=1, groups=96)


# -- through the compiler ------------------------------------------------------------------


def dispatched(g: rlx.Graph) -> list[str]:
    """The kernels of a graph as the dispatch report lists them."""
    return re.findall(r"\w+: [\w+]+", rlx.inspect_pipeline(g, "cpu").dispatch)


@pytest.mark.parametrize("dt", ["f32", "f16", "bf16"])
def test_conv_bias_activation_residual_is_one_kernel(dt: str) -> None:
    g = rlx.Graph()
    x, r = g.input("x", [2, 6, 10, 12], dt), g.input("r", [2, 9, 10, 12], dt)
    w, b = g.param("w", [9, 6, 3, 3], dt), g.param("b", [9], dt)
    g.set_outputs([(x.conv2d(w, b, padding=1) + r).relu()])
    agrees(g)
    assert dispatched(g) == ["conv: conv+expand+add+add+relu"]


@pytest.mark.parametrize("outputs", [9, 64], ids=["columns", "channels"])
def test_a_batch_is_copied_for_some_images_at_a_time(
    outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of five images; the residual is cut with them."""
    monkeypatch.setattr(conv_ways, "PLANES_BYTES", 20_000)
    g = rlx.Graph()
    x = g.input("x", [5, 12, 12, 10]).transpose([0, 1, 3, 2])  # not as it lies
    r = g.input("r", [5, outputs, 10, 12])
    w, b = g.param("w", [outputs, 12, 3, 3]), g.param("b", [outputs])
    g.set_outputs([x.conv2d(w, b, padding=1) + r])
    agrees(g, {n: a * 0.05 for n, a in arrays(g).items()})
    assert len(re.findall(r"call @conv_\d+\(", rlx.inspect_pipeline(g, "cpu").lir)) == 3


def test_dense_images_are_read_as_they_lie() -> None:
    """Unless channels crowd few sets of the cache, rows have many taps, or there are three axes."""
    target = kernel_target(preset("x86-64-v4"))

    def on_images(x: tuple[int, ...], w: tuple[int, ...], **kind: int) -> bool:
        return conv_channels_plan.on_images(target, shape_of(x, w, **kind)[0], f32)

    assert on_images((1, 64, 56, 56), (64, 64, 3, 3), low=1)
    assert on_images((1, 3, 64, 64), (64, 3, 7, 7), low=3, stride=2)  # few channels
    assert not on_images((1, 64, 64, 64), (64, 64, 3, 3), low=1)
    assert not on_images((1, 64, 56, 56), (64, 64, 9, 9), low=4)
    assert not on_images((1, 64, 56, 56), (64, 64, 1, 1))
    g = rlx.Graph()
    x, v = g.input("x", [2, 16, 7, 9]), g.input("v", [2, 16, 1, 7, 9])
    g.set_outputs([
        x.conv2d(g.param("w", [64, 16, 3, 3]), padding=1),
        v.conv3d(g.param("u", [64, 16, 2, 3, 3]), padding=1),
    ])  # fmt: skip
    agrees(g, {n: a * 0.05 for n, a in arrays(g).items()})
    lir = rlx.inspect_pipeline(g, "cpu").lir
    assert len(re.findall(r'call @conv_layout_\d+\([^\n]*conv"', lir)) == 3  # weights, planes


def test_every_rank_and_adjoint_goes_through_the_kernels() -> None:
    g = rlx.Graph()
    a, b = g.input("a", [2, 4, 30]), g.input("b", [1, 4, 5, 6, 7])
    c = g.input("c", [2, 6, 7, 5])
    g.set_outputs([
        a.conv1d(g.param("u", [6, 2, 5]), stride=2, padding=2, groups=2),
        b.conv3d(g.param("v", [5, 4, 3, 3, 3]), stride=(2, 1, 1), padding=1),
        c.conv_transpose2d(g.param("w", [6, 3, 3, 3]), None, 2, 1, 1, groups=2),
        c.transpose([0, 1, 3, 2]).conv2d(g.param("t", [3, 6, 1, 1])),
    ])  # fmt: skip
    agrees(g)
    assert {n.partition(":")[0] for n in dispatched(g)} == {"conv"}


def test_tiles_along_a_row_ask_for_their_results_and_what_these_read() -> None:
    """Where a channel's begin and end; of numbers a channel nothing, and nothing of whole rows."""
    target = kernel_target(preset("x86-64-v4"))
    for size, ends in ((30, 2), (6, 0)):
        square, one = (1, size, size), (1, 1, 1)
        shape = ConvShape(1, 1, 8, 32, square, square, (1, 3, 3), one, (0, 1, 1), one)
        layout, kinds = Planes(square, one, 8 * size * size, size * size), ("channel", "full")
        config = conv_channels_plan.config_of(
            target, shape, layout, f32, BIAS_RESIDUAL, kinds, images=True
        )
        text = conv.emit("layer", config, target).text
        asked = [text.count(f"memref.prefetch %{b}[") for b in ("operand0", "operand1", "c")]
        each = len(config.tiles) * ends
        assert asked == [0, each, each]


def test_a_last_block_has_no_empty_vectors() -> None:
    target = kernel_target(preset("x86-64-v4"))
    found = [conv_channels_plan.block_vectors(target, n, f32) for n in (7, 16, 17, 32, 48, 64, 90)]
    assert found == [(1,), (1,), (2,), (2,), (2, 1), (2,), (2,)]
    shape, _ = shape_of((1, 8, 14, 14), (48, 8, 1, 1))
    square = (1, 14, 14)
    layout, end = Planes(square, (1, 1, 1), 8 * 196, 196), plain(f32)
    config = conv_channels_plan.config_of(target, shape, layout, f32, end, ())
    text = conv.emit("layer", config, target).text
    assert text.count("math.fma") == config.tiles[0].windows * 3


def test_panels_of_one_tap_ask_for_a_line_of_their_results_a_channel() -> None:
    """Of the residual and the result, in each width of a panel and each number of rows."""
    target, kinds = kernel_target(preset("x86-64-v4")), ("channel", "full")
    text = conv.emit("layer", ConvConfig(f32, True, BIAS_RESIDUAL, kinds), target).text
    asked = [text.count(f"memref.prefetch %{b}[") for b in ("operand0", "operand1", "c", "x")]
    assert asked[0] == 0 < asked[1] == asked[2] < asked[3]
    text = conv.emit("layer", ConvConfig(f32, False, BIAS_RESIDUAL, kinds), target).text
    assert "memref.prefetch %c[" not in text

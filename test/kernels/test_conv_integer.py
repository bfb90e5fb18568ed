"""Convolutions of 8-bit integers at the ends of their types: by words of four channels, and by
floats where those are exact."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.codegen.program import Program
from rlx.codegen.strides import ceil_div
from rlx.ir.value import Value
from rlx.kernels.conv import channels_plan as conv_channels_plan
from rlx.kernels.conv import layout as conv_layout
from rlx.kernels.conv import planes as conv
from rlx.kernels.conv.channels_plan import ConvChannelsConfig
from rlx.kernels.conv.plan import ConvConfig, ConvShape, tile_of
from rlx.kernels.conv.words import (
    FOUR,
    FirstConfig,
    WordBlocksConfig,
    WordPlanesConfig,
    first_launch,
    word_blocks_launch,
    words_of,
)
from rlx.lowering.select.conv.strategies import triple
from rlx.ops.conv.conv import Conv
from rlx.ops.conv.integer import conv_integer
from rlx.ops.quant.affine import rounded
from rlx.targets.cpu import make_target
from rlx.targets.cpu.target import kernel_target
from rlx.types import TensorType, i8, i32, u8
from support.compiled import agrees
from support.jit import host
from support.runkernel import element_strides, guarded, run_launch

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize(("taps", "floats"), [(16, True), (17, False)])
@pytest.mark.parametrize("x_zero", [0, 255])
def test_sums_are_exact(taps: int, floats: bool, x_zero: int) -> None:
    rng = np.random.default_rng(taps)
    x = np.where(rng.random((1, 3, 20, 19)) < 0.1, 0, 255).astype(np.uint8)
    w = np.where(rng.random((3, 1, taps, taps)) < 0.1, 127, -128).astype(np.int8)
    g = rlx.Graph("codes")
    codes, weights = g.input("x", x.shape, "u8"), g.input("w", w.shape, "i8")
    zero = g.constant(np.uint8(x_zero))
    out = conv_integer(codes, weights, zero, None, (2, 2), (1, 1), (1, 1), (1, 1), 3)
    g.set_outputs(out)
    assert any(isinstance(op, Conv) for op in g.nodes()) == floats
    wide = x.astype(np.int64) - x_zero
    padded = np.pad(wide, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (taps, taps), (2, 3))[:, :, ::2, ::2]
    expected = np.einsum("nchwij,cij->nchw", windows, w[:, 0].astype(np.int64))
    found = rlx.Session("cpu").compile(g).run({"x": x, "w": w})[0]
    np.testing.assert_array_equal(found, expected)


CASES = [
    ((2, 3, 9, 11), (9, 3, 3, 3), {"low": 1}),
    ((1, 10, 7, 7), (40, 5, 3, 3), {"low": 1, "groups": 2}),  # a word of one channel a group
    ((2, 9, 15, 16), (17, 9, 3, 3), {"stride": 2, "low": 1}),
    ((1, 5, 6, 40), (8, 5, 3, 2), {"low": 2, "dilation": 2}),
    ((1, 12, 7, 9), (33, 12, 1, 1), {}),  # one long row
    ((4, 8, 3, 5), (8, 8, 1, 1), {}),  # images side by side
    ((2, 5, 9, 9), (40, 5, 1, 1), {"stride": 2}),
]


def convolve(
    x: Array, w: Array, shape: ConvShape, channels: bool, hold: Callable[[Array], Array]
) -> Array:
    """The sums of x [N, C, H, W] and w by words, with vectors along the output channels or the
    columns."""
    if "integer_conv" not in make_target().families:
        pytest.skip("this machine multiplies no fours of 8-bit integers")
    target, types = kernel_target(host()), [i8 if a.dtype == np.int8 else u8 for a in (x, w)]
    words, own = words_of(*types), shape.channels
    shape = replace(shape, channels=ceil_div(own, FOUR))
    read = conv_channels_plan.read_as(target, shape) if channels else shape
    rows = conv_channels_plan.block_width(target, i32) if channels else tile_of(target, i32).rows
    layout = conv.planes(read, i32, 1 if channels else target.lanes(i32), raw=False)
    assert layout is not None
    group = shape.channels * layout.channel
    count = (shape.images - 1) * layout.image + shape.groups * group + target.lanes(i32)
    planes = hold(np.zeros(count, np.uint32))
    image, channel, *axes = element_strides(x)
    config = WordPlanesConfig(types[0], 2 if read.stride[2] == 2 else 1, words.flipped)
    strides = image, channel, (0, axes[0], axes[1])
    filling = conv_layout.planes_launch(config, read, layout, strides, own)
    run_launch(conv_layout, config, filling, [x, planes], 3)
    depth = own * shape.taps
    by = shape.outputs * depth, depth, shape.taps, 1
    blocks = hold(np.zeros(conv.packed_size(shape, rows), np.uint32))
    packer = WordBlocksConfig(types[1], rows)
    run_launch(conv_layout, packer, word_blocks_launch(packer, shape, own, by), [w, blocks], 2)
    first: list[Array] = []
    if words.flipped:
        launch = first_launch(shape, rows, own, by)
        first.append(hold(np.zeros(launch.range, np.int32)))
        run_launch(conv_layout, FirstConfig(types[1]), launch, [w, *first], 2)
    out = hold(np.zeros((len(x), len(w), *shape.out), np.int32))
    plain = Program((i32,), (), (0,))
    made: ConvConfig | ConvChannelsConfig
    if channels:
        made = conv_channels_plan.config_of(target, shape, layout, i32, plain, (), words=words)
        launch = conv_channels_plan.launch(made, target, shape, layout, group)
    else:
        made = ConvConfig(i32, shape.taps == 1, plain, (), words)
        launch = conv.launch(made, target, shape, layout, group)
    taps = [] if made.single else [np.asarray(layout.offsets(read))]
    run_launch(conv, made, launch, [planes, blocks, *taps, *first, out], 3)
    return out[:, :, 0]


@pytest.mark.parametrize("channels", [False, True], ids=["columns", "channels"])
@pytest.mark.parametrize("types", [("u1", "i1"), ("i1", "i1"), ("u1", "u1"), ("i1", "u1")], ids=str)
def test_words_of_every_sign(types: tuple[str, str], channels: bool) -> None:
    """Ends of the types among the numbers; every buffer ends where a page without access begins."""
    rng = np.random.default_rng(1)
    for x_shape, w_shape, attrs in CASES if types == ("u1", "i1") else CASES[:3]:
        x, w = (
            guarded(rng.choice([*map(int, np.linspace(e.min, e.max, 12))], s).astype(t))
            for t, s in zip(types, (x_shape, w_shape), strict=True)
            for e in (np.iinfo(t),)
        )
        groups = attrs.get("groups", 1)
        two = {k: (attrs.get(k, d),) * 2 for k, d in (("stride", 1), ("low", 0), ("dilation", 1))}
        a, b = (Value(TensorType.of(s, "i32")) for s in (x_shape, w_shape))
        node = Conv(a, b, two["stride"], two["low"], two["low"], two["dilation"], groups)
        out = node.out.type.static_shape
        shape = ConvShape(
            x_shape[0], groups, w_shape[1], w_shape[0] // groups, triple(x_shape[2:], 1),
            triple(out[2:], 1), triple(w_shape[2:], 1), triple(two["stride"], 1),
            triple(two["low"], 0), triple(two["dilation"], 1),
        )  # fmt: skip
        found = convolve(x, w, shape, channels, guarded)
        np.testing.assert_array_equal(found, node.reference(x.astype("i4"), w.astype("i4")))


def test_a_quantized_layer_is_one_kernel() -> None:
    """Its zero point, bias, scales and rounding are the epilogue; so are those of a depthwise one,
    which goes by floats."""
    if "integer_conv" not in make_target().families:
        pytest.skip("this machine multiplies no fours of 8-bit integers")
    g = rlx.Graph()
    x, w = g.input("x", [2, 8, 9, 10], "u8"), g.param("w", [40, 8, 3, 3], "i8")
    b, s = g.param("b", [40], "i32"), g.param("s", [40])
    sums = conv_integer(x, w, g.param("z", [], "u8"), None, (1, 1), (1, 1), (1, 1), (1, 1), 1, b)
    v = g.param("v", [8, 1, 3, 3], "i8")
    few = conv_integer(x, v, None, None, (1, 1), (1, 1), (1, 1), (1, 1), 8)
    g.set_outputs([
        rounded(sums.cast(to="f32") * s.reshape([40, 1, 1]), None, i8),
        rounded(few.cast(to="f32") * 0.01, None, u8),
    ])  # fmt: skip
    agrees(g)
    found = re.findall(r"(\w+): ([\w+]+)", rlx.inspect_pipeline(g, "cpu").dispatch)
    kernels = {name: what for name, what in found if "conv" in name}
    assert kernels["integer_conv"].startswith("conv_integer+expand+add+cast+expand+mul+round+cast")
    assert kernels["conv"].startswith("conv+cast+cast+") and kernels["conv"].endswith("round+cast")

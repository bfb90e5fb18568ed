"""The depthwise convolution kernel against the op's reference, in all its tiles and layouts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx.codegen.program import Program, Step
from rlx.codegen.strides import ceil_div
from rlx.ir.op import placeholders
from rlx.kernels.conv import depthwise_plan as conv_depthwise_plan
from rlx.kernels.conv import planes as conv
from rlx.kernels.conv.depthwise_plan import ConvDepthwiseConfig, DepthwiseTile
from rlx.kernels.conv.plan import Triple, plane_size
from rlx.kernels.conv.planes import ConvShape, OperandKind
from rlx.ops.conv.conv import Conv
from rlx.targets.cpu.features import Features, preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DType, TensorType, bf16, f16, f32, f64
from support.compiled import agrees
from support.jit import host
from support.runkernel import element_strides, guarded, run_launch

Array = np.ndarray[Any, Any]

ADD = Step("mir.add", (0, 1), (f32, f32), f32)
BIAS_RESIDUAL = Program((f32,) * 3, (ADD, Step("mir.add", (3, 2), (f32, f32), f32)), (4,))
RNG = np.random.default_rng(0)
ISAS = pytest.mark.parametrize("isa", ["x86-64-v3", "x86-64-v4"])


def values(shape: tuple[int, ...], dt: DType = f32) -> Array:
    return RNG.uniform(-1, 1, shape).astype(dt.numpy)


def plain(dt: DType, out: DType | None = None) -> Program:
    return Program((out or dt,), (), (0,))


def features_of(isa: str) -> Features:
    """A preset that this machine has."""
    wanted = preset(isa)
    if wanted.arch != host().arch or not wanted.has <= host().has:
        pytest.skip(f"this machine has no {isa}")
    return wanted


def node_of(
    x: tuple[int, ...], w: tuple[int, ...], stride: Triple = (1, 1, 1), low: Triple = (0, 0, 0),
    high: Triple | None = None, dilation: Triple = (1, 1, 1), dt: DType = f32,
) -> Conv:  # fmt: skip
    """A convolution of three axes with as many groups as channels."""
    operands = placeholders([TensorType.of(x, dt.name), TensorType.of(w, dt.name)])
    return Conv(*operands, stride, low, low if high is None else high, dilation, x[1])


def depthwise(
    x: Array, w: Array, node: Conv, dt: DType = f32, features: Features | None = None,
    epilogue: Program | None = None, kinds: tuple[OperandKind, ...] = (),
    operands: tuple[Array, ...] = (), *, pieces: int = 1, tile: DepthwiseTile | None = None,
    out: Array | None = None, hold: Callable[[Array], Array] = np.asarray,
) -> Array:  # fmt: skip
    """The kernel on the input as it lies, or for a target without masks on planes of it."""
    target, size = kernel_target(features or host()), node.out.type.static_shape[2:]
    first, source = node.x.type.static_shape, node.x.dtype
    shape = ConvShape(
        first[0], first[1], 1, len(w) // first[1], first[2:], size, w.shape[2:], node.stride,
        node.low, node.dilation,
    )  # fmt: skip
    if not target.masks:
        source, low = dt, shape.low
        windows = tuple((n - 1) * s + 1 for n, s in zip(size, shape.stride, strict=True))
        shape = replace(shape, size=plane_size(replace(shape, out=windows, stride=(1, 1, 1))))
        whole = np.zeros((*x.shape[:2], *map(max, zip(shape.size, x.shape[2:], strict=True))), "d")
        whole = np.pad(whole, [(0, 0)] * 2 + [(lo, lo) for lo in low])
        box = tuple(slice(lo, lo + n) for lo, n in zip(low, x.shape[2:], strict=True))
        whole[(..., *box)] = x
        whole = whole[(..., *(slice(n) for n in shape.size))]
        shape = replace(shape, low=(0, 0, 0))
    config = conv_depthwise_plan.config_of(
        target, shape, dt, source, epilogue or plain(dt, node.out.dtype), kinds
    )
    config = with_tile(config, tile, shape.size[2], size[2], target.lanes(dt))
    if not target.masks:
        room = conv_depthwise_plan.slack(config, target)
        held = hold(np.concatenate([whole.ravel(), np.full(room, np.nan)]).astype(dt.numpy))
        x = held[: whole.size].reshape(whole.shape)
    image, channel, z, y, _ = element_strides(x)
    launch = conv_depthwise_plan.launch(config, target, shape, (image, channel, (z, y, 1)))
    if out is None:
        out = np.full((len(x), len(w), *size), np.nan, config.epilogue.results[0].numpy)
    run_launch(conv, config, launch, [x, w.astype(dt.numpy), *operands, out], pieces, features)
    return out


def with_tile(
    config: ConvDepthwiseConfig, tile: DepthwiseTile | None, width: int, columns: int, lanes: int
) -> ConvDepthwiseConfig:
    """The config with another tile, which has whole rows if it has as many vectors."""
    if tile is None:
        return config
    whole = tile.vectors == ceil_div(columns, lanes)
    return replace(config, tile=tile, row=ceil_div(width, lanes) if whole else 0)


CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 5, 1, 14, 14), (5, 1, 1, 3, 3), {"low": (0, 1, 1)}),
    ((2, 3, 1, 13, 37), (3, 1, 1, 3, 3), {"low": (0, 1, 1), "stride": (1, 2, 2)}),
    ((1, 2, 1, 9, 150), (2, 1, 1, 5, 5), {"low": (0, 2, 2)}),  # columns in several tiles
    ((1, 2, 1, 6, 300), (2, 1, 1, 3, 4), {"low": (0, 0, 1), "stride": (1, 1, 2)}),
    ((2, 5, 1, 7, 7), (5, 1, 1, 7, 7), {"low": (0, 3, 3)}),
    ((1, 2, 1, 20, 21), (6, 1, 1, 3, 5), {"low": (0, 1, 4), "dilation": (1, 2, 2)}),
    ((1, 2, 1, 5, 34), (2, 1, 1, 2, 3), {}),  # less windows than a row has vectors
    ((1, 2, 1, 4, 60), (2, 1, 1, 1, 3), {"low": (0, 0, 20), "dilation": (1, 1, 20)}),
    ((1, 3, 1, 1, 100), (3, 1, 1, 1, 4), {"low": (0, 0, 3), "high": (0, 0, 0)}),
    ((2, 2, 4, 5, 6), (4, 1, 3, 2, 3), {"low": (1, 1, 1), "stride": (2, 1, 2)}),
    ((1, 2, 5, 3, 4), (2, 1, 2, 1, 1), {"low": (2, 1, 0), "dilation": (2, 1, 1)}),
    ((1, 2, 1, 16, 9), (2, 1, 1, 3, 3), {"stride": (1, 4, 1), "low": (0, 1, 2)}),
    ((1, 1, 1, 2, 3), (1, 1, 1, 2, 3), {}),  # one window
]


@pytest.mark.parametrize("case", CASES, ids=str)
@ISAS
def test_layouts_and_tiles(case: Any, isa: str) -> None:
    x, w = values(case[0]), values(case[1])
    node = node_of(*case[:2], **case[2])
    found = depthwise(x, w, node, features=features_of(isa), pieces=3)
    np.testing.assert_allclose(found, node.reference(x, w), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits_depend_neither_on_the_cut_nor_on_the_vectors(case: Any) -> None:
    x, w = values(case[0]), values(case[1])
    node = node_of(*case[:2], **case[2])
    one = depthwise(x, w, node)
    for isa, pieces in (("x86-64-v3", 1), ("x86-64-v4", 5)):
        assert depthwise(x, w, node, features=features_of(isa), pieces=pieces).tobytes() == (
            one.tobytes()
        )


@pytest.mark.parametrize("columns", [1, 15, 16, 17, 31, 33, 48, 50])
@pytest.mark.parametrize("stride", [1, 2])
def test_every_tile(columns: int, stride: int) -> None:
    """Of all heights and widths, on rows that end anywhere."""
    x, w = values((1, 2, 1, 7, (columns - 1) * stride + 1)), values((2, 1, 1, 3, 3))
    node = node_of(x.shape, w.shape, (1, 1, stride), (0, 1, 1))
    want = node.reference(x, w)
    for rows, vectors in product((1, 3, 8), (1, 2, 4)):
        found = depthwise(x, w, node, tile=DepthwiseTile(rows, vectors))
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dt", [f16, bf16, f64], ids=str)
def test_other_floats(dt: DType) -> None:
    """16-bit floats are read as they lie, and rounded once."""
    x, w = values((2, 3, 1, 9, 35), dt), values((3, 1, 1, 5, 5), dt)
    node = node_of(x.shape, w.shape, (1, 2, 1), (0, 2, 2), dt=dt)
    wide = f64 if dt is f64 else f32
    found = depthwise(x, w, node, wide).astype("d")
    want = node.reference(x, w).astype("d")
    tolerance = {f16: 1e-3, bf16: 8e-3, f64: 1e-12}[dt]
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=str)
@ISAS
def test_nothing_beyond_the_buffers_is_touched(case: Any, isa: str) -> None:
    """Every buffer ends where a page without access begins; the residual is the very buffer of the
    result."""
    x, w = guarded(values(case[0])), guarded(values(case[1]))
    node = node_of(*case[:2], **case[2])
    bias, out = guarded(values((len(w),))), guarded(values(node.out.type.static_shape))
    want = node.reference(x, w) + bias[:, None, None, None] + out
    found = depthwise(
        x, w, node, f32, features_of(isa), BIAS_RESIDUAL, ("channel", "full"), (bias, out),
        out=out, hold=guarded, pieces=2,
    )  # fmt: skip
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_a_layer_is_cut_for_threads() -> None:
    """Many channels, few, and one long row."""
    target = kernel_target(preset("x86-64-v4"))
    for channels, size in ((960, (7, 7)), (2, (600, 600)), (1, (1, 100_000))):
        whole = (1, *size)
        kernel, low = ((1, 3, 3), (0, 1, 1)) if size[0] > 1 else ((1, 1, 4), (0, 0, 3))
        shape = ConvShape(1, channels, 1, 1, whole, whole, kernel, (1, 1, 1), low, (1, 1, 1))
        config = conv_depthwise_plan.config_of(target, shape, f32, f32, plain(f32), ())
        strides = (0, size[0] * size[1], (0, size[1], 1))
        found = conv_depthwise_plan.launch(config, target, shape, strides)
        assert found.range >= 16 and found.grain <= found.range / 2


def test_what_other_kernels_do_better_is_left_to_them() -> None:
    def suits(groups: int, channels: int, outputs: int, taps: int, stride: int = 1) -> bool:
        image, kernel = (1, 56, 56), (1, taps, taps)
        return conv_depthwise_plan.suits(
            ConvShape(
                1, groups, channels, outputs, image, image, kernel, (1, 1, stride), (0, 0, 0),
                (1, 1, 1),
            )
        )  # fmt: skip

    assert suits(32, 1, 1, 7, 2) and suits(1, 1, 64, 3)
    assert not suits(32, 2, 1, 3)  # two channels a group
    assert not suits(1, 1, 64, 7)  # many taps and outputs
    assert not suits(32, 1, 1, 1) and not suits(32, 1, 1, 9)  # one tap, more than have code
    assert not suits(32, 1, 1, 3, 3)  # windows far apart


# -- through the compiler ------------------------------------------------------------------


def kernels(g: rlx.Graph) -> list[str]:
    """The kernels that a graph launches."""
    return re.findall(r"call @([a-z_]+)_\d+\(", rlx.inspect_pipeline(g, "cpu").lir)


@pytest.mark.parametrize("dt", ["f32", "f16", "bf16"])
def test_what_follows_is_done_on_the_way(dt: str) -> None:
    g = rlx.Graph()
    x, r = g.input("x", [2, 6, 10, 12], dt), g.input("r", [2, 12, 10, 12], dt)
    w, b = g.param("w", [12, 1, 3, 3], dt), g.param("b", [12], dt)
    g.set_outputs([(x.conv2d(w, b, padding=1, groups=6) + r).relu()])
    agrees(g)
    dispatch = rlx.inspect_pipeline(g, "cpu").dispatch
    assert re.findall(r"\w+: [\w+]+", dispatch) == ["conv: conv+expand+add+add+relu"]


def test_an_image_with_gaps_and_an_adjoint_come_in_planes() -> None:
    g = rlx.Graph()
    x = g.input("x", [5, 9, 8, 3])
    y = g.input("y", [2, 3, 6, 7])
    w = g.param("w", [3, 1, 3, 3])
    g.set_outputs([
        x.transpose([0, 3, 1, 2]).conv2d(w, padding=1, groups=3, stride=2),
        y.conv_transpose2d(w, stride=2, padding=1, groups=3),
        y.conv_transpose2d(w, groups=3),
    ])  # fmt: skip
    agrees(g)
    assert kernels(g).count("conv") == 3


@settings(max_examples=25)
@given(st.data())
def test_any_geometry_is_as_in_pytorch(data: st.DataObject) -> None:
    torch = pytest.importorskip("torch")

    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    channels, many = draw(1, 4), draw(1, 3)
    kernel, stride, dilation = ([draw(1, n), draw(1, n)] for n in (5, 3, 3))
    padding = [(draw(0, 4), draw(0, 4)) for _ in range(2)]
    least = [
        max(1, (k - 1) * d + 1 - sum(p)) for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    size = [draw(n, n + m) for n, m in zip(least, (12, 60), strict=True)]
    x = values((draw(1, 2), channels, *size))
    w, b = values((channels * many, 1, *kernel)), values((channels * many,))
    (top, bottom), (left, right) = padding
    wide = torch.nn.functional.pad(torch.tensor(x), (left, right, top, bottom))
    want = torch.nn.functional.conv2d(
        wide, torch.tensor(w), torch.tensor(b), stride, 0, dilation, channels
    )
    g = rlx.Graph()
    out = g.input("x", x.shape).conv2d(
        g.input("w", w.shape), g.input("b", b.shape), stride, padding, dilation, groups=channels
    )
    g.set_outputs([out])
    found = rlx.Session("cpu").compile(g).run_slots(x, w, b)[0]
    np.testing.assert_allclose(found, want.numpy(), rtol=1e-4, atol=1e-5)

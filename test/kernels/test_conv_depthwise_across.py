"""The depthwise convolution kernel of small images against the op's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.test_conv_depthwise import BIAS_RESIDUAL, depthwise, kernels, node_of, plain, values

import rlx
from rlx.codegen.program import Program
from rlx.codegen.strides import ceil_div
from rlx.kernels.conv import depthwise_channels as conv_depthwise_across
from rlx.kernels.conv import planes as conv
from rlx.kernels.conv.planes import ConvShape, OperandKind
from rlx.lowering.select.conv.strategies import triple
from rlx.ops.conv.conv import Conv
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DType, bf16, f16, f32, f64
from support.compiled import agrees
from support.runkernel import element_strides, features_of, guarded, run_launch

Array = np.ndarray[Any, Any]


def across(
    x: Array, w: Array, node: Conv, dt: DType = f32, epilogue: Program | None = None,
    kinds: tuple[OperandKind, ...] = (), operands: tuple[Array, ...] = (), *,
    pieces: int = 1, out: Array | None = None,
) -> Array:  # fmt: skip
    """The kernel on the input as it lies."""
    features = features_of("x86-64-v4")
    target, shape = kernel_target(features), shape_of(node)
    config = conv_depthwise_across.config_of(
        shape, dt, node.x.dtype, epilogue or plain(dt, node.out.dtype), kinds
    )
    lanes = target.lanes(dt)
    packed = np.full((ceil_div(len(w), lanes) * lanes, w[0].size), np.nan, dt.numpy)
    packed[: len(w)] = w.reshape(len(w), -1)
    packed = guarded(np.ascontiguousarray(packed.reshape(-1, lanes, w[0].size).swapaxes(1, 2)))
    image, channel = element_strides(x)[:2]
    launch = conv_depthwise_across.launch(config, target, shape, image, channel)
    if out is None:
        out = np.full(node.out.type.static_shape, np.nan, config.epilogue.results[0].numpy)
    run_launch(conv, config, launch, [x, packed, *operands, out], pieces, features)
    return out


def shape_of(node: Conv) -> ConvShape:
    x, out, w = (v.type.static_shape for v in (node.x, node.out, node.w))
    found = (x[2:], out[2:], w[2:], node.stride, node.low, node.dilation)
    return ConvShape(x[0], x[1], 1, 1, *(triple(n, 1) for n in found))


CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 33, 1, 7, 7), (7, 7), {"low": (0, 3, 3)}),  # one channel in the last vector
    ((1, 48, 1, 14, 14), (3, 3), {"low": (0, 1, 1), "stride": (1, 2, 2)}),
    ((1, 20, 1, 14, 14), (5, 5), {"low": (0, 2, 2)}),
    ((3, 16, 1, 9, 11), (3, 5), {"low": (0, 2, 4), "dilation": (1, 2, 2)}),
    ((1, 17, 1, 1, 20), (1, 4), {"low": (0, 0, 3), "high": (0, 0, 0)}),
    ((1, 16, 1, 20, 3), (3, 2), {"stride": (1, 3, 1)}),  # the last row is not read
    ((2, 5, 1, 4, 4), (3, 3), {"low": (0, 6, 1), "high": (0, 4, 1)}),  # rows of nothing but padding
    ((1, 16, 1, 5, 9), (2, 2), {"low": (0, 0, -2)}),  # the first columns are dropped
    ((1, 16, 1, 4, 4), (4, 4), {}),  # one window
]


def operands_of(case: Any) -> tuple[Array, Array, Conv]:
    shape, taps, geometry = case
    x, w = values(shape), values((shape[1], 1, 1, *taps))
    return x, w, node_of(shape, w.shape, **geometry)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits_are_those_of_the_other_kernel(case: Any) -> None:
    x, w, node = operands_of(case)
    one = across(x, w, node)
    np.testing.assert_allclose(one, node.reference(x, w), rtol=1e-4, atol=1e-5)
    assert one.tobytes() == across(x, w, node, pieces=3).tobytes()
    assert one.tobytes() == depthwise(x, w, node).tobytes()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_beyond_the_buffers_is_touched(case: Any) -> None:
    """Every buffer ends where a page without access begins; the residual is the very buffer of the
    result."""
    x, w, node = operands_of(case)
    bias, out = guarded(values((len(w),))), guarded(values(node.out.type.static_shape))
    want = node.reference(x, w) + bias[:, None, None, None] + out
    found = across(
        guarded(x), w, node, f32, BIAS_RESIDUAL, ("channel", "full"), (bias, out), out=out
    )
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dt", [f16, bf16, f64], ids=str)
def test_other_floats(dt: DType) -> None:
    x, w = values((2, 19, 1, 9, 10), dt), values((19, 1, 1, 5, 5), dt)
    node = node_of(x.shape, w.shape, (1, 2, 1), (0, 2, 2), dt=dt)
    found = across(x, w, node, f64 if dt is f64 else f32).astype("d")
    tolerance = {f16: 1e-3, bf16: 8e-3, f64: 1e-12}[dt]
    want = node.reference(x, w).astype("d")
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)


@settings(max_examples=20)
@given(st.data())
def test_any_geometry(data: st.DataObject) -> None:
    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    taps, stride, dilation = ((1, draw(1, n), draw(1, n)) for n in (5, 3, 3))
    low, high = ((0, draw(0, 4), draw(0, 4)) for _ in range(2))
    least = [
        max(4, (k - 1) * d + 1 - lo - hi)
        for k, d, lo, hi in zip(taps, dilation, low, high, strict=True)
    ]
    size = (1, *(draw(n, n + 6) for n in least[1:]))
    x = values((draw(1, 2), draw(1, 20), *size))
    w = values((x.shape[1], 1, *taps))
    node = node_of(x.shape, w.shape, stride, low, high, dilation)
    np.testing.assert_allclose(across(x, w, node), node.reference(x, w), rtol=1e-4, atol=1e-5)


def test_small_images_of_many_channels_take_it() -> None:
    target = kernel_target(preset("x86-64-v4"))

    def suits(channels: int, size: int, taps: int, stride: int = 1, isa: Any = target) -> bool:
        x, w = (1, channels, 1, size, size), (channels, 1, 1, taps, taps)
        node = node_of(x, w, (1, stride, stride), (0, taps // 2, taps // 2))
        return conv_depthwise_across.suits(isa, shape_of(node), f32)

    assert suits(768, 7, 7) and suits(960, 7, 3) and suits(576, 14, 3, 2)
    assert not suits(3, 7, 7)  # few channels
    assert not suits(96, 56, 7) and not suits(384, 14, 3)  # rows fill vectors
    assert not suits(768, 3, 3)  # an image fills no vector
    assert not suits(768, 7, 7, isa=kernel_target(preset("x86-64-v3")))  # no masks
    volume = ConvShape(
        1, 64, 1, 1, (2, 7, 7), (2, 7, 7), (1, 7, 7), (1, 1, 1), (0, 3, 3), (1, 1, 1)
    )
    assert not conv_depthwise_across.suits(target, volume, f32)


@pytest.mark.parametrize("dt", ["f32", "f16"])
def test_through_the_compiler(dt: str) -> None:
    """With what follows, the adjoint, weights that are no params, and a view with gaps."""
    features_of("x86-64-v4")
    g = rlx.Graph()
    x, r = g.input("x", [2, 34, 7, 7], dt), g.input("r", [2, 34, 7, 7], dt)
    w, b = g.param("w", [34, 1, 7, 7], dt), g.param("b", [34], dt)
    v = g.input("v", [34, 1, 5, 5], dt)
    first = (x.conv2d(w, b, padding=3, groups=34) + r).relu()
    g.set_outputs([
        first,
        x.conv_transpose2d(w, padding=3, groups=34),
        first.conv2d(v, padding=2, groups=34),
        x.transpose([0, 1, 3, 2]).conv2d(w, padding=3, groups=34),
    ])  # fmt: skip
    agrees(g)
    lir = rlx.inspect_pipeline(g, "cpu").lir
    assert lir.count('is = "ConvDepthwiseAcrossConfig"') == 3
    assert lir.count('is = "ConvDepthwiseConfig"') == 1
    assert kernels(g).count("conv") == 4

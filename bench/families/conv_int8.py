"""Convolutions of 8-bit integers, of ResNet-50 and MobileNet-v3: QLinearConv of ONNX, which RLX and
ONNX Runtime read from one file.

Images are u8 and weights i8 with a scale for each output, as ONNX Runtime's static quantization
makes them; relu is where u8 ends, which costs nothing.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import numpy as np

from bench.case import Array, Case, Run, Tensor
from bench.families import conv
from bench.families.conv import Layer

POINTWISE = [
    Layer(channels, outputs, 1, 1, size)
    for channels, outputs, size in (
        (16, 64, 112), (64, 24, 56), (24, 72, 56), (72, 40, 28), (40, 120, 28), (40, 240, 28),
        (80, 200, 14), (112, 672, 14), (672, 160, 7), (160, 960, 7),
    )
]  # fmt: skip
"""Of MobileNet-v3, beside its depthwise ones."""

X_SCALE, Y_SCALE, ZERO = 0.02, 0.05, 128


def codes(x: Array) -> Array:
    """Images as u8."""
    return np.clip(np.rint(x / X_SCALE) + ZERO, 0, 255).astype(np.uint8)


def model(layer: Layer, batch: int) -> bytes:
    """The ONNX model of a layer."""
    from onnx import TensorProto, helper, numpy_helper

    depth = layer.channels // layer.groups
    rng = np.random.default_rng(0)
    shape = (layer.outputs, depth, layer.kernel, layer.kernel)
    w = rng.standard_normal(shape) / (depth**0.5 * layer.kernel)
    scale = (np.abs(w).reshape(layer.outputs, -1).max(1) / 127).astype(np.float32)
    held = {
        "xs": np.float32(X_SCALE), "xz": np.uint8(ZERO),
        "w": np.rint(w / scale.reshape(-1, 1, 1, 1)).astype(np.int8), "ws": scale,
        "wz": np.zeros(layer.outputs, np.int8), "ys": np.float32(Y_SCALE), "yz": np.uint8(0),
        "b": rng.integers(-500, 500, layer.outputs).astype(np.int32),
    }  # fmt: skip
    node = helper.make_node(
        "QLinearConv", ["x", *held], ["y"], kernel_shape=[layer.kernel] * 2, group=layer.groups,
        strides=[layer.stride] * 2, pads=[layer.padding] * 4,
    )  # fmt: skip
    image = (batch, layer.channels, layer.size, layer.size)
    graph = helper.make_graph(
        [node], "conv", [helper.make_tensor_value_info("x", TensorProto.UINT8, image)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in held.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


def graph(layer: Layer, batch: int, case: Case) -> Any:
    """RLX's graph."""
    import onnx

    import rlx

    return rlx.from_onnx(onnx.load_model_from_string(model(layer, batch)))


def ours(layer: Layer, batch: int, case: Case, threads: int) -> Run:
    """RLX's call."""
    import rlx

    f = rlx.Session("cpu", threads=threads).compile(graph(layer, batch, case))
    x = codes(case.feeds()["x"])
    return lambda: f.run_slots(x)[0]


def reference(layer: Layer, batch: int, case: Case) -> Array:
    """RLX's interpreter."""
    import rlx

    (found,) = rlx.interpret(graph(layer, batch, case), {"x": codes(case.feeds()["x"])})
    return np.asarray(found)


def by_onnxruntime(layer: Layer, batch: int, case: Case, threads: int) -> Run:
    """That of ONNX Runtime."""
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = runtime.InferenceSession(
        model(layer, batch), options, providers=["CPUExecutionProvider"]
    )
    x = codes(case.feeds()["x"])
    return lambda: session.run(None, {"x": x})[0]


def case(layer: Layer, batch: int) -> Case:
    """A layer on some images."""
    makers: dict[str, Any] = {
        "rlx": ours, "onnxruntime": by_onnxruntime, "reference": reference, "graph": graph,
    }  # fmt: skip
    return Case(
        f"int8 {layer} b{batch}", _never,
        {"x": Tensor((batch, layer.channels, layer.size, layer.size))},
        tolerance=1.01 / 255, flops=batch * layer.flops, dtype="u8",
        quick=str(layer) in ("3x3 64->64 @56", "1x1 1024->256 @14", "3x3 384->384 @14 depthwise"),
        own={name: partial(make, layer, batch) for name, make in makers.items()},
        runtimes=("rlx", "onnxruntime"),
    )  # fmt: skip


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("every library has a call of its own")


def cases() -> list[Case]:
    """Every layer for one image."""
    depthwise = [layer for layer in conv.DEPTHWISE if layer.kernel < 7]
    return [case(layer, 1) for layer in (*conv.resnet50(), *depthwise, *POINTWISE)]

"""Products in fewer bits by other libraries: each gives a run, whose result is an array of f32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.case import Run

__all__ = ["PEERS", "quantised"]

Array = np.ndarray[Any, Any]


def quantised(a: Array, axis: int | None) -> tuple[Array, Array]:
    """Symmetric 8-bit integers, and their scale."""
    scale = np.abs(a).max(axis=axis) / np.float32(127)
    return np.rint(a / scale).astype(np.int8), np.asarray(scale, np.float32)


def torch_bf16(a: Array, b: Array, threads: int) -> Run:
    """PyTorch's linear layer on bf16."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    x, w = (torch.from_numpy(v.copy()).bfloat16() for v in (a, b.T))
    return lambda: torch.nn.functional.linear(x, w).float().numpy()


def onnxruntime_i8(a: Array, b: Array, threads: int) -> Run:
    """MatMulInteger on unsigned rows and signed weights, which it has fast code for, and scales."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    x, row_scale = quantised(a, None)
    w, scale = quantised(b, 0)
    shifted = (x.astype(np.int16) + 128).astype(np.uint8)
    constants = {"w": w, "zero": np.uint8(128), "s": scale * row_scale}
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w", "zero"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, shifted.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [len(x), w.shape[1]])],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Its threads would wait busily in the time of the others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": shifted})[0]


def openvino(kind: str) -> Callable[[Array, Array, int], Run]:
    """OpenVINO: "bf16" on f32 rows and weights that it rounds, or f32 on weights in 8 bits."""

    def make(a: Array, b: Array, threads: int) -> Run:
        import openvino as ov
        from openvino import opset13 as ops

        x = ops.parameter(a.shape, np.float32)
        if kind == "bf16":
            w = ops.constant(np.ascontiguousarray(b.T))
        else:
            small, scale = quantised(b, 0)
            w = ops.constant(np.ascontiguousarray(small.T), np.int8)
            w = ops.multiply(ops.convert(w, np.float32), ops.constant(scale[:, None]))
        model = ov.Model([ops.matmul(x, w, False, True)], [x])
        settings = {
            "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if kind == "bf16" else "f32",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,  # which would round the rows to 8 bits
        }  # fmt: skip
        request = ov.Core().compile_model(model, "CPU", settings).create_infer_request()
        return lambda: request.infer([a], share_inputs=True, share_outputs=True)[0]

    return make


PEERS: dict[str, tuple[Callable[[Array, Array, int], Run], str]] = {
    "torch bf16": (torch_bf16, "bf16"),
    "openvino bf16": (openvino("bf16"), "bf16"),
    "openvino weights i8": (openvino("weights i8"), "i8"),
    "onnxruntime i8": (onnxruntime_i8, "i8"),
}
"""By name: what makes a run, and the element type of its weights."""

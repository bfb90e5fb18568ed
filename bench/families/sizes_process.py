"""One library and one model of symbolic sizes in a process of their own: ``python -m
bench.families.sizes_process LIBRARY FILE COUNT`` prints a JSON object.

The model is an ONNX file. After some sizes to begin with, every call of ``COUNT`` sizes is the
first at that size, and is made once more at once.
"""

from __future__ import annotations

import importlib
import json
import random
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Run = Callable[[Array], Array]

HIDDEN, HEADS, INNER, LAYERS = 384, 12, 1536, 6
BATCHES, TOKENS = (1, 4), (1, 128)
BEGIN = [(b, t) for b in (1, 2, 3, 4) for t in (1, 5, 8, 12, 16, 31, 64, 128)]


def write(path: str, layers: int = LAYERS) -> None:
    """Write the encoder: layers of MiniLM's sizes on hidden states [batch, tokens, 384]."""
    from onnx import TensorProto, helper, numpy_helper, save_model

    draw = np.random.default_rng(0)
    nodes, values = [], []

    def value(name: str, *shape: int, like: float = 0.05) -> str:
        data = (draw.standard_normal(shape) * like).astype(np.float32)
        values.append(numpy_helper.from_array(data, name))
        return name

    def add(op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def linear(x: str, name: str, k: int, n: int) -> str:
        return add("Add", add("MatMul", x, value(f"{name}_w", k, n)), value(f"{name}_b", n))

    def norm(x: str, name: str) -> str:
        gains = value(f"{name}_g", HIDDEN, like=1), value(f"{name}_b", HIDDEN)
        return add("LayerNormalization", x, *gains, axis=-1, epsilon=1e-12)

    def constant(name: str, numbers: list[int]) -> str:
        values.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
        return name

    heads = constant("heads", [0, 0, HEADS, HIDDEN // HEADS])
    joined = constant("joined", [0, 0, HIDDEN])
    values.append(numpy_helper.from_array(np.array((HIDDEN // HEADS) ** -0.5, np.float32), "scale"))
    x = "x"
    for i in range(layers):
        q, k, v = (
            add("Transpose", add("Reshape", linear(x, f"{n}{i}", HIDDEN, HIDDEN), heads), perm=p)
            for n, p in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))
        )
        scores = add("Softmax", add("Mul", add("MatMul", q, k), "scale"), axis=-1)
        seen = add("Transpose", add("MatMul", scores, v), perm=[0, 2, 1, 3])
        out = linear(add("Reshape", seen, joined), f"o{i}", HIDDEN, HIDDEN)
        x = norm(add("Add", x, out), f"n{i}")
        up = add("Gelu", linear(x, f"up{i}", HIDDEN, INNER))
        x = norm(add("Add", x, linear(up, f"down{i}", INNER, HIDDEN)), f"m{i}")
    shape = ["batch", "tokens", HIDDEN]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", x)]
    graph = helper.make_graph(nodes, "encoder", ends[:1], ends[1:], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    save_model(model, path)


def rlx(path: str) -> tuple[Run, Callable[[], int]]:
    """RLX, and how many variants it has compiled."""
    import rlx as library
    from rlx.frontends.onnx import from_onnx

    f = library.Session("cpu", threads=1).compile(from_onnx(path))
    f.prepare(dims={"batch": BATCHES, "tokens": TOKENS})
    return (lambda x: f.run({"x": x})[0]), lambda: len(f.variants)


def onnxruntime(path: str) -> tuple[Run, Callable[[], int]]:
    """ONNX Runtime, which compiles nothing for a size."""
    library = importlib.import_module("onnxruntime")

    options = library.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return (lambda x: session.run(None, {"x": x})[0]), lambda: 0


def openvino(path: str) -> tuple[Run, Callable[[], int]]:
    """OpenVINO, which says nothing of what it compiles."""
    library = importlib.import_module("openvino")

    model = library.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": 1})
    return (lambda x: model(x)[0]), lambda: 0


LIBRARIES = {"rlx": rlx, "onnxruntime": onnxruntime, "openvino": openvino}


def main(library: str, path: str, count: int) -> dict[str, Any]:
    """The seconds of the CPU that first and second calls take, and the compiles and memory."""
    run, compiles = LIBRARIES[library](path)
    draw, numbers = random.Random(0), np.random.default_rng(0)

    def given(batch: int, tokens: int) -> Array:
        return numbers.standard_normal((batch, tokens, HIDDEN)).astype(np.float32)

    for size in BEGIN:
        run(given(*size))
    before, first, second, sums = compiles(), [], [], []
    taken = set(BEGIN)
    while len(first) < count:
        size = draw.randint(*BATCHES), draw.randint(*TOKENS)
        if size in taken:
            continue
        taken.add(size)
        x = given(*size)
        for times in (first, second):
            start = time.thread_time()
            y = run(x)
            times.append(time.thread_time() - start)
        sums.append(float(np.abs(y).sum()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "first": first, "second": second, "sums": sums, "before": before,
        "compiles": compiles() - before, "peak_mib": peak,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))

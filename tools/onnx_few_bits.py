"""ONNX's weights of few bits, held against ONNX Runtime: every combination of bits, blocks, zero
points, types and axes of MatMulNBits, GatherBlockQuantized, and blocked DequantizeLinear and
QuantizeLinear.

    python tools/onnx_few_bits.py [--count 100] [--seed 0]

It needs the onnxruntime package. A line says what differs, what RLX alone refuses, and how many
models ONNX Runtime refuses; with ``--count`` so many are tried, drawn by the seed.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import random
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

import rlx
from rlx.errors import RlxError

Array = np.ndarray[Any, Any]

FLOATS = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}
RANGES = {
    TensorProto.INT4: (-8, 8), TensorProto.UINT4: (0, 16), TensorProto.INT8: (-128, 128),
    TensorProto.UINT8: (0, 256),
}  # fmt: skip
BOUND = {np.float32: 2e-5, np.float16: 5e-3}
"""Differences, relative to the largest element."""


class Trial(NamedTuple):
    """A model, what it is fed, and its element type."""

    name: str
    model: ModelProto
    feeds: dict[str, Array]
    kind: Any


def codes(rng: Any, name: str, kind: int, shape: tuple[int, ...]) -> TensorProto:
    """A random initialiser of small integers."""
    return helper.make_tensor(name, kind, shape, rng.integers(*RANGES[kind], shape).flatten())


def floats(rng: Any, name: str, kind: Any, shape: tuple[int, ...], by: float = 16) -> TensorProto:
    """A random initialiser of positive numbers."""
    return numpy_helper.from_array((rng.random(shape) / by + 0.01).astype(kind), name)


def model(
    nodes: Any, x: tuple[str, int, tuple[int, ...]], result: int, weights: list[TensorProto]
) -> ModelProto:
    """A model of an input and a result ``y``."""
    y = helper.make_tensor_value_info("y", result, None)
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*x)], [y], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets)
    made.ir_version = 10
    return made


def products(rng: Any) -> Iterator[Trial]:
    """MatMulNBits."""
    shapes = ((256, 16), (96, 5), (200, 7), (512, 33))
    each = itertools.product(
        (2, 4, 8), (16, 32, 64, 128, 256), shapes, ("", "whole", "floats"), (False, True), FLOATS
    )
    for bits, block, (k, n), zero, bias, kind in each:
        blocks = -(-k // block)
        weights = [codes(rng, "w", TensorProto.UINT8, (n, blocks, block * bits // 8)),
                   floats(rng, "s", kind, (n, blocks))]  # fmt: skip
        names = ["x", "w", "s", "z" * bool(zero), "", "b" * bias]
        if zero == "whole":
            packed = (n * -(-blocks * bits // 8),)
            weights.append(codes(rng, "z", TensorProto.UINT8, packed))
        elif zero:
            weights.append(floats(rng, "z", kind, (n, blocks), 1 / 2**bits))
        if bias:
            weights.append(floats(rng, "b", kind, (n,), 1))
        node = helper.make_node(
            "MatMulNBits", names, ["y"], domain="com.microsoft", K=k, N=n, bits=bits,
            block_size=block,
        )  # fmt: skip
        x = rng.standard_normal((3, k)).astype(kind)
        made = model([node], ("x", FLOATS[kind], x.shape), FLOATS[kind], weights)
        name = f"MatMulNBits {bits} bits, blocks of {block}, {k}x{n}, zero {zero or 'no'}, {kind}"
        yield Trial(name + ", bias" * bias, made, {"x": x}, kind)


def gathers(rng: Any) -> Iterator[Trial]:
    """GatherBlockQuantized."""
    kinds = [
        (TensorProto.INT4, 4),
        (TensorProto.UINT4, 4),
        *((TensorProto.UINT8, b) for b in (2, 4, 8)),
    ]
    for (kind, bits), along, axis, zero, float_kind in itertools.product(
        kinds, (0, 1), (0, 1), (False, True), FLOATS
    ):
        each = 8 // bits if kind == TensorProto.UINT8 else 1
        shape, block = (48, 64), (16, 32)[axis]
        scales = tuple(-(-d // block) if i == axis else d for i, d in enumerate(shape))
        weights = [codes(rng, "w", kind, (shape[0], shape[1] // each)),
                   floats(rng, "s", float_kind, scales)]  # fmt: skip
        if zero:
            weights.append(codes(rng, "z", kind, (scales[0], -(-scales[1] // each))))
        said = {} if bits == 4 else {"bits": bits}
        node = helper.make_node(
            "GatherBlockQuantized", ["w", "i", "s", *["z"] * zero], ["y"], domain="com.microsoft",
            gather_axis=along, quantize_axis=axis, block_size=block, **said,
        )  # fmt: skip
        places = rng.integers(0, shape[along], (2, 3))
        made = model([node], ("i", TensorProto.INT64, (2, 3)), FLOATS[float_kind], weights)
        name = f"GatherBlockQuantized {kind}, {bits} bits, axes {along} {axis}, {float_kind}"
        yield Trial(name + ", zero" * zero, made, {"i": places}, float_kind)


def pairs(rng: Any) -> Iterator[Trial]:
    """A product by a weight of DequantizeLinear, and QuantizeLinear and back."""
    for kind, axis, block, zero, float_kind in itertools.product(
        RANGES, (0, 1, -1), (16, 32, 64), (False, True), FLOATS
    ):
        shape = (64, 128)
        scales = tuple(d // block if i == axis % 2 else d for i, d in enumerate(shape))
        zeros = [codes(rng, "z", kind, scales)] * zero
        how = {"axis": axis, "block_size": block}
        names = ["s", *["z"] * zero]
        nodes = [helper.make_node("DequantizeLinear", ["w", *names], ["f"], **how),
                 helper.make_node("MatMul", ["x", "f"], ["y"])]  # fmt: skip
        weights = [codes(rng, "w", kind, shape), floats(rng, "s", float_kind, scales), *zeros]
        x = rng.standard_normal((3, 64)).astype(float_kind)
        made = model(nodes, ("x", FLOATS[float_kind], x.shape), FLOATS[float_kind], weights)
        what = f"{kind} axis {axis}, blocks of {block}, {float_kind}" + ", zero" * zero
        yield Trial(f"DequantizeLinear {what}", made, {"x": x}, float_kind)
        said = {} if zero else {"output_dtype": kind}
        nodes = [helper.make_node("QuantizeLinear", ["x", *names], ["q"], **how, **said),
                 helper.make_node("DequantizeLinear", ["q", *names], ["y"], **how)]  # fmt: skip
        weights = [floats(rng, "s", float_kind, scales, 4), *zeros]
        x = rng.standard_normal(shape).astype(float_kind)
        made = model(nodes, ("x", FLOATS[float_kind], x.shape), FLOATS[float_kind], weights)
        yield Trial(f"QuantizeLinear {what}", made, {"x": x}, float_kind)


def main() -> int:
    """Compare; 1 if a model differs or RLX alone refuses it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    trials = [*products(rng), *gathers(rng), *pairs(rng)]
    if args.count:
        trials = random.Random(args.seed).sample(trials, min(args.count, len(trials)))
    runtime: Any = importlib.import_module("onnxruntime")
    runtime.set_default_logger_severity(4)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    refused = wrong = 0
    for trial in trials:
        try:
            session = runtime.InferenceSession(
                trial.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            (expected,) = session.run(None, trial.feeds)
        except Exception:
            refused += 1
            continue
        problem = _problem(trial, np.asarray(expected))
        if problem:
            wrong += 1
            print(f"{trial.name}: {problem}")
    print(f"{len(trials) - refused} compared, {wrong} wrong, {refused} ONNX Runtime refuses")
    return wrong > 0


def _problem(trial: Trial, expected: Array) -> str:
    try:
        f = rlx.Session("cpu").compile(rlx.from_onnx(trial.model))
        found = np.asarray(f.run(trial.feeds)[0])
    except RlxError as e:
        return f"{type(e).__name__}: {e}"
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype} {found.shape}, expected {expected.dtype} {expected.shape}"
    wide, known = found.astype(np.float64), expected.astype(np.float64)
    off = np.abs(wide - known).max() / max(np.abs(known).max(), 1e-9)
    return "" if off <= BOUND[trial.kind] else f"off by {off:.2g}"


if __name__ == "__main__":
    sys.exit(main())

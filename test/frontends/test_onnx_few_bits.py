"""Weights of 4 bits and in blocks, held against ONNX's own evaluator; ``tools/onnx_few_bits.py``
holds all combinations against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper
from onnx.external_data_helper import convert_model_to_external_data
from onnx.reference import ReferenceEvaluator

import rlx
from rlx.errors import ModelError, UnsupportedError
from rlx.ops.quant.blocks import DequantizeBlocks

Array = np.ndarray[Any, Any]

INT4, UINT4, INT8, UINT8 = (
    TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8, TensorProto.UINT8,
)  # fmt: skip
RANGES = {INT4: (-8, 8), UINT4: (0, 16), INT8: (-128, 128), UINT8: (0, 256)}
FLOAT = TensorProto.FLOAT
MICROSOFT = "com.microsoft"


def numbers(kind: int, shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(*RANGES[kind], shape)


def integers(name: str, kind: int, shape: tuple[int, ...], seed: int = 0) -> Any:
    return helper.make_tensor(name, kind, shape, numbers(kind, shape, seed).flatten())


def scales(shape: tuple[int, ...]) -> Any:
    values = (np.random.default_rng(2).random(shape) / 8 + 0.1).astype(np.float32)
    return helper.make_tensor("s", FLOAT, shape, values.flatten())


def model(nodes: list[Any], weights: list[Any], x: tuple[int, ...], kind: int = FLOAT) -> Any:
    given = helper.make_tensor_value_info("x", kind, x)
    result = helper.make_tensor_value_info("y", FLOAT, None)
    graph = helper.make_graph(nodes, "g", [given], [result], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets)


def check(made: Any, x: Array, expected: Array, schemes: list[str]) -> None:
    g = rlx.from_onnx(made)
    assert [op.scheme for op in g.nodes() if isinstance(op, DequantizeBlocks)] == schemes
    for found in (rlx.interpret(g, {"x": x})[0], rlx.Session("cpu").compile(g).run({"x": x})[0]):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


WEIGHTS = {
    (INT4, 0, 32, False): ["q4_0_f32"], (UINT4, 1, 64, True): ["q4_1_f32"],
    (UINT4, 0, 32, False): ["q4_1_f32"], (INT8, 0, 32, False): ["q8_0_f32"],
    (INT8, -1, 32, True): ["q8_1_f32"], (UINT8, 0, 64, True): ["q8_1_f32"],
    (INT4, 0, 16, True): [],
}  # fmt: skip
"""By element type, axis, block and whether there are zero points."""


@pytest.mark.parametrize(("kind", "axis", "block", "zero"), WEIGHTS)
def test_a_blocked_weight_stays_packed(kind: int, axis: int, block: int, zero: bool) -> None:
    shape = (64, 128)
    blocks = tuple(d // block if i == axis % 2 else d for i, d in enumerate(shape))
    names = ["w", "s", *["z"] * zero]
    nodes = [
        helper.make_node("DequantizeLinear", names, ["f"], axis=axis, block_size=block),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    zeros = [integers("z", kind, blocks, 1)] * zero
    made = model(nodes, [integers("w", kind, shape), scales(blocks), *zeros], (3, 64))
    x = np.random.default_rng(3).standard_normal((3, 64), np.float32)
    expected = ReferenceEvaluator(made).run(None, {"x": x})[0]
    check(made, x, expected, WEIGHTS[kind, axis, block, zero])


@pytest.mark.parametrize(("along", "axis"), [(0, 0), (1, 0), (1, 1)])
def test_places_along_an_axis_of_a_weight_of_4_bits(along: int, axis: int) -> None:
    shape, block = (48, 64), 16
    blocks = tuple(d // block if i == axis else d for i, d in enumerate(shape))
    weights = [integers("w", INT4, shape), scales(blocks), integers("z", INT4, blocks, 1)]
    how = {"gather_axis": along, "quantize_axis": axis, "block_size": block}
    node = helper.make_node("GatherBlockQuantized", ["w", "x", "s", "z"], ["y"],
                            domain=MICROSOFT, **how)  # fmt: skip
    places = np.array([[0, 40], [7, 7]])
    decoded = helper.make_node("DequantizeLinear", ["w", "s", "z"], ["y"], axis=axis,
                               block_size=block)  # fmt: skip
    plain = ReferenceEvaluator(model([decoded], weights, (1,))).run(None, {"x": places})[0]
    check(model([node], weights, (2, 2), TensorProto.INT64), places,
          np.take(plain, places, along), [])  # fmt: skip


@pytest.mark.parametrize("kind", [INT4, UINT4])
@pytest.mark.parametrize("zero", [False, True])
def test_numbers_are_rounded_to_4_bits(kind: int, zero: bool) -> None:
    how: dict[str, Any] = {"axis": 1, "block_size": 16}
    said = {} if zero else {"output_dtype": kind}
    names = ["s", *["z"] * zero]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *names], ["q"], **how, **said),
        helper.make_node("DequantizeLinear", ["q", *names], ["y"], **how),
    ]
    weights = [scales((4, 2)), *[integers("z", kind, (4, 2), 1)] * zero]
    x = 2 * np.random.default_rng(3).standard_normal((4, 32), np.float32)
    made = model(nodes, weights, (4, 32))
    check(made, x, ReferenceEvaluator(made).run(None, {"x": x})[0], [])


def test_elements_of_4_bits_lie_in_raw_bytes_and_beside_the_model(tmp_path: Path) -> None:
    raw = integers("w", INT4, (3, 5))
    node = helper.make_node("Cast", ["w"], ["f"], to=FLOAT)
    more = helper.make_node("Add", ["x", "f"], ["y"])
    expected = numbers(INT4, (3, 5)).astype(np.float32)
    packed = onnx.numpy_helper.to_array(raw)
    given = onnx.numpy_helper.from_array(packed, "w")
    assert given.HasField("raw_data")
    made, zeros = model([node, more], [given], (3, 5)), np.zeros((3, 5), np.float32)
    check(made, zeros, expected, [])
    check(model([node, more], [raw], (3, 5)), zeros, expected, [])
    convert_model_to_external_data(made, location="w.bin", size_threshold=0)
    onnx.save(made, tmp_path / "m.onnx")
    check(tmp_path / "m.onnx", zeros, expected, [])


def test_refusals() -> None:
    four = integers("w", INT4, (4, 8))
    node = helper.make_node("Add", ["w", "w"], ["y"])
    with pytest.raises(UnsupportedError, match="'w' has elements of 4 bits"):
        rlx.from_onnx(model([node], [four], (1,)))
    four.ClearField("int32_data")
    four.raw_data = b"123"
    node = helper.make_node("Cast", ["w"], ["y"], to=FLOAT)
    with pytest.raises(ModelError, match="take 16 bytes of i8, and holds 3"):
        rlx.from_onnx(model([node], [four], (1,)))

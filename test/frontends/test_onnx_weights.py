"""The weights of an ONNX file, read past the protocol buffer: the same model, with one copy of them."""

from __future__ import annotations

import os
import random
import tracemalloc
from io import BytesIO
from pathlib import Path
from threading import Thread

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

import rlx
from rlx.frontends.onnx.weights import LEAST_BYTES, without_weights

FIXTURES = Path(__file__).parent / "fixtures"


def model(*weights: TensorProto) -> onnx.ModelProto:
    """A model that returns its initialisers."""
    nodes = [helper.make_node("Identity", [w.name], [f"y{i}"]) for i, w in enumerate(weights)]
    outputs = [
        helper.make_tensor_value_info(f"y{i}", w.data_type, list(w.dims))
        for i, w in enumerate(weights)
    ]
    graph = helper.make_graph(nodes, "weights", [], outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def made(name: str, shape: tuple[int, ...], dtype: str = "float32") -> TensorProto:
    array = np.random.default_rng(len(name)).integers(0, 2, shape).astype(dtype)
    return numpy_helper.from_array(array, name)


def put_back(data: bytes) -> onnx.ModelProto:
    """The model of a file, parsed without its weights, with these in it again."""
    rest, weights = without_weights(BytesIO(data))
    found = onnx.ModelProto.FromString(rest)
    for i, array in weights.items():
        assert not found.graph.initializer[i].HasField("raw_data")
        found.graph.initializer[i].raw_data = array.tobytes()
    return found


@pytest.mark.parametrize("name", ["resnet", "bert", "vit", "llama"])
def test_a_model_with_its_weights_put_back_is_the_same(name: str) -> None:
    data = (FIXTURES / f"{name}.onnx").read_bytes()
    assert put_back(data) == onnx.ModelProto.FromString(data)


def test_weights_of_every_kind_are_those_that_onnx_reads() -> None:
    large = LEAST_BYTES // 4
    weights = [
        made("small", (3,)), made("f32", (large, 2)), made("i64", (large,), "int64"),
        made("bool", (LEAST_BYTES,), "bool"), made("f16", (1, large, 2), "float16"),
        helper.make_tensor("no raw data", TensorProto.FLOAT, [large * 2], [0.5] * large * 2),
        made("last", (LEAST_BYTES,), "uint8"),
    ]  # fmt: skip
    data = model(*weights).SerializeToString()
    found = rlx.Session("interpret").compile(rlx.from_onnx(data)).run({})
    for w, y in zip(weights, found, strict=True):
        np.testing.assert_array_equal(y, numpy_helper.to_array(w))
    assert set(without_weights(BytesIO(data))[1]) == {1, 2, 3, 4, 6}


def test_a_model_comes_through_a_pipe(tmp_path: Path) -> None:
    data = model(made("w", (LEAST_BYTES,))).SerializeToString()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    assert len(rlx.from_onnx(pipe).param_values) == 1
    writer.join()


def test_what_is_written_in_another_way_is_left_alone() -> None:
    whole = model(made("w", (LEAST_BYTES,)))
    data = whole.SerializeToString()
    twice = data + onnx.ModelProto(graph=onnx.GraphProto(name="more")).SerializeToString()
    whole.graph.initializer[0].data_location = TensorProto.EXTERNAL
    for other in (
        twice,
        whole.SerializeToString(),
        data[:-1],
        data + b"\x0b\x0c",
        b"",
        b"\xff" * 40,
    ):
        assert without_weights(BytesIO(other)) == (other, {})


def test_a_damaged_file_is_what_the_parser_says_of_it() -> None:
    data = (FIXTURES / "resnet.onnx").read_bytes()
    head, draw = len(data) - 400, random.Random(3)
    for _ in range(60):
        damaged = bytearray(data)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.choice([draw.randrange(400), head + draw.randrange(400)])] = (
                draw.randrange(256)
            )
        try:
            expected = onnx.ModelProto.FromString(bytes(damaged))
        except DecodeError:
            with pytest.raises(DecodeError):
                put_back(bytes(damaged))
        else:
            assert put_back(bytes(damaged)) == expected


def test_weights_are_in_memory_once(tmp_path: Path) -> None:
    path, mib = tmp_path / "m.onnx", 1 << 20
    path.write_bytes(model(*(made(f"w{i}", (mib,)) for i in range(3))).SerializeToString())
    rlx.from_onnx(path)  # imports
    tracemalloc.start()
    try:
        graph = rlx.from_onnx(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(graph.param_values) == 3
    assert peak < 14 * mib

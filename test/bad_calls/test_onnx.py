"""Damaged, hostile and unsupported ONNX models, and bad calls of ``rlx.from_onnx``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

import rlx
from rlx.errors import (
    DTypeError,
    FaultError,
    ModelError,
    NameError,
    RlxError,
    ShapeError,
    ToolchainError,
    UnsupportedError,
)
from support.onnx_text import model


class Refused(NamedTuple):
    """A call that must give an error of that very class, with a pattern of its message."""

    error: type[RlxError]
    says: str
    call: Callable[[], Any]


def check(row: Refused) -> None:
    with pytest.raises(RlxError) as found:
        row.call()
    assert isinstance(found.value, row.error), f"{type(found.value).__name__}: {found.value}"
    assert re.search(row.says, str(found.value)), str(found.value)


def text(
    graph: str,
    opset: int = 21,
    more: str = "",
    change: Callable[[ModelProto], Any] | None = None,
    **how: Any,
) -> Callable[[], Any]:
    """An import of a model in ONNX's text form, changed in place."""

    def call() -> Any:
        m = model(graph, opset, more)
        if change is not None:
            change(m)
        return rlx.from_onnx(m, **how)

    return call


RELU = "g (float[2] x) => (float[2] y) { y = Relu (x) }"


def weights(t: TensorProto) -> Callable[[], Any]:
    """An import of a model whose weight is a given tensor."""

    def call() -> Any:
        m = model("g (float[2] x) => (float[2] y) { y = Add (x, w) }")
        t.name = "w"
        m.graph.initializer.append(t)
        return rlx.from_onnx(m)

    return call


def tensor(**fields: Any) -> TensorProto:
    t = TensorProto(data_type=TensorProto.FLOAT, dims=[2])
    for name, value in fields.items():
        if isinstance(value, list):
            del getattr(t, name)[:]
            getattr(t, name).extend(value)
        else:
            setattr(t, name, value)
    return t


def attribute(kind: int, **fields: Any) -> Callable[[ModelProto], Any]:
    """Give the first node an attribute of that type."""

    def change(m: ModelProto) -> None:
        m.graph.node[0].attribute.append(AttributeProto(type=kind, **fields))

    return change


FILES = [
    Refused(ModelError, "takes a path, bytes or an onnx.ModelProto, found an int", lambda: rlx.from_onnx(3)),
    Refused(ModelError, "cannot read no/such.onnx: No such file", lambda: rlx.from_onnx("no/such.onnx")),
    Refused(ModelError, "cannot read", lambda: rlx.from_onnx("a\0b")),
    Refused(ModelError, "its 3 bytes are not such a protocol buffer", lambda: rlx.from_onnx(b"\xff\xff\xff")),
    Refused(ModelError, "cut short", lambda: rlx.from_onnx(model(RELU).SerializeToString()[:-3])),
    Refused(ModelError, "no graph or no opset_import", lambda: rlx.from_onnx(b"")),
    Refused(ModelError, "no graph or no opset_import", text(RELU, change=lambda m: m.ClearField("opset_import"))),
]  # fmt: skip

CALLS = [
    Refused(NameError, "no input is called 'z'.*there is 'x'", text(RELU, constants={"z": [1, 2]})),
    Refused(NameError, "no dim is called 'bach'; did you mean 'batch'",
            text("g (float[batch] x) => (float[batch] y) { y = Relu (x) }", dims={"bach": 1})),
    Refused(ShapeError, "the size of dim 'n' is an int >= 0, found -1",
            text("g (float[n] x) => (float[n] y) { y = Relu (x) }", dims={"n": -1})),
    Refused(DTypeError, "input 'x' is f32, found int64; convert", text(RELU, constants={"x": np.ones(2, np.int64)})),
    Refused(ShapeError, r"input 'x' is 2xf32, the constant has the shape \[3\]", text(RELU, constants={"x": [1.0, 2.0, 3.0]})),
]  # fmt: skip

GRAPHS = [
    Refused(UnsupportedError, r"not there yet: Foo x 2, own.Bar x 1; docs/onnx.md",
            text("g (float[2] x) => (float[2] y) { a = Foo (x) b = Foo (a) y = own.Bar (b) }")),
    Refused(UnsupportedError, "not there yet: Foo x 1", text(
        "g (float[2] x) => (float[2] y) { y = own.F (x) }", 21,
        '<domain: "own", opset_import: ["" : 21]> F (a) => (b) { b = Foo (a) }')),
    Refused(UnsupportedError, "not there yet: Foo x 1", text(
        "g (bool c, float[2] x) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] a) { a = Foo (x) },"
        " else_branch = e () => (float[2] b) { b = Relu (x) }> }")),
    Refused(ModelError, "it is of opset 999 of ai.onnx, and the onnx package .* install a newer one", text(RELU, 999)),
    Refused(UnsupportedError, "not there yet: Gelu x 1", text("g (float[2] x) => (float[2] y) { y = Gelu (x) }", 13)),
    Refused(ModelError, "the function own.F calls itself", text(
        "g (float[2] x) => (float[2] y) { y = own.F (x) }", 21,
        '<domain: "own", opset_import: ["" : 21, "own" : 1]> F (a) => (b) { b = own.F (a) }')),
    Refused(ModelError, "cycle", text("g (float[2] x) => (float[2] y) { a = Add (x, b) b = Relu (a) y = Relu (b) }")),
    Refused(ModelError, r"Relu \(node 1\) reads 'xx', which no node, input or initialiser gives; did you mean 'x'",
            text("g (float[2] x) => (float[2] y) { y = Relu (xx) }")),
    Refused(ModelError, r"Exp \(node 2\) gives 'y', which is given already", text("g (float[2] x) => (float[2] y) { y = Relu (x) y = Exp (x) }")),
    Refused(ModelError, "gives 'x', which is given already", text("g (float[2] x) => (float[2] y) { x = Exp (x) y = Relu (x) }")),
    Refused(ModelError, "the output 'z' is given by no node", text("g (float[2] x) => (float[2] z) { y = Relu (x) }")),
    Refused(ModelError, "declared as another element type than 2xf32", text("g (float[2] x) => (int64[2] y) { y = Relu (x) }")),
    Refused(ModelError, "the output 'c' of its body is given by no node", text(
        "g (bool c, float[2] x) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] a) { a = Exp (x) },"
        " else_branch = e () => (float[2] b) { b = Relu (x) }> }",
        change=lambda m: setattr(m.graph.node[0].attribute[0].g.output[0], "name", "c") or m.graph.input[0].CopyFrom(
            helper.make_tensor_value_info("k", TensorProto.BOOL, [])) or m.graph.node[0].input.__setitem__(0, "k"))),
    Refused(ModelError, "its domain 'own' is not among the opset imports", text(
        "g (float[2] x) => (float[2] y) { y = own.F (x) }", 21,
        '<domain: "own", opset_import: ["" : 21]> F (a) => (b) { b = Relu (a) }',
        change=lambda m: m.opset_import.pop())),
    Refused(UnsupportedError, "the input 'x' has no declared shape", text("g (float x) => (float[2] y) { y = Relu (x) }",
            change=lambda m: m.graph.input[0].type.tensor_type.ClearField("shape"))),
    Refused(UnsupportedError, "the input 'x' is declared as sequence, and RLX has tensors alone",
            text("g (seq(float[2]) x) => (float[2] y) { y = SequenceAt (x, i) }", change=lambda m: m.graph.node[0].CopyFrom(
                helper.make_node("Relu", ["x"], ["y"])))),
    Refused(UnsupportedError, "the input 'x' is declared as optional", text("g (optional(float[2]) x) => (float[2] y) { y = Relu (x) }")),
    Refused(UnsupportedError, "the input 'x' has the element type STRING, which RLX lacks", text("g (string[2] x) => (string[2] y) { y = Identity (x) }")),
    Refused(UnsupportedError, "the input 'x' has the element type number 99", text(RELU,
            change=lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 99))),
    Refused(UnsupportedError, "'s' is sparse; store it as a dense tensor", text(RELU,
            change=lambda m: m.graph.sparse_initializer.add(values=TensorProto(name="s")))),
    Refused(ModelError, "two of its inputs are called 'x'", text("g (float[2] x, float[2] x) => (float[2] y) { y = Relu (x) }")),
    Refused(ModelError, "two of its initialisers are called 'w'; give each", text(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] w = {1, 3}> { y = Add (x, w) }")),
    Refused(ModelError, "an initialiser of its body has the name 'w' of a value around the body", text(
        "g (bool c, float[2] x) => (float[2] y) <float[2] w = {5, 6}> { y = If (c) <then_branch = t () => (float[2] p)"
        " <float[2] w = {1, 2}> { p = Add (x, w) }, else_branch = e () => (float[2] q) { q = Relu (x) }> }")),
    Refused(ModelError, "it has 2 inputs, and the function F has 1", text(
        "g (float[2] x) => (float[2] y) { y = own.F (x, x) }", 21, '<domain: "own", opset_import: ["" : 21]> F (a) => (b) { b = Relu (a) }')),
    Refused(ModelError, "it has 2 outputs, and the function F has 1", text(
        "g (float[2] x) => (float[2] y) { y, z = own.F (x) }", 21, '<domain: "own", opset_import: ["" : 21]> F (a) => (b) { b = Relu (a) }')),
    Refused(ModelError, "the output 'c' of the function F is given by no node", text(
        "g (float[2] x) => (float[2] y) { y = own.F (x) }", 21, '<domain: "own", opset_import: ["" : 21]> F (a) => (c) { b = Relu (a) }')),
]  # fmt: skip

NODES = [
    Refused(ModelError, r":1: Relu \(node 1\): it has the attribute 'alpha', which Relu of opset 14 lacks; it has none",
            text("g (float[2] x) => (float[2] y) { y = Relu <alpha = 1.0> (x) }")),
    Refused(ModelError, "its attribute 'axis' is of type FLOAT, expected INT", text("g (float[2] x) => (float[2] y) { y = Softmax <axis = 1.0> (x) }")),
    Refused(ModelError, "its attribute 'to' is missing", text("g (float[2] x) => (float[2] y) { y = Cast (x) }")),
    Refused(UnsupportedError, "its attribute 'sparse_value' is of type SPARSE_TENSOR", text(
        "g (float[2] x) => (float[2] y) { y = Constant () }", change=attribute(AttributeProto.SPARSE_TENSOR, name="sparse_value"))),
    Refused(ModelError, "its attribute 'mode' is no text in UTF-8", text(
        "g (float[2] x) => (float[2] y) { y = Pad (x, x) }", change=attribute(AttributeProto.STRING, name="mode", s=b"\xff"))),
    Refused(ModelError, "it has 1 inputs, Add takes 2", text("g (float[2] x) => (float[2] y) { y = Add (x) }")),
    Refused(ModelError, "it has 0 inputs, Concat takes 1 or more", text("g (float[2] x) => (float[2] y) { y = Concat <axis = 0> () }")),
    Refused(ModelError, "it has 4 inputs, Clip takes 1 to 3", text("g (float[2] x) => (float[2] y) { y = Clip (x, x, x, x) }")),
    Refused(ModelError, "it has 2 outputs, Relu has 1 at most", text("g (float[2] x) => (float[2] y) { y, z = Relu (x) }")),
    Refused(ModelError, "its input 'B' is left out; Add needs it", text('g (float[2] x) => (float[2] y) { y = Add (x, "") }')),
    Refused(ModelError, r"its input 'x' is tensor\(bool\), which Relu of opset 14 does not take", text("g (bool[2] x) => (bool[2] y) { y = Relu (x) }")),
    Refused(ModelError, r"'x' and 'z' are tensor\(float\) and tensor\(int64\), and must be of one type", text(
        "g (float[2] x, int64[2] z) => (float[2] y) { y = Add (x, z) }")),
    Refused(ShapeError, r":1: Add 'sum': .*do not broadcast", text("g (float[2] x, float[3] z) => (float[2] y) { [sum] y = Add (x, z) }")),
    Refused(UnsupportedError, r"its output 1 \('m'\) is not computed here", text(
        "g (float[1,2] x, float[2] s) => (float[1,2] y) { y, m, v = BatchNormalization (x, s, s, s, s) }", 15)),
    Refused(UnsupportedError, r"its attribute 'spatial' \(0\) is not taken into account", text(
        "g (float[1,2] x, float[2] s) => (float[1,2] y) { y = BatchNormalization <spatial = 0> (x, s, s, s, s) }", 7)),
]  # fmt: skip

WANTED = [
    Refused(UnsupportedError, r"the elements of its input 's' decide shapes, and are not known.*constants={'s': array}",
            text("g (float[6] x, int64[2] s) => (float[a, b] y) { y = Reshape (x, s) }")),
    Refused(UnsupportedError, r"give from_onnx constants={'s': array, 't': array}",
            text("g (float[6] x, int64[1] s, int64[1] t) => (float[a, b] y) { u = Concat <axis = 0> (s, t) y = Reshape (x, u) }")),
    Refused(UnsupportedError, r"give from_onnx dims={'n': size}", text(
        "g (float[n, 2] x) => (int64[k, 1] y) { s = Shape (x) y = NonZero (s) }")),
    Refused(UnsupportedError, "too large to be computed while importing", text(
        "g (float[2] x, int64[1] n) => (float[m] y) { big = Expand (n, k) s = ReduceSum <keepdims = 0> (big)"
        " t = Unsqueeze (s, z) y = Expand (x, t) }", constants={"n": [1]},
        change=lambda m: m.graph.initializer.extend([
            numpy_helper.from_array(np.array([1 << 40]), "k"), numpy_helper.from_array(np.array([0]), "z")]))),
    Refused(UnsupportedError, "change from round to round of a loop", text(
        "g (int64 n, bool c, float[4] x) => (float[4] y) { y = Loop (n, c, x) <body = b (int64 i, bool g, float[4] a)"
        " => (bool go, float[4] d) { go = Identity (g) r = Shape (a) j = Unsqueeze (i, z) s = Slice (a, j, r)"
        " d = Expand (s, r) }> }",
        change=lambda m: m.graph.initializer.append(numpy_helper.from_array(np.array([0]), "z")))),
]  # fmt: skip

ROWS = [
    Refused(FaultError, "its test is still true after 4096 rounds", text(
        'g (float[2] x, int64[1] s) => (float[n] y) { go = Constant <value = bool {1}> () e = Loop ("", go, s) <body = b'
        " (int64 i, bool g, int64[1] a) => (bool c, int64[1] d) { d = Add (a, a) c = Identity (g) }> y = Expand (x, e) }",
        constants={"s": [1]})),
    Refused(ModelError, "its attribute 'shape' is missing", text("g (float[2] x) => (float[2] y) { y = Reshape (x) }", 4)),
    Refused(UnsupportedError, "a number of rounds that depends on data", text(
        'g (float[1] x) => (float[n,1] y) { go = Constant <value = bool {1}> () s, y = Loop ("", go, x) <body = b'
        " (int64 i, bool g, float[1] a) => (bool c, float[1] d, float[1] e) { d = Add (a, x) e = Relu (d)"
        " c = Less (d, x) }> }")),
    Refused(UnsupportedError, "it holds no numbers in a dense tensor", text('g () => (float[1] y) { y = Constant <value_string = "a"> () }')),
    Refused(ModelError, "its value has 2 elements, expected one", text(
        "g (int64[1] s) => (float[3] y) { y = ConstantOfShape <value = float[2] {1, 2}> (s) }", constants={"s": [3]})),
    Refused(ModelError, "its step is 0", text("g (int64 s) => (int64[n] y) { y = Range (s, s, s) }", constants={"s": 0})),
    Refused(ModelError, "its step is 0", text(
        "g (float[n] x) => (int64[m] y) { z = Constant <value_int = 0> () s = Shape (x) i = Squeeze (s) y = Range (z, i, z) }")),
    Refused(ShapeError, "it takes matrices, found 3xf32", text("g (float[3] x) => (float[3] y) { y = Trilu (x) }")),
    Refused(UnsupportedError, "its approximation is 'best'", text('g (float[2] x) => (float[2] y) { y = Gelu <approximate = "best"> (x) }')),
    Refused(UnsupportedError, "its mode is 'best'", text(
        'g (float[2] x, int64[2] p) => (float[4] y) { y = Pad <mode = "best"> (x, p) }', constants={"p": [1, 1]})),
    Refused(ShapeError, "1 axes need 2 numbers, found 3", text("g (float[2] x, int64[3] p) => (float[4] y) { y = Pad (x, p) }", constants={"p": [1, 1, 1]})),
    Refused(ShapeError, r"reshape: \[2, 0\] copies a dim that 2xf32 lacks", text(
        "g (float[2] x, int64[2] s) => (float[2, 1] y) { y = Reshape (x, s) }", constants={"s": [2, 0]})),
    Refused(ShapeError, r"an axis is listed twice in \[0, 0\]", text(
        "g (float[2] x, int64[2] s) => (float[1, 1, 2] y) { y = Unsqueeze (x, s) }", constants={"s": [0, 0]})),
    Refused(UnsupportedError, "its axes are 2 and 1, expected 0 and 1", text(
        "g (float[2,2,2] x, int64[2] s) => (float[2,2,2] y) { y = ReverseSequence <time_axis = 2> (x, s) }")),
    Refused(UnsupportedError, "in training mode it is random", text(
        "g (float[2] x, float r, bool t) => (float[2] y) { y = Dropout (x, r, t) }", constants={"r": np.float32(0.5), "t": True})),
    Refused(UnsupportedError, "its channels are the symbolic dim n", text("g (float[1,n,2] x) => (float[1,n,2] y) { y = LRN <size = 3> (x) }")),
    Refused(UnsupportedError, r"its activations are \['softsign'\]", text(
        'g (float[2,1,2] x, float[1,3,2] w, float[1,3,3] r) => (float[2,1,1,3] y) { y = RNN <activations = ["Softsign"], hidden_size = 3> (x, w, r) }')),
    Refused(ModelError, "its inputs and attributes do not fit together", text(
        'g (float[2,1,2] x, float[1,3,2] w, float[1,3,3] r) => (float[2,1,1,3] y) { y = RNN <direction = "up", hidden_size = 3> (x, w, r) }')),
    Refused(ShapeError, r"its indices 2xi64 need the rank of 2x2xf32", text(
        "g (float[2,2] x, int64[2] i) => (float[2] y) { y = GatherElements (x, i) }")),
    Refused(ShapeError, "3 coordinates after 0 batch dims do not fit 2x2xf32", text(
        "g (float[2,2] x, int64[1,3] i) => (float[1] y) { y = GatherND (x, i) }")),
    Refused(UnsupportedError, "its indices 1x2xi64 do not reach all of 2x2xf32", text(
        "g (float[2,2] x, int64[1,2] i) => (float[2,2] y) { y = ScatterElements <axis = 1> (x, i, x2) x2 = Slice (x, z, o, z) }",
        change=lambda m: m.graph.initializer.extend([
            numpy_helper.from_array(np.array([0]), "z"), numpy_helper.from_array(np.array([1]), "o")]))),
    Refused(UnsupportedError, "where its windows begin depends on n", text(
        'g (float[1,1,n] x) => (float[1,1,m] y) { y = MaxPool <kernel_shape = [3], strides = [2], auto_pad = "SAME_UPPER"> (x) }')),
    Refused(UnsupportedError, "its coordinates are 'middle'; there are half_pixel", text(
        'g (float[1,1,2] x, float[3] s) => (float[1,1,4] y) { y = Resize <coordinate_transformation_mode = "middle"> (x, "", s) }', constants={"s": [1.0, 1.0, 2.0]})),
    Refused(UnsupportedError, "its mode is 'best' by 'round_prefer_floor'", text(
        'g (float[1,1,2] x, float[3] s) => (float[1,1,4] y) { y = Resize <mode = "best"> (x, "", s) }', constants={"s": [1.0, 1.0, 2.0]})),
    Refused(UnsupportedError, "it interpolates i32; cast it to a float type", text(
        'g (int32[1,1,2] x, float[3] s) => (int32[1,1,4] y) { y = Resize <mode = "linear"> (x, "", s) }', constants={"s": [1.0, 1.0, 2.0]})),
    Refused(ShapeError, "resize: 3 axes need a size or scale each, found 2", text(
        'g (float[1,1,2] x, float[2] s) => (float[1,1,4] y) { y = Resize (x, "", s) }', constants={"s": [1.0, 2.0]})),
    Refused(ShapeError, "resize: an axis without elements cannot become one of 3", text(
        'g (float[1,1,0] x, int64[3] s) => (float[1,1,3] y) { y = Resize (x, "", "", s) }', constants={"s": np.array([1, 1, 3])})),
    Refused(UnsupportedError, "its mode is 'best'; there are nearest, linear and cubic", text(
        'g (float[1,1,2,2] x, float[1,2,2,2] c) => (float[1,1,2,2] y) { y = GridSample <mode = "best"> (x, c) }', 22)),
    Refused(ShapeError, "2x4xf32 has no scale for each block of 1 of 4x4xf32", text(
        "g (float[4,4] x, float[2,4] s) => (uint8[4,4] y) { y = QuantizeLinear <axis = 0, block_size = 5> (x, s) }", 21,
        change=lambda m: setattr(m.graph.node[0].attribute[1], "i", 1))),
    Refused(UnsupportedError, "before opset 9 it has a batch axis", text(
        'g (float[1,2] s, float[1,3,2] x) => (float[1,2] f) { f = Scan <num_scan_inputs = 1, body = b (float[2] a, float[2] c)'
        ' => (float[2] d) { d = Add (a, c) }> ("", s, x) }', 8)),
    Refused(UnsupportedError, "how many boxes it keeps depends on data.*export the model without non-maximum suppression", text(
        "g (float[1,8,4] b, float[1,2,8] s) => (int64[n,3] y) { y = NonMaxSuppression (b, s) }")),
    Refused(ShapeError, r"its boxes \[1, 1, 4\] and scores \[1, 1, 2\] do not fit", text(
        "g (float[1,1,4] b, float[1,1,2] s) => (int64[n,3] y) { y = NonMaxSuppression (b, s) }",
        constants={"b": [[[0.0, 0.0, 1.0, 1.0]]], "s": [[[1.0, 2.0]]]})),
    Refused(ModelError, "its inputs and attributes do not fit together", text(
        "g (float[4,2] x, int64[1] s, int64[2] e) => (float[4,2] y) { y = Slice (x, s, e) }", constants={"s": [0], "e": [1, 1]},
        change=lambda m: m.graph.node[0].input.append("e"))),
]  # fmt: skip


def segment() -> TensorProto:
    t = tensor(raw_data=bytes(8))
    t.segment.begin = 0
    return t


def external(**entries: Any) -> TensorProto:
    """A weight in another file."""
    t = tensor(data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        t.external_data.add(key=key, value=str(value))
    return t


WEIGHTS = [
    Refused(UnsupportedError, "the initialiser 'w' has the element type FLOAT8E4M3FNUZ", weights(tensor(data_type=18, raw_data=b"ab"))),
    Refused(ModelError, r"the initialiser 'w' has the dims \[-1\]", weights(tensor(dims=[-1]))),
    Refused(ModelError, r"'w' has the dims \[9007199254740992, 8\].*more than 2\*\*56 bytes", weights(tensor(dims=[1 << 53, 8]))),
    Refused(ModelError, r"\[2\], which take 8 bytes of f32, and holds 7; the file is damaged", weights(tensor(raw_data=bytes(7)))),
    Refused(ModelError, r"\[2\], which take 2 elements of f32, and holds 3", weights(tensor(float_data=[1.0, 2.0, 3.0]))),
    Refused(ModelError, r"\[2\], which take 2 elements of f32, and holds 0", weights(tensor(int64_data=[1, 2]))),
    Refused(ModelError, "'w' is a segment of a tensor", weights(segment())),
    Refused(ModelError, "lies in the file 'w.bin', and the model was given without a folder", weights(external(location="w.bin"))),
]  # fmt: skip

EXTERNAL = [
    ("'../w.bin', which is no file in the model's folder", external(location="../w.bin")),
    ("which is no file in the model's folder", external(location="link.bin")),
    ("'/etc/passwd', which is no file", external(location="/etc/passwd")),
    ("lies in '', which is no file", external()),
    ("'.', which is no file in the model's folder", external(location=".")),
    ("'part', which is no file", external(location="part")),
    (r"'a\\x00b', which is no file", external(location="a\0b")),
    ("'loop', which is no file", external(location="loop")),
    ("'pipe', which is no file", external(location="pipe")),
    ("cannot read .*no.bin: .*No such file", external(location="no.bin")),
    ("invalid literal", external(location="w.bin", offset="x")),
    ("needs 8 bytes, its place in 'w.bin' is 8 bytes from 4 on, and the file has 8", external(location="w.bin", offset=4)),
    ("is 8 bytes from -8 on", external(location="w.bin", offset=-8)),
    ("is 4 bytes from 0 on", external(location="w.bin", length=4)),
]  # fmt: skip

ALL = [*FILES, *CALLS, *GRAPHS, *NODES, *WANTED, *ROWS, *WEIGHTS]


@pytest.mark.parametrize("row", ALL, ids=[re.sub(r"\W+", "-", r.says)[:60] for r in ALL])
def test_a_bad_model(row: Refused) -> None:
    check(row)


@pytest.mark.parametrize(("says", "weight"), EXTERNAL, ids=range(len(EXTERNAL)))
def test_bad_external_data(says: str, weight: TensorProto, tmp_path: Path) -> None:
    """External data lies beside the model, links followed, and has the size that the dims say."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in (folder / "w.bin", tmp_path / "w.bin"):
        path.write_bytes(bytes(8))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (folder / "loop").symlink_to("loop")
    (folder / "part").mkdir()
    os.mkfifo(folder / "pipe")
    m = model("g (float[2] x) => (float[2] y) { y = Add (x, w) }")
    weight.name = "w"
    m.graph.initializer.append(weight)
    (folder / "m.onnx").write_bytes(m.SerializeToString())
    check(Refused(ModelError, says, lambda: rlx.from_onnx(folder / "m.onnx")))


def test_without_the_package() -> None:
    with mock.patch("importlib.util.find_spec", return_value=None):
        check(
            Refused(ToolchainError, r"pip install 'rlx\[onnx\]'", lambda: rlx.from_onnx("m.onnx"))
        )

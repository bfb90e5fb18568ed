"""``rlx.from_onnx``: dims and shapes that stay symbolic, params, functions, control flow, versions."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import rlx
from rlx.frontends.onnx.tensors import ELEM_TYPES
from rlx.ir.graph import topological
from rlx.ops.control.control import Cond, Scan, WhileLoop
from rlx.types import DTYPES
from support.onnx_text import model


def run(graph: rlx.Graph, **feeds: Any) -> list[Any]:
    """What a graph gives, interpreted and, where the compiler takes it, compiled."""
    found = rlx.interpret(graph, feeds)
    if not any(isinstance(op, Scan) for op in graph.nodes()):
        compiled = rlx.Session("cpu").compile(graph).run(feeds)
        for a, b in zip(found, compiled, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    return found


# -- dims ----------------------------------------------------------------------------------


def test_dims_keep_their_names_and_get_one_where_they_have_none() -> None:
    m = model("g (float[batch, 3, N] x) => (float[batch, 3, M] y) { y = Relu (x) }")
    m.graph.input[0].type.tensor_type.shape.dim[2].ClearField("dim_param")
    g = rlx.from_onnx(m)
    assert str(g.inputs[0].type) == "batchx3xx_2xf32"
    assert rlx.from_onnx(m, dims={"batch": 2, "x_2": 4}).inputs[0].shape == (2, 3, 4)


def test_a_dim_may_be_a_sum_and_its_name_any_text() -> None:
    m = model("g (float[a, b] x, float[a, b] z) => (float[a, b] y) { y = Add (x, z) }")
    for v in m.graph.input:
        v.type.tensor_type.shape.dim[0].dim_param = "past + 1"
        v.type.tensor_type.shape.dim[1].dim_param = "1st dim"
    g = rlx.from_onnx(m)
    assert str(g.outputs[0].type) == "past+1x_1st_dimxf32"


FOLDED = [
    # Two axes become one, and one two, in the ways of exporters.
    ("s = Shape (x) a = Gather (s, i0) b = Gather (s, i1) c = Mul (a, b) d = Unsqueeze (c, z)"
     " e = Concat <axis = 0> (d, four) y = Reshape (x, e)", "batch*lengthx4"),
    ("s = Shape <start = 0, end = 2> (x) e = Concat <axis = 0> (s, two, two) y = Reshape (x, e)", "batchxlengthx2x2"),
    ("s = Shape (x) t = Slice (s, z, two) r = Slice (s, two, big) e = Concat <axis = 0> (r, t) t2 = Transpose <perm = [2,0,1]> (x)"
     " y = Reshape (t2, e)", "4xbatchxlength"),
    ("s = Shape (x) p = ReduceProd (s) y = Reshape (x, p)", "4*batch*length"),
    ("n = Size (x) f = Div (n, i4) u = Unsqueeze (f, z) e = Concat <axis = 0> (u, four) y = Reshape (x, e)", "batch*lengthx4"),
    # -1 of a target shape is what the operand has.
    ("s = Shape (x) k = Equal (s, minus) w = Where (k, one3, s) y = Expand (x, w)", "batchxlengthx4"),
    ("s = Shape (x) a, b, c = Split (s) d = Concat <axis = 0> (b, a, c) t = Transpose <perm = [1,0,2]> (x) y = Reshape (t, d)", "lengthxbatchx4"),
    ("s = Shape (x) a = Gather (s, one) q = Squeeze (a) m = Min (q, q) w = Max (m, z) e = Concat <axis = 0> (z, w, four)"
     " y = Reshape (x, e)", "batchxlengthx4"),
    ("s = Shape (x) t = Cast <to = 7> (s) u = Identity (t) y = Reshape (x, u)", "batchxlengthx4"),
    ("s = Shape (x) t = Neg (s) u = Sub (s, t) v = Add (u, s) w = Div (v, three) y = Reshape (x, w)", "batchxlengthx4"),
    ("s = Shape (x) a = Gather (s, i1) b = Sub (a, i1) u = Unsqueeze (b, z) y = Slice (x, z, u, one)", "batchxlength-1x4"),
    ("s = Shape (x) a = Gather (s, i1) y0 = Range (i0, a, i1) y = Cast <to = 1> (y0)", "length"),
    ("s = Shape (x) e = Reshape (s, minus) y = ConstantOfShape (e)", "batchxlengthx4"),
    ("s = Shape (x) a = Gather (s, i0) u = Unsqueeze (a, z) k = Greater (u, minus) l = Less (minus, u) o = GreaterOrEqual (u, z)"
     " q = LessOrEqual (z, u) b = And (k, l) c = And (o, q) d = And (b, c) y = If (d) <then_branch = t () => (float[p,q,r] f) { f = Exp (x) },"
     " else_branch = e () => (float[p,q,r] h) { h = Relu (h0) h0 = Reshape (x, u) }>", "batchxlengthx4"),
]  # fmt: skip

CONSTANTS = {
    "z": [0], "one": [1], "two": [2], "three": [3], "four": [4], "big": [2**62], "minus": [-1],
    "i0": 0, "i1": 1, "i4": 4, "one3": [1, 1, 1],
}  # fmt: skip


def shaped(body: str) -> onnx.ModelProto:
    m = model(f"g (float[batch, length, 4] x) => (float y) {{ {body} }}")
    for name, value in CONSTANTS.items():
        m.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    return m


@pytest.mark.parametrize(("body", "shape"), FOLDED, ids=range(len(FOLDED)))
def test_arithmetic_on_shapes_keeps_symbols(body: str, shape: str) -> None:
    """The result has a shape of symbols, no node computes it, and no param is left of it."""
    g = rlx.from_onnx(shaped(body))
    assert str(g.outputs[0].type) == f"{shape}xf32"
    assert not g.params
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    static = rlx.from_onnx(shaped(body), dims={"batch": 2, "length": 3})
    feeds = {"x": x}
    np.testing.assert_array_equal(rlx.interpret(g, feeds)[0], rlx.interpret(static, feeds)[0])


MATERIALISED = [
    ("s = Shape (x) a = Gather (s, i0) u = Unsqueeze (a, z) t = Slice (s, z, u) y = Cast <to = 1> (t)", [2.0, 3.0]),
    ("s = Shape (x) a = Gather (s, i1) b = Sub (a, i1) i = Gather (s, b) y = Cast <to = 1> (i)", 4.0),
    ("s = Shape (x) f = Cast <to = 1> (s) y = ReduceSum (f)", [9.0]),
    ("s = Shape (x) f = Cast <to = 6> (s) y = Cast <to = 1> (f)", [2.0, 3.0, 4.0]),
    ("s = Shape (x) a = Gather (s, i0) b = Gather (s, i1) k = Equal (a, b) y = Cast <to = 1> (k)", 0.0),
    ("s = Shape (x) a = Gather (s, i0) b = Gather (s, i1) k = Less (a, b) y = Cast <to = 1> (k)", 1.0),
    ("s = Shape (x) a = Gather (s, i0) b = Gather (s, i1) k = Max (a, b) y = Cast <to = 1> (k)", 3.0),
    ("s = Shape (x) a = Gather (s, i1) k = Div (i4, a) y = Cast <to = 1> (k)", 1.0),
    ("s = Shape (x) a = Gather (s, i1) k = Div (a, two) y = Cast <to = 1> (k)", [1.0]),
    ("s = Shape (x) k = Gather (four, i0) a = Unsqueeze (k, z) b = Concat <axis = 0> (s, a) c = ReduceProd <keepdims = 0> (b)"
     " y = Cast <to = 1> (c)", 96.0),
    ("s = Shape (x) a = Unsqueeze (s, z) c = ReduceProd <keepdims = 0> (a, one) y = Cast <to = 1> (c)", [24.0]),
    ("s = Shape (x) t = Sub (s, one) i = Gather (s, t0) t0 = Sub (i1, i1) y = Cast <to = 1> (i)", 2.0),
]  # fmt: skip


@pytest.mark.parametrize(("body", "wanted"), MATERIALISED, ids=range(len(MATERIALISED)))
def test_sizes_become_values_where_data_needs_them(body: str, wanted: Any) -> None:
    x = np.zeros((2, 3, 4), np.float32)
    (found,) = rlx.interpret(rlx.from_onnx(shaped(body)), {"x": x})
    np.testing.assert_array_equal(found, np.float32(wanted))


def test_sizes_are_computed_when_compiled() -> None:
    body = "s = Shape (x) a = Gather (s, i1) k = Div (a, i4) f = Cast <to = 1> (k) y = Add (x, f)"
    x = np.zeros((2, 9, 4), np.float32)
    assert (run(rlx.from_onnx(shaped(body)), x=x)[0] == 2).all()


# -- params and literals ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ELEM_TYPES)
@pytest.mark.parametrize("raw", [False, True])
def test_initialisers_of_every_element_type(name: str, raw: bool) -> None:
    value = np.array([0, 1, 1, 0, 1, 1]).astype(DTYPES[name].numpy).reshape(2, 3)
    if raw:
        t = numpy_helper.from_array(value, "w")
    else:
        t = helper.make_tensor("w", ELEM_TYPES[name], (2, 3), value.astype(np.float64).ravel())
    m = model("g (float[1] x) => (float[2, 3] y, float[1] z) { y = Identity (w) z = Relu (x) }")
    m.graph.output[0].type.tensor_type.elem_type = ELEM_TYPES[name]
    m.graph.initializer.append(t)
    g = rlx.from_onnx(m)
    assert [str(p.name) for p in g.params] == ["w"]
    assert g.param_values["w"].dtype == value.dtype
    np.testing.assert_array_equal(rlx.interpret(g, {"x": [1]})[0], value)


def test_params_can_be_set_and_scalars_are_constants() -> None:
    m = model("g (float[3] x) => (float[3] y) { a = Mul (x, w) y = Add (a, c) }")
    m.graph.initializer.extend([
        numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w"),
        numpy_helper.from_array(np.array(10, np.float32), "c"),
    ])  # fmt: skip
    g = rlx.from_onnx(m)
    assert [str(p.name) for p in g.params] == ["w"]
    f = rlx.Session("cpu").compile(g)
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(f.run({"x": x})[0], [11, 12, 13])
    f.set_param("w", np.zeros(3, np.float32))
    np.testing.assert_array_equal(f.run({"x": x})[0], [10, 10, 10])


def test_external_data_is_read_in_place(tmp_path: Path) -> None:
    weight = np.arange(4096, dtype=np.float32).reshape(64, 64)
    m = model("g (float[1, 64] x) => (float[1, 64] y) { y = MatMul (x, w) }")
    m.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    external_data_helper.convert_model_to_external_data(m, location="w.bin", size_threshold=0)
    onnx.save(m, tmp_path / "m.onnx")
    g = rlx.from_onnx(tmp_path / "m.onnx")
    base = g.param_values["w"]
    while base.base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap), "the weight was copied"
    x = np.eye(1, 64, 3, dtype=np.float32)
    np.testing.assert_array_equal(run(g, x=x)[0][0], weight[3])


def test_a_path_bytes_and_a_proto_give_the_same(tmp_path: Path) -> None:
    m = model("g (float[2] x) => (float[2] y) { y = Exp (x) }")
    onnx.save(m, tmp_path / "m.onnx")
    graphs = [rlx.from_onnx(given) for given in (tmp_path / "m.onnx", m.SerializeToString(), m)]
    assert len({str(g.inspect()).replace(str(tmp_path), "") for g in graphs}) <= 3
    for g in graphs:
        np.testing.assert_allclose(rlx.interpret(g, {"x": [0, 1]})[0], [1, np.e], rtol=1e-6)


def test_nodes_may_stand_in_any_order_and_outputs_be_inputs() -> None:
    m = model("g (float[2] x) => (float[2] y, float[2] x) { y = Exp (a) a = Neg (x) }")
    found = run(rlx.from_onnx(m), x=np.zeros(2, np.float32))
    np.testing.assert_array_equal(found, [[1, 1], [0, 0]])


def test_outputs_keep_their_names_and_each_is_listed_once() -> None:
    m = model("g (float[2] x) => (float[2] logits, float[2] x) { logits = Exp (x) }")
    g = rlx.from_onnx(m)
    assert g.output_names == ("logits", "x")
    feeds = {"x": np.zeros(2, np.float32)}
    assert rlx.Session("cpu").compile(g).run(feeds)["logits"].tolist() == [1, 1]  # type: ignore[call-overload]
    m.graph.output[1].name = "logits"
    with pytest.raises(rlx.errors.ModelError, match="the output 'logits' is listed twice"):
        rlx.from_onnx(m)


def test_nodes_say_where_they_are_from() -> None:
    m = model("g (float[2] x) => (float[2] y) { a = Neg (x) [last] y = Exp (a) }")
    assert [op.location for op in rlx.from_onnx(m).nodes()] == [("g", 1), ("g", 2)]


def test_constants_fix_an_input() -> None:
    m = model("g (float[6] x, int64[2] s) => (float[a, b] y) { y = Reshape (x, s) }")
    g = rlx.from_onnx(m, constants={"s": [2, 3]})
    assert [str(v.name) for v in g.inputs] == ["x"] and g.outputs[0].shape == (2, 3)


# -- functions ----------------------------------------------------------------------------------


def test_a_function_of_the_model_with_an_attribute_and_an_input_left_out() -> None:
    m = model(
        'g (float[2] x) => (float[2] y, float[2] z) { y = own.F <alpha = 2.0> (x) z = own.F (x, x) }',
        21,
        '<domain: "own", opset_import: ["" : 21]> F <alpha: float = 3.0> (a, lo) => (b)'
        " { c = LeakyRelu <alpha: float = @alpha> (a) b = Clip (c, lo) }",
    )  # fmt: skip
    y, z = run(rlx.from_onnx(m), x=np.array([-1, 2], np.float32))
    np.testing.assert_array_equal(y, [-2, 2])
    np.testing.assert_array_equal(z, [-1, 2])


def test_a_function_of_onnx_takes_the_defaults_of_its_attributes() -> None:
    m = model("g (float[2] x) => (float[2] y) { y = ThresholdedRelu (x) }")
    np.testing.assert_array_equal(run(rlx.from_onnx(m), x=np.float32([0.5, 2]))[0], [0, 2])


# -- control flow ----------------------------------------------------------------------------------

IF = (
    "g (bool c, float[2] x) => (float[2] y) { a = Neg (x) y = If (c) <then_branch = t () => (float[2] p)"
    " { p = Exp (a) }, else_branch = e () => (float[2] q) { q = Add (a, x) }> }"
)


def test_if_runs_one_branch_and_sees_what_is_around_it() -> None:
    g = rlx.from_onnx(model(IF))
    assert any(isinstance(op, Cond) for op in g.nodes())
    x = np.float32([0, 1])
    np.testing.assert_allclose(run(g, c=np.array(True), x=x)[0], np.exp(-x), rtol=1e-6)
    np.testing.assert_array_equal(run(g, c=np.array(False), x=x)[0], [0, 0])


def test_if_of_a_known_condition_is_its_branch() -> None:
    g = rlx.from_onnx(model(IF), constants={"c": False})
    assert not any(isinstance(op, Cond) for op in g.nodes())
    np.testing.assert_array_equal(run(g, x=np.float32([0, 1]))[0], [0, 0])


LOOP = (
    "g (int64 n, bool c, float[1] x) => (float[1] y) {{ y{out} = Loop ({trip}, {go}, x) <body = b (int64 i, bool k, float[1] a)"
    " => (bool t, float[1] d{stack}) {{ two = Constant <value = float[1] {{2}}> () d = Mul (a, two) {more} }}> }}"
)


def test_loop_while_a_condition_holds() -> None:
    ends = "ten = Constant <value = float[1] {100}> () u = Less (d, ten) t = Squeeze (u)"
    m = model(LOOP.format(trip="n", go="c", more=ends, stack="", out=""))
    g = rlx.from_onnx(m)
    assert any(isinstance(op, WhileLoop) for op in g.nodes())
    x = np.float32([3])
    for n, c, wanted in ((2, True, 12), (50, True, 192), (50, False, 3), (0, True, 3)):
        assert run(g, n=np.array(n), c=np.array(c), x=x)[0] == wanted


def test_loop_of_a_known_number_of_rounds_is_a_scan_that_stacks() -> None:
    more = "t = Identity (k) e = Neg (d)"
    m = model(LOOP.format(trip="n", go="c", more=more, stack=", float[1] e", out=", s"))
    m.graph.output.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [None, 1]))
    g = rlx.from_onnx(m, constants={"n": 3, "c": True})
    assert any(isinstance(op, Scan) for op in g.nodes())
    y, s = run(g, x=np.float32([3]))
    assert y == 24
    np.testing.assert_array_equal(s, [[-6], [-12], [-24]])


@pytest.mark.parametrize("rounds", [0, -5])
def test_loop_of_no_rounds_gives_what_it_starts_with(rounds: int) -> None:
    more = "t = Identity (k) e = Neg (d)"
    m = model(LOOP.format(trip="n", go='""', more=more, stack=", float[1] e", out=", s"))
    m.graph.output.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [None, 1]))
    g = rlx.from_onnx(m, constants={"n": rounds, "c": True})
    y, s = rlx.interpret(g, {"x": np.float32([3])})
    assert y == 3 and s.shape == (0, 1)


def test_loop_that_indexes_by_its_round_is_written_out() -> None:
    more = "t = Identity (k) z = Constant <value = int64[1] {0}> () j = Unsqueeze (i, z) f = Shape (a) g0 = Add (f, j) e = Expand (d, g0)"
    m = model(LOOP.format(trip="n", go='""', more=more, stack=", float[n] e", out=", s"))
    m.graph.output.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [None, 1]))
    g = rlx.from_onnx(m, constants={"n": 1, "c": True})
    np.testing.assert_array_equal(run(g, x=np.float32([3]))[1], [[6]])


# -- versions ----------------------------------------------------------------------------------


def attributes(opset: int, node: str, **feeds: Any) -> Any:
    """A node on x [2, 3, 4] of an opset."""
    m = model(f"g (float[2, 3, 4] x) => (float y) {{ y = {node} }}", opset)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 10
    return x, run(rlx.from_onnx(m), x=x)[0]


def test_softmax_before_opset_13_joins_axes() -> None:
    x, y = attributes(11, "Softmax <axis = 1> (x)")
    e = np.exp(x.reshape(2, 12))
    np.testing.assert_allclose(y.reshape(2, 12), e / e.sum(1, keepdims=True), rtol=1e-5)
    _, log = attributes(11, "LogSoftmax <axis = 1> (x)")
    np.testing.assert_allclose(log, np.log(y), rtol=1e-4)


def by_reference(text: str, opset: int, **feeds: Any) -> None:
    """A model whose inputs hold ``feeds`` gives what ONNX's reference evaluator gives."""
    m = model(text, opset)
    with np.errstate(divide="ignore"):
        expected = ReferenceEvaluator(m).run(None, feeds)
    for a, b in zip(run(rlx.from_onnx(m), **feeds), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sizes", [[1, 1, 2, 3], [2, 1, 1, 3], [1, 1, 2, 1, 3], [2, 1, 1, 1, 1]])
@pytest.mark.parametrize("align", [0, 1])
def test_an_affine_grid_of_one_image_and_along_axes_of_one_element(
    sizes: list[int], align: int
) -> None:
    rank = len(sizes) - 2
    theta = np.random.default_rng(0).standard_normal((sizes[0], rank, rank + 1))
    text = (
        f"g (float[{sizes[0]}, {rank}, {rank + 1}] t) => (float y) <int64[{rank + 2}] s ="
        f" {{{', '.join(map(str, sizes))}}}> {{ y = AffineGrid <align_corners = {align}> (t, s) }}"
    )
    by_reference(text, 20, t=theta.astype(np.float32))


def test_an_affine_grid_has_a_map_for_each_image() -> None:
    text = """g (float[2, 2, 3] t) => (float y) <int64[4] s = {3, 1, 2, 2}>
        { y = AffineGrid (t, s) }"""
    with pytest.raises(rlx.RlxError, match=r"theta must be \[3, 2, 3\], found 2x2x3xf32"):
        rlx.from_onnx(model(text, 20))


def test_scales_of_blocks_have_the_rank_of_the_tensor() -> None:
    text = """g (int8[2, 4] x) => (float[2, 4] y) <float[2] s = {0.5, 2.0}>
        { y = DequantizeLinear <axis = 1, block_size = 2> (x, s) }"""
    with pytest.raises(rlx.RlxError, match="2xf32 has no scale for each block of 2 of 2x4xi8"):
        rlx.from_onnx(model(text, 21))


def test_blocks_of_a_vector_have_scales() -> None:
    x = np.int8([1, 2, -3, 4])
    text = """g (int8[4] x) => (float[4] y) <float[2] s = {{0.5, 2.0}}>
        {{ y = DequantizeLinear <axis = {}, block_size = 2> (x, s) }}"""
    for axis in (0, -1):
        (y,) = run(rlx.from_onnx(model(text.format(axis), 21)), x=x)
        assert y.tolist() == [0.5, 1, -6, 8]


def test_a_slice_backwards_from_before_the_first_element_starts_at_it() -> None:
    """As ONNX says it, and ONNX Runtime does it; not as NumPy and the reference evaluator do."""
    text = """g (float[3] x) => (float y) <int64[1] from = {-9}, int64[1] to = {-9},
        int64[1] axes = {0}, int64[1] steps = {-1}> { y = Slice (x, from, to, axes, steps) }"""
    (y,) = run(rlx.from_onnx(model(text)), x=np.float32([1, 2, 3]))
    assert y.tolist() == [1]


OLD = [
    (9, "Slice <starts = [1, 0], ends = [3, -1], axes = [1, 2]> (x)", lambda x: x[:, 1:3, :-1]),
    (9, "Slice <starts = [1], ends = [9]> (x)", lambda x: x[1:9]),
    (4, "Reshape <shape = [0, -1]> (x)", lambda x: x.reshape(2, 12)),
    (9, "Reshape (x, s) s = Concat <axis = 0> (t, u) t = Slice <starts = [1], ends = [9]> (v) u = Slice <starts = [0], ends = [1]> (v)"
     " v = Shape (x)", lambda x: x.reshape(3, 4, 2)),
    (11, "ReduceSum <axes = [0, -1], keepdims = 0> (x)", lambda x: x.sum((0, 2))),
    (11, "Unsqueeze <axes = [0, 4]> (x)", lambda x: x[None, :, :, :, None]),
    (6, "Clip <min = 0.5, max = 1.0> (x)", lambda x: x.clip(0.5, 1)),
    (10, "Pad <pads = [0, 1, 0, 0, 0, 2], value = 9.0> (x)",
     lambda x: np.pad(x, [(0, 0), (1, 0), (0, 2)], constant_values=9)),
    (11, "Split <axis = 2, split = [4]> (x)", lambda x: x),
    (9, "TopK <k = 2, axis = 1> (x)", lambda x: x[:, [2, 1]]),
    (21, "Flatten <axis = 3> (x)", lambda x: x.reshape(24, 1)),
    (21, "ReduceMean (x)", lambda x: x.mean(keepdims=True)),
]  # fmt: skip


def test_a_slice_of_a_shape_before_opset_10() -> None:
    m = model("g (float[n, 3] x) => (float[n, 3] y) { s = Shape (x) t = Slice <starts = [0], ends = [1]> (s)"
              " u = Slice <starts = [-1], ends = [9]> (s) v = Concat <axis = 0> (u, t) y = Reshape (x, v) }", 9)  # fmt: skip
    assert str(rlx.from_onnx(m).outputs[0].type) == "3xnxf32"


@pytest.mark.parametrize(("opset", "node", "wanted"), OLD, ids=[o[1].split(" ")[0] for o in OLD])
def test_versions(opset: int, node: str, wanted: Any) -> None:
    if node.startswith("TopK"):
        m = model(f"g (float[2, 3, 4] x) => (float y) {{ y, i = {node} }}", opset)
        x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 10
        found = run(rlx.from_onnx(m), x=x)[0]
    else:
        x, found = attributes(opset, node)
    np.testing.assert_allclose(found, wanted(x), rtol=1e-5)


WHOLE = [3, -2, 2, 1, -1, 0, 7], [4, 3, -1, -5, -3, 0, 2]


def test_powers_of_integers_are_exact_and_of_mixed_types() -> None:
    m = model("g (int64[7] x, int64[7] e) => (int64[7] y) { y = Pow (x, e) }")
    x, e = (np.array(w) for w in WHOLE)
    wanted = [81, -8, 0, 1, -1, 1, 49]
    np.testing.assert_array_equal(run(rlx.from_onnx(m), x=x, e=e)[0], wanted)
    m = model("g (int32[2] x, float[2] e) => (int32[2] y) { y = Pow (x, e) }")
    found = run(rlx.from_onnx(m), x=np.int32([4, 9]), e=np.float32([0.5, 2]))[0]
    np.testing.assert_array_equal(found, [2, 81])


def test_bf16_is_there() -> None:
    m = model("g (bfloat16[2] x) => (bfloat16[2] y) { y = Mul (x, x) }")
    (y,) = run(rlx.from_onnx(m), x=np.array([1.5, 2], ml_dtypes.bfloat16))
    assert y.dtype == ml_dtypes.bfloat16 and y.astype(float).tolist() == [2.25, 4]


def test_coordinates_out_of_range_are_a_fault() -> None:
    """Also one whose place in memory would be that of another element."""
    m = model("g (float[n, 3] x, int64[2, 2] i) => (float[2] y) { y = GatherND (x, i) }")
    g = rlx.from_onnx(m)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(g, x=x, i=np.array([[1, -1], [-2, 1]]))[0], [5, 1])
    for wrong in ([0, 3], [-3, 0]):
        with pytest.raises(rlx.errors.FaultError, match="out of range"):
            rlx.interpret(g, {"x": x, "i": np.array([[0, 0], wrong])})


KNOWN = [
    ("Gather <axis = 1>", "int64[3] i = {1, 2, 3}", [3], "mir.gather"),
    ("Gather <axis = 1>", "int64[1, 2] i = {0, 1}", [1, 2], "mir.gather"),
    ("Gather <axis = 1>", "int64[2] i = {2, 1}", [2], ""),
    ("Gather <axis = 1>", "int64[2] i = {0, 3}", [2], ""),
    ("Gather <axis = 1>", "int64[2] i = {-2, -1}", [2], ""),
    ("GatherElements <axis = 1>", "int64[3, 2] i = {2, 3, 2, 3, 2, 3}", [3, 2], "mir.gather"),
    ("GatherElements <axis = 1>", "int64[3, 2] i = {2, 3, 1, 2, 0, 1}", [3, 2], ""),
    ("GatherND", "int64[3, 2] i = {0, 2, 0, 3, -2, 0}", [3, 2], "mir.gather"),
    ("GatherND", "int64[2, 2] i = {2, -1, 0, -3}", [2, 2], "mir.where"),
    ("GatherND", "int64[2, 1] i = {1, 2}", [2, 1], "mir.gather"),
]


@pytest.mark.parametrize(("node", "indices", "shape", "without"), KNOWN)
def test_indices_of_the_file(node: str, indices: str, shape: list[int], without: str) -> None:
    """Those that follow one another become a slice, and coordinates places in the joined axes."""
    m = model(f"g (float[3, 4] x) => (float y) <{indices}> {{ y = {node} (x, i) }}")
    g, x = rlx.from_onnx(m), np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = ReferenceEvaluator(m).run(None, {"x": x})
    np.testing.assert_array_equal(run(g, x=x)[0], expected[0])
    assert not without or without not in {op.name for op in topological(g.outputs)}


@pytest.mark.parametrize(("node", "indices"), [
    ("Gather", "int64[2] i = {2, 3}"),
    ("GatherElements", "int64[2, 4] i = {2, 2, 2, 2, 3, 3, 3, 3}"),
    ("GatherND", "int64[1, 2] i = {0, 4}"),
])  # fmt: skip
def test_indices_of_the_file_out_of_range_are_a_fault(node: str, indices: str) -> None:
    m = model(f"g (float[3, 4] x) => (float y) <{indices}> {{ y = {node} (x, i) }}")
    with pytest.raises(rlx.errors.FaultError, match="out of range"):
        rlx.interpret(rlx.from_onnx(m), {"x": np.zeros((3, 4), np.float32)})


def test_indices_may_reach_a_part_of_the_other_axes() -> None:
    m = model("g (float[3, 3] x, int64[1, 2] i) => (float[1, 2] y) { y = GatherElements (x, i) }")
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.testing.assert_array_equal(run(rlx.from_onnx(m), x=x, i=np.array([[2, -2]]))[0], [[6, 4]])


def test_the_collector_rests_while_a_graph_is_made() -> None:
    nodes = " ".join(f"v{i + 1} = Neg (v{i})" for i in range(200))
    m, ran = model(f"g (float[2] v0) => (float[2] v200) {{ {nodes} }}"), list[str]()

    def note(phase: str, info: dict[str, int]) -> None:
        ran.append(phase)

    rlx.from_onnx(m)  # modules are loaded
    gc.collect()
    gc.callbacks.append(note)
    try:
        rlx.from_onnx(m)
    finally:
        gc.callbacks.remove(note)
    assert gc.isenabled() and ran.count("start") <= 1  # as it is turned on again

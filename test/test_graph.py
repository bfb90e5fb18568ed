"""The graph API: building, reading, and what it refuses, with the user's own line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, GraphError, NameError, RlxError, ShapeError
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.ir.value import Value
from rlx.types import DTYPES
from support.evaluate import call


@pytest.fixture
def g() -> Graph:
    return Graph("test")


# -- leaves --------------------------------------------------------------------------------


def test_hello(g: Graph) -> None:
    x = g.input("x", [1, 4])
    w, b = g.param("w", [4, 2]), g.param("b", [2])
    g.set_outputs([x @ w + b])
    feeds = {"x": np.ones((1, 4)), "w": np.ones((4, 2)), "b": [1.0, 2.0]}
    (out,) = interpret(g, feeds)
    assert out.dtype == np.float32
    assert out.tolist() == [[5, 6]]
    assert len(g) == 2
    assert repr(g) == "Graph 'test': 1 input, 2 params, 2 nodes"


def test_a_name_is_used_once(g: Graph) -> None:
    g.input("x", [1])
    with pytest.raises(NameError, match=r"'x' is already used at .*test_graph\.py:\d+"):
        g.param("x", [1])
    for wrong in ("", 3):
        with pytest.raises(NameError, match="not empty"):
            g.input(wrong, [1])  # type: ignore[arg-type]


def test_names_may_be_anything_that_is_said_once(g: Graph) -> None:
    assert g.input("layer.0/weight:größe", [1]).name == "layer.0/weight:größe"


@pytest.mark.parametrize("name", [*DTYPES, np.float16, ml_dtypes.bfloat16, "int8", bool])
def test_every_element_type(g: Graph, name: Any) -> None:
    assert g.input("x", [2], name).dtype in DTYPES.values()


def test_an_unknown_dtype_is_refused_with_a_hint(g: Graph) -> None:
    with pytest.raises(DTypeError, match="unknown dtype 'f23'; did you mean 'f32'"):
        g.input("x", [2], "f23")
    with pytest.raises(DTypeError, match="datetime64"):
        g.input("x", [2], np.datetime64)


@pytest.mark.parametrize("dim", [-1, 1.5, None, True, "two words", "3"])
def test_a_wrong_dim_is_refused(g: Graph, dim: Any) -> None:
    with pytest.raises(GraphError):
        g.input("x", [dim])


def test_param_values(g: Graph) -> None:
    w = g.param("w", value=np.ones((2, 3), np.float16))
    assert str(w.type) == "2x3xf16"
    flat = g.param("flat", [2, 2], value=np.arange(4, dtype=np.float32))
    g.set_outputs([w, flat])
    assert [o.tolist() for o in interpret(g, {})] == [[[1] * 3] * 2, [[0, 1], [2, 3]]]


def test_a_param_that_does_not_fit_is_refused(g: Graph) -> None:
    with pytest.raises(ShapeError, match=r"\[2, 3\], found \[3, 2\]"):
        g.param("a", [2, 3], value=np.ones((3, 2), np.float32))
    with pytest.raises(ShapeError, match="6 elements expected, 5 found"):
        g.param("b", [2, 3], value=np.ones(5, np.float32))
    with pytest.raises(DTypeError, match="is f32, found float64"):
        g.param("c", [2], "f32", value=np.ones(2))
    with pytest.raises(GraphError, match="needs a shape or a value"):
        g.param("d")


def test_constants(g: Graph) -> None:
    types = [g.constant(v).type for v in (1.5, 2, True, np.float64(3), [1, 2], np.ones((2, 1)))]
    assert list(map(str, types)) == ["f32", "i64", "bool", "f64", "2xi64", "2x1xf64"]
    assert str(g.constant(1, "bf16").type) == "bf16"
    source = np.ones(2, np.float32)
    g.set_outputs(g.constant(source))
    source[0] = 7
    assert interpret(g, {})[0].tolist() == [1, 1]


def test_iota(g: Graph) -> None:
    g.set_outputs([g.iota(3), g.iota([2, 3], 1, "f32")])
    line, plane = interpret(g, {})
    assert line.dtype == np.int64
    assert line.tolist() == [0, 1, 2]
    assert plane.tolist() == [[0, 1, 2]] * 2


# -- outputs and structure -----------------------------------------------------------------


def test_a_graph_without_outputs(g: Graph) -> None:
    assert repr(g) == "Graph 'test': 0 inputs, 0 params, no outputs yet"
    with pytest.raises(GraphError, match="at least one output"):
        g.set_outputs([])
    with pytest.raises(GraphError, match="call set_outputs first"):
        g.nodes()
    with pytest.raises(GraphError, match="output 1 is a float"):
        g.set_outputs([g.input("x", [1]), 1.0])  # type: ignore[list-item]


def test_an_output_may_be_an_input_and_stand_twice(g: Graph) -> None:
    x = g.input("x", [2])
    g.set_outputs([x, x])
    assert len(g) == 0
    assert [o.tolist() for o in interpret(g, {"x": [1, 2]})] == [[1, 2], [1, 2]]


def test_unused_inputs_stay(g: Graph) -> None:
    x, _ = g.input("x", [2]), g.input("unused", [3])
    x.exp()  # reached by no output, so no node of the graph
    g.set_outputs(x + 1)
    assert [v.name for v in g.inputs] == ["x", "unused"]
    assert [op.name for op in g.nodes()] == ["mir.constant", "mir.add"]


def test_values_of_two_graphs_do_not_mix(g: Graph) -> None:
    other = Graph("other").input("y", [2])
    x = g.input("x", [2])
    with pytest.raises(GraphError, match=r"'y'.* belongs to another graph"):
        g.set_outputs(other)
    with pytest.raises(
        GraphError, match=rf"add: Value 'x'.* of graph '{g.name}', and Value 'y'.* 'other'"
    ):
        x + other
    with pytest.raises(GraphError, match=r"mul: Value: 2xf32 = mir.exp is .* Value 'y'"):
        x.exp() * other
    with pytest.raises(GraphError, match="operands are of one graph"):
        rlx.fori(3, lambda i, c: c + (x * other), x)
    with pytest.raises(GraphError, match=r"scan: .* operands are of one graph"):
        rlx.fori(3, lambda i, c: (c + x) * other, x)  # a body may use what is around it


def test_a_body_may_use_values_of_bodies_around_it(g: Graph) -> None:
    x, y = g.input("x", [2]), g.input("y", [2])

    def outer(i: Value, c: Value) -> Value:
        return rlx.fori(2, lambda j, d: d * y + c + (x + y), c + y)

    g.set_outputs(rlx.fori(2, outer, x * 0))
    want = c = np.zeros(2, np.float32)
    feeds = {"x": np.float32([1, 2]), "y": np.float32([3, 0.5])}
    for _ in range(2):
        d = c + feeds["y"]
        for _ in range(2):
            d = d * feeds["y"] + c + (feeds["x"] + feeds["y"])
        want = c = d
    np.testing.assert_allclose(interpret(g, feeds)[0], want)
    np.testing.assert_allclose(rlx.Session("cpu").compile(g).run(feeds)[0], want)


def test_nodes_come_before_their_users(g: Graph) -> None:
    x = g.input("x", [2])
    a = x + 1
    g.set_outputs([(a * a) - a, a])
    seen: set[Value] = {x}
    for op in g.nodes():
        assert set(op.present) <= seen
        seen.update(op.results)


def test_a_deep_graph_needs_no_deep_stack(g: Graph) -> None:
    v = g.input("x", [1])
    for _ in range(5000):
        v = v + v
    g.set_outputs(v)
    assert len(g) == 5000


# -- values --------------------------------------------------------------------------------


@pytest.mark.parametrize("dt", ["f16", "bf16", "f32", "f64", "i8", "u64"])
def test_a_number_takes_the_tensors_type(g: Graph, dt: str) -> None:
    x = g.input("x", [2], dt)
    for v in (x + 1, 1 + x, x * 2, 2 - x, x.maximum(0)):
        assert v.dtype is DTYPES[dt]


def test_a_number_that_does_not_fit_is_refused(g: Graph) -> None:
    x = g.input("x", [2], "i8")
    with pytest.raises(DTypeError, match=r"1\.5 does not fit i8"):
        x + 1.5
    with pytest.raises(DTypeError, match="300 does not fit i8"):
        x + 300
    with pytest.raises(GraphError, match="found a str"):
        x + "1"


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        ("f16", "bf16", "f32"), ("f32", "f64", "f64"), ("i8", "u8", "i16"), ("i32", "f16", "f32"),
        ("i64", "f32", "f64"), ("bool", "i8", "i8"), ("bf16", "bf16", "bf16"),
    ],
)  # fmt: skip
def test_promotion(g: Graph, a: str, b: str, common: str) -> None:
    x, y = g.input("x", [2], a), g.input("y", [2], b)
    assert (x * y).dtype is (y * x).dtype is DTYPES[common]


def test_u64_and_a_signed_integer_have_no_common_type(g: Graph) -> None:
    with pytest.raises(DTypeError, match="no common integer type"):
        g.input("x", [2], "u64") + g.input("y", [2], "i8")


def test_rank_0() -> None:
    assert call(lambda x: (x * x + 1).sum(), np.float32(3)).shape == ()
    assert call(lambda x, y: x + y, np.float32(1), np.ones((2, 2), np.float32)).shape == (2, 2)


OPERATORS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b,
    lambda a, b: a**b, lambda a, b: a @ b.T, lambda a, b: -a, lambda a, b: abs(a - b),
    lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b,
    lambda a, b: 2.0 - a, lambda a, b: 2.0 / b, lambda a, b: 2.0**a, lambda a, b: 3.0 * a,
    lambda a, b: np.ones((2, 3)) - a, lambda a, b: a - np.ones(3), lambda a, b: np.float64(2) * a,
    lambda a, b: a.sum(axis=0), lambda a, b: a.mean(), lambda a, b: a.reshape(3, 2),
    lambda a, b: a.transpose(1, 0), lambda a, b: a.astype("float32"), lambda a, b: a.squeeze(),
    lambda a, b: a[0, 1:], lambda a, b: a.max(axis=1), lambda a, b: a.swapaxes(0, 1),
]  # fmt: skip


@pytest.mark.parametrize("f", OPERATORS, ids=range(len(OPERATORS)))
def test_operators_and_methods_are_numpys(f: Callable[[Any, Any], Any]) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.5, 2, (2, 3)), rng.uniform(0.5, 2, (2, 3))
    got, want = call(f, a, b), f(a, b)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want)


def test_python_protocols_that_a_value_must_not_fake(g: Graph) -> None:
    x = g.input("x", [2, 3])
    with pytest.raises(TypeError):
        for _ in x:  # would ask for x[0], x[1], ... without this
            pass
    with pytest.raises(GraphError, match="no truth value"):
        bool(x < 1)
    assert len(x) == 2
    with pytest.raises(ShapeError, match="no length"):
        len(g.input("s", []))
    assert (x.shape, x.rank, x.ndim) == ((2, 3), 2, 2)
    assert repr(x) == "Value 'x': 2x3xf32"
    assert repr(x.exp()) == "Value: 2x3xf32 = mir.exp"
    assert x in {x: 1}


def test_an_unknown_op_is_refused_with_a_hint(g: Graph) -> None:
    with pytest.raises(
        AttributeError, match="Graph has no op or attribute 'gelo'; did you mean 'gelu'"
    ):
        g.gelo
    with pytest.raises(AttributeError, match="did you mean 'reshape'"):
        g.input("x", [1]).reshap(1)
    assert not hasattr(g, "__array__")


def test_ops_are_methods_of_graph_and_value_alike(g: Graph) -> None:
    x = g.input("x", [2, 3])
    assert g.gelu(x).type == x.gelu().type
    assert g.matmul(x, x.T).op.name == "mir.matmul"  # type: ignore[union-attr]


# -- errors --------------------------------------------------------------------------------

MISTAKES: list[Callable[[Graph, Value], Any]] = [
    lambda g, x: x + g.input("y", [4]),
    lambda g, x: x @ x,
    lambda g, x: x.reshape(7),
    lambda g, x: x[5],
    lambda g, x: x.sum(axes=3),
    lambda g, x: x.transpose(0, 0),
    lambda g, x: x.astype("f23"),
    lambda g, x: x.gather(x),
    lambda g, x: x.topk(9),
    lambda g, x: x.concat([x]),
    lambda g, x: x.activation("gello"),
    lambda g, x: x.narrow(0, 1, 5),
    lambda g, x: x.squeeze(0),
    lambda g, x: x.split(2, axis=1),
    lambda g, x: x.swapaxes(0, 5),
    lambda g, x: x.max(0),
    lambda g, x: x.pad(-1, 0),
    lambda g, x: x.softmax(axis=4),
    lambda g, x: x + "one",
    lambda g, x: x.astype("i8") + 1000,
    lambda g, x: g.input("y", [2], "f23"),
    lambda g, x: g.input("y", [-1]),
    lambda g, x: g.param("y"),
    lambda g, x: g.set_outputs([]),
    lambda g, x: g.nodes(),
    lambda g, x: g.constant(["one"]),
    lambda g, x: g.iota(3, axis=1),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=range(len(MISTAKES)))
def test_every_error_names_the_users_line(g: Graph, mistake: Callable[[Graph, Value], Any]) -> None:
    x = g.input("x", [2, 3])
    with pytest.raises(RlxError) as e:
        mistake(g, x)
    assert e.value.location == (__file__, mistake.__code__.co_firstlineno)
    assert str(e.value).startswith(f"{__file__}:{mistake.__code__.co_firstlineno}: ")


# -- symbolic dims -------------------------------------------------------------------------


def test_symbolic_dims_bind(g: Graph) -> None:
    x = g.input("x", ["batch", "seq", 4])
    w = g.param("w", value=np.ones((4, 2), np.float32))
    y = (x @ w).reshape(["batch", -1]) + g.iota(["seq"]).sum().astype("f32")
    g.set_outputs([y, x.expand([3, "batch", "seq", 4]).sum(axes=[0, 3])])
    assert g.symbols == {"batch", "seq"}
    bound = g.bind({"batch": 2, "seq": 3})
    assert bound.symbols == frozenset()
    assert [v.shape for v in bound.outputs] == [(2, 6), (2, 3)]
    out, _ = interpret(bound, {"x": np.ones((2, 3, 4))})
    assert out.tolist() == [[7] * 6] * 2
    assert str(g.outputs[0].type) == "batchx2*seqxf32"  # the graph itself is unchanged


def test_some_symbols_may_stay_unbound(g: Graph) -> None:
    g.set_outputs(g.input("x", ["batch", "seq"]).exp())
    assert g.bind({"seq": 3}).symbols == {"batch"}
    with pytest.raises(NameError, match=r"no dim is called 'sec'; did you mean 'seq'.*batch, seq"):
        g.bind({"sec": 3})


def test_symbols_broadcast_with_themselves_and_with_one(g: Graph) -> None:
    x, y = g.input("x", ["n", 1]), g.input("y", [1, "m"])
    assert str((x + y).type) == "nxmxf32"
    with pytest.raises(ShapeError, match="n against m"):
        g.input("a", ["n"]) + g.input("b", ["m"])


def test_a_size_that_does_not_fit_is_told_at_the_line_of_the_op(g: Graph) -> None:
    x = g.input("x", ["seq"])
    part = x[2:6]
    line = part.op.location  # type: ignore[union-attr]
    g.set_outputs(part)
    with pytest.raises(ShapeError) as e:
        g.bind({"seq": 3})
    assert e.value.location == line


def test_python_numbers_have_one_rule() -> None:
    """Floats are f32, ints i64 and bools bool, as literals and as params, unless a dtype is given;
    what has an element type keeps it."""
    g = Graph()
    for n, (value, dt) in enumerate(
        [
            ([1.0], "f32"), ([[1, 2.5]], "f32"), ((1, 2), "i64"), (True, "bool"), (2.0, "f32"),
            (np.ones(2), "f64"), (np.float64(1), "f64"), (np.ones(2, np.float16), "f16"),
        ]
    ):  # fmt: skip
        assert g.constant(value).dtype.name == g.param(f"p{n}", value=value).dtype.name == dt
    assert g.param("half", value=[1.0, 2], dtype="f16").dtype.name == "f16"
    assert g.param("wide", value=[1, 2], dtype="f64").dtype.name == "f64"
    with pytest.raises(DTypeError, match="param 'whole' is i32, found float64 numbers"):
        g.param("whole", value=[1.5], dtype="i32")
    with pytest.raises(DTypeError, match="param 'small' is u8, found a list that is no such array"):
        g.param("small", value=[300], dtype="u8")


def test_suggestions_ignore_case() -> None:
    with pytest.raises(DTypeError, match="unknown dtype 'F32'; did you mean 'f32'"):
        Graph().input("x", [1], "F32")


def test_an_op_on_other_operands() -> None:
    g, other = rlx.Graph(), rlx.Graph()
    op = (g.input("x", ["n", 3]) @ g.input("y", [3, 4])).op
    assert op is not None
    x, y = other.input("x", ["n", 3]), other.input("y", [3, 4])
    again = op.with_operands([x, y])
    assert type(again) is type(op) and again.operands == (x, y) and again.attrs == op.attrs
    assert again.location == op.location and again.serial > op.serial
    assert again.out.type == op.out.type and again.out.graph is other and again.out.op is again
    assert op.with_operands([x, other.input("z", [3, 5])]).out.shape[1] == 5
    with pytest.raises(GraphError, match="operands are of one graph"):
        op.with_operands([x, g.inputs[1]])

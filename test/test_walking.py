"""Graphs as nodes: walking them, building them by names, and the types of leaves in one word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.op import op_class


def diamond() -> tuple[rlx.Graph, rlx.Value]:
    g = rlx.Graph("diamond")
    x = g.input("x", [3])
    y = x.exp()
    g.set_outputs([y * y, y.sin() + x])
    return g, y


def test_nodes_by_number_and_by_value() -> None:
    g, y = diamond()
    assert [g.node(i) for i in range(4)] == g.nodes() == g.topo_order()
    assert g.node(y) is y.op is g.nodes()[0]
    assert g.reverse_topo() == g.nodes()[::-1]
    assert str(g.shape_of(0)) == str(g.shape_of(y)) == "3xf32"
    for wrong in (4, -1, True, "exp"):
        with pytest.raises(GraphError, match="a node is a number from 0 to 3"):
            g.node(wrong)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"no node computes .*: it is a leaf"):
        g.node(g.inputs[0])


def test_users_and_uses() -> None:
    g, y = diamond()
    assert [op.name for op in g.users(y)] == ["mir.mul", "mir.sin"]
    assert g.use_count(y) == 3 and g.use_count(g.inputs[0]) == 2
    assert g.use_count(g.outputs[0]) == 0
    with pytest.raises(GraphError, match="users takes a Value, found 0"):
        g.users(0)  # type: ignore[arg-type]


@pytest.mark.parametrize("op", ["mir.softmax", "softmax", op_class("mir.softmax")])
def test_a_node_is_added_by_its_op(op: Any) -> None:
    g = rlx.Graph()
    x = g.input("x", [2, 3])
    y = g.add_node(op, [x], rlx.Shape.new([2, 3], rlx.f32), axis=0)
    assert isinstance(y, rlx.Value)
    g.set_outputs(y)
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    np.testing.assert_array_equal(rlx.interpret(g, feeds)[0].sum(axis=0), np.ones(3))


def test_a_node_of_several_results_and_of_missing_operands() -> None:
    g = rlx.Graph()
    x, w = g.input("x", [2, 3]), g.param("w", [3, 4])
    values, indices = g.append_node("topk", [x], k=2)
    assert (values.dtype.name, indices.dtype.name) == ("f32", "i64")
    assert isinstance(g.add_node("linear", [x, w, None]), rlx.Value)


def test_wrong_nodes() -> None:
    g, other = rlx.Graph(), rlx.Graph()
    x, z = g.input("x", [2]), other.input("z", [2])
    wrong: list[tuple[Any, type[Exception], str]] = [
        (lambda: g.add_node("mir.ad", [x, x]), GraphError, "unknown op 'mir.ad'"),
        (lambda: g.add_node(7, [x]), GraphError, "an op is a class or a name, found 7"),
        (lambda: g.add_node("add", [x]), GraphError, "add needs its operand"),
        (lambda: g.add_node("exp", [z]), GraphError, "its operands belong to another graph"),
        (lambda: g.add_node("exp", [x], rlx.Shape.new([3])), ShapeError, "gives 2xf32, expected 3"),
    ]
    for call, error, why in wrong:
        with pytest.raises(error, match=why):
            call()


def test_symbolic_dims() -> None:
    g = rlx.Graph()
    g.input("x", ["n", "m", 3])
    assert g.has_dynamic_dims() and g.dynamic_symbols() == ("m", "n")
    assert not diamond()[0].has_dynamic_dims()


def test_the_quickstart_of_the_original() -> None:
    g = rlx.Graph("hello")
    x = g.input("x", rlx.Shape.new([1, 4], rlx.DType.F32))
    w = g.param("w", rlx.Shape.new([4, 2], rlx.DType.F32))
    g.set_outputs([g.matmul(x, w)])
    for device in ("cpu", "interpret"):
        f = rlx.Session(rlx.Device.CPU if device == "cpu" else device).compile(g)
        f.set_param("w", [1, 0, 0, 1, 1, 0, 0, 1])
        assert f.run({"x": [1, 2, 3, 4]})[0].tolist() == [[4, 6]]
        f.set_input("x", [2, 4, 6, 8])
        assert f.run()[0].tolist() == [[8, 12]]
        for wrong in ([1, 2, 3], np.ones(4, np.float32), [[1, 2], [3, 4]]):
            with pytest.raises(ShapeError, match=r"'x' has shape \[1, 4\]"):
                f.run({"x": wrong})


def test_types_of_leaves_in_one_word() -> None:
    g = rlx.Graph()
    assert g.input("x", rlx.Shape.new([2], rlx.DType.F64)).dtype is rlx.DType.F64 is rlx.f64
    assert g.param("w", rlx.Shape.new([2], "i8"), value=np.ones(2, np.int8)).dtype is rlx.i8
    assert rlx.DType.BOOL is rlx.DType.BOOL.part and rlx.DType.C64 is rlx.c64
    with pytest.raises(DTypeError, match="'y' is 2xf64 and i8; one of them"):
        g.input("y", rlx.Shape.new([2], rlx.f64), "i8")

"""A graph is the same after it was written as text and read again, and MLIR reads the same text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx.dialects.context import make_context, parse
from rlx.ir.graph import Graph
from rlx.ir.op import located
from rlx.ir.value import Value
from rlx.ops.control.control import Cond
from rlx.text import graph_text, parse_graph
from rlx.tools import opt
from rlx.types import DTYPES
from support.random_graphs import random_case
from support.samples import cases
from support.sweeps import covering

Array = np.ndarray[Any, Any]


def attr_of(value: Any) -> Any:
    """An attribute as something that compares by its bits."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, Graph):
        return facts(value)
    return np.float64(value).tobytes() if isinstance(value, float) else value


def facts(g: Graph) -> list[Any]:
    """Everything that makes a graph: two with equal facts differ in nothing."""
    number: dict[Value, tuple[int, int]] = {
        v: (-1, i) for i, v in enumerate((*g.inputs, *g.params))
    }
    leaves = [
        (kind, v.name, v.type, g.leaf_location(str(v.name)))
        for kind, vs in (("input", g.inputs), ("param", g.params))
        for v in vs
    ]
    rows: list[Any] = []
    for i, op in enumerate(g.nodes()):
        number.update({v: (i, v.index) for v in op.results})
        attrs = {k: attr_of(v) for k, v in op.attrs.items()}
        operands = [None if v is None else number[v] for v in op.operands]
        rows.append((op.name, operands, attrs, [v.type for v in op.results], op.location))
    values = {name: attr_of(a) for name, a in g.param_values.items()}
    return [g.name, leaves, rows, [number[v] for v in g.outputs], values]


def check(g: Graph) -> Graph:
    """Write and read a graph: the same comes back, and MLIR makes the same of the text."""
    text = graph_text(g)
    again = parse_graph(text, "graph.mlir")
    assert facts(again) == facts(g)
    assert graph_text(again) == text
    return again


def check_with_mlir(g: Graph, context: Any) -> None:
    """MLIR reads what is written here, and what MLIR prints is read here."""
    check(g)
    exported = g.to_mlir()
    text = graph_text(g, values=False)
    assert str(parse(text, context)) == str(exported)
    printed = exported.operation.get_asm(enable_debug_info=True)
    assert graph_text(parse_graph(printed), values=False) == text


@pytest.fixture(scope="module")
def context() -> Any:
    return make_context()


def constant_graph(*arrays: Array) -> Graph:
    g = Graph("constants")
    g.set_outputs([g.constant(a) for a in arrays])
    return g


# -- what a graph holds --------------------------------------------------------------------


def test_every_op_of_the_library_with_every_element_type(context: Any) -> None:
    g = Graph("all")
    outs: list[Value] = []
    every = covering(cases(), lambda c: [(c.op, c.number), (c.op, c.dtype)])
    for n, case in enumerate(every):
        leaves = [
            None if t is None else g.input(f"x{n}_{i}", t.shape, t.dtype)
            for i, t in enumerate(case.types)
        ]
        outs += case.op(*leaves, **case.sample.attrs).results
    g.set_outputs(outs)
    assert len(g) > 500
    check_with_mlir(g, context)


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed: int, context: Any) -> None:
    check_with_mlir(random_case(seed).graph, context)


def loops() -> Graph:
    """All control ops, one within another."""
    g = Graph("loops")
    x, top = g.input("x", [8]), g.input("top", [])
    w, xs = g.param("w", [8]), g.input("xs", ["t", 8])
    y = rlx.while_loop(lambda a: a.max() < top, lambda a: a + a * w, x, limit=50)
    z = rlx.cond(top > 1, y.exp, lambda: rlx.cond(top > 0, lambda: y, lambda: x))
    last, stack = rlx.scan(lambda c, v: (c + v, c * v), x, xs, reverse=True)
    g.set_outputs([z, last, stack, rlx.fori(5, lambda i, c: c + i.astype("f32"), x)])
    return g


def test_control_flow(context: Any) -> None:
    check_with_mlir(loops(), context)
    again = check(loops()).bind({"t": 3})
    rng = np.random.default_rng(0)
    feeds = {"x": rng.random(8), "w": rng.random(8), "xs": rng.random((3, 8)), "top": 9.0}
    for found, expected in zip(
        rlx.interpret(again, feeds), rlx.interpret(loops().bind({"t": 3}), feeds), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_bodies_with_names_of_their_own_and_without_operands() -> None:
    g, then, otherwise = Graph("own"), Graph("a name"), Graph("otherwise")
    then.set_outputs(then.input("some x", [2]).exp())
    otherwise.set_outputs(otherwise.input("x0", [2]))
    p, x = g.input("p", [], "bool"), g.input("x", [2])
    chosen = Cond(p, x, then=then, otherwise=otherwise).out
    one = rlx.cond(p, lambda: g.constant(1.0), lambda: g.constant(2.0))
    g.set_outputs([chosen, one])
    check(g)


def test_a_loaded_graph_computes_the_same(tmp_path: Path) -> None:
    case = random_case(3)
    rlx.save(case.graph, tmp_path / "graph.mlir")
    found = rlx.interpret(rlx.load(tmp_path / "graph.mlir"), case.feeds, case.params)
    expected = rlx.interpret(case.graph, case.feeds, case.params)
    assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]


SPECIAL = {
    "f16": [0x7C00, 0xFC00, 0x7E00, 0x7D01, 0xFE02, 0x8000, 0x0001, 0x7BFF],
    "bf16": [0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFC2, 0x8000, 0x0001, 0x7F7F],
    "f32": [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFC00002, 0x80000000, 1, 0x7F7FFFFF],
    "f64": [
        0x7FF0 << 48, 0xFFF0 << 48, 0x7FF8 << 48, (0x7FF0 << 48) + 1, (0xFFF8 << 48) + 2, 1 << 63,
        1, 0x7FEFFFFFFFFFFFFF,
    ],
}  # fmt: skip
"""Infinities, quiet and signaling nans with payloads, -0.0, the least and the largest number."""


@pytest.mark.parametrize("name", SPECIAL)
def test_special_floats_keep_their_bits(name: str, context: Any) -> None:
    dt = DTYPES[name].numpy
    bits = np.array(SPECIAL[name], f"u{dt.itemsize}")
    g = constant_graph(
        bits.view(dt), *(b.reshape(1, 1).view(dt) for b in bits), np.tile(bits.view(dt), 9)
    )
    check_with_mlir(g, context)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 2), (2, 1, 4), (7, 11)])
def test_constants_of_every_type_and_size(name: str, shape: tuple[int, ...], context: Any) -> None:
    size = int(np.prod(shape))
    values = (np.arange(size) * 37 % 200 - 90).reshape(shape)
    dt = DTYPES[name]
    a = values % 2 if dt.kind == "bool" else abs(values) if dt.kind == "uint" else values
    check_with_mlir(constant_graph(a.astype(dt.numpy)), context)


@given(st.sampled_from(["f16", "bf16", "f32", "f64"]), st.data())
@settings(max_examples=60)
def test_any_bits_of_a_float(name: str, data: st.DataObject) -> None:
    dt = DTYPES[name]
    bits = data.draw(st.lists(st.integers(0, 2**dt.bits - 1), min_size=1, max_size=40))
    check(constant_graph(np.array(bits, f"u{dt.bytes}").view(dt.numpy)))


@pytest.mark.parametrize("name", [d for d in DTYPES if DTYPES[d].is_int])
def test_the_ends_of_integers(name: str, context: Any) -> None:
    info = np.iinfo(DTYPES[name].numpy)
    check_with_mlir(constant_graph(np.array([info.min, info.max, 0, 1], info.dtype)), context)


WORDS = st.characters(exclude_characters="\0")  # a name has no zero byte


@given(st.text(WORDS, min_size=1, max_size=20), st.text(max_size=20), st.text(max_size=20))
@settings(max_examples=60)
def test_any_names_and_places(name: str, graph: str, file: str) -> None:
    try:
        (name + graph + file).encode()
    except UnicodeEncodeError:
        return  # half of a surrogate pair is no text
    g = Graph(graph)
    with located((file, 7)):
        g.set_outputs([g.input(name, [2]).exp(), g.param(name + "w", [2])])
    check(g)


def test_names_that_mlir_escapes(context: Any) -> None:
    g = Graph('a "quoted"\\ name\n')
    with located(("C:\\user\\größe 1.py", 12)):
        g.set_outputs(g.input("layer.0/weight:größe\t", ["n"]) + g.param('"', ["n"]))
    check_with_mlir(g, context)


def test_unused_leaves_and_outputs_that_are_leaves(context: Any) -> None:
    g = Graph("leaves")
    x, unused = g.input("x", ["batch", 2]), g.input("unused", ["seq", 3], "bf16")
    w = g.param("w", [2], "u8")
    g.param("never", [0], "bool")
    g.set_outputs([x, w, x])
    again = check(g)
    assert again.symbols == {"batch", "seq"} and [v.name for v in again.params] == ["w", "never"]
    assert again.inputs[1].type == unused.type
    check_with_mlir(g, context)


def test_values_of_params(tmp_path: Path) -> None:
    g = Graph("values")
    small = g.param("small", value=np.array([1, -0.0, np.nan], ml_dtypes.bfloat16))
    large = g.param("large", value=np.arange(5000, dtype=np.float64).reshape(50, 100))
    g.set_outputs([small, large, g.param("unset", [3])])
    assert set(check(g).param_values) == {"small", "large"}
    rlx.save(g, tmp_path / "g.mlir", values=False)
    assert not rlx.load(tmp_path / "g.mlir").param_values


def test_rlx_opt_compiles_what_was_saved(tmp_path: Path) -> None:
    g = Graph("saved")
    x, w = g.input("x", [8, 16]), g.param("w", value=np.ones((16, 32), np.float32))
    g.set_outputs((x @ w + g.param("b", [32])).gelu())
    rlx.save(g, tmp_path / "g.mlir")
    target = "--target=cpu:x86-64-v3"
    for stage in ("lir", "asm"):
        out = tmp_path / f"g.{stage}"
        assert opt.main([str(tmp_path / "g.mlir"), f"--emit={stage}", target, "-o", str(out)]) == 0
    assert (tmp_path / "g.lir").read_text() == rlx.inspect_pipeline(g, "cpu:x86-64-v3").lir


def test_symbols_in_shapes_and_attributes(context: Any) -> None:
    g = Graph("symbols")
    x = g.input("x", ["batch", "seq", 4])
    joined = g.concat([x.reshape(["batch", -1])] * 2, axis=1)
    g.set_outputs([joined, g.iota(["seq", "batch"], 1), x.expand([3, "batch", "seq", 4])])
    check_with_mlir(g, context)
    again = check(g)
    assert again.bind({"batch": 2, "seq": 3}).outputs[0].shape == (2, 24)


def test_shared_nodes_stay_shared() -> None:
    g = Graph("shared")
    x = g.input("x", [2])
    for _ in range(60):  # a tree of them would have 2^60 nodes
        x = x + x
    g.set_outputs(x)
    assert len(check(g)) == 60


def test_a_long_graph_is_read_without_a_deep_stack() -> None:
    g = Graph("long")
    x = g.input("x", [1])
    for _ in range(3000):
        x = -x
    g.set_outputs(x)
    assert len(parse_graph(graph_text(g))) == 3000


# -- text that others write ----------------------------------------------------------------


def test_places_are_lines_of_the_text_where_it_has_none() -> None:
    g = parse_graph(
        """// A comment.
func.func @main(%x: tensor<2xf32> {rlx.input = "x"}) -> tensor<2xf32> {
  %y = "mir.exp"(%x) : (tensor<2xf32>) -> tensor<2xf32> // another
  return %y : tensor<2xf32>
}
""",
        "mine.mlir",
    )
    assert g.nodes()[0].location == ("mine.mlir", 3)
    assert g.leaf_location("x") == ("mine.mlir", 2)
    assert g.name == "main"


def test_fused_and_named_places_are_their_first_file() -> None:
    g = parse_graph(
        """#a = loc("a.py":3:4)
#b = loc(fused["x"(#a), "b.py":5:6])
module {
  func.func @main(%x: tensor<2xf32> {rlx.input = "x"} loc(callsite("f" at #b))) -> tensor<2xf32> {
    %y = "mir.exp"(%x) : (tensor<2xf32>) -> tensor<2xf32> loc("(\\22"(unknown))
    return %y : tensor<2xf32> loc(#b)
  } loc(#a)
} loc(unknown)
"""
    )
    assert g.leaf_location("x") == ("a.py", 3)
    assert g.nodes()[0].location == ("<text>", 5)


def test_mir_is_read_too() -> None:
    g = Graph("block")
    g.set_outputs(g.linear(g.input("x", [2, 3]), g.param("w", [3, 4]), activation="gelu"))
    mir = parse_graph(rlx.inspect_pipeline(g, "cpu:x86-64-v3").mir)
    feeds = {"x": np.ones((2, 3)), "w": np.ones((3, 4))}
    assert [op.name for op in mir.nodes()] == ["mir.matmul", "mir.gelu"]
    np.testing.assert_array_equal(rlx.interpret(mir, feeds)[0], rlx.interpret(g, feeds)[0])


def test_without_places_the_text_is_that_of_the_structure() -> None:
    g = Graph()
    g.set_outputs(g.input("x", [2]).exp())
    assert "loc(" in graph_text(g)
    assert "loc(" not in graph_text(g, places=False)


def test_a_graph_without_outputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rlx.RlxError, match="no outputs"):
        rlx.save(Graph(), tmp_path / "g.mlir")
    g = Graph()
    g.set_outputs(g.input("x", [2]).exp())
    with pytest.raises(rlx.errors.IRError, match=r"cannot write .*: No such file or directory"):
        rlx.save(g, tmp_path / "no" / "g.mlir")
    assert not (tmp_path / "g.mlir").exists()

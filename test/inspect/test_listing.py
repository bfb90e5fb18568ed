"""inspect_graph, _hir, _mir and _lir: what people read."""

from __future__ import annotations

import re

import numpy as np
import pytest

import rlx
from rlx.compiler.graph_module import GraphModule
from rlx.errors import GraphError, UnsupportedError
from rlx.inspect import (
    NodeOrigin,
    inspect_graph,
    inspect_graph_diff,
    inspect_hir,
    inspect_hir_stats,
    inspect_lir,
    inspect_mir,
    inspect_mir_diff,
    inspect_mir_stats,
    inspect_mir_with_diff,
    node_label,
)
from rlx.ir.op import located

CPU = "cpu:x86-64-v3"


def classifier() -> rlx.Graph:
    g = rlx.Graph("classifier")
    with located(("model.py", 5)):
        x, w = g.input("x", ["batch", 8]), g.param("layer 1/w", [8, 16])
        h = g.linear(x, w, g.param("b", [16]), activation="gelu")
    with located(("model.py", 9)):
        y = g.rms_norm(h, g.param("gamma", [16])).topk(2)
    g.set_outputs([y[0], h, y[1]])
    return g


def test_a_graph() -> None:
    text = inspect_graph(classifier())
    assert text == classifier().inspect()
    rows = text.splitlines()
    assert [re.sub(" {2,}", "  ", row) for row in rows] == [
        "graph @classifier (3 nodes, 3 outputs, of symbolic size)",
        "op kinds: linear=1, rms_norm=1, topk=1",
        "",
        "%x [input]  : batchx8xf32  // model.py:5",
        '%"layer 1/w" [param]  : 8x16xf32  // model.py:5',
        "%b [param]  : 16xf32  // model.py:5",
        "%gamma [param]  : 16xf32  // model.py:9",
        """%0 = linear(%x, %"layer 1/w", %b, activation='gelu') : batchx16xf32  """
        "// model.py:5  <- output 1",
        "%1 = rms_norm(%0, %gamma, axis=1)  : batchx16xf32  // model.py:9",
        "%2.0, %2.1 = topk(%1, k=2, axis=1)  : batchx2xf32, batchx2xi64  // model.py:9"
        "  <- output 0, 2",
        "return %2.0, %0, %2.1",
    ]
    assert len({row.index(" : ") for row in rows[3:10]}) == 1
    assert len({row.index("  // ") for row in rows[3:10]}) == 1


def test_counts_are_sorted_and_sizes_summed() -> None:
    g = rlx.Graph("sum")
    x = g.input("x", [4, 4], "f64")
    g.set_outputs(((x + x).exp() + x) @ x)
    head = inspect_graph(g).splitlines()[:2]
    assert head == [
        "graph @sum (4 nodes, 1 outputs, 512 B of results)",
        "op kinds: add=2, exp=1, matmul=1",
    ]
    assert inspect_hir_stats(g).splitlines() == [head[0].replace("graph", "hir"), head[1]]


def test_constants_are_short() -> None:
    g = rlx.Graph()
    g.set_outputs([g.constant([1.5, 2.5]), g.constant(np.zeros((40, 50), np.float32))])
    text = inspect_graph(g)
    assert "constant(value=[1.5, 2.5])" in text
    assert "constant(value=40x50xf32)" in text


def test_one_function_lists_graphs_and_modules() -> None:
    """The hir listing comes from the Graph, that of mir from MLIR: of a graph without blocks they
    are the same lines."""
    g = rlx.Graph("both")
    with located(("both.py", 1)):
        x = g.input("x", [2, 4])
        g.set_outputs([(x @ g.param("w", [4, 3])).topk(2)[1], g.constant(2.5) * x.reshape(4, 2)])
    lines = [re.sub(r" *(//.*)?$", "", t) for t in inspect_hir(g).splitlines()]
    other = [re.sub(r" *(//.*)?$", "", t) for t in inspect_mir(g, target=CPU).splitlines()]
    assert [t.replace("hir @", "mir @") for t in lines] == other


def test_mir_and_its_fusion() -> None:
    mir = inspect_mir(classifier(), target=CPU, dims={"batch": 4})
    assert "matmul=1" in mir and "linear" not in mir
    fused = inspect_mir(classifier(), "fused", target=CPU, dims={"batch": 4})
    assert re.search(r"^%0 = fused contraction +: 4x16xf32 +// model.py:5$", fused, re.MULTILINE)
    assert re.search(r"^  %1 = matmul\(", fused, re.MULTILINE)
    assert re.search(r"^  yield %4$", fused, re.MULTILINE)
    assert (
        inspect_mir_stats(classifier(), "fused", dims={"batch": 4}).splitlines()
        == fused.splitlines()[:2]
    )
    diff = inspect_mir_diff(classifier(), target=CPU, dims={"batch": 4})
    assert diff.splitlines()[0] == "diff: 5 -> 3 nodes (3 -> 3 outputs)"
    assert "     -1  gelu (1 -> 0)" in diff
    both = inspect_mir_with_diff(classifier(), target=CPU, dims={"batch": 4})
    assert both == f"{fused}\n\n{diff}"
    unfused = inspect_mir_diff(classifier(), target=CPU, dims={"batch": 4}, fuse=False)
    assert "fused" not in unfused


def test_bodies_stand_below_their_op_and_as_functions() -> None:
    g = rlx.Graph("loop")
    x, n = g.input("x", [32]), g.input("n", [])
    g.set_outputs(rlx.while_loop(lambda a: a.max() < n, lambda a: a + a, x, limit=9))
    lines = [re.sub(r" *(: .*)?(//.*)?$", "", t) for t in inspect_graph(g).splitlines()]
    at = lines.index("%0 = while_loop(%x, %n, carries=1, limit=9)")
    assert lines[at + 1] == "  test:"
    assert "    %1 = lt(%0, %x1)" in lines and "    %0 = add(%x0, %x0)" in lines
    fused = inspect_mir(g, "fused", target=CPU)
    assert "test=@test_0, body=@body_0" in fused
    assert fused.index("body_0:") < fused.index("main:")
    assert "op kinds: while_loop=1\n" in fused
    lir = inspect_lir(g, target=CPU)
    assert re.search(r"^  while .*// .*test_listing\.py:\d+\n    rowwise_", lir, re.MULTILINE)


def test_a_prologue_is_shown_first() -> None:
    g = rlx.Graph("hoisted")
    g.set_outputs(g.input("x", [2, 4]) * (g.param("w", [4]).exp() + 1))
    text = inspect_mir(g, "fused", target=CPU)
    assert text.index("prologue:") < text.index("exp(") < text.index("main:")
    assert "[packed]" in text


def test_differences_of_graphs_and_modules() -> None:
    g, h = rlx.Graph(), rlx.Graph()
    g.set_outputs(g.input("x", [2]).exp())
    y = h.input("x", [2]).exp().sin()
    h.set_outputs([y, y.exp()])
    expected = "diff: 1 -> 3 nodes (1 -> 2 outputs)\n     +1  exp (1 -> 2)\n     +1  sin (0 -> 1)"
    assert inspect_graph_diff(g, h) == expected
    assert inspect_mir_diff(GraphModule.of(g).lower(), GraphModule.of(h).lower()) == expected
    assert inspect_graph_diff(g, g) == "diff: 1 -> 1 nodes (1 -> 1 outputs)"


def test_lir() -> None:
    text = inspect_lir(classifier(), target=CPU, dims={"batch": 4})
    head, launches, *_ = text.splitlines()
    assert re.fullmatch(
        r"lir for cpu \(4 steps, 1 of them of the prologue; arena \d+ B, packed \d+ B\)", head
    )
    assert launches == "launches: common=1, contraction=1, pack=1, rowwise=1"
    for memory in ("arena : ", "packed : ", "param layer 1/w : 8x16xf32", "output 2 : 4x2xi64"):
        assert f"\n  {memory}" in text
    assert re.search(
        r"\(pack\) range .*: param layer 1/w\+0, packed\+0;.*  // after layer 1/w$",
        text,
        re.MULTILINE,
    )
    assert re.search(
        r"\(contraction\) range .*input x\+0, packed\+0.*  // model.py:5$", text, re.MULTILINE
    )


def test_control_flow_of_lir_is_nested() -> None:
    text = """
module {
  func.func @main(%a: memref<64xi8> {lir.role = "arena"},
                  %p: memref<0xi8> {lir.role = "packed"},
                  %e: memref<2xi64> {lir.role = "error"}) {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = arith.constant 3 : index
    scf.for %i = %zero to %n step %one {
      %v = "lir.view"(%a) {offset = 0 : i64, shape = array<i64: 2>, strides = array<i64: 1>}
           : (memref<64xi8>) -> memref<?xi64>
      "lir.count"(%i, %v) : (index, memref<?xi64>) -> ()
      scf.yield
    }
    return
  }
}
"""
    shown = inspect_lir(GraphModule.parse(text))
    assert "\n  for rounds 3 counter arena+0" in shown


def test_what_cannot_be_shown() -> None:
    with pytest.raises(GraphError, match="found a str"):
        inspect_mir("graph")  # type: ignore[arg-type]
    module = GraphModule.of(classifier(), {"batch": 2})
    with pytest.raises(GraphError, match="has its dims already"):
        inspect_lir(module, dims={"batch": 2})
    with pytest.raises(UnsupportedError, match="cannot go back to mir"):
        inspect_mir(module.to("lir"))
    with pytest.raises(GraphError, match="did you mean 'fuse'"):
        inspect_lir(module, fused=True)


def test_labels_and_origins() -> None:
    g = classifier()
    linear, norm, topk = g.nodes()
    assert node_label(g, g.params[0]) == "layer 1/w"
    assert node_label(g, linear) == "%0 linear at model.py:5"
    assert node_label(g, topk.results[1]) == "%2 topk at model.py:9"
    unused = norm.out.exp()
    assert re.fullmatch(r"exp at .*test_listing\.py:\d+", node_label(g, unused))
    assert str(NodeOrigin(*linear.location)) == "model.py:5"

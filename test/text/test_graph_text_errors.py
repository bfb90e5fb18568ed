"""Text that is no graph is refused: at its line, with what was found and expected."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.errors import IRError
from rlx.ir.graph import Graph
from rlx.text import graph_text, parse_graph

GOOD = """\
module attributes {rlx.graph = "good"} {
  func.func @main(%x: tensor<2x3xf32> {rlx.input = "x"}, %w: tensor<3xf32> {rlx.param = "w"}) -> tensor<2x3xf32> {
    %0 = "mir.constant"() {value = dense<[1.0, 2.0, 3.0]> : tensor<3xf32>} : () -> tensor<3xf32>
    %1:2 = "mir.topk"(%x) {axis = 1 : i64, k = 3 : i64, largest = true} : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xi64>)
    %2 = "mir.rms_norm"(%1#0, %w) {axis = 1 : i64, eps = 1.0e-05 : f64, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
    %3 = "mir.cast"(%2) {saturate = true, to = f32} : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("user.py":8:1)
    return %3 : tensor<2x3xf32>
  }
}
"""

MISTAKES = [
    ('loc("user.py"', 'loc("us\\zer.py"', 6, "has an escape that there is not"),
    ("tensor<2x3xf32> {", "tensor<2000000000000000000x3xf32> {", 2, "element type 2000"),
    (
        "tensor<2x3xf32> {", f'tensor<?x3xf32, ["{"9" * 5000}", "3"]> {{',
        2, "is no dim; write a sum",
    ),
    ("k = 3 : i64", f"k = {'9' * 5000} : i64", 4, "expected an integer"),
    (
        "dense<[1.0, 2.0, 3.0]> : tensor<3xf32>", "dense<1.0> : tensor<999999999999999999xf32>",
        3, "does not fit into memory",
    ),
    ("module", "modul", 1, "expected func.func @main, or a function that it needs, found modul"),
    ("{rlx.graph", "{rlx.grap", 1, "no attribute 'rlx.grap'; did you mean 'rlx.graph'"),
    ('"good"', '"good', 1, "expected a string in quotes"),
    ('"good"', '"go\\zod"', 1, "an escape that there is not"),
    ("@main", "@other", 9, "expected func.func @main"),
    ("tensor<2x3xf32> {", "tensor<2x3xf31> {", 2, "element type f31 is none of f16"),
    ("tensor<2x3xf32> {", "tensor<?x3xf32> {", 2, 'write tensor<?xf32, ["n"]>'),
    ("tensor<2x3xf32> {", 'tensor<?x3xf32, ["n"]> {', 2, "2 dims have 1 names"),
    ("tensor<2x3xf32> {", 'tensor<?x3xf32, ["n+", "a b"]> {', 2, "'n+' is no dim; write"),
    ('"x"}', "3}", 2, "expected a string in quotes, found 3"),
    ('{rlx.input = "x"}', "", 2, 'neither input nor param; write %x: tensor<2xf32> {rlx.input = "x"}'),
    ('"w"}', '"x"}', 2, "the name 'x' is already used"),
    ("%w: t", "%x: t", 2, "%x is defined twice"),
    ('"w"}', '"w", rlx.value = dense<0.0> : tensor<4xf32>}', 2, "shape [3], found [4]"),
    ('"x"}', '"x", rlx.value = dense<0.0> : tensor<3xf32>}', 2, "%x is neither"),
    ("dense<[1.0,", "dense<[[1.0],", 3, "stands in 1 brackets, others do not"),
    ("[1.0, 2.0, 3.0]", "[[1.0, 2.0, 3.0]]", 3, "elements of shape [1, 3]"),
    ("[1.0, 2.0, 3.0]", "[[1.0], [2.0, 3.0]]", 3, "a list has 2 elements, another one 1"),
    ("[1.0, 2.0, 3.0]", "[[1.0], 2.0]", 3, "stands in 1 brackets"),
    ("[1.0, 2.0, 3.0]", "[1.0, 2.0]", 3, "tensor<3xf32> has elements of shape [2]"),
    ("[1.0, 2.0, 3.0]", "", 3, "elements of shape [0]"),
    ("[1.0, 2.0, 3.0]", "[1.0, true, 3.0]", 3, "true is no f32"),
    ("[1.0, 2.0, 3.0]", "0x7FC0", 3, "0x7FC0 is no f32"),
    ("[1.0, 2.0, 3.0]", "1.0e300", 3, "1.0e300 is no f32"),
    ("[1.0, 2.0, 3.0]", '"0x00000000AA"', 3, "has 12 bytes, found 5"),
    ("[1.0, 2.0, 3.0]", '"0x0000000"', 3, "no hexadecimal digits"),
    ("dense<[1.0, 2.0, 3.0]> : tensor<3xf32>", "dense<300> : tensor<3xi8>", 3, "300 is no i8"),
    ("dense<[1.0, 2.0, 3.0]> : tensor<3xf32>", "dense<-1> : tensor<3xui8>", 3, "-1 is no u8"),
    (
        "dense<[1.0, 2.0, 3.0]> : tensor<3xf32>", 'dense<"0x000200"> : tensor<3xi1>',
        3, "a bool is the byte 00 or 01",
    ),
    (
        "dense<[1.0, 2.0, 3.0]> : tensor<3xf32>", 'dense<1.0> : tensor<?xf32, ["n"]>',
        3, "have no fixed number",
    ),
    ('"mir.topk"', '"mir.topkk"', 4, "unknown op 'mir.topkk'; did you mean 'mir.topk'"),
    ('"mir.topk"', '"my.topk"', 4, "unknown op 'my.topk'; import the module that declares the ops"),
    ('"mir.topk"', "mir.topk", 4, 'such as "mir.add", found mir.topk'),
    ("(%x) {axis", "(%y) {axis", 4, "%y is not defined"),
    ("k = 3 : i64", "k = 3.5 : i64", 4, "expected an integer"),
    ("k = 3 : i64", "kk = 3 : i64", 4, "mir.topk has no attribute 'kk'; did you mean 'k'"),
    ("k = 3 : i64, ", "", 4, "the attribute 'k' is missing"),
    ("k = 3 : i64", "k = 3 : i64, k = 3 : i64", 4, "has the attribute 'k' twice"),
    ("k = 3 : i64", "k = 9 : i64", 4, "mir.topk: "),
    ("%1:2 =", "%1:3 =", 4, "mir.topk has 2 results, found 3"),
    ("%1:2 =", "%1 =", 4, "mir.topk has 2 results, found 1"),
    ("tensor<2x3xi64>)", "tensor<2x3xi32>)", 4, "expected tensor<2x3xf32>, tensor<2x3xi64>"),
    ("%1#0", "%1#2", 5, "%1#2 is not defined"),
    ("1, 1, 0>", "1, 0, 0>", 5, "it takes 3 operands, found 2"),
    ("1, 1, 0>", "1, 1>", 5, "it takes 3 operands, found 2"),
    ("1.0e-05", "nan", 5, "expected a float"),
    ("(tensor<2x3xf32>, tensor<3xf32>)", "(tensor<2x3xf32>, tensor<4xf32>)", 5, "operand types"),
    ("to = f32", "to = f33", 6, "element type f33"),
    ("to = f32", 'to = "f32"', 6, "expected an element type"),
    ('loc("user.py":8:1)', 'loc("user.py":8:1', 6, "a parenthesis is not closed"),
    ("return %3", "return %4", 7, "%4 is not defined"),
    ("return %3 : tensor<2x3xf32>", "return %3 : tensor<3x3xf32>", 2, "those that are declared"),
    ("return %3 : tensor<2x3xf32>", "return :", 2, "those that are declared"),
    ("  }\n}", '  }\n  func.func @prologue() {\n  }\n}', 9, "@main is its last function"),
    ("  }\n}\n", "  }\n", 9, "expected the } of the module"),
    ("  }\n}\n", "  }\n}\nmodule {}", 10, "expected the end, found module"),
    ("%3 = ", "", 6, 'expected an op such as %0 = ..., or return, found "mir.cast"'),
]  # fmt: skip


# ruff: noqa: E501 (the text has one op a line)


def test_the_good_text_is_read() -> None:
    g = parse_graph(GOOD)
    assert [op.name for op in g.nodes()] == ["mir.topk", "mir.rms_norm", "mir.cast"]
    assert g.nodes()[-1].location == ("user.py", 8)


@pytest.mark.parametrize(("right", "wrong", "line", "message"), MISTAKES, ids=lambda x: str(x)[:24])
def test_a_mistake_is_told_at_its_line(right: str, wrong: str, line: int, message: str) -> None:
    assert GOOD.count(right), f"the good text has no {right!r}"
    with pytest.raises(IRError) as e:
        parse_graph(GOOD.replace(right, wrong, 1), "bad.mlir")
    assert message in e.value.message
    assert e.value.location == ("bad.mlir", line)
    assert str(e.value).startswith(f"bad.mlir:{line}: ")


LOOP = """\
func.func private @more(%i: tensor<i64>) -> tensor<i1> {
  %0 = "mir.lt"(%i, %i) : (tensor<i64>, tensor<i64>) -> tensor<i1>
  return %0 : tensor<i1>
}
func.func private @next(%i: tensor<i64>) -> tensor<i64> {
  return %i : tensor<i64>
}
func.func private @loop(tensor<i64>) -> tensor<i64> attributes
  {rlx.control = "while_loop", test = @more, body = @next, carries = 1 : i64, limit = 5 : i64}
func.func @main(%n: tensor<i64> {rlx.input = "n"}) -> tensor<i64> {
  %0 = func.call @loop(%n) : (tensor<i64>) -> tensor<i64>
  return %0 : tensor<i64>
}
"""

LOOP_MISTAKES = [
    ('rlx.control = "while_loop"', 'rlx.control = "until"', 8, "one of cond, while_loop, scan"),
    ('rlx.control = "while_loop", ', "", 8, "@loop has no ops, and no rlx.control"),
    ("test = @more", "test = @most", 9, "no function @most stands above; did you mean '@more'"),
    ("test = @more, ", "", 8, "has the attributes test, body, carries, limit, found body"),
    ("test = @more", "test = @more, pred = 1", 9, "a function has no attribute 'pred'"),
    ("carries = 1 : i64", "carries = 2 : i64", 11, "@loop: while_loop: it carries 2 of 1"),
    ("@next(%i", "@more(%i", 5, "@more is defined twice"),
    (
        "-> tensor<i64> {", "-> tensor<i64> attributes {carries = 1 : i64} {", 5,
        "@next has ops and the attributes of a declaration",
    ),
    ("%i: tensor<i64>) -> tensor<i1>", "tensor<i64>) -> tensor<i1>", 1, "neither input nor param"),
    ("func.call @loop", "func.call @lop", 11, "no function @lop that declares a control op stands"),
    ("func.call @loop", "func.call @more", 11, "no function @more that declares"),
    ("(%n) : (tensor<i64>)", "(%n) : (tensor<i32>)", 11, "operand types"),
    ("-> tensor<i64>\n  return %0", "-> tensor<i32>\n  return %0", 11, "result is tensor<i32>"),
    ("func.call @loop", '"control.while_loop"', 11, "is written as a call of a function"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("right", "wrong", "line", "message"), LOOP_MISTAKES, ids=lambda x: str(x)[:24]
)
def test_a_mistake_in_control_flow(right: str, wrong: str, line: int, message: str) -> None:
    assert [op.name for op in parse_graph(LOOP).nodes()] == ["control.while_loop"]
    assert LOOP.count(right), f"the text has no {right!r}"
    with pytest.raises(IRError) as e:
        parse_graph(LOOP.replace(right, wrong, 1), "bad.mlir")
    assert message in e.value.message
    assert e.value.location == ("bad.mlir", line)


def test_lower_levels_are_refused() -> None:
    g = Graph()
    g.set_outputs((g.input("x", [4, 4]) + 1).exp())
    found = rlx.inspect_pipeline(g, "cpu:x86-64-v3")
    for level in (found.fused, found.lir):
        with pytest.raises(IRError, match=r"<text>:\d+: "):
            parse_graph(level)


def test_a_function_without_results_is_no_graph() -> None:
    with pytest.raises(IRError, match="at least one output"):
        parse_graph("func.func @main() {\n  return :\n}")


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "g.mlir"
    with pytest.raises(IRError, match=r"cannot read .*g\.mlir: No such file"):
        rlx.load(path)
    path.write_bytes(b"module {\n\xff")
    with pytest.raises(IRError, match=r"g\.mlir:2: byte 0xff at offset 9 is not text"):
        rlx.load(path)
    path.write_text("", encoding="utf-8")
    with pytest.raises(IRError, match="found the end"):
        rlx.load(path)


def test_places_that_refer_to_each_other() -> None:
    """A chain is followed without recursion, a circle ends, and none is looked up twice."""
    long = [f"#l{i} = loc(fused[#l{i + 1}, #l{i + 1}])" for i in range(3000)]
    text = GOOD.replace('loc("user.py":8:1)', "loc(#l0)")
    g = parse_graph("\n".join([text, *long, '#l3000 = loc("deep.py":4:1)']))
    assert g.nodes()[-1].location == ("deep.py", 4)
    g = parse_graph("\n".join([text, *long, "#l3000 = loc(#l0)"]))
    assert g.nodes()[-1].location == ("<text>", 6)


def test_damaged_text_is_read_or_refused_with_a_place() -> None:
    """Whatever is cut, doubled or exchanged: nothing but an IRError with a line comes of it."""
    rng = random.Random(1)
    g = Graph("damage")
    x = g.input("x", ["n", 4])
    g.set_outputs([x @ g.param("w", value=np.ones((4, 2), np.float32)), x.reshape(["n", 2, 2])])
    for source in (GOOD, LOOP, graph_text(g)):
        for _ in range(1000):
            a, b = sorted(rng.randrange(len(source)) for _ in range(2))
            b = min(b, a + rng.choice((1, 1, 2, 8, 40)))
            put = rng.choice(("", source[a:b] * 2, "[" * 400, ">", '"', "0", "\\", "%0"))
            try:
                parse_graph(source[:a] + put + source[b:])
            except IRError as e:
                assert e.location is not None
                assert e.location[0] == "<text>"

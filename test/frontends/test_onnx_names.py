"""Names in ONNX models: those of bodies and functions are their own, and meet others around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import checker

import rlx
from support.onnx_text import model
from support.random_onnx import random_model, wrong


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_models_of_few_names(first: int) -> None:
    """``tools/onnx_cases.py --names`` makes more, and asks ONNX Runtime where it is installed."""
    found = {seed: what for seed in range(first, first + 20) if (what := wrong(seed))}
    assert not found, "\n".join(f"seed {seed}: {what}" for seed, what in found.items())


@pytest.mark.parametrize("seed", [2, 25])
def test_random_models_compiled(seed: int) -> None:
    case = random_model(seed)
    found = rlx.Session("cpu").compile(rlx.from_onnx(case.model)).run(case.feeds)
    for a, b in zip(found, case.outputs, strict=True):
        np.testing.assert_array_equal(a, b)


BRANCHES = (
    "g (bool c, float[2] x) => (float[2] y) {{ {before} {out} = If (c) <then_branch = t () => (float[2] {result})"
    " {{ {then} }}, else_branch = e () => (float[2] p) {{ p = Neg (x) }}> {after} }}"
)
LOOPS = (
    "g (int64 n, bool c, float[2] x) => (float[2] y) {{ {out} = Loop (n, c, x) <body = b (int64 {i}, bool {k}, float[2] {a})"
    " => (bool {go}, float[2] {d}) {{ {go} = Identity ({k}) {d} = Add ({a}, {a}) }}> {after} }}"
)
EXP, TWICE = np.exp(np.float32([1, 2])), np.float32([4, 8])
VALID = [
    # A result has the name of the node's own.
    (BRANCHES.format(before="", out="y", result="y", then="y = Exp (x)", after=""), EXP),
    (LOOPS.format(out="y", i="i", k="k", a="a", go="go", d="y", after=""), TWICE),
    # An input of the body has it.
    (LOOPS.format(out="y", i="i", k="k", a="y", go="go", d="d", after=""), TWICE),
    # A value of the body has the name of one after it.
    (BRANCHES.format(before="", out="q", result="p", then="a = Exp (x) p = Abs (a)", after="a = Neg (q) y = Abs (a)"), EXP),
    (LOOPS.format(out="q", i="i", k="k", a="a", go="d", d="z", after="d = Abs (q) y = Abs (d)"), TWICE),
    # Inputs of the body hide those of the model.
    (LOOPS.format(out="y", i="n", k="c", a="x", go="go", d="d", after=""), TWICE),
    (BRANCHES.format(before="a = Neg (x)", out="y", result="y", after="",
        then="y = If (c) <then_branch = t () => (float[2] y) { b = Neg (a) y = Exp (b) }, else_branch = e () => (float[2] y) { y = Abs (a) }>"), EXP),
    # An initialiser of the body has the name of a value after it.
    ("g (bool c, float[2] x) => (float[2] y) { q = If (c) <then_branch = t () => (float[2] p) <float[2] w = {1, 0}> { p = Add (x, w) },"
     " else_branch = e () => (float[2] p) { p = Neg (x) }> w = Neg (q) y = Abs (w) }", np.float32([2, 2])),
]  # fmt: skip


@pytest.mark.parametrize(("graph", "wanted"), VALID, ids=range(len(VALID)))
def test_names_of_bodies_are_their_own(graph: str, wanted: Any) -> None:
    m = model(graph)
    checker.check_model(m, full_check=True)
    feeds: dict[str, Any] = {"c": np.array(True), "x": np.float32([1, 2]), "n": np.array(2)}
    feeds = {v.name: feeds[v.name] for v in m.graph.input}
    np.testing.assert_allclose(rlx.interpret(rlx.from_onnx(m), feeds)[0], wanted, rtol=1e-6)


def test_names_of_a_function_are_its_own() -> None:
    m = model(
        "g (float[2] x, float[2] a) => (float[2] y) { b = own.F (a, x) y = own.F (b, b) }", 21,
        '<domain: "own", opset_import: ["" : 21]> F (x, a) => (y) { b = Neg (x) y = Add (b, a) }',
    )  # fmt: skip
    found = rlx.interpret(rlx.from_onnx(m), {"x": np.float32([1, 2]), "a": np.float32([5, 7])})
    np.testing.assert_array_equal(found[0], [0, 0])


def test_an_input_that_a_caller_leaves_out_is_left_out_in_bodies_of_the_function() -> None:
    m = model(
        "g (bool c, float[2] x) => (float[2] y) { y = own.F (c, x) }", 21,
        '<domain: "own", opset_import: ["" : 21]> F (c, x, lo) => (y) { y = If (c) <then_branch = t () => (float[2] p)'
        " { p = Clip (x, lo) }, else_branch = e () => (float[2] q) { q = Neg (x) }> }",
    )  # fmt: skip
    x = np.float32([-1, 2])
    g = rlx.from_onnx(m)
    np.testing.assert_array_equal(rlx.interpret(g, {"c": np.array(True), "x": x})[0], x)

"""Attention that models write out as products and a softmax becomes the op, with the same values."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx.reference import ReferenceEvaluator

import rlx
from support.onnx_text import model

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(0)
Q = RNG.standard_normal((2, 4, 3, 8)).astype(np.float32)
K, V = RNG.standard_normal((2, 2, 4, 5, 8)).astype(np.float32)
FEW_K, FEW_V = RNG.standard_normal((2, 2, 2, 5, 8)).astype(np.float32)
BIAS = RNG.standard_normal((2, 1, 3, 5)).astype(np.float32)

HEAD = (
    "g (float[batch, 4, 3, 8] q, float[batch, {k}, seq, 8] k, float[batch, {k}, seq, 8] v,"
    " float[batch, 1, 3, seq] bias) => (float[batch, 4, 3, 8] y) <{constants}> {{ {nodes} }}"
)


def text(nodes: str, k: int = 4, constants: str = "float s = {0.5}") -> str:
    return HEAD.format(nodes=nodes, k=k, constants=constants)


FORMS: dict[str, str] = {
    "plain": text("t = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul (q, t) w = Softmax (a)"
                  " y = MatMul (w, v)"),
    "scaled, with a bias": text(
        "t = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul (q, t) b = Mul (a, s)"
        " c = Add (b, bias) w = Softmax <axis = -1> (c) y = MatMul (w, v)"),
    "scales before the product, and 0 for nan": text(
        "p = Mul (q, s) t = Transpose <perm = [0, 1, 3, 2]> (k) u = Mul (t, s)"
        " a = MatMul (p, u) c = Add (bias, a) w = Softmax <axis = 3> (c) n = IsNaN (w)"
        " z = Where (n, o, w) y = MatMul (z, v)", constants="float s = {0.5}, float o = {0.0}"),
    "keys as columns, divided": text(
        "one = Transpose <perm = [0, 2, 3, 1]> (k) t = Transpose <perm = [0, 3, 2, 1]> (one)"
        " a = MatMul (q, t) b = Div (a, s) w = Softmax (b) y = MatMul (w, v)"),
    "heads repeated": text(
        "i = Unsqueeze (k, axis) j = Expand (i, wide) l = Reshape (j, flat)"
        " i2 = Unsqueeze (v, axis) j2 = Expand (i2, wide) l2 = Reshape (j2, flat)"
        " t = Transpose <perm = [0, 1, 3, 2]> (l) a = MatMul (q, t) c = Add (a, bias)"
        " w = Softmax (c) y = MatMul (w, l2)", k=2,
        constants="int64[1] axis = {2}, int64[5] wide = {1, 1, 2, 1, 1},"
                  " int64[4] flat = {0, 4, -1, 8}"),
}  # fmt: skip
SCALES = {"plain": 1.0, "scaled, with a bias": 0.5, "keys as columns, divided": 2.0,
          "scales before the product, and 0 for nan": 0.25, "heads repeated": 1.0}  # fmt: skip


def expected(form: str) -> Array:
    k, v = (FEW_K, FEW_V) if form == "heads repeated" else (K, V)
    k, v = (np.repeat(a, 4 // a.shape[1], 1) for a in (k, v))
    scores = SCALES[form] * (Q @ k.swapaxes(2, 3))
    if form not in ("plain", "keys as columns, divided"):
        scores = scores + BIAS
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def feeds(form: str) -> dict[str, Array]:
    few = form == "heads repeated"
    return {"q": Q, "k": FEW_K if few else K, "v": FEW_V if few else V, "bias": BIAS}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    g = rlx.from_onnx(model(FORMS[form]))
    names = [op.name for op in g.nodes()]
    assert "mir.attention" in names and "mir.softmax" not in names
    (found,) = rlx.interpret(g, feeds(form))
    np.testing.assert_allclose(found, expected(form), rtol=2e-5, atol=2e-6)


OTHERS = {
    "along another axis": "t = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul (q, t)"
                          " w = Softmax <axis = 2> (a) y = MatMul (w, v)",
    "no product": "a = Add (bias, q0) w = Softmax (a) y = MatMul (w, v)",
    "a scale an element": "t = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul (q, t)"
                          " b = Mul (a, bias) w = Softmax (b) y = MatMul (w, v)",
    "divided by 0": "t = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul (q, t)"
                    " b = Div (a, o) w = Softmax (b) y = MatMul (w, v)",
    "0 for what is no nan": "t = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul (q, t)"
                            " w = Softmax (a) n = IsInf (w) z = Where (n, o, w) y = MatMul (z, v)",
}  # fmt: skip


@pytest.mark.parametrize("form", OTHERS)
def test_other_products_stay(form: str) -> None:
    constants = "float[1, 4, 3, 1] q0 = {0,1,2,3,4,5,6,7,8,9,10,11}, float o = {0.0}"
    g = rlx.from_onnx(model(text(OTHERS[form], constants=constants)))
    assert "mir.attention" not in [op.name for op in g.nodes()]


# -- what the pattern takes, against the evaluator -----------------------------------------

WHOLE = (2, 4, 3, 5)
"""Batch, heads, queries, keys."""


def evaluated(graph: str) -> tuple[rlx.Graph, Array, Array]:
    """A graph of floats imported, what it gives on random inputs, and what ONNX's evaluator does."""
    proto = model(graph)
    rng = np.random.default_rng(0)
    given = {
        i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim], np.float32)
        for i in proto.graph.input
    }
    g = rlx.from_onnx(proto)
    want: Any = ReferenceEvaluator(proto).run(None, given)
    return g, rlx.interpret(g, given)[0], want[0]


@pytest.mark.parametrize("ones", list(product((False, True), repeat=4)))
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_a_bias_of_any_shape(rank: int, ones: tuple[bool, ...]) -> None:
    """Scores with dims of 1 and a bias, either of which may be the smaller: what enlarges the
    scores is no attention."""
    b, h, s, t = (1 if one else n for one, n in zip(ones, WHOLE, strict=True))
    for small in product((False, True), repeat=min(rank, 4)):
        tail = [1 if one else n for one, n in zip(small, WHOLE[-len(small) :], strict=True)]
        bias = [1] * (rank - len(small)) + tail
        graph = (
            f"g (float[{b},{h},{s},8] q, float[{b},{h},{t},8] k, float[{b},{h},{t},8] v,"
            f" float[{','.join(map(str, bias))}] bias) => (float y) {{"
            " t = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul (q, t) c = Add (a, bias)"
            " w = Softmax <axis = -1> (c) y = MatMul (w, v) }"
        )
        shape = np.broadcast_shapes((b, h, s, t), tuple(bias))
        if shape[-1] != t:
            continue  # more weights than values
        g, found, want = evaluated(graph)
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-6)
        is_one = "mir.attention" in [op.name for op in g.nodes()]
        assert is_one == (shape == (b, h, s, t)), bias


@pytest.mark.parametrize("scaled", ["k", "v", "k, v"])
@pytest.mark.parametrize("wide", ["k", "k, v"])
def test_a_number_is_multiplied_once(wide: str, scaled: str) -> None:
    """Of heads that are repeated, or only those of keys, with numbers around them."""
    nodes, shapes = [], []
    for name in "kv":
        shapes.append(f"float[2,{2 if name in wide else 4},5,8] {name}0")
        nodes.append(
            f"{name}1 = Unsqueeze ({name}0, axis) {name}2 = Expand ({name}1, wide)"
            f" {name}3 = Reshape ({name}2, flat)" if name in wide
            else f"{name}3 = Identity ({name}0)"
        )  # fmt: skip
        nodes.append(f"{name} = {'Mul' if name in scaled else 'Add'} ({name}3, three)")
    g, found, want = evaluated(
        f"g (float[2,4,3,8] q, {', '.join(shapes)}) => (float y) <float three = {{3.0}},"
        " int64[1] axis = {2}, int64[5] wide = {1, 1, 2, 1, 1}, int64[4] flat = {0, 4, -1, 8}>"
        f" {{ {' '.join(nodes)} t = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul (q, t)"
        " w = Softmax <axis = -1> (a) y = MatMul (w, v) }"
    )
    assert "mir.attention" in [op.name for op in g.nodes()]
    np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)

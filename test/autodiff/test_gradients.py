"""Gradients and products of graphs with tangents and cotangents."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.autodiff import gradients
from rlx.errors import DTypeError, GraphError, NameError, RlxError, ShapeError, UnsupportedError
from support.compiled import agrees

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X, W, B = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 2)), RNG.standard_normal(2)
FEEDS = {"x": X, "w": W, "b": B}


def mlp() -> rlx.Graph:
    """A loss of an input, and of params of which one has a value."""
    g = rlx.Graph("loss")
    x, w, b = g.input("x", [4, 3], "f64"), g.param("w", [3, 2], value=W), g.param("b", [2], "f64")
    y = (x @ w + b).tanh()
    g.set_outputs((y * y * y.exp()).sum())
    return g


def numeric(g: rlx.Graph, feeds: dict[str, Array], name: str, step: float = 1e-6) -> Array:
    """The gradient of the first output by central differences."""
    a = np.asarray(feeds[name], np.float64)
    found = np.zeros(a.shape)
    for i in np.ndindex(a.shape):
        moved = []
        for sign in (1, -1):
            shifted = a.copy()
            shifted[i] += sign * step
            moved.append(rlx.interpret(g, {**feeds, name: shifted})[0])
        found[i] = (moved[0] - moved[1]).sum() / (2 * step)
    return found


def test_grad_of_inputs_and_params_in_the_order_asked_for() -> None:
    g = mlp()
    made = rlx.grad(g, wrt=["b", "x", "w"])
    found = rlx.interpret(made, FEEDS)
    for name, a in zip(("b", "x", "w"), found, strict=True):
        np.testing.assert_allclose(a, numeric(g, FEEDS, name), rtol=1e-6, atol=1e-8)
    assert [(v.name, v.type) for v in (*made.inputs, *made.params)] == [
        (v.name, v.type) for v in (*g.inputs, *g.params)
    ]


def test_a_derived_graph_keeps_the_values_of_params_and_the_source_is_as_it_was() -> None:
    g = mlp()
    nodes = repr(g.nodes())
    made = rlx.value_and_grad(g, "w")
    assert made.param_values.keys() == {"w"} and repr(g.nodes()) == nodes
    f = rlx.Session().compile(made)
    f.set_param("b", B)
    value, dw = f.run({"x": X})
    np.testing.assert_allclose(value, rlx.interpret(g, FEEDS)[0])
    np.testing.assert_allclose(dw, numeric(g, FEEDS, "w"), rtol=1e-6, atol=1e-8)


def test_by_values_of_the_graph_those_between_included() -> None:
    """What reaches ``x`` through ``h`` counts for both."""
    g = rlx.Graph()
    x = g.input("x", [3], "f64")
    h = x * x
    g.set_outputs((h.sin() * x).sum())
    dh, dx = rlx.interpret(rlx.grad(g, [h, x]), {"x": X[0]})
    a = X[0]
    np.testing.assert_allclose(dh, np.cos(a * a) * a)
    np.testing.assert_allclose(dx, 2 * a * np.cos(a * a) * a + np.sin(a * a))


def test_gradients_of_a_value_go_on_in_its_graph() -> None:
    """A gradient penalty: the gradient is a part of the loss."""
    g = rlx.Graph()
    x = g.input("x", [3], "f64")
    (dx,) = gradients((x**3).sum(), [x])
    g.set_outputs((dx * dx).sum())
    np.testing.assert_allclose(rlx.interpret(rlx.grad(g, "x"), {"x": X[0]})[0], 36 * X[0] ** 3)


def test_vjp_of_several_outputs() -> None:
    g = rlx.Graph()
    x = g.input("x", [3], "f64")
    g.set_outputs([x.sin(), x.argmax(0), (x * x).sum()])
    made = rlx.vjp(g, "x")
    assert [v.name for v in made.inputs] == ["x", "cotangent_0", "cotangent_2"]
    found = rlx.interpret(made, {"x": X[0], "cotangent_0": X[1], "cotangent_2": 3.0})
    assert len(found) == 4
    np.testing.assert_allclose(found[3], np.cos(X[0]) * X[1] + 6 * X[0])


def test_jvp_is_the_transpose_of_vjp() -> None:
    g = mlp()
    t = RNG.standard_normal(W.shape)
    value, tangent = rlx.interpret(rlx.jvp(g, "w"), {**FEEDS, "tangent_w": t})
    np.testing.assert_allclose(value, rlx.interpret(g, FEEDS)[0])
    (dw,) = rlx.interpret(rlx.grad(g, "w"), FEEDS)
    np.testing.assert_allclose(tangent, (dw * t).sum())


def test_hvp() -> None:
    g = mlp()
    t = {"tangent_w": RNG.standard_normal(W.shape), "tangent_b": RNG.standard_normal(2)}
    made = rlx.hvp(g, ["w", "b"])
    value, dw, db, slope, hw, hb = rlx.interpret(made, {**FEEDS, **t})
    grads = rlx.grad(g, ["w", "b"])
    e = 1e-6
    moved = [
        rlx.interpret(
            grads, {**FEEDS, "w": W + s * e * t["tangent_w"], "b": B + s * e * t["tangent_b"]}
        )
        for s in (1, -1)
    ]
    np.testing.assert_allclose(value, rlx.interpret(g, FEEDS)[0])
    np.testing.assert_allclose(slope, (dw * t["tangent_w"]).sum() + (db * t["tangent_b"]).sum())
    np.testing.assert_allclose(hw, (moved[0][0] - moved[1][0]) / (2 * e), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(hb, (moved[0][1] - moved[1][1]) / (2 * e), rtol=1e-6, atol=1e-8)


def test_names_of_new_inputs_are_free() -> None:
    made = rlx.jvp(rlx.jvp(mlp(), "w"), ["w", "tangent_w"])
    assert [v.name for v in made.inputs] == [
        "x", "tangent_w", "tangent_w_2", "tangent_tangent_w",
    ]  # fmt: skip


def test_zeros_where_nothing_flows() -> None:
    g = rlx.Graph()
    x, y, z = (g.input(n, [2], "f64") for n in "xyz")
    g.set_outputs((x * 2 + y.sign() + y.round() + y.gt(0).cast("f64")).sum())
    dx, dy, dz = rlx.interpret(rlx.grad(g, [x, y, z]), dict.fromkeys("xyz", X[0, :2]))
    assert dx.tolist() == [2, 2] and dy.tolist() == [0, 0] and dz.tolist() == [0, 0]
    found = rlx.interpret(rlx.jvp(g, "z"), {**dict.fromkeys("xyz", B), "tangent_z": B})
    assert found[1] == 0


def test_an_operand_that_is_there_twice_counts_once() -> None:
    """A composite without a rule of its own, on one value twice; and a custom function."""
    twice = rlx.custom_fn(lambda a, b: a * a * b)

    def build(g: rlx.Graph) -> rlx.Value:
        x = g.input("x", [3, 3], "f64")
        return (twice(x, x) + g.shared_linear_pair(x, x, x)[0]).sum()

    g = rlx.Graph()
    g.set_outputs(build(g))
    x = RNG.standard_normal((3, 3))
    (dx,) = rlx.interpret(rlx.grad(g, "x"), {"x": x})
    np.testing.assert_allclose(dx, numeric(g, {"x": x}, "x"), rtol=1e-6)


def test_both_results_of_an_op_by_one_of_them() -> None:
    """The other result still depends on the operand."""
    g = rlx.Graph()
    x = g.input("x", [4], "f64")
    values, places = x.topk(2, 0)
    g.set_outputs((values * values).sum() + places.cast("f64").sum())
    a = np.array([1.0, 4, 3, 2])
    dv, dx = rlx.interpret(rlx.grad(g, [values, x]), {"x": a})
    assert dv.tolist() == [8, 6] and dx.tolist() == [0, 8, 6, 0]


def test_symbolic_dims_are_kept() -> None:
    g = rlx.Graph()
    x, w = g.input("x", ["n", 3], "f64"), g.param("w", [3, 2], "f64")
    g.set_outputs((x @ w).sin().mean())
    made = rlx.value_and_grad(g, ["w", "x"])
    assert made.symbols == {"n"} and str(made.outputs[2].shape) == "(n, 3)"
    for n in (2, 4):
        found = rlx.interpret(made, {"x": X[:n], "w": W})
        np.testing.assert_allclose(found[1], numeric(g, {"x": X[:n], "w": W}, "w"), rtol=1e-6)
    f = rlx.Session().compile(made)
    f.set_param("w", W)
    for a, e in zip(f.run({"x": X}), rlx.interpret(made, {"x": X, "w": W}), strict=True):
        np.testing.assert_allclose(a, e)


def test_compiled() -> None:
    agrees(rlx.value_and_grad(mlp(), ["w", "x"]))
    agrees(rlx.hvp(mlp(), ["w", "b"]))


# -- edge values: JAX's, but for the rows of docs/autodiff.md ---------------------------------


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [
        (lambda x: x.relu(), [0.0], [0]),
        (lambda x: x.maximum(0), [0.0], [0.5]),
        (lambda x: x.minimum(0), [0.0], [0.5]),
        (lambda x: x.abs(), [0.0], [0]),
        (lambda x: x.max(axes=0), [2.0, 2, 1, 2], [1 / 3, 1 / 3, 0, 1 / 3]),
        (lambda x: x.min(axes=0), [2.0, 2, 1, 1], [0, 0, 0.5, 0.5]),
        (lambda x: x.cummax(0), [1.0, 1, 0], [1, 2, 0]),
        (lambda x: x.prod(0), [0.0, 2, 3], [6, 0, 0]),
        (lambda x: x.clip(0, 1), [0.0, 1, 0.5], [0.5, 0.5, 1]),
    ],
)
def test_ties(function: Any, at: list[float], expected: list[float]) -> None:
    g = rlx.Graph()
    x = g.input("x", [len(at)], "f64")
    g.set_outputs(function(x).sum())
    (dx,) = rlx.interpret(rlx.grad(g, "x"), {"x": at})
    np.testing.assert_allclose(dx, expected)


# -- refusals ------------------------------------------------------------------------------


def two() -> rlx.Graph:
    g = rlx.Graph("two")
    x, i = g.input("x", [3]), g.input("i", [3], "i64")
    g.set_outputs([x.sum(), i])
    return g


def single(function: Any, dtype: str = "f32") -> rlx.Graph:
    g = rlx.Graph("single")
    g.set_outputs(function(g.input("x", [3], dtype)))
    return g


REFUSED: list[tuple[Any, type[RlxError], str]] = [
    (lambda: rlx.grad(two(), "x"), ShapeError, "2 outputs, expected one number; vjp takes"),
    (lambda: rlx.grad(single(lambda x: x * 2), "x"), ShapeError, "3xf32.* or take vjp"),
    (lambda: rlx.grad(single(lambda x: x.argmax(0)), "x"), DTypeError, "i64, which has no deriv"),
    (lambda: rlx.vjp(single(lambda x: x.argmax(0)), "x"), DTypeError, "which has no derivative"),
    (lambda: rlx.jvp(single(lambda x: x.argmax(0)), "x"), DTypeError, "alone have a tangent"),
    (lambda: rlx.jacfwd(single(lambda x: x.argmax(0)), "x"), DTypeError, "no output has floats"),
    (lambda: rlx.grad(single(lambda x: x.sum(), "c64"), "x"), DTypeError, "vjp takes it"),
    (lambda: rlx.grad(single(lambda x: x.abs().sum(), "c64"), "x"), DTypeError, "vjp has JAX's"),
    (lambda: rlx.vjp(two(), "i"), DTypeError, "'i' is i64, by which nothing"),
    (lambda: rlx.vjp(two(), "y"), NameError, "no input or param is called 'y'"),
    (lambda: rlx.vjp(two(), []), GraphError, "wrt is empty"),
    (lambda: rlx.vjp(two(), ["x", "x"]), GraphError, "'x' stands in wrt twice"),
    (lambda: rlx.vjp(two(), 3), GraphError, "wrt is an int"),
    (lambda: rlx.vjp(two(), [3]), GraphError, "wrt holds an int"),
    (lambda: rlx.vjp(two(), two().inputs), GraphError, "give the name"),
    (lambda: rlx.vjp("two", "x"), GraphError, "takes a Graph, found a str"),  # type: ignore
    (lambda: rlx.vjp(rlx.Graph(), "x"), GraphError, "has no outputs"),
    (lambda: rlx.jvp(g := two(), g.outputs[0]), GraphError, "is computed"),
]


@pytest.mark.parametrize(("use", "error", "match"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(use: Any, error: type[RlxError], match: str) -> None:
    with pytest.raises(error, match=match) as e:
        use()
    assert "test_gradients.py" in str(e.value)


@pytest.mark.parametrize("transform", [rlx.grad, rlx.jvp, rlx.vjp, rlx.jacrev])
def test_what_flows_through_integers_alone_is_refused_at_its_line(transform: Any) -> None:
    g = rlx.Graph()
    x, table = g.input("x", [3]), g.param("table", [3])
    i = x.argmax(0)
    g.set_outputs(table.gather(i, 0))
    line = g.nodes()[0].location[1]
    with pytest.raises(UnsupportedError, match=r"integers alone \(argmax gives") as e:
        transform(g, "x")
    assert re.search(rf"test_gradients.py:{line}: ", str(e.value))
    transform(g, "table")


def test_sampling_is_refused() -> None:
    g = rlx.Graph()
    x, key = g.input("x", [3]), g.input("key", [2], "u32")
    g.set_outputs(g.sample(x, key).cast("f32"))
    with pytest.raises(UnsupportedError, match="sample gives them"):
        rlx.grad(g, "x")


def test_a_while_loop_has_a_forward_derivative_only() -> None:
    g = rlx.Graph()
    x = g.input("x", [], "f64")
    g.set_outputs(rlx.while_loop(lambda y: y < 100, lambda y: y * x, x))
    with pytest.raises(UnsupportedError, match="while_loop has no reverse derivative"):
        rlx.grad(g, "x")
    value, slope = rlx.interpret(rlx.jvp(g, "x"), {"x": 3.0, "tangent_x": 1.0})
    assert (value, slope) == (243, 405)


def test_a_while_loop_that_no_derivative_reaches_is_in_no_ones_way() -> None:
    g = rlx.Graph()
    x = g.input("x", [], "f64")
    n = rlx.while_loop(lambda y: y < 100, lambda y: y * 3, x.round())
    g.set_outputs(n * x)
    assert rlx.interpret(rlx.grad(g, "x"), {"x": 3.0}) == [243]


def test_an_op_from_outside_without_the_rule_is_named() -> None:
    @rlx.custom_op("mine.onward", infer=lambda x: x, jvp=lambda n, t: t)
    def onward(x: Array) -> Array:
        return x

    g = rlx.Graph()
    g.set_outputs(onward(g.input("x", [])))
    with pytest.raises(UnsupportedError, match="onward has no vjp rule"):
        rlx.grad(g, "x")
    with pytest.raises(UnsupportedError, match="onward has no batch rule"):
        rlx.vmap(g, "x", 2)

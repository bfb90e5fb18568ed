"""``rlx.checkpoint``: the same values and derivatives, in less memory; and ``stop_gradient``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compiler.driver import compile_graph
from rlx.errors import GraphError
from rlx.ir.graph import Graph
from rlx.ops.control.bodies import make
from rlx.ops.control.checkpoint import Barrier, Checkpoint
from rlx.targets import find_target
from rlx.text import graph_text, parse_graph
from support.compiled import agrees

Array = np.ndarray[Any, Any]
Region = Callable[[Callable[..., Any]], Callable[..., Any]]
RNG = np.random.default_rng(0)


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def deep(
    region: Region, layers: int = 3, rows: int = 2, width: int = 3, dtype: str = "f64"
) -> Graph:
    """Layers with a weight each, taken from around, and several results."""
    g = Graph("deep")
    h, twice = g.input("x", [rows, width], dtype), g.input("s", [], dtype)
    for i in range(layers):
        w = g.param(f"w{i}", [width, width], dtype)

        def layer(h: rlx.Value, s: rlx.Value, w: rlx.Value = w) -> Any:
            y = ((h @ w).tanh() @ w).sin()
            return y + h, s * y.sum()

        h, twice = region(layer)(h, twice)
    g.set_outputs((h * h).sum() + twice)
    return g


def given(g: Graph) -> dict[str, Array]:
    return {str(v.name): RNG.standard_normal(v.type.static_shape) for v in (*g.inputs, *g.params)}


TRANSFORMS: dict[str, Callable[[Graph], Graph]] = {
    "grad": lambda g: rlx.value_and_grad(g, ["w0", "x", "w2", "s"]),
    "jvp": lambda g: rlx.jvp(g, ["w0", "x"]),
    "hvp": lambda g: rlx.hvp(g, ["w1", "x"]),
    "grad of jvp": lambda g: rlx.vjp(rlx.jvp(g, ["x"]), ["w0", "x"]),
    "hessian": lambda g: rlx.hessian(g, "x"),
    "batches": lambda g: rlx.vmap(rlx.grad(g, ["w0", "x"]), {"x": 1, "w1": 0}, 2),
    "grad of batches": lambda g: rlx.vjp(rlx.vmap(g, ["x"], 2), ["w0", "x"]),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_values_and_derivatives_are_the_same(name: str) -> None:
    expected, made = (TRANSFORMS[name](deep(r)) for r in (plain, rlx.checkpoint))
    arrays = given(made)
    results = rlx.interpret(expected, arrays)
    for a, e in zip(agrees(made, arrays), results, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-9, atol=1e-10)


def count(g: Graph) -> Counter[str]:
    return Counter(op.short for op in g.nodes())


def test_the_region_is_computed_again_and_nothing_of_it_kept() -> None:
    layers = 3
    made = rlx.value_and_grad(deep(rlx.checkpoint, layers), ["w0"])
    assert count(made)["checkpoint"] == layers
    # A barrier in front of what is computed again, and one behind it.
    assert count(made)["barrier"] == 2 * layers and count(made)["tanh"] == layers
    inside = {v for op in made.nodes() if isinstance(op, Barrier) for v in op.args}
    again = [op for op in made.nodes() if op.short == "tanh"]
    assert not inside & {v for op in again for v in op.results}


def test_the_compiler_does_not_undo_it() -> None:
    """The memory of a deep graph, in tensors such as its input."""

    def tensors(region: Region, wrt: list[str]) -> float:
        g = rlx.grad(deep(region, 8, 128, 16, "f32"), wrt)
        return compile_graph(g, find_target("cpu"))[0].variants[0].arena_bytes / (128 * 16 * 4)

    wrt = [f"w{i}" for i in range(8)]
    for order in (wrt, wrt[::-1]):
        assert tensors(rlx.checkpoint, order) < 0.6 * tensors(plain, order)


def test_regions_in_regions_in_loops() -> None:
    def build(region: Region) -> Graph:
        g = Graph("nested")
        x, w = g.input("x", [3], "f64"), g.param("w", [3], "f64")

        def inner(h: rlx.Value) -> rlx.Value:
            return (h * w).sin()

        def outer(h: rlx.Value) -> rlx.Value:
            return region(inner)(region(inner)(h) * 2) + h

        c = rlx.fori(3, lambda i, c: region(outer)(c), region(outer)(x))
        g.set_outputs(region(lambda v: rlx.cond(v.sum() > 0, v.sum, lambda: -v.sum()))(c))
        return g

    arrays = {"x": RNG.standard_normal(3), "w": RNG.standard_normal(3)}
    for transform in (lambda g: g, value_and_gradients):
        expected = rlx.interpret(transform(build(plain)), arrays)
        for a, e in zip(agrees(transform(build(rlx.checkpoint)), arrays), expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-10)


def value_and_gradients(g: Graph) -> Graph:
    return rlx.value_and_grad(g, ["x", "w"])


def test_what_is_carried_is_not_overwritten_behind_a_barrier() -> None:
    """A barrier's result lies where its operand does, which a round must still read."""

    def round_(_: rlx.Value, carry: Any) -> Any:
        c, d = carry
        (held,) = Barrier(c).results
        return c * 2, held + d

    for width in (3, 5000):
        g = Graph("carried")
        g.set_outputs(list(rlx.fori(3, round_, (g.input("c", [width]), g.input("d", [width])))))
        found = agrees(g, {"c": np.ones(width, np.float32), "d": np.zeros(width, np.float32)})
        assert found[0].tolist() == [8] * width and found[1].tolist() == [7] * width


def test_the_text_form_has_regions_and_barriers() -> None:
    made = rlx.grad(deep(rlx.checkpoint), ["w0", "x"])
    again = parse_graph(graph_text(made))
    assert count(again) == count(made) and count(again)["barrier"]
    arrays = given(made)
    for a, e in zip(rlx.interpret(again, arrays), rlx.interpret(made, arrays), strict=True):
        np.testing.assert_array_equal(a, e)


def test_integers_go_through() -> None:
    g = Graph()
    x, i = g.input("x", [4], "f64"), g.input("i", [2], "i64")
    y, n = rlx.checkpoint(lambda x, i: (x.gather(i, 0) ** 2, i + 1))(x, i)
    g.set_outputs((y * n.cast("f64")).sum())
    found = agrees(rlx.grad(g, "x"), {"x": np.arange(4.0), "i": np.array([1, 3])})
    assert found[0].tolist() == [0, 4, 0, 24]


REFUSED: list[tuple[Callable[[rlx.Value], Any], str]] = [
    (lambda x: rlx.checkpoint(lambda v: v)(3), "checkpoint: args holds an int"),  # type: ignore
    (rlx.checkpoint(lambda v: ()), "the function gives no values"),
    (rlx.checkpoint(lambda v: 3), "what the function gives is an int"),
    (lambda x: make(Barrier, []), "it has no operands"),
    (lambda x: make(Checkpoint, [x, x], body=Graph()), "its region takes"),
]


@pytest.mark.parametrize(("use", "match"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(use: Callable[[rlx.Value], Any], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        use(Graph().input("x", [2]))


# -- stop_gradient -------------------------------------------------------------------------


def test_stop_gradient() -> None:
    def build(stop: Callable[[rlx.Value], rlx.Value]) -> Graph:
        g = Graph()
        x = g.input("x", [3], "f64")
        g.set_outputs((stop(x * x) * x).sum())
        return g

    x = np.array([1.0, 2, 3])
    for stop in (rlx.stop_gradient, lambda v: v.stop_gradient()):
        g = build(stop)
        assert rlx.interpret(g, {"x": x}) == [36]
        (dx,) = agrees(rlx.grad(g, "x"), {"x": x})
        np.testing.assert_allclose(dx, x * x)
        assert rlx.interpret(rlx.jvp(g, "x"), {"x": x, "tangent_x": x})[1] == 36
        (batched,) = agrees(rlx.vmap(rlx.grad(g, "x"), "x", 2), {"x": np.stack([x, -x])})
        np.testing.assert_allclose(batched, [x * x, x * x])
        (batched,) = rlx.interpret(rlx.grad(build(stop), "x"), {"x": x})
        np.testing.assert_allclose(batched, x * x)

"""``rlx.vmap`` and whole Jacobians, against the same computation one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, GraphError, NameError, RlxError, ShapeError
from rlx.ir.graph import Graph
from support.compiled import agrees

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def pair() -> Graph:
    """Two outputs of an input and a param, one of which depends on the param alone."""
    g = Graph("pair")
    x, w = g.input("x", [3, 2], "f64"), g.param("w", [2, 4], "f64")
    g.set_outputs([(x @ w).tanh(), w.sum(axes=1)])
    return g


FEEDS = {"x": RNG.standard_normal((3, 2)), "w": RNG.standard_normal((2, 4))}


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("out", [0, 1, -1])
@pytest.mark.parametrize("both", [False, True])
def test_axes(axis: int, out: int, both: bool) -> None:
    examples = {name: RNG.standard_normal((5, *a.shape)) for name, a in FEEDS.items()}
    axes = {"x": axis, **({"w": 1} if both else {})}
    given = {n: np.moveaxis(examples[n], 0, axes[n]) if n in axes else FEEDS[n] for n in FEEDS}
    found = rlx.interpret(rlx.vmap(pair(), axes, 5, out_axes=out), given)
    for k in range(5):
        one = {n: examples[n][k] if n in axes else FEEDS[n] for n in FEEDS}
        for a, e in zip(found, rlx.interpret(pair(), one), strict=True):
            np.testing.assert_allclose(np.moveaxis(a, out, 0)[k], e, rtol=1e-12)


def test_outputs_that_are_the_same_for_all() -> None:
    made = rlx.vmap(pair(), "x", 5, out_axes=[1, None])
    assert [v.shape for v in made.outputs] == [(3, 5, 4), (2,)]
    agrees(made)


def test_symbolic_sizes() -> None:
    g = Graph()
    x = g.input("x", ["n", 3], "f64")
    g.set_outputs([x.sin().sum(axes=0), x.softmax(-1)])
    made = rlx.vmap(g, ["x"], "batch", out_axes=[0, 1])
    assert made.symbols == {"n", "batch"}
    x_ = RNG.standard_normal((4, 2, 3))
    for a, k in zip(rlx.interpret(made, {"x": x_}), (0, 1), strict=True):
        for i in range(4):
            e = rlx.interpret(g, {"x": x_[i]})[k]
            np.testing.assert_allclose(np.moveaxis(a, k, 0)[i], e)


def test_vmap_of_vmap_and_of_gradients() -> None:
    """An outer product of examples; gradients of every example."""
    g = Graph()
    x, y = g.input("x", [3], "f64"), g.input("y", [3], "f64")
    g.set_outputs((x * y).sum().sin())
    made = rlx.vmap(rlx.vmap(g, {"x": 1}, 4), {"y": 0}, 5, out_axes=1)
    a, b = RNG.standard_normal((3, 4)), RNG.standard_normal((5, 3))
    np.testing.assert_allclose(agrees(made, {"x": a, "y": b})[0], np.sin((b @ a).T))
    grads = rlx.vmap(rlx.grad(g, ["y"]), {"x": -1}, 4)
    found = agrees(grads, {"x": a, "y": b[0]})[0]
    np.testing.assert_allclose(found, np.cos(b[0] @ a)[:, None] * a.T)


def test_gradients_through_batches_sum_up_what_is_shared() -> None:
    batched = rlx.vmap(pair(), "x", 5)
    made = rlx.vjp(batched, ["w", "x"])
    x = RNG.standard_normal((5, 3, 2))
    ct = [RNG.standard_normal((5, 3, 4)), RNG.standard_normal((5, 2))]
    found = rlx.interpret(
        made, {"x": x, "w": FEEDS["w"], "cotangent_0": ct[0], "cotangent_1": ct[1]}
    )
    one = rlx.vjp(pair(), ["w", "x"])
    each = [
        rlx.interpret(
            one, {"x": x[k], "w": FEEDS["w"], "cotangent_0": ct[0][k], "cotangent_1": ct[1][k]}
        )
        for k in range(5)
    ]
    np.testing.assert_allclose(found[2], sum(e[2] for e in each))
    np.testing.assert_allclose(found[3], [e[3] for e in each])


# -- Jacobians -----------------------------------------------------------------------------


def several() -> Graph:
    """Outputs of floats and integers, one of which does not depend on ``b``."""
    g = Graph("several")
    a, b = g.input("a", [2, 3], "f64"), g.input("b", [3], "f64")
    g.set_outputs([(a * b).sin() @ b.reshape(3, 1), a.argmax(1), a.sum(axes=0) * 2.0, (b**3).sum()])
    return g


POINT = {"a": RNG.standard_normal((2, 3)), "b": RNG.standard_normal(3)}


def numeric_jacobians(g: Graph, wrt: list[str]) -> list[Array]:
    found = []
    for i, y in enumerate(g.outputs):
        if not y.dtype.is_float:
            continue
        for name in wrt:
            columns = []
            for j in np.ndindex(POINT[name].shape):
                moved = []
                for sign in (1, -1):
                    a = POINT[name].copy()
                    a[j] += sign * 1e-6
                    moved.append(rlx.interpret(g, {**POINT, name: a})[i])
                columns.append((moved[0] - moved[1]) / 2e-6)
            stacked = np.stack(columns, axis=-1)
            found.append(stacked.reshape((*y.type.static_shape, *POINT[name].shape)))
    return found


@pytest.mark.parametrize("transform", [rlx.jacfwd, rlx.jacrev])
def test_jacobians(transform: Callable[[Graph, Any], Graph]) -> None:
    made = transform(several(), ["b", "a"])
    found = agrees(made, POINT)
    for a, e in zip(found, numeric_jacobians(several(), ["b", "a"]), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-6, atol=1e-8)


def test_hessian_by_both_orders_of_the_modes() -> None:
    g = Graph()
    a, b = g.input("a", [2, 3], "f64"), g.input("b", [3], "f64")
    g.set_outputs(((a @ b.reshape(3, 1)).sin() * a.sum()).sum().exp())
    small = {n: v / 4 for n, v in POINT.items()}
    wrt = ["a", "b"]
    made = rlx.hessian(g, wrt)
    assert [v.shape for v in made.outputs] == [(2, 3, 2, 3), (2, 3, 3), (3, 2, 3), (3, 3)]
    found = agrees(made, small)
    for outer in (rlx.jacfwd, rlx.jacrev):
        for inner in (rlx.jacfwd, rlx.jacrev):
            other = rlx.interpret(outer(inner(g, wrt), wrt), small)
            for x, y in zip(found, other, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[1].reshape(6, 3), found[2].reshape(3, 6).T)


def test_jacobian_by_nothing_that_is_used() -> None:
    g = Graph()
    x = g.input("x", [2], "f64")
    g.input("y", [0, 3], "f64")
    g.set_outputs(x * 2)
    for transform in (rlx.jacfwd, rlx.jacrev):
        made = transform(g, ["x", "y"])
        found = rlx.interpret(made, {"x": [1, 2], "y": np.zeros((0, 3))})
        np.testing.assert_array_equal(found[0], 2 * np.eye(2))
        assert found[1].shape == (2, 0, 3)


# -- refusals ------------------------------------------------------------------------------


def valued() -> Graph:
    g = Graph("valued")
    g.set_outputs(g.input("x", [2]) * g.param("w", value=np.ones(2, np.float32)))
    return g


REFUSED: list[tuple[Any, type[RlxError], str]] = [
    (lambda: rlx.vmap(pair(), {"z": 0}, 2), NameError, "no input or param is called 'z'"),
    (lambda: rlx.vmap(pair(), {"x": 3}, 2), ShapeError, "in_axes of 'x': axis 3"),
    (lambda: rlx.vmap(pair(), {"x": "a"}, 2), GraphError, "an axis is an int"),  # type: ignore
    (lambda: rlx.vmap(pair(), {}, 2), GraphError, "names nothing that differs"),
    (lambda: rlx.vmap(pair(), 0, 2), GraphError, "in_axes is an int"),  # type: ignore
    (lambda: rlx.vmap("g", "x", 2), GraphError, "a Graph or a function, found a str"),  # type: ignore
    (lambda: rlx.vmap(pair(), "x", 2, [0]), GraphError, "1 axes for 2 outputs"),
    (lambda: rlx.vmap(pair(), "x", 2, 2), ShapeError, "out_axes of output 1: axis 2"),
    (lambda: rlx.vmap(pair(), "x", 2, 2.0), GraphError, "out_axes is 2.0"),  # type: ignore
    (lambda: rlx.vmap(pair(), "x", 2, [None, 0]), GraphError, "differs from example to example"),
    (lambda: rlx.vmap(pair(), "x", -2), ShapeError, "found -2"),
    (lambda: rlx.vmap(valued(), ["x", "w"], 2), GraphError, "'w' has a value"),
    (lambda: rlx.vmap(Graph(), "x", 2), GraphError, "has no outputs"),
    (lambda: rlx.jacrev(several(), several().outputs[0]), GraphError, "give the name"),
    (lambda: rlx.jacfwd(g := several(), g.outputs[0]), GraphError, "is computed"),
    (lambda: rlx.hessian(g := several(), g.outputs[0]), GraphError, "is computed"),
    (lambda: rlx.hessian(several(), 1), GraphError, "wrt is an int"),
    (lambda: rlx.jacfwd(valued(), "i"), NameError, "no input or param"),
]


@pytest.mark.parametrize(("use", "error", "match"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(use: Any, error: type[RlxError], match: str) -> None:
    with pytest.raises(error, match=match) as e:
        use()
    assert "test_vmap.py" in str(e.value)


def test_a_jacobian_by_integers_is_refused() -> None:
    g = Graph()
    i = g.input("i", [2], "i64")
    g.set_outputs(i.cast("f32"))
    with pytest.raises(DTypeError, match="'i' is i64"):
        rlx.jacfwd(g, "i")

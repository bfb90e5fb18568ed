"""Derivatives and batches of Python functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, GraphError, ShapeError

F32 = np.float32
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4), F32)
P = {"w": RNG.standard_normal((4, 2), F32), "b": RNG.standard_normal(2, F32)}


def loss(p: Any, x: Any) -> Any:
    return ((x @ p["w"] + p["b"]) ** 2).mean()


def slope(x: Any, p: Any) -> Any:
    return {"w": x.T @ (x @ p["w"] + p["b"]) / 3, "b": (x @ p["w"] + p["b"]).sum(0) / 3}


def test_gradients_have_the_structure_of_the_argument() -> None:
    found = rlx.grad(loss)(P, X)
    for name, expected in slope(X, P).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4)
    by_name = rlx.grad(loss, wrt=["x", 0])(P, X)
    np.testing.assert_allclose(by_name[1]["w"], found["w"])
    assert by_name[0].shape == X.shape
    value, again = rlx.value_and_grad(rlx.jit(loss))(P, X)
    np.testing.assert_allclose(value, ((X @ P["w"] + P["b"]) ** 2).mean(), rtol=1e-5)
    np.testing.assert_allclose(again["b"], found["b"])


def test_a_step_of_training_in_one_graph() -> None:
    @rlx.jit
    def step(p: Any, x: Any) -> Any:
        value, found = rlx.value_and_grad(loss)(p, x)
        return {k: p[k] - 0.1 * found[k] for k in p}, value

    p, values = P, []
    for _ in range(20):
        p, value = step(p, X)
        values.append(float(value))
    assert values == sorted(values, reverse=True)
    assert len(step.compiled) == 1


def test_what_else_a_function_gives() -> None:
    def f(x: Any, n: int) -> Any:
        y = x * x
        return y.sum(), {"y": y, "n": n}

    found, rest = rlx.grad(f, aux=True)(X, 3)
    np.testing.assert_allclose(found, 2 * X)
    np.testing.assert_allclose(rest["y"], X * X)
    assert rest["n"] == 3
    (value, rest), found = rlx.value_and_grad(f, aux=True)(X, 3)
    np.testing.assert_allclose(value, (X * X).sum(), rtol=1e-5)
    np.testing.assert_allclose(found, 2 * X)


def test_derivatives_of_derivatives_and_closures() -> None:
    def cube(x: Any) -> Any:
        return x * x * x

    second = rlx.grad(rlx.grad(cube))
    assert float(second(F32(2))) == 12
    # What a function uses from around it is a constant to its derivative, though it be the same.
    outer = rlx.jit(lambda a: rlx.grad(lambda x: x * a)(a))
    assert float(outer(F32(5))) == 5


def test_in_the_body_of_a_loop() -> None:
    @rlx.jit
    def descend(x: Any) -> Any:
        return rlx.fori(10, lambda i, v: v - 0.25 * rlx.grad(lambda u: (u * u).sum())(v), x)

    np.testing.assert_allclose(descend(X), X * 0.5**10, rtol=1e-5)


def test_of_a_function_with_a_loop() -> None:
    def power(x: Any) -> Any:
        last, _ = rlx.scan(lambda c, _: (c * x, None), x, (), length=3)
        return last.sum()

    np.testing.assert_allclose(rlx.grad(power)(X), 4 * X**3, rtol=1e-4)


def test_vmap() -> None:
    def f(x: Any, w: Any) -> Any:
        return {"dot": (x * w).sum(), "outer": x}

    w = RNG.standard_normal(4).astype(F32)
    found = rlx.vmap(f, in_axes=(0, None))(X, w)
    np.testing.assert_allclose(found["dot"], X @ w, rtol=1e-5)
    np.testing.assert_array_equal(found["outer"], X)
    across = rlx.vmap(f, in_axes=(1, None), out_axes=-1)(X, w[:3])
    np.testing.assert_allclose(across["dot"], X.T @ w[:3], rtol=1e-5)
    np.testing.assert_array_equal(across["outer"], X)
    same = rlx.vmap(lambda x: (x, np.float32(3)), axis_size=3)(X)
    np.testing.assert_array_equal(same[1], [3, 3, 3])
    each = rlx.vmap(rlx.grad(lambda x, n: (x**n).sum()), in_axes=(0, None))(X, 3)
    np.testing.assert_allclose(each, 3 * X**2, rtol=1e-4)
    nested = rlx.vmap(rlx.vmap(lambda a: a * 2))(X)
    np.testing.assert_array_equal(nested, X * 2)
    none = rlx.vmap(lambda x: np.float32(3), out_axes=None)(X)
    assert none.shape == ()


def test_graphs_are_transformed_as_before() -> None:
    g = rlx.Graph("g")
    x = g.input("x", [3])
    g.set_outputs((x * x).sum())
    assert isinstance(rlx.grad(g, "x"), rlx.Graph)
    assert isinstance(rlx.value_and_grad(g, "x"), rlx.Graph)
    assert isinstance(rlx.vmap(g, ["x"], 2), rlx.Graph)
    with pytest.raises(GraphError, match=r"missing .*'wrt'"):
        rlx.grad(g)  # type: ignore
    with pytest.raises(GraphError, match=r"aux is for functions"):
        rlx.grad(g, "x", aux=True)  # type: ignore


def test_they_keep_parameters_and_device() -> None:
    f = rlx.jit(loss, device="interpret")
    found = rlx.grad(f)
    assert found.device == "interpret"
    assert [v.name for v in found.graph(P, X).inputs] == ["p.b", "p.w", "x"]
    assert found.graph(P, X).name == "loss_grad"
    np.testing.assert_allclose(found(P, X)["b"], slope(X, P)["b"], rtol=1e-4)


def pair(x: Any) -> Any:
    return x.sum(), x


grad: Any = rlx.grad
vmap: Any = rlx.vmap

REFUSED = {
    "no function": (lambda: grad(3), "grad takes a Graph or a function, found an int"),
    "vmap of nothing": (lambda: vmap(3), "vmap takes a Graph or a function, found an int"),
    "wrt of a type": (lambda: grad(loss, wrt=1.5), "wrt is 1.5, expected positions or names"),
    "a position": (lambda: grad(loss, wrt=2), "wrt names 2, .*there are 'p', 'x'"),
    "a name": (lambda: grad(loss, wrt="y"), "wrt names 'y', which is no parameter of 'loss'"),
    "a pair": (lambda: grad(pair)(X), "expected one float; with aux=True it gives a pair"),
    "a number": (lambda: grad(lambda x: 3)(X), "gives 3, expected one float$"),
    "no pair": (lambda: grad(lambda x: x, aux=True)(X), "expected a pair for aux=True"),
    "a pair of numbers": (lambda: grad(lambda x: (1, 2), aux=True)(X), "gives 1, expected one"),
    "left out": (lambda: grad(lambda x, y=1: x, wrt="y")(X), "called without 'y' of wrt"),
    "in_axes": (lambda: vmap(loss, in_axes="p"), "in_axes is 'p', expected an axis"),
    "out_axes": (lambda: vmap(loss, out_axes=(0,)), "out_axes is .0,., expected an axis"),
    "axes": (lambda: vmap(loss, (0,))(P, X), "in_axes has 1 axes for 2 arguments"),
    "an axis": (lambda: vmap(loss, ("a", 0))(P, X), "in_axes of 'p' is 'a', expected an axis"),
    "no axis": (lambda: vmap(loss, None)(P, X), "no argument differs from example to example"),
    "None": (lambda: vmap(pair, out_axes=None)(X), "so out_axes cannot be None"),
}


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals(call: Any, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        call()


def test_refusals_by_type_and_shape() -> None:
    with pytest.raises(DTypeError, match=r"'x' is i64, by which nothing has a derivative"):
        rlx.grad(lambda x: x.sum())(np.arange(3))
    with pytest.raises(ShapeError, match=r"'x' has 3 examples, 'p.b' says 2"):
        rlx.vmap(loss)({"b": P["b"]}, X)
    with pytest.raises(ShapeError, match=r"has 3 examples, axis_size says 4"):
        rlx.vmap(lambda x: x, axis_size=4)(X)

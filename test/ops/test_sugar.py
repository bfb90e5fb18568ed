"""Builder methods that are no op of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.errors import GraphError, ShapeError
from rlx.ir.builders import builder
from rlx.ir.graph import Graph
from rlx.ops import BUILDERS
from rlx.ops.pointwise.functions import activations
from support.evaluate import call

X = np.arange(24.0).reshape(2, 3, 4)
G = Graph()


@pytest.mark.parametrize("method", sorted(BUILDERS))
def test_every_builder_exists(method: str) -> None:
    assert callable(builder(method))


def test_narrow() -> None:
    assert np.array_equal(call(lambda x: x.narrow(1, 1, 2), X), X[:, 1:3])
    assert np.array_equal(call(lambda x: x.narrow(-1, -3, 2), X), X[..., 1:3])
    with pytest.raises(ShapeError, match="up to index 4"):
        call(lambda x: x.narrow(1, 2, 3), X)
    with pytest.raises(ShapeError, match="axis 3"):
        call(lambda x: x.narrow(3, 0, 1), X)


@pytest.mark.parametrize("count", range(1, 6))
def test_concat(count: int) -> None:
    parts = [X + i for i in range(count)]
    got = call(lambda *vs: G.concat(vs, -1), *parts)
    assert np.array_equal(got, np.concatenate(parts, -1))


def test_concat_promotes_and_refuses() -> None:
    both = call(lambda a, b: G.concat([a, b]), np.ones(1, np.int32), np.ones(2, np.float32))
    assert both.dtype == np.float32
    for wrong in ([], G.input("one", [2])):
        with pytest.raises(GraphError, match="in a list"):
            G.concat(wrong)


def test_split() -> None:
    for parts in (3, [1, 2], [0, 3]):
        cuts = parts if isinstance(parts, int) else np.cumsum(parts)[:-1]
        want = np.split(X, cuts, 1)
        got = call(lambda x, p=parts: x.split(p, axis=1), X)
        assert [g.tolist() for g in got] == [w.tolist() for w in want]
    with pytest.raises(ShapeError, match="no 2 equal parts"):
        call(lambda x: x.split(2, axis=1), X)
    with pytest.raises(ShapeError, match="add up to 2"):
        call(lambda x: x.split([1, 1], axis=1), X)


def test_axes() -> None:
    y = X.reshape(2, 1, 3, 1, 4)
    assert call(lambda x: x.squeeze(), y).shape == (2, 3, 4)
    assert call(lambda x: x.squeeze(-2), y).shape == (2, 1, 3, 4)
    assert call(lambda x: x.squeeze([1, 3]), y).shape == (2, 3, 4)
    with pytest.raises(ShapeError, match=r"axis 0 .* has 2 elements"):
        call(lambda x: x.squeeze(0), y)
    assert call(lambda x: x.unsqueeze(-1), X).shape == (2, 3, 4, 1)
    assert np.array_equal(call(lambda x: x.swapaxes(0, -1), X), X.swapaxes(0, -1))
    assert np.array_equal(call(lambda x: x.permute(2, 0, 1), X), X.transpose(2, 0, 1))
    assert call(lambda x: x.flatten(), X).shape == (24,)
    assert call(lambda x: x.flatten(1), X).shape == (2, 12)
    assert call(lambda x: x.flatten(0, 1), X).shape == (6, 4)
    assert call(lambda x: x.flatten(), np.float64(3)).shape == (1,)
    with pytest.raises(ShapeError, match="comes after"):
        call(lambda x: x.flatten(2, 0), X)


def test_short_combinations() -> None:
    x = np.array([[-2.0, 0.5, 3.0], [np.nan, np.inf, 1.0]])
    low, weight = np.array([0.0, 1.0, 2.0]), np.array([0.1, 0.2])
    found = call(
        lambda v, b: [
            v.square(), v.reciprocal(), v.clip(-1, 1), v.clip(b), v.clip(high=b), v.clip(),
            v.prelu(weight, 0), v.prelu(0.5), v[0, 0].prelu(0.5),
        ], x, low,
    )  # fmt: skip
    wanted = [
        x * x, 1 / x, np.clip(x, -1, 1), np.maximum(x, low), np.minimum(x, low), x,
        np.where(x < 0, x * weight[:, None], x), np.where(x < 0, x / 2, x), -1.0,
    ]  # fmt: skip
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", activations())
def test_activation_by_name(name: str) -> None:
    x = np.linspace(1.1, 1.9, 4) if name == "acosh" else np.linspace(0.1, 0.9, 4)
    want = call(lambda v: getattr(v, name)(), x)
    camel = "".join(part.title() for part in name.split("_"))
    for f in (
        lambda v: v.activation(name),
        lambda v: G.activation(name, v),
        lambda v: G.activation(camel, v),
    ):
        assert np.array_equal(call(f, x), want)


def test_activation_refuses() -> None:
    with pytest.raises(GraphError, match="did you mean 'gelu'"):
        call(lambda v: v.activation("gello"), X)


@pytest.mark.parametrize(
    ("names", "f"),
    [
        (("add", "+"), np.add),
        (("sub", "-"), np.subtract),
        (("mul", "*"), np.multiply),
        (("div", "/"), np.divide),
        (("max",), np.maximum),
        (("min",), np.minimum),
        (("pow", "**"), np.power),
    ],
)
def test_binary_by_name(names: tuple[str, ...], f: Any) -> None:
    a, b = np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])
    for name in names:
        np.testing.assert_allclose(call(lambda p, q, n=name: G.binary(n, p, q), a, b), f(a, b))
        np.testing.assert_allclose(call(lambda p, q, n=name: p.binary(n, q), a, b), f(a, b))
        np.testing.assert_allclose(call(lambda p, n=name: G.binary(n, 2.0, p), a), f(2.0, a))


@pytest.mark.parametrize(
    ("names", "f"),
    [
        (("eq", "=="), np.equal),
        (("ne", "!="), np.not_equal),
        (("lt", "<"), np.less),
        (("le", "<="), np.less_equal),
        (("gt", ">"), np.greater),
        (("ge", ">="), np.greater_equal),
    ],
)
def test_compare_by_name(names: tuple[str, ...], f: Any) -> None:
    a, b = np.array([1.0, 2.0, np.nan]), np.array([3.0, 2.0, 1.0])
    for name in names:
        assert np.array_equal(call(lambda p, q, n=name: G.compare(n, p, q), a, b), f(a, b))
    with pytest.raises(GraphError, match="unknown comparison '<>'"):
        call(lambda p: p.compare("<>", 1), a)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod"])
def test_reduce_by_name(name: str) -> None:
    f = getattr(np, name)
    np.testing.assert_allclose(call(lambda x: x.reduce(name, [0, -1]), X), f(X, (0, 2)))
    np.testing.assert_allclose(call(lambda x: x.reduce(name, 1, True), X), f(X, 1, keepdims=True))
    np.testing.assert_allclose(call(lambda x: G.reduce(x, name), X), f(X))


@pytest.mark.parametrize("name", ["max", "min"])
def test_max_and_min_are_two_things(name: str) -> None:
    whole, pair = getattr(np, name), getattr(np, f"{name}imum")
    assert call(lambda x: getattr(x, name)(), X) == whole(X)
    assert np.array_equal(call(lambda x: getattr(x, name)(axes=1), X), whole(X, 1))
    assert np.array_equal(call(lambda x: getattr(x, name)(2.5), X), pair(X, 2.5))
    assert np.array_equal(call(getattr(G, name), X, 9 - X), pair(X, 9 - X))
    with pytest.raises(GraphError, match=rf"x\.{name}\(axes=0\) or x\.{name}imum\(0\)"):
        call(lambda x: getattr(x, name)(0), X)
    with pytest.raises(GraphError, match="not both"):
        call(lambda x: getattr(x, name)(1.5, axes=0), X)


def test_attention_kind() -> None:
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 5, 8))
    for kind, attrs in {
        "none": {},
        "causal": {"mask_kind": "causal"},
        "sliding:2": {"mask_kind": "sliding_window", "window": 2},
    }.items():
        got = call(lambda *x, m=kind: G.attention_kind(*x, 2, 4, m), q, k, v)
        want = call(lambda *x, a=attrs: G.attention(*x, num_heads=2, head_dim=4, **a), q, k, v)
        assert np.array_equal(got, want)
    for wrong in ("sliding", "sliding:x", "causal:3", "full"):
        with pytest.raises(GraphError, match="sliding:N"):
            call(lambda *x, m=wrong: G.attention_kind(*x, 2, 4, m), q, k, v)

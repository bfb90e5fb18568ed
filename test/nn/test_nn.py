"""Layers and initialisers, and a model that is trained with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import nn, xp
from rlx.errors import GraphError, NameError

F32 = np.float32


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_layers() -> None:
    x = rng().standard_normal((5, 8)).astype(F32)
    linear = nn.Linear.of(rng(), 8, 3)
    np.testing.assert_allclose(rlx.jit(linear)(x), x @ linear.weight, rtol=1e-5)
    plain = nn.Linear.of(rng(), 8, 3, bias=False)
    assert plain.bias is None
    np.testing.assert_allclose(rlx.jit(plain)(x), x @ plain.weight, rtol=1e-5)
    centered = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(rlx.jit(nn.LayerNorm.of(8))(x), centered, atol=1e-5)
    rms = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(rlx.jit(nn.RMSNorm.of(8))(x), rms, atol=1e-5)
    table = nn.Embedding.of(rng(), 10, 4)
    ids = np.array([[1, 2], [9, 0]])
    found = rlx.jit(lambda t, i: t(i))(table, ids)
    np.testing.assert_array_equal(found, table.table[ids])
    conv = nn.Conv2d.of(rng(), 3, 4, 3, stride=2, padding=1)
    image = rng().standard_normal((2, 3, 8, 8)).astype(F32)
    found = rlx.jit(lambda c, i: c(i))(conv, image)
    assert found.shape == (2, 4, 4, 4)
    np.testing.assert_allclose(
        found[:, :, 1, 1],
        np.einsum("nihw,oihw->no", image[:, :, 1:4, 1:4], conv.weight),
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip


def test_initial_values() -> None:
    he = nn.he_normal(rng(), (1000, 50))
    assert he.dtype == F32 and abs(he.std() - np.sqrt(2 / 1000)) < 1e-3
    filters = nn.he_normal(rng(), (64, 32, 3, 3))
    assert abs(filters.std() - np.sqrt(2 / (32 * 9))) < 2e-3
    glorot = nn.glorot_uniform(rng(), (300, 500))
    assert np.abs(glorot).max() <= np.sqrt(6 / 800) and abs(glorot.std() - 0.05) < 1e-3
    assert abs(nn.normal(rng(), (1000,), 3.0).std() - 3) < 0.2
    assert not nn.zeros((2, 3)).any()


def test_a_model_is_trained() -> None:
    model = nn.Sequential((nn.Linear.of(rng(), 2, 16), xp.tanh, nn.Linear.of(rng(), 16, 1)))
    x = rng().standard_normal((64, 2)).astype(F32)
    y = (x[:, :1] * x[:, 1:]).astype(F32)
    adam = rlx.optim.Adam(lr=1e-2)

    def loss(model: Any, x: Any, y: Any) -> Any:
        return ((model(x) - y) ** 2).mean()

    @rlx.jit
    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        value, found = rlx.value_and_grad(loss)(model, x, y)
        params, state = adam.update(nn.named_arrays(model), nn.named_arrays(found), state)
        return nn.with_arrays(model, params), state, value

    types = {k: rlx.TensorType.of(a.shape, a.dtype) for k, a in nn.named_arrays(model).items()}
    state = {k: np.zeros(t.static_shape, t.dtype.numpy) for k, t in adam.state(types).items()}
    values = []
    for _ in range(200):
        model, state, value = step(model, state, x, y)
        values.append(float(value))
    assert values[-1] < values[0] / 5
    assert len(step.compiled) == 1
    assert isinstance(model, nn.Sequential)


def test_arrays_by_name() -> None:
    model = {"a": nn.Linear(np.ones((2, 2)), None), "b": [nn.RMSNorm.of(2)]}
    assert list(nn.named_arrays(model)) == ["a.weight", "b.0.gain"]
    other = nn.with_arrays(model, {"a.weight": np.zeros((2, 2))})
    assert not other["a"].weight.any() and other["b"][0].gain is model["b"][0].gain


def test_refusals() -> None:
    with pytest.raises(NameError, match=r"no array 'a.wieght'; did you mean 'a.weight'"):
        nn.with_arrays({"a": nn.Linear(np.ones((2, 2)))}, {"a.wieght": np.ones(2)})
    with pytest.raises(GraphError, match=r"normal: 'rng' is 3, expected np.random.Generator"):
        nn.normal(3, (2,))  # type: ignore
    with pytest.raises(GraphError, match=r"a weight has 2 axes or more, found the shape \[2\]"):
        nn.he_normal(rng(), (2,))

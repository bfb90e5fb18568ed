"""Training with weights of 4 bits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import quant
from rlx.errors import GraphError

SIZES = (64, 64, 32, 10)


def logits(g: rlx.Graph, x: rlx.Value) -> rlx.Value:
    rng = np.random.default_rng(0)
    for i, (n, m) in enumerate(pairwise(SIZES)):
        w = (rng.standard_normal((n, m)) * np.sqrt(2 / n)).astype(np.float32)
        x = g.linear(x.relu() if i else x, g.param(f"w{i}", value=w),
                     g.param(f"b{i}", value=np.zeros(m, np.float32)))  # fmt: skip
    return x


def trained(bits: int) -> float:
    """The part of the test digits that a perceptron tells whose weights have so many bits."""
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = (images / 16).astype(np.float32)[order], labels[order]
    g = rlx.Graph("digits")
    x, y = g.input("x", ["batch", 64]), g.input("y", ["batch"], "i64")
    g.set_outputs(logits(g, x).softmax_cross_entropy(y).mean())
    model = rlx.Graph("digits")
    model.set_outputs(logits(model, model.input("x", ["batch", 64])))
    if bits < 32:
        g, model = (quant.insert_fake_quantize(graph, bits) for graph in (g, model))
    step = rlx.compile_training(g, rlx.optim.AdamW(lr=3e-3))
    data = rlx.training.Batches({"x": images[:1400], "y": labels[:1400]}, 32)
    rlx.fit(step, data, epochs=12)
    f = rlx.Session("cpu").compile(model)
    for name, value in step.params().items():
        f.set_param(name, value)
    return float((f.run({"x": images[1400:]})[0].argmax(-1) == labels[1400:]).mean())


def test_digits_by_weights_of_4_bits_are_within_one_percent() -> None:
    assert trained(4) >= trained(32) - 0.01


def test_what_is_rounded() -> None:
    g = rlx.Graph("two ways")
    w = g.param("w", value=np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4))
    x = g.input("x", [3, 8])
    g.set_outputs([x @ w, (x @ w) @ w.transpose()])
    graph = quant.insert_fake_quantize(g, 4)
    f = rlx.Session("cpu").compile(graph)
    values: Any = w.graph.param_values["w"]  # type: ignore[union-attr]
    top = np.abs(values).max(0, keepdims=True) / 7
    rounded = np.rint(values / top) * top
    eye = np.eye(3, 8, dtype=np.float32)
    np.testing.assert_allclose(f.run({"x": eye})[0], rounded[:3], rtol=1e-6)
    assert quant.insert_fake_quantize(g, weights=["w"]).params[0].name == "w"
    with pytest.raises(GraphError, match="no product by a weight called v"):
        quant.insert_fake_quantize(g, weights="v")

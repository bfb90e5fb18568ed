"""The steps of ``bench train`` as graphs: the loss, its gradients, and the new weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import rlx
from bench.train_cases import LEARNING_RATE, Case, Transformer
from rlx.ir.value import Value
from rlx.ops.conv.conv import Conv
from rlx.ops.conv.max_pool import MaxPool
from rlx.ops.nn.attention import Attention
from rlx.ops.nn.likelihood import SoftmaxCrossEntropy
from rlx.ops.nn.normalization import LayerNorm

__all__ = ["logits", "prepare_rlx", "step_graph"]


def prepare_rlx(case: Case, threads: int) -> Callable[[], float]:
    """A compiled step that writes the new weights over the old ones."""
    weights = case.weights()
    donate = [(i + 2, i + 1) for i in range(len(weights))]
    run = rlx.Session("cpu").compile(step_graph(case), donate=tuple(donate))
    x, labels = case.data()
    batch = {"x": x, "labels": labels}
    return lambda: float(run.run_in_place(batch, weights)[0])


Region = Callable[[Callable[[Value], Value]], Callable[[Value], Value]]


def step_graph(case: Case, region: Region = lambda block: block) -> rlx.Graph:
    """Weights, x and labels in; the loss and the new weights out, in the order of the weights.
    ``region`` is what is made of each block of a decoder: ``rlx.checkpoint``, say."""
    g = rlx.Graph(f"train_{case.kind}")
    x, labels = (
        g.input(n, list(a.shape), a.dtype.name.replace("float", "f").replace("int", "i"))
        for n, a in zip(("x", "labels"), case.data(), strict=True)
    )
    w = {n: g.input(n, list(a.shape)) for n, a in case.weights().items()}
    losses = SoftmaxCrossEntropy.build(logits(case, w, x, region), labels)
    loss = losses.mean()
    grads = rlx.autodiff.gradients(loss, list(w.values()))
    new = [v - d * LEARNING_RATE for v, d in zip(w.values(), grads, strict=True)]
    g.set_outputs([loss, *new])
    return g


def logits(
    case: Case, w: dict[str, Value], x: Value, region: Region = lambda block: block
) -> Value:
    """What a model gives: a class for each text, or for each position."""
    if case.transformer is not None:
        return _transformer(case.transformer, w, x, region)
    if case.kind == "mlp":
        return (x @ w["w1"] + w["b1"]).relu() @ w["w2"] + w["b2"]
    h = Conv.build(x, w["w1"], w["b1"], padding=1).relu()
    h = Conv.build(h, w["w2"], w["b2"], padding=1).relu()
    h = MaxPool.build(h, 2)
    return h.reshape((h.shape[0], -1)) @ w["w3"] + w["b3"]


def _transformer(t: Transformer, w: dict[str, Value], ids: Value, region: Region) -> Value:
    tokens = ids.type.static_shape[1]

    def norm(x: Value, gamma: str, beta: str) -> Value:
        return LayerNorm.build(x, w[gamma], w[beta])

    def layer_norm(x: Value, i: int, n: int) -> Value:
        return norm(x, f"{i}.gamma{n}", f"{i}.beta{n}")

    def dense(x: Value, name: str) -> Value:
        layer, _, part = name.partition(".")
        return x @ w[f"{layer}.w{part}"] + w[f"{layer}.b{part}"]

    def attention(x: Value, i: int) -> Value:
        q, k, v = (dense(x, f"{i}.{n}") for n in "qkv")
        kind = "causal" if t.decoder else "none"
        return dense(Attention.build(q, k, v, num_heads=t.heads, mask_kind=kind), f"{i}.o")

    def feed(x: Value, i: int) -> Value:
        return dense(dense(x, f"{i}.1").gelu(), f"{i}.2")

    def block(i: int, x: Value) -> Value:
        x = x + attention(layer_norm(x, i, 1), i)
        return x + feed(layer_norm(x, i, 2), i)

    x = w["words"].gather(ids) + w["places"].slice((0, 0), (tokens, t.width))
    if t.decoder:
        for i in range(t.layers):
            x = region(partial(block, i))(x)
        return norm(x, "gamma", "beta") @ w["head"]
    x = norm(x, "gamma", "beta")
    for i in range(t.layers):
        x = layer_norm(x + attention(x, i), i, 1)
        x = layer_norm(x + feed(x, i), i, 2)
    return x.mean(axes=1) @ w["head"]

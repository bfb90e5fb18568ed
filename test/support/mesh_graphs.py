"""Annotated graphs: what is sharded, on which mesh, by which specs; for ours and for XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import rlx
from rlx import P
from rlx.ir.value import Value

__all__ = ["GRAPHS", "Annotated", "Array"]

Array = np.ndarray[Any, Any]

BATCH, TOKENS, MODEL, HIDDEN, HEADS = 8, 32, 64, 256, 8
"""Sizes at which activations are larger than weights, as in training."""


class Annotated(NamedTuple):
    """A graph with the specs of inputs and of outputs; ``integers`` are inputs of indices, each
    below a number."""

    graph: rlx.Graph
    mesh: rlx.Mesh
    specs: dict[str, P]
    out: list[P]
    integers: dict[str, int]

    def feeds(self) -> dict[str, Array]:
        """Arrays for the inputs."""
        rng, found = np.random.default_rng(0), {}
        for v in self.graph.inputs:
            name, shape = str(v.name), v.type.static_shape
            most = self.integers.get(name)
            drawn = (
                rng.standard_normal(shape) * 0.2 if most is None else rng.integers(0, most, shape)
            )
            found[name] = drawn.astype(v.dtype.numpy)
        return found


def _gradients(g: rlx.Graph, y: Value, specs: dict[str, P], wrt: list[str]) -> list[P]:
    """The gradients of the mean of a function of a value; each lies as what it is of."""
    g.set_outputs(y.sin().mean())
    return [specs.get(n, P()) for n in wrt]


def _mlp(mesh: rlx.Mesh, specs: dict[str, P], *, grads: bool, rows: int = 256) -> Annotated:
    g = rlx.Graph("mlp")
    x, up, down = (
        g.input("x", [rows, MODEL]),
        g.input("up", [MODEL, HIDDEN]),
        g.input("down", [HIDDEN, MODEL]),
    )
    b = g.input("b", [HIDDEN])
    y = (x @ up + b).gelu() @ down
    if not grads:
        g.set_outputs(y)
        return Annotated(g, mesh, specs, [P(*specs.get("x", P()))], {})
    names = ["up", "b", "down"]
    out = _gradients(g, y, specs, names)
    return Annotated(rlx.grad(g, names), mesh, specs, out, {})


TENSOR = {
    **dict.fromkeys(("wq", "wk", "wv", "gate", "up"), P(None, "model")),
    **dict.fromkeys(("wo", "down"), P("model", None)),
}


def _leaves(g: rlx.Graph, kv: int = MODEL) -> dict[str, Value]:
    shapes = {
        "wq": [MODEL, MODEL], "wk": [MODEL, kv], "wv": [MODEL, kv], "wo": [MODEL, MODEL],
        "gate": [MODEL, HIDDEN], "up": [MODEL, HIDDEN], "down": [HIDDEN, MODEL],
        "norm1": [MODEL], "norm2": [MODEL],
    }  # fmt: skip
    return {n: g.input(n, s) for n, s in shapes.items()}


def _block(g: rlx.Graph, x: Value, w: dict[str, Value], mask: str, kv_heads: int = HEADS) -> Value:
    h = x.rms_norm(w["norm1"])
    q, k, v = (h @ w[n] for n in ("wq", "wk", "wv"))
    a = g.attention(q, k, v, num_heads=HEADS, kv_heads=kv_heads, mask_kind=mask)
    x = x + a @ w["wo"]
    h = x.rms_norm(w["norm2"])
    return x + ((h @ w["gate"]).silu() * (h @ w["up"])) @ w["down"]


def _llama(
    mesh: rlx.Mesh,
    specs: dict[str, P],
    *,
    grads: bool = False,
    mask: str = "causal",
    kv: int = HEADS,
) -> Annotated:
    g = rlx.Graph("llama")
    x = g.input("x", [BATCH, TOKENS, MODEL])
    w = _leaves(g, MODEL // HEADS * kv)
    y = _block(g, x, w, mask, kv)
    if not grads:
        g.set_outputs(y)
        return Annotated(g, mesh, specs, [specs.get("x", P())], {})
    names = ["x", *w]
    out = _gradients(g, y, specs, names)
    return Annotated(rlx.grad(g, names), mesh, specs, out, {})


def _minilm(mesh: rlx.Mesh, *, layers: int, grads: bool) -> Annotated:
    """The encoder of MiniLM, narrower."""
    g, specs = rlx.Graph("minilm"), {"x": P("data")}
    x, wrt = g.input("x", [BATCH, TOKENS, MODEL]), list[str]()
    for n in range(layers):
        kinds = {
            "wq": ([MODEL, MODEL], P(None, "model")), "bq": ([MODEL], P("model")),
            "wk": ([MODEL, MODEL], P(None, "model")), "bk": ([MODEL], P("model")),
            "wv": ([MODEL, MODEL], P(None, "model")), "bv": ([MODEL], P("model")),
            "wo": ([MODEL, MODEL], P("model")), "bo": ([MODEL], P()),
            "g1": ([MODEL], P()), "b1": ([MODEL], P()),
            "w1": ([MODEL, HIDDEN], P(None, "model")), "c1": ([HIDDEN], P("model")),
            "w2": ([HIDDEN, MODEL], P("model")), "c2": ([MODEL], P()),
            "g2": ([MODEL], P()), "b2": ([MODEL], P()),
        }  # fmt: skip
        w = {k: g.input(f"{k}.{n}", shape) for k, (shape, _) in kinds.items()}
        specs |= {f"{k}.{n}": spec for k, (_, spec) in kinds.items()}
        wrt += [f"{k}.{n}" for k in kinds]
        q, k, v = (x @ w[f"w{c}"] + w[f"b{c}"] for c in "qkv")
        a = g.attention(q, k, v, num_heads=HEADS) @ w["wo"] + w["bo"]
        x = (x + a).layer_norm(w["g1"], w["b1"])
        h = (x @ w["w1"] + w["c1"]).gelu() @ w["w2"] + w["c2"]
        x = (x + h).layer_norm(w["g2"], w["b2"])
    if not grads:
        g.set_outputs(x)
        return Annotated(g, mesh, specs, [P("data")], {})
    out = _gradients(g, x, specs, wrt)
    return Annotated(rlx.grad(g, wrt), mesh, specs, out, {})


def _experts(mesh: rlx.Mesh, specs: dict[str, P], *, grads: bool) -> Annotated:
    """A block of four experts, of which every row takes a weighted sum."""
    g = rlx.Graph("experts")
    x, router = g.input("x", [128, MODEL]), g.input("router", [MODEL, 8])
    up, down = g.input("up", [8, MODEL, HIDDEN]), g.input("down", [8, HIDDEN, MODEL])
    p = (x @ router).softmax()
    h = g.einsum("tm,emh->eth", x, up).gelu()
    y = g.einsum("eth,ehm,te->tm", h, down, p)
    if not grads:
        g.set_outputs(x + y)
        return Annotated(g, mesh, specs, [specs.get("x", P())], {})
    names = ["up", "down", "router"]
    out = _gradients(g, x + y, specs, names)
    return Annotated(rlx.grad(g, names), mesh, specs, out, {})


def _conv(mesh: rlx.Mesh, specs: dict[str, P]) -> Annotated:
    g = rlx.Graph("conv")
    x = g.input("x", [16, 3, 16, 16])
    c1, c2, head = (
        g.input("c1", [16, 3, 3, 3]),
        g.input("c2", [16, 16, 3, 3]),
        g.input("head", [16, 8]),
    )
    h = g.conv(g.conv(x, c1, padding=1).relu(), c2, padding=1).relu()
    y = h.mean(axes=(2, 3)) @ head
    out = _gradients(g, y, specs, ["c1", "c2", "head"])
    return Annotated(rlx.grad(g, ["c1", "c2", "head"]), mesh, specs, out, {})


def _vocabulary(mesh: rlx.Mesh, specs: dict[str, P], *, grads: bool) -> Annotated:
    g, size = rlx.Graph("vocabulary"), 1024
    ids, labels = g.input("ids", [BATCH, TOKENS], "i32"), g.input("labels", [BATCH, TOKENS], "i32")
    table, head = g.input("table", [size, MODEL]), g.input("head", [MODEL, size])
    logits = table.gather(ids) @ head
    shifted = logits - logits.max(axes=-1, keep_dim=True)
    one_hot = labels.reshape((BATCH, TOKENS, 1)).eq(g.iota([1, 1, size], 2, "i32")).cast(to="f32")
    losses = shifted.exp().sum(axes=-1).log() - (shifted * one_hot).sum(axes=-1)
    g.set_outputs(losses.mean())
    integers = {"ids": size, "labels": size}
    if not grads:
        return Annotated(g, mesh, specs, [P()], integers)
    out = [specs.get(n, P()) for n in ("table", "head")]
    return Annotated(rlx.grad(g, ["table", "head"]), mesh, specs, out, integers)


def _norms(mesh: rlx.Mesh) -> Annotated:
    """Norms and a softmax along a dim that is cut."""
    g = rlx.Graph("norms")
    x, gamma, beta = g.input("x", [64, MODEL]), g.input("gamma", [MODEL]), g.input("beta", [MODEL])
    g.set_outputs(x.layer_norm(gamma, beta).softmax())
    return Annotated(g, mesh, {"x": P(None, "model")}, [P(None, "model")], {})


def _turned(mesh: rlx.Mesh) -> Annotated:
    """Rows become columns."""
    g = rlx.Graph("turned")
    x = g.input("x", [128, 64])
    g.set_outputs(x.exp().T.reshape((8, 8, 128)).sin())
    return Annotated(g, mesh, {"x": P("data")}, [P("data")], {})


def _two_dims(mesh: rlx.Mesh) -> Annotated:
    """A product of which both operands are cut along both of their dims."""
    g = rlx.Graph("two dims")
    x, w = g.input("x", [128, 64]), g.input("w", [64, 32])
    g.set_outputs(x @ w)
    return Annotated(g, mesh, {"x": P("data", "model"), "w": P("model", None)}, [P("data")], {})


def _batch_norm(mesh: rlx.Mesh) -> Annotated:
    g = rlx.Graph("batch norm")
    x, gamma, beta = g.input("x", [32, 8, 8, 8]), g.input("gamma", [8]), g.input("beta", [8])
    mean = x.mean(axes=(0, 2, 3), keep_dim=True)
    square = (x * x).mean(axes=(0, 2, 3), keep_dim=True)
    line = (x - mean) * (square - mean * mean + 1e-5).rsqrt()
    g.set_outputs(line * gamma.reshape((8, 1, 1)) + beta.reshape((8, 1, 1)))
    return Annotated(g, mesh, {"x": P("data")}, [P("data")], {})


EIGHT, DATA = rlx.Mesh(data=2, model=4), rlx.Mesh(data=8)
FOUR = rlx.Mesh(model=4)
BY_EXPERT = {"up": P("model"), "down": P("model")}
LAYER = {"up": P(None, "model"), "down": P("model", None)}
FULLY = {"x": P("data"), "up": P("data"), "down": P("data")}

GRAPHS: dict[str, Callable[[], Annotated]] = {
    "mlp": lambda: _mlp(EIGHT, {"x": P("data"), **LAYER}, grads=False),
    "mlp, gradients": lambda: _mlp(EIGHT, {"x": P("data"), **LAYER}, grads=True),
    "mlp, data parallel": lambda: _mlp(DATA, {"x": P("data")}, grads=True),
    "mlp, weights cut by data": lambda: _mlp(DATA, FULLY, grads=True, rows=2048),
    "llama": lambda: _llama(EIGHT, {"x": P("data"), **TENSOR}),
    "llama, gradients": lambda: _llama(EIGHT, {"x": P("data"), **TENSOR}, grads=True),
    "llama, gradients on one axis": lambda: _llama(rlx.Mesh(model=8), dict(TENSOR), grads=True),
    "llama, sequence parallel": lambda: _llama(
        FOUR, {"x": P(None, "model"), **TENSOR}
    ),
    "llama, sequence over ranks": lambda: _llama(
        rlx.Mesh(seq=4), {"x": P(None, "seq")}, mask="none"
    ),
    "llama, fewer heads of keys": lambda: _llama(rlx.Mesh(model=2), dict(TENSOR), kv=2),
    "minilm": lambda: _minilm(EIGHT, layers=6, grads=False),
    "minilm, gradients": lambda: _minilm(EIGHT, layers=2, grads=True),
    "experts": lambda: _experts(FOUR, BY_EXPERT, grads=False),
    "experts, gradients": lambda: _experts(
        EIGHT, {"x": P("data"), "up": P("model"), "down": P("model")}, grads=True
    ),
    "convolutions, data parallel": lambda: _conv(DATA, {"x": P("data")}),
    "convolutions, channels": lambda: _conv(
        EIGHT, {"x": P("data"), "c1": P("model"), "c2": P(None, "model")}
    ),
    "vocabulary": lambda: _vocabulary(
        FOUR, {"table": P("model"), "head": P(None, "model")}, grads=False
    ),
    "vocabulary, gradients": lambda: _vocabulary(
        EIGHT,
        {"ids": P("data"), "labels": P("data"), "table": P("model"), "head": P(None, "model")},
        grads=True,
    ),
    "norms along a cut dim": lambda: _norms(FOUR),
    "rows to columns": lambda: _turned(rlx.Mesh(data=4)),
    "two dims": lambda: _two_dims(EIGHT),
    "batch norm": lambda: _batch_norm(rlx.Mesh(data=4)),
}  # fmt: skip

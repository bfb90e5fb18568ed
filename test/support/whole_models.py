"""Models for targets that take whole graphs, with what they are run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx
from rlx.ir.interpreter import interpret
from rlx.models.embed import encoder_graph
from support.minilm import minilm_dir
from support.whole import Stand, Stood

__all__ = ["MODELS", "error_of", "llama", "minilm"]

Model = tuple[rlx.Graph, dict[str, np.ndarray[Any, Any]]]


def llama(tokens: int, wide: int = 256, heads: int = 4) -> Model:
    """A decoder block with half as many heads of keys, and its operands."""
    rng = np.random.default_rng(0)
    g, dim = rlx.Graph("llama"), wide // heads
    shapes = {
        "ln1_gamma": (wide,), "wq": (wide, wide), "wk": (wide, wide // 2), "wv": (wide, wide // 2),
        "wo": (wide, wide), "ln2_gamma": (wide,), "gate": (wide, 3 * wide), "up": (wide, 3 * wide),
        "down": (3 * wide, wide),
    }  # fmt: skip
    params = {
        n: g.param(n, value=(rng.standard_normal(s) / np.sqrt(s[0]) ** (len(s) - 1)).astype("f4"))
        for n, s in shapes.items()
    }
    x = g.input("x", [1, tokens, wide])
    angles = np.outer(np.arange(tokens), 1e4 ** (-np.arange(dim // 2) / (dim // 2)))
    cos, sin = (g.constant(f(angles).astype("f4")) for f in (np.cos, np.sin))
    y = g.llama_decoder_block(x, cos=cos, sin=sin, num_heads=heads, kv_heads=heads // 2, **params)
    g.set_outputs([y])
    return g, {"x": rng.standard_normal((1, tokens, wide)).astype(np.float32)}


def minilm(tokens: int) -> Model | None:
    """The encoder of MiniLM-L6 with its weights, for one text; None where it is not installed."""
    path = minilm_dir()
    if path is None:
        return None
    graph = encoder_graph(path, integers="i32")
    graph = graph.bind({name: 1 if name == "batch" else tokens for name in graph.symbols})
    rng = np.random.default_rng(0)
    feeds = {
        str(v.name): rng.integers(1, 3, v.type.static_shape).astype(v.dtype.numpy)
        for v in graph.inputs
    }
    feeds |= {n: np.ones_like(a) for n, a in feeds.items() if "mask" in n}
    feeds |= {n: a * 700 for n, a in feeds.items() if n.endswith("ids") and "type" not in n}
    feeds |= {n: np.zeros_like(a) for n, a in feeds.items() if "type" in n}
    return graph, feeds


MODELS: dict[str, Callable[[int], Model | None]] = {"minilm": minilm, "llama": llama}
"""By name: a function of the number of tokens."""


def error_of(graph: rlx.Graph, feeds: dict[str, Any], stand: Stand) -> float:
    """The largest difference from the interpreter, over the largest number of a result."""
    given = {**graph.param_values, **feeds}
    found = Stood(graph, stand.target, stand.load).run(given)
    pairs = zip(found, interpret(graph, feeds, graph.param_values), strict=True)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)

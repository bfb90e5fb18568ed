"""The graph of a step of a decoder, from its configuration and the kinds of its weights.

Its inputs are the rows of a step, whose number is a symbol: ``ids``, ``positions`` and
``sequence``, i32 ``[rows]``; ``table``, the pages of each sequence, i32 ``[sequences, pages]``;
``wanted``, the rows that want logits, i32 ``[wanted]``; and for each layer ``keys.i`` and
``values.i``, the cache ``[slots, kv_heads * head_dim]``. The outputs are the logits, f32
``[wanted, vocab]``, and the caches, which are written over those that came in (``donate``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import ModelError
from rlx.frontends.gguf import Tensor
from rlx.ir.dim import Dim
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.llm.config import ModelConfig
from rlx.types import DType, f32

__all__ = ["Cache", "StepGraph", "step_graph"]

Array = np.ndarray[Any, Any]


@frozen
class Cache:
    """The cache of a model: its pages, the tokens of each, the element type of keys and values, and
    the sequences of a step at most."""

    pages: int
    page_size: int
    dtype: DType
    sequences: int
    context: int

    @property
    def slots(self) -> int:
        """Rows of each layer's keys."""
        return self.pages * self.page_size

    @property
    def table(self) -> tuple[int, int]:
        """The shape of the table of pages."""
        return self.sequences, -(-self.context // self.page_size)


@frozen
class StepGraph:
    """A graph, the values of its params, and which inputs and outputs share memory."""

    graph: Graph
    params: Mapping[str, Array]
    donate: tuple[tuple[int, int], ...]


def step_graph(config: ModelConfig, weights: Mapping[str, Tensor], cache: Cache) -> StepGraph:
    """The graph of a step. ModelError for a weight that is missing, that has no place in the model,
    or whose shape is another than the configuration's."""
    return _Builder(config, weights, cache).build()


class _Builder:
    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], cache: Cache) -> None:
        self.config, self.weights, self.cache = config, weights, cache
        self.graph = g = Graph(config.family.name)
        self.params: dict[str, Array] = {}
        self.used: dict[str, Value] = {}
        rows = Dim("rows", 1)
        self.ids, self.positions, self.sequence = (
            g.input(n, [rows], "i32") for n in ("ids", "positions", "sequence")
        )
        self.table = g.input("table", cache.table, "i32")
        self.wanted = g.input("wanted", [Dim("wanted", 1)], "i32")
        width = config.kv_heads * config.head_dim
        self.caches = [
            tuple(
                g.input(f"{n}.{i}", [cache.slots, width], cache.dtype) for n in ("keys", "values")
            )
            for i in range(config.layers)
        ]
        self.written: list[Value] = []

    def build(self) -> StepGraph:
        """All layers, and the head over the rows that are wanted."""
        c = self.config
        self.slots = self._slots()
        self.rotary = {False: self._tables("rope", local=False)}
        if c.local is not None:
            self.rotary[True] = self._tables("rope.local", local=True)
        x = self.embedding()
        for i in range(c.layers):
            x = self.layer(i, x)
        x = self.norm(x.gather(self.wanted), "output_norm")
        head = "output" if "output.weight" in self.weights else "token_embd"
        logits = self.linear(x, head, (c.vocab, c.hidden)) * c.logit_scale
        if c.logit_softcap:
            logits = (logits * (1.0 / c.logit_softcap)).tanh() * c.logit_softcap
        self.graph.set_outputs([logits, *self.written])
        left = sorted({*self.weights} - {*self.used} - {"rope_freqs.weight"})
        if left:
            raise ModelError(f"{len(left)} weights have no place in a {c.family.name}: {left[:4]}")
        names = [str(v.name) for v in self.graph.inputs]
        first = names.index("keys.0")
        donate = tuple((first + n, 1 + n) for n in range(len(self.written)))
        return StepGraph(self.graph, self.params, donate)

    # -- weights ---------------------------------------------------------------------------

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A weight, of the shape that the configuration asks for."""
        found = self.weights.get(name)
        if found is None:
            raise ModelError(f"a {self.config.family.name} needs {name}, and the file has none")
        if found.shape != shape:
            raise ModelError(
                f"{name} is {list(found.shape)}, and the configuration asks for {list(shape)}"
            )
        return found

    def param(self, name: str, value: Array) -> Value:
        """A param of a value, made once."""
        if name not in self.used:
            self.params[name] = value
            self.used[name] = self.graph.param(name, value.shape, str(value.dtype))
        return self.used[name]

    def vector(self, name: str, size: int) -> Value:
        """A weight of one dim, in f32."""
        if name in self.used:
            return self.used[name]
        return self.param(name, self.tensor(name, (size,)).dequantize())

    def matrix(self, name: str, shape: tuple[int, ...]) -> tuple[Value, str | None]:
        """A weight, and the scheme of its blocks, or None where it has an element type."""
        tensor = self.tensor(name, shape)
        if tensor.scheme in ("f32", "f16", "bf16"):
            return self.param(name, tensor.numpy()), None
        return self.param(name, tensor.data), tensor.scheme

    def linear(self, x: Value, name: str, shape: tuple[int, int]) -> Value:
        """``x @ w.T``, and the bias if the file has one."""
        w, scheme = self.matrix(f"{name}.weight", shape)
        y = x.dequant_matmul(w, scheme) if scheme else x @ w.cast(to=f32).transpose()
        if f"{name}.bias" in self.weights:
            y = y + self.vector(f"{name}.bias", shape[0])
        return y

    def norm(self, x: Value, name: str, size: int = 0) -> Value:
        """The family's norm over the last axis."""
        c = self.config
        if c.family.norm == "plain":
            return x.layer_norm(eps=c.eps)
        return x.rms_norm(self.vector(f"{name}.weight", size or c.hidden), eps=c.eps)

    # -- parts -----------------------------------------------------------------------------

    def _slots(self) -> Value:
        """Where in the cache the keys and values of each row go; past its end for a row without a
        position."""
        cache, at = self.cache, self.positions
        own = self.sequence * cache.table[1] + at // cache.page_size
        real = at >= 0
        page = self.table.reshape([-1]).gather(real.where(own, 0))
        return real.where(page * cache.page_size + at % cache.page_size, cache.slots)

    def _tables(self, name: str, *, local: bool) -> tuple[Value, Value]:
        """Cosines and sines of the rows."""
        c = self.config
        rotary = c.local if local else c.rotary
        assert rotary is not None
        factors = self.weights.get("rope_freqs.weight")
        given = None if factors is None or local else factors.dequantize()
        cos, sin = rotary.tables(self.cache.context, given)
        at = self.positions.maximum(0)
        return tuple(
            self.param(f"{name}.{n}", t).gather(at) for n, t in (("cos", cos), ("sin", sin))
        )  # pyright: ignore[reportReturnType]

    def embedding(self) -> Value:
        """The rows' embeddings."""
        c = self.config
        w, scheme = self.matrix("token_embd.weight", (c.vocab, c.hidden))
        x = w.gather(self.ids)
        x = x.cast(to=f32) if scheme is None else x.dequantize_blocks(scheme)
        return x if c.embedding_scale == 1.0 else x * c.embedding_scale

    def layer(self, i: int, x: Value) -> Value:
        """Attention and the feed-forward network, each with its norms and its residual."""
        c, name = self.config, f"blk.{i}"
        for block, before, after in (
            (self.attention, "attn_norm", "post_attention_norm"),
            (self.feed_forward, "ffn_norm", "post_ffw_norm"),
        ):
            y = self.norm(x, f"{name}.{before}") if c.family.before else x
            y = block(i, y)
            if c.family.after:
                y = self.norm(y, f"{name}.{after}")
            x = x + (y if c.residual_scale == 1.0 else y * c.residual_scale)
        return x

    def attention(self, i: int, x: Value) -> Value:
        """Keys and values of the rows go into the cache, over which they attend."""
        c, name, d = self.config, f"blk.{i}", self.config.head_dim
        sizes = {"q": c.heads * d, "k": c.kv_heads * d, "v": c.kv_heads * d}
        q, k, v = (
            self.linear(x, f"{name}.attn_{n}", (size, c.hidden)) for n, size in sizes.items()
        )
        if c.clip:
            q, k, v = (y.clip(-c.clip, c.clip) for y in (q, k, v))
        if c.family.qk_norm:
            q = self.head_norm(q, f"{name}.attn_q_norm", c.heads)
            k = self.head_norm(k, f"{name}.attn_k_norm", c.kv_heads)
        window = c.windows[i]
        rotary = c.local if window and c.local is not None else c.rotary
        tables = self.rotary[rotary is c.local and c.local is not None]
        q, k = (y.rope(*tables, d, rotary.dim) for y in (q, k))
        keys, values = (
            cache.scatter(self.slots, y.cast(to=self.cache.dtype), mode="fill")
            for cache, y in zip(self.caches[i], (k, v), strict=True)
        )
        self.written += [keys, values]
        y = q.paged_attention(
            keys, values, self.table, self.sequence, self.positions, num_heads=c.heads,
            kv_heads=c.kv_heads, page_size=self.cache.page_size, scale=c.attention_scale,
            window=window, softcap=c.attention_softcap,
        )  # fmt: skip
        return self.linear(y, f"{name}.attn_output", (c.hidden, c.heads * d))

    def head_norm(self, x: Value, name: str, heads: int) -> Value:
        """The norm of queries or keys, head by head or of all heads together."""
        d = self.config.head_dim
        if self.config.family.qk_norm == "whole":
            return self.norm(x, name, heads * d)
        rows = x.shape[0]
        return self.norm(x.reshape([rows, heads, d]), name, d).reshape([rows, heads * d])

    def feed_forward(self, i: int, x: Value) -> Value:
        """The gated network of a layer."""
        c, name = self.config, f"blk.{i}"
        if c.experts:
            return self.experts(name, x)
        gate, up = (self.linear(x, f"{name}.ffn_{n}", (c.inner, c.hidden)) for n in ("gate", "up"))
        return self.linear(self.activated(gate) * up, f"{name}.ffn_down", (c.hidden, c.inner))

    def experts(self, name: str, x: Value) -> Value:
        """The networks that a router chooses for each row, and their sum by its weights."""
        c, rows, used = self.config, x.shape[0], self.config.experts_used
        scores = self.linear(x, f"{name}.ffn_gate_inp", (c.experts, c.hidden)).softmax(axis=-1)
        shares, chosen = scores.topk(used, axis=-1)
        if c.expert_norm:
            shares = shares / shares.sum(axes=-1, keep_dim=True)
        chosen = chosen.reshape([rows * used])
        each = x.reshape([rows, 1, c.hidden]).expand([rows, used, c.hidden])
        each = each.reshape([rows * used, c.hidden])
        gate, up = (
            self.grouped(each, f"{name}.ffn_{n}_exps", (c.expert_inner, c.hidden), chosen)
            for n in ("gate", "up")
        )
        y = self.activated(gate) * up
        y = self.grouped(y, f"{name}.ffn_down_exps", (c.hidden, c.expert_inner), chosen)
        y = y.reshape([rows, used, c.hidden]) * shares.reshape([rows, used, 1])
        return y.sum(axes=1)

    def grouped(self, x: Value, name: str, shape: tuple[int, int], chosen: Value) -> Value:
        """Each row by the matrix of its expert."""
        w, scheme = self.matrix(f"{name}.weight", (self.config.experts, *shape))
        w = w.dequantize_blocks(scheme) if scheme else w.cast(to=f32)
        return x.grouped_matmul(w.transpose(0, 2, 1), chosen)

    def activated(self, x: Value) -> Value:
        """The family's activation."""
        return getattr(x, self.config.activation)()

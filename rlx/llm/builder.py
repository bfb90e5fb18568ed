"""The graphs of a step of a decoder, from its configuration and the kinds of its weights.

The inputs of the layers are the rows of a step, whose number is a symbol: ``ids``, ``positions``
and ``sequence``, i32 ``[rows]``; ``table``, the pages of each sequence, i32 ``[sequences, pages]``;
and for each layer ``keys.i`` and ``values.i``, the cache ``[slots, kv_heads * head_dim]``; with
adapters also ``adapter``, i32 ``[rows]``. The
outputs are the rows' hidden states, f32 ``[rows, hidden]``, and the caches, which are written over
those that came in (``donate``).

The head is a graph of its own, from hidden states to logits: few rows want these, and how many do
is another symbol, whose variants would multiply with those of the rows.
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
from rlx.llm.graph_weights import GraphWeights
from rlx.llm.lora import Stack
from rlx.llm.share import Share
from rlx.types import DType, f32

__all__ = ["Cache", "StepGraph", "step_graphs"]

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


def step_graphs(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    cache: Cache,
    precision: str,
    share: Share,
    stacks: Mapping[str, Stack],
) -> tuple[StepGraph, StepGraph]:
    """The graphs of the layers and of the head, for a session of a precision, of what a rank has of
    the model, with the ``stacks`` of adapters for its matrices. ModelError for a weight that is
    missing, that has no place in the model, or whose shape is another than the configuration's."""
    last = {name: stack for name, stack in stacks.items() if name == "output"}
    own = {name: stack for name, stack in stacks.items() if name not in last}
    layers = _Layers(config, weights, cache, precision, share, own)
    head = _head(config, weights, precision, share, last)
    made = layers.build()
    left = sorted({*weights} - {*layers.used} - {*head.params} - {"rope_freqs.weight"})
    if left:
        raise ModelError(f"{len(left)} weights have no place in a {config.family.name}: {left[:4]}")
    return made, head


def _head(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    precision: str,
    share: Share,
    stacks: Mapping[str, Stack],
) -> StepGraph:
    """From hidden states to logits, f32 ``[wanted, vocab]``."""
    c, wanted, name = config, Dim("wanted", 1), config.family.name
    made = GraphWeights(Graph(f"{name}.head"), weights, name, stacks, wanted)
    x = made.graph.input("hidden", [wanted, c.hidden])
    name = "output" if "output.weight" in weights else "token_embd"
    # Errors here are errors of the logits, and few rows come here.
    logits = made.linear(
        x, name, (c.vocab, c.hidden), rows=share.vocab, in_16_bits=precision == "q8",
        adapted="output",
    )  # fmt: skip
    logits = logits * c.logit_scale
    if c.logit_softcap:
        logits = (logits * (1.0 / c.logit_softcap)).tanh() * c.logit_softcap
    made.graph.set_outputs([share.joined(logits, c.vocab)])
    return StepGraph(made.graph, made.params, ())


class _Layers(GraphWeights):
    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        cache: Cache,
        precision: str,
        share: Share,
        stacks: Mapping[str, Stack],
    ) -> None:
        rows = Dim("rows", 1)
        super().__init__(Graph(config.family.name), weights, config.family.name, stacks, rows)
        self.share = share
        self.rounds = precision == "q8"
        self.config, self.cache, g = config, cache, self.graph
        self.ids, self.positions, self.sequence = (
            g.input(n, [rows], "i32") for n in ("ids", "positions", "sequence")
        )
        self.table = g.input("table", cache.table, "i32")
        width = len(share.kv_heads) * config.head_dim
        self.caches = [
            tuple(
                g.input(f"{n}.{i}", [cache.slots, width], cache.dtype) for n in ("keys", "values")
            )
            for i in range(config.layers)
        ]
        self.written: list[Value] = []

    def build(self) -> StepGraph:
        """All layers, and the last norm."""
        c = self.config
        self.slots = self._slots()
        self.rotary = {False: self._tables("rope", local=False)}
        if c.local is not None:
            self.rotary[True] = self._tables("rope.local", local=True)
        x = self.embedding()
        for i in range(c.layers):
            x = self.layer(i, x)
        self.graph.set_outputs([self.norm(x, "output_norm"), *self.written])
        names = [str(v.name) for v in self.graph.inputs]
        first = names.index("keys.0")
        donate = tuple((first + n, 1 + n) for n in range(len(self.written)))
        return StepGraph(self.graph, self.params, donate)

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
        c, name, d, share = self.config, f"blk.{i}", self.config.head_dim, self.share
        every = {"q": c.heads, "k": c.kv_heads, "v": c.kv_heads}
        own = {"q": share.heads, "k": share.kv_heads, "v": share.kv_heads}
        # Values are small matrices, and what 8 bits lose there is a third of all that they lose.
        q, k, v = (
            self.linear(
                x, f"{name}.attn_{n}", (every[n] * d, c.hidden), rows=_times(own[n], d),
                in_16_bits=self.rounds and n == "v",
            )
            for n in "qkv"
        )  # fmt: skip
        if c.clip:
            q, k, v = (y.clip(-c.clip, c.clip) for y in (q, k, v))
        if c.family.qk_norm:
            q = self.head_norm(q, f"{name}.attn_q_norm", c.heads, share.heads)
            k = self.head_norm(k, f"{name}.attn_k_norm", c.kv_heads, share.kv_heads, share.copies)
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
            keys, values, self.table, self.sequence, self.positions, num_heads=len(share.heads),
            kv_heads=len(share.kv_heads), page_size=self.cache.page_size, scale=c.attention_scale,
            window=window, softcap=c.attention_softcap,
        )  # fmt: skip
        return self.linear(
            y, f"{name}.attn_output", (c.hidden, c.heads * d), columns=_times(share.heads, d),
            total=share.total,
        )  # fmt: skip

    def head_norm(self, x: Value, name: str, every: int, own: range, copies: int = 1) -> Value:
        """The norm of queries or keys, head by head or of all heads together, which so many ranks
        have alike."""
        c, d, (rows, size) = self.config, self.config.head_dim, x.shape
        if c.family.qk_norm == "head":
            return self.norm(x.reshape([rows, len(own), d]), name, d).reshape([rows, size])
        if len(own) == every:
            return self.norm(x, name, every * d)
        squares = self.share.total((x * x).sum(axes=-1, keep_dim=True))
        x = x * (squares * (1 / (copies * every * d)) + c.eps).rsqrt()
        return x * self.vector(f"{name}.weight", every * d, _times(own, d))

    def feed_forward(self, i: int, x: Value) -> Value:
        """The gated network of a layer."""
        c, name = self.config, f"blk.{i}"
        if c.experts:
            return self.experts(name, x)
        share, shape = self.share, (c.inner, c.hidden)
        gate, up = (
            self.linear(x, f"{name}.ffn_{n}", shape, rows=share.inner) for n in ("gate", "up")
        )
        return self.linear(
            self.activated(gate) * up, f"{name}.ffn_down", (c.hidden, c.inner), columns=share.inner,
            total=share.total,
        )  # fmt: skip

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
            self.grouped(each, f"{name}.ffn_{n}_exps", (c.expert_inner, c.hidden), 1, chosen)
            for n in ("gate", "up")
        )
        y = self.activated(gate) * up
        y = self.grouped(y, f"{name}.ffn_down_exps", (c.hidden, c.expert_inner), 2, chosen)
        y = y.reshape([rows, used, c.hidden]) * shares.reshape([rows, used, 1])
        return self.share.total(y.sum(axes=1))

    def grouped(
        self, x: Value, name: str, shape: tuple[int, int], cut: int, chosen: Value
    ) -> Value:
        """Each row by the matrix of its expert, which is cut along a dim."""
        whole = (self.config.experts, *shape)
        w, scheme = self.matrix(f"{name}.weight", whole, cut, self.share.inner)
        w = w.dequantize_blocks(scheme) if scheme else w.cast(to=f32)
        return x.grouped_matmul(w.transpose(0, 2, 1), chosen)

    def activated(self, x: Value) -> Value:
        """The family's activation."""
        return getattr(x, self.config.activation)()


def _times(heads: range, size: int) -> range:
    """The elements of heads of a size."""
    return range(heads.start * size, heads.stop * size)

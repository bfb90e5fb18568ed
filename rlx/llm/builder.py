"""The graphs of a step of a decoder, from its configuration and the kinds of its weights.

The inputs of the layers are the rows of a step, whose number is a symbol: ``ids``, ``positions``
and ``sequence``, i32 ``[rows]``; ``table``, the pages of each sequence, i32 ``[sequences,
pages]``; for each layer of attention ``keys.i`` and ``values.i``, the cache ``[slots, kv_heads *
head_dim]``, or of one with states ``conv.i`` and ``state.i``, and then ``states``, i32
``[sequences]``, the slots in these of each sequence; with adapters also ``adapter``, i32
``[rows]``. The outputs are the rows' hidden states, f32 ``[rows, hidden]``, and the caches, which
are written over those that came in (``donate``).

The head is a graph of its own, from hidden states to logits: few rows want these, and how many do
is another symbol, whose variants would multiply with those of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import ModelError
from rlx.frontends.gguf import Tensor
from rlx.ir.dim import Dim
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.llm.config import ModelConfig
from rlx.llm.experts import FeedForward
from rlx.llm.graph_weights import GraphWeights
from rlx.llm.latent import latent_rows, values_of
from rlx.llm.mixers import Mixer
from rlx.llm.share import Share
from rlx.ops.movement.constant import Constant
from rlx.types import DType, f32

if TYPE_CHECKING:
    from rlx.llm.lora import Stack

__all__ = ["Cache", "StepGraph", "layer_inputs", "sequence_graph", "step_graphs"]

Array = np.ndarray[Any, Any]


@frozen
class Cache:
    """The cache of a model: its pages, the tokens of each, the element type of keys and values, the
    sequences of a step at most, and of how many there are states, of models that have such."""

    pages: int
    page_size: int
    dtype: DType
    sequences: int
    context: int
    states: int = 1

    def memories(
        self, config: ModelConfig, kv_heads: int
    ) -> dict[str, tuple[tuple[int, ...], DType]]:
        """What the layers keep between steps, by the names of inputs: shapes and element types."""
        found: dict[str, tuple[tuple[int, ...], DType]] = {}
        for i, kind in enumerate(config.kinds):
            if kind == "state" and config.recurrent is not None:
                for part, own in config.recurrent.shapes.items():
                    found[f"{part}.{i}"] = (self.states, *own), f32
            elif kind != "network":
                shape = self.slots, kv_heads * config.head_dim
                found[f"keys.{i}"] = found[f"values.{i}"] = shape, self.dtype
        return found

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
    _check_used(config, weights, {*layers.used, *head.params})
    return made, head


def sequence_graph(
    config: ModelConfig, weights: Mapping[str, Tensor], cache: Cache, precision: str
) -> StepGraph:
    """Layers and head as one graph, of one sequence whose keys lie in one page: ``sequence`` and
    ``table`` are no inputs, and the first output has the logits of the last row. Errors as of
    ``step_graphs``."""
    layers = _Layers(config, weights, cache, precision, Share.whole(config), {}, alone=True)
    made = layers.build()
    hidden, *written = made.graph.outputs
    last = hidden.narrow(0, hidden.shape[0] - 1, 1)
    logits = _logits(layers, config, layers.share, precision, last)
    made.graph.set_outputs([logits, *written])
    _check_used(config, weights, {*layers.used})
    return made


def _check_used(config: ModelConfig, weights: Mapping[str, Tensor], used: set[str]) -> None:
    """ModelError for weights that no graph reads."""
    tables = {"rope_freqs.weight"} if any(config.turned) else set[str]()
    left = sorted({*weights} - used - tables)
    if left:
        raise ModelError(f"{len(left)} weights have no place in a {config.family.name}: {left[:4]}")


def layer_inputs(
    config: ModelConfig, weights: Mapping[str, Tensor], cache: Cache
) -> tuple[StepGraph, list[list[str]]]:
    """The graph of the layers whose outputs are what its matrices multiply, and the names of the
    matrices of each."""
    layers = _Layers(config, weights, cache, "f32", Share.whole(config), {})
    layers.build()
    names: dict[Value, list[str]] = {}
    for name, x in layers.inputs.items():
        names.setdefault(x, []).append(name)
    layers.graph.set_outputs([*names])
    return StepGraph(layers.graph, layers.params, ()), [*names.values()]


def _head(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    precision: str,
    share: Share,
    stacks: Mapping[str, Stack],
) -> StepGraph:
    """From hidden states to logits, f32 ``[wanted, vocab]``."""
    c, wanted = config, Dim("wanted", 1)
    made = GraphWeights(Graph(f"{c.family.name}.head"), c, weights, stacks, wanted)
    x = made.graph.input("hidden", [wanted, c.hidden])
    made.graph.set_outputs([_logits(made, c, share, precision, x)])
    return StepGraph(made.graph, made.params, ())


def _logits(made: GraphWeights, c: ModelConfig, share: Share, precision: str, x: Value) -> Value:
    """Logits of hidden states, f32 ``[rows, vocab]``."""
    name = "output" if made.has("output.weight", c.output) else "token_embd"
    # Errors here are errors of the logits, and few rows come here.
    logits = made.linear(
        x, name, (c.vocab, c.hidden), rows=share.vocab, in_16_bits=precision == "q8",
        adapted="output",
    )  # fmt: skip
    logits = logits * c.logit_scale
    if c.logit_softcap:
        logits = (logits * (1.0 / c.logit_softcap)).tanh() * c.logit_softcap
    return share.joined(logits, c.vocab)


class _Layers(FeedForward):
    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        cache: Cache,
        precision: str,
        share: Share,
        stacks: Mapping[str, Stack],
        *,
        alone: bool = False,
    ) -> None:
        """``alone``: of one sequence, whose keys lie in one page."""
        rows = Dim("rows", 1)
        super().__init__(Graph(config.family.name), config, weights, stacks, rows)
        self.share = share
        self.rounds = precision == "q8"
        self.cache, g = cache, self.graph
        self.ids, self.positions = (g.input(n, [rows], "i32") for n in ("ids", "positions"))
        if alone:
            self.sequence = self.positions * 0
            self.table = Constant(np.zeros(cache.table, np.int32)).out
        else:
            self.sequence = g.input("sequence", [rows], "i32")
            self.table = g.input("table", cache.table, "i32")
        if config.recurrent is not None:
            self.states = self._states(alone)
        self.caches: dict[int, list[Value]] = {}
        self.first = len(g.inputs)
        for name, (shape, dt) in cache.memories(config, len(share.kv_heads)).items():
            layer = int(name.rpartition(".")[2])
            self.caches.setdefault(layer, []).append(g.input(name, shape, dt))
        self.written: list[Value] = []

    def build(self) -> StepGraph:
        """All layers, and the last norm."""
        c = self.config
        self.slots = self._slots()
        self.rotary: dict[bool, tuple[Value, Value]] = {}
        if any(c.turned):
            self.rotary[False] = self._tables("rope", local=False)
        if c.local is not None:
            self.rotary[True] = self._tables("rope.local", local=True)
        x = self.embedding()
        for i in range(c.layers):
            x = self.layer(i, x)
        self.graph.set_outputs([self.norm(x, "output_norm"), *self.written])
        donate = tuple((self.first + n, 1 + n) for n in range(len(self.written)))
        return StepGraph(self.graph, self.params, donate)

    def norm(self, x: Value, name: str, size: int = 0) -> Value:
        """The family's norm over the last axis."""
        c, size = self.config, size or self.config.hidden
        if c.family.norm == "plain":
            return x.layer_norm(eps=c.eps)
        weight = self.vector(f"{name}.weight", size)
        if c.family.norm == "rms":
            return x.rms_norm(weight, eps=c.eps)
        bias = self.vector(f"{name}.bias", size) if self.has_bias(name) else None
        return x.layer_norm(weight, bias, eps=c.eps)

    # -- parts -----------------------------------------------------------------------------

    def _slots(self) -> Value:
        """Where in the cache the keys and values of each row go; past its end for a row without a
        position."""
        cache, at = self.cache, self.positions
        own = self.sequence * cache.table[1] + at // cache.page_size
        real = at >= 0
        page = self.table.reshape([-1]).gather(real.where(own, 0))
        return real.where(page * cache.page_size + at % cache.page_size, cache.slots)

    def _states(self, alone: bool) -> Value:
        """Which states a row has."""
        if alone:
            return self.sequence
        states = self.graph.input("states", [self.cache.sequences], "i32")
        return states.gather((self.positions >= 0).where(self.sequence, 0))

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
        if c.family.learned:
            w, scheme = self.matrix("position_embd.weight", (c.context, c.hidden))
            at = w.gather(self.positions.maximum(0))
            x = x + (at.cast(to=f32) if scheme is None else at.dequantize_blocks(scheme))
        return x if c.embedding_scale == 1.0 else x * c.embedding_scale

    def layer(self, i: int, x: Value) -> Value:
        """Attention and the feed-forward network, each with its norms and its residual; in some
        families both take the rows that come in, and in some a layer is one of them."""
        c, name = self.config, f"blk.{i}"
        before, second = c.family.before, f"{name}.ffn_norm"
        y = self.norm(x, f"{name}.attn_norm") if before else x
        blocks = {"state": self.recurrent, "network": self.feed_forward}
        mixed = blocks.get(c.kinds[i], self.attention)(i, y)
        added = self.added(mixed, f"{name}.post_attention_norm")
        if not c.family.network:
            return x + added
        if not c.parallel:
            x = x + added
            y = self.norm(x, second) if before else x
        elif self.has("ffn_norm.weight", c.second):
            y = self.norm(x, second)
        network = self.added(self.feed_forward(i, y), f"{name}.post_ffw_norm")
        return x + added + network if c.parallel else x + network

    def added(self, y: Value, name: str) -> Value:
        """What a block adds to the rows."""
        c = self.config
        y = self.norm(y, name) if c.family.after else y
        return y if c.residual_scale == 1.0 else y * c.residual_scale

    def recurrent(self, i: int, x: Value) -> Value:
        """The states of the rows' sequences are changed by the rows, and read."""
        block = Mixer(
            self, self.config, f"blk.{i}", (self.states, self.positions), self.caches[i]
        )  # fmt: skip
        y = block.rows(x)
        self.written += block.written
        return y

    def attention(self, i: int, x: Value) -> Value:
        """Keys and values of the rows go into the cache, over which they attend."""
        c, name, share, window = self.config, f"blk.{i}", self.share, self.config.windows[i]
        if c.latent is None:
            q, k, v = self.rows_of(i, x)
        else:
            q, k, v = latent_rows(self, c, share, name, x, self.rotary[False])
        keys, values = (
            cache.scatter(self.slots, y.cast(to=self.cache.dtype), mode="fill")
            for cache, y in zip(self.caches[i], (k, v), strict=True)
        )
        self.written += [keys, values]
        y = q.paged_attention(
            keys, values, self.table, self.sequence, self.positions, num_heads=len(share.heads),
            kv_heads=len(share.kv_heads), page_size=self.cache.page_size, scale=c.attention_scale,
            window=window, softcap=c.attention_softcap, sinks=self.sinks(name),
        )  # fmt: skip
        d = c.value_dim
        y = values_of(c, y, len(share.heads))
        if c.family.gated:
            y = (
                y
                * self.linear(
                    x, f"{name}.attn_gate", (c.heads * d, c.hidden), rows=_times(share.heads, d)
                ).sigmoid()
            )
        return self.linear(
            y, f"{name}.attn_output", (c.hidden, c.heads * d),
            columns=_times(share.heads, d), total=share.total,
        )  # fmt: skip

    def sinks(self, name: str) -> Value | None:
        """The scores that no key has, of the heads."""
        if not self.config.family.sinks:
            return None
        return self.vector(f"{name}.attn_sinks.weight", self.config.heads, self.share.heads)

    def rows_of(self, i: int, x: Value) -> tuple[Value, Value, Value]:
        """Queries, keys and values of the rows, ``[rows, heads * head_dim]``."""
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
        steps = [self.normed, self.rotated]
        for step in reversed(steps) if c.family.qk_late else steps:
            q, k = step(i, q, k)
        return q, k, v

    def normed(self, i: int, q: Value, k: Value) -> tuple[Value, Value]:
        """Queries and keys with their norms."""
        c, share, name, d = self.config, self.share, f"blk.{i}", self.config.head_dim
        if not self.has("attn_q_norm.weight", c.qk_norm):
            return q, k
        if c.family.qk_norm == "plain":
            if not c.turned[i]:
                return q, k
            each = ((y, y.shape[1] // d) for y in (q, k))
            q, k = (
                y.reshape([y.shape[0], n, d]).rms_norm(eps=c.eps).reshape(y.shape) for y, n in each
            )
            return q, k
        return (
            self.head_norm(q, f"{name}.attn_q_norm", c.heads, share.heads),
            self.head_norm(k, f"{name}.attn_k_norm", c.kv_heads, share.kv_heads, share.copies),
        )

    def rotated(self, i: int, q: Value, k: Value) -> tuple[Value, Value]:
        """Queries and keys with their positions."""
        c, d = self.config, self.config.head_dim
        if not c.turned[i]:
            return q, k
        local = bool(c.windows[i]) and c.local is not None
        dim = (c.local if local and c.local is not None else c.rotary).dim
        q, k = (y.rope(*self.rotary[local], d, dim) for y in (q, k))
        return q, k

    def head_norm(self, x: Value, name: str, every: int, own: range, copies: int = 1) -> Value:
        """The norm of queries or keys, head by head, or of all heads together, which so many ranks
        have alike."""
        c, d, (rows, size) = self.config, self.config.head_dim, x.shape
        if c.family.qk_norm == "heads":
            y = x.reshape([rows, len(own), d]).layer_norm(eps=c.eps).reshape([rows, size])
            return y * self.vector(f"{name}.weight", every * d, _times(own, d))
        if c.family.qk_norm == "head":
            return self.norm(x.reshape([rows, len(own), d]), name, d).reshape([rows, size])
        if len(own) == every:
            return self.norm(x, name, every * d)
        squares = self.share.total((x * x).sum(axes=-1, keep_dim=True))
        x = x * (squares * (1 / (copies * every * d)) + c.eps).rsqrt()
        return x * self.vector(f"{name}.weight", every * d, _times(own, d))


def _times(heads: range, size: int) -> range:
    """The elements of heads of a size."""
    return range(heads.start * size, heads.stop * size)

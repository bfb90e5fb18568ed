"""Attention as programs on blocks: what ``emit.py`` beside this defines, with an online softmax.

A program has some rows, the queries of all heads that share a key head, one head after the other,
against block after block of the keys that one of them sees. Weights are rounded to the element type
before they meet V, as matrix units take them; their sum is that of the weights before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import gcd

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.codegen.triton.machine import TritonMachine
from rlx.codegen.triton.pointwise import pointwise
from rlx.codegen.triton.text import Block, Text
from rlx.errors import UnsupportedError
from rlx.kernels.attention.args import AttentionConfig, AttentionSizes
from rlx.kernels.attention.gpu_plan import argument_names, argument_values
from rlx.kernels.matmul.triton import ENOUGH_PROGRAMS, FEW_ROWS, LONGEST, ROUND, power_above
from rlx.ops.nn.attention_mask import HIDDEN
from rlx.types import DType, bool_, f32, f64

__all__ = ["AttentionTile", "TritonAttentionConfig", "emit", "launch", "name", "refuses"]

name = "triton_attention"

WIDEST = 256
"""The largest dim of a head: the sums of a row are in registers."""

_LOG2_E = 1.4426950408889634


@frozen
class AttentionTile:
    """``rows`` against ``keys`` at a time, by ``warps`` waves; ``stages`` blocks of K and V are in
    shared memory or on their way there. ``dim`` is the head's, up to a power of two."""

    rows: int
    keys: int
    dim: int
    warps: int
    stages: int

    def shared_bytes(self, machine: TritonMachine, dt: DType) -> int:
        """What it takes: pieces of K and V beside the weights, and the queries beside them where
        they stay, else before them."""
        pieces = 2 * machine.pieces(self.stages) * self.keys * self.dim + self.rows * self.keys
        queries = self.rows * self.dim
        return (pieces + queries if machine.direct else max(pieces, queries)) * dt.bytes


@frozen
class TritonAttentionConfig:
    """What the code depends on. ``rounds`` are the largest divisors of ``ROUND`` that divide the
    strides of q, k, v, out and the mask, and the first elements of their views. ``wide`` says that
    offsets in a block of keys need 64 bits."""

    base: AttentionConfig
    scale: float
    softcap: float
    dim: int
    rounds: tuple[int, ...]
    wide: bool
    tile: AttentionTile


def refuses(target: KernelTarget, base: AttentionConfig, s: AttentionSizes) -> str | None:
    """Why attention of these sizes is none of these kernels'; None if it is."""
    if why := target.triton and target.triton.refuses(base.dtype, target.name):
        return why
    if base.mask_dtype is f64:
        return "its mask is of f64"
    if s.dim > WIDEST:
        return f"its heads have {s.dim} elements, and more than {WIDEST}"
    if s.queries * s.heads // s.key_heads <= FEW_ROWS:
        return f"a key head has at most {FEW_ROWS} rows"
    if max(s.queries * s.heads, s.keys) >= LONGEST:
        return f"it has {max(s.queries * s.heads, s.keys)} rows or keys"
    return None


def tiles(machine: TritonMachine, dt: DType, s: AttentionSizes) -> list[AttentionTile]:
    """The tiles that fit a machine and these sizes, the largest first."""
    dim, most = power_above(s.dim), power_above(s.queries * s.heads // s.key_heads)
    found: list[AttentionTile] = []
    for rows in (128, 64, 32, 16):
        if rows > most or rows * dim > 128 * 128 or not machine.feeds(rows, most):
            continue
        keys = min(power_above(s.keys), 64 if dim <= 128 else 32)
        warps = max((8 if rows * dim >= 128 * 128 else 4) * 32 // machine.wave, 2)
        for stages in range(min(machine.stages, 3), 0, -1):
            tile = AttentionTile(rows, keys, dim, warps, stages)
            if tile.shared_bytes(machine, dt) <= machine.shared:
                found.append(tile)
                break
    return found


def launch(
    base: AttentionConfig, machine: TritonMachine, s: AttentionSizes, starts: Sequence[int]
) -> tuple[TritonAttentionConfig, Launch]:
    """The kernel and its arguments. Buffers: q, k, v, [mask], out; ``starts`` are common divisors
    of the elements at which their views begin, 0 for the first."""
    rows, found = s.queries * s.heads // s.key_heads, tiles(machine, base.dtype, s)
    if not found:
        raise UnsupportedError(f"attention: no tile fits {machine.arch}'s {machine.shared} bytes")
    count = {t: s.batch * s.key_heads * ceil_div(rows, t.rows) for t in found}
    tile = next((t for t in found if count[t] >= ENOUGH_PROGRAMS), found[-1])
    strides = [s.q, s.k, s.v, *([s.mask] if base.mask_dtype else []), s.out]
    config = TritonAttentionConfig(
        base, s.scale, s.softcap, s.dim,
        tuple(gcd(ROUND, start, *own) for own, start in zip(strides, starts, strict=True)),
        any(own.row * tile.keys + tile.dim >= 1 << 31 for own in (s.k, s.v)),
        tile,
    )  # fmt: skip
    return config, Launch(count[tile], 1, argument_values(base, s))


@frozen
class _Rows:
    """The rows of a program: which there are, their heads, their queries, and the positions of
    those among the keys."""

    inside: Block
    head: Block
    query: Block
    position: Block


class _Emitter:
    """Emits one kernel: a method a step."""

    def __init__(self, name: str, config: TritonAttentionConfig) -> None:
        self.config, self.tile, base = config, config.tile, config.base
        buffers = [("q", base.dtype), ("k", base.dtype), ("v", base.dtype)]
        buffers += [("mask", base.mask_dtype)] if base.mask_dtype else []
        buffers.append(("out", base.dtype))
        names = argument_names(base)
        self.t = t = Text(name, buffers, names)
        rounds = dict(zip([n for n, _ in buffers], config.rounds, strict=True))
        self.program = t.program()
        self.size = {n: t.size(n, rounds.get(n.partition("_")[0], 1)) for n in names}
        self.pointers = {n: t.buffer(n, rounds[n]) for n, _ in buffers}
        self.elements = t.arange(self.tile.dim)
        self.inside_dim = self.elements < config.dim

    def emit(self) -> None:
        """The whole kernel."""
        t, size, rows = self.t, self.size, self.tile.rows
        self.total = size["group"] * size["queries"]
        blocks = (self.total + (rows - 1)) // rows
        self.first = self.program % blocks * rows
        i, key_heads = self.program // blocks, size["heads"] // size["group"]
        self.kv_head, self.b = i % key_heads, i // key_heads
        self.rows = self.row_block()
        q = self.load_rows("q")
        low, high = self.visible()

        def keys(at: Block, peaks: Block, totals: Block, sums: Block) -> list[Block]:
            return self.keys(q, at, peaks, totals, sums)

        none = [t.const(x, "f32", (rows,)) for x in (-math.inf, 0.0)]
        none.append(t.const(0.0, "f32", (rows, self.tile.dim)))
        step = self.tile.keys
        _, totals, sums = t.loop(low - low % step, high, step, keys, none)
        if self.config.base.mask == "bias":  # which may leave a row nothing: its sums are 0
            totals = t.select(t.compare("eq", totals, 0.0), 1.0, totals)
        result = sums * t.column(t.const(1.0, "f32", (rows,)) / totals)
        t.write(self.pointers["out"], self.row_pointers("out"), result, self.row_mask())

    def row_block(self) -> _Rows:
        """The program's rows; beyond the last the last once more."""
        t, size = self.t, self.size
        r = t.arange(self.tile.rows) + self.first
        inside = r < self.total
        r = t.minimum(r, self.total - 1)
        query = r % size["queries"]
        head = self.kv_head * size["group"] + r // size["queries"]
        return _Rows(inside, head, query, query + (size["keys"] - size["queries"]))

    def row_mask(self) -> Block:
        """Which elements of the rows there are."""
        return self.t.column(self.rows.inside) & self.t.row(self.inside_dim)

    def row_offsets(self, name: str) -> Block:
        """Where the rows of a tensor or of the mask lie, as a column."""
        t, size, rows = self.t, self.size, self.rows
        lead = t.wide(self.b) * size[f"{name}_batch"]
        own = t.wide(rows.head) * size[f"{name}_head"] + t.wide(rows.query) * size[f"{name}_row"]
        return t.column(own + lead)

    def row_pointers(self, name: str) -> Block:
        """The addresses of the rows' elements."""
        return self.pointers[name].base + (self.row_offsets(name) + self.t.row(self.elements))

    def load_rows(self, name: str) -> Block:
        """The rows of q, as they are; 0 where there are none."""
        return self.t.load(self.row_pointers(name), self.row_mask())

    def visible(self) -> tuple[Block, Block]:
        """The keys [low, high) that the rows have to look at: all, if they are of two heads. A row
        of a causal mask that sees no key weighs all keys alike, so its block skips none."""
        t, size, rows = self.t, self.size, self.tile.rows
        keys, queries, none = size["keys"], size["queries"], t.const(0, "i32")
        if self.config.base.mask not in ("causal", "window"):
            return none, keys
        last = t.minimum(self.first + rows, self.total) - 1
        at = keys - queries + self.first % queries
        one = t.compare("eq", self.first // queries, last // queries) & (at >= 0)
        high = t.select(one, t.minimum(at + rows, keys), keys)
        if self.config.base.mask == "causal":
            return none, high
        return t.select(one, t.maximum(at - size["window"], 0), 0), high

    # -- a block of keys -------------------------------------------------------------------

    def keys(self, q: Block, at: Block, peaks: Block, totals: Block, sums: Block) -> list[Block]:
        """Keys from ``at`` on: the rows' new peaks, totals and sums."""
        t = self.t
        key = t.arange(self.tile.keys) + at
        there = key < self.size["keys"]
        scores = self.scores(q, at, key, there)
        new = t.maximum(peaks, t.reduce(scores, 1, "arith.maximumf"))
        # A peak of -inf: no key had a finite score so far, and none is to weigh nan.
        safe = t.select(t.compare("eq", new, -math.inf), 0.0, new)
        # The difference first: beside a score of -1e9 the product with log2 e is far off.
        fade = t.exp2((peaks - safe) * _LOG2_E)
        weights = t.exp2((scores - t.column(safe)) * _LOG2_E)
        totals = totals * fade + t.reduce(weights, 1, "arith.addf")
        v = self.load_keys("v", at, there, across=False)
        weights = t.convert(weights, self.config.base.dtype.name)
        return [new, totals, t.dot(weights, v, sums * t.column(fade))]

    def load_keys(self, name: str, at: Block, there: Block, *, across: bool) -> Block:
        """A block of k or v, a row a key, or a column a key; 0 beyond the last key and the dim."""
        t, size = self.t, self.size
        step = size[f"{name}_row"]
        base = self.pointers[name].base + t.wide(self.b) * size[f"{name}_batch"]
        base = base + t.wide(self.kv_head) * size[f"{name}_head"] + t.wide(at) * step
        near = t.arange(self.tile.keys)
        keys = (t.wide(near) if self.config.wide else near) * step
        down, right = (self.elements, keys) if across else (keys, self.elements)
        masks = (self.inside_dim, there) if across else (there, self.inside_dim)
        return t.load(base + t.column(down) + t.row(right), t.column(masks[0]) & t.row(masks[1]))

    def scores(self, q: Block, at: Block, key: Block, there: Block) -> Block:
        """Scores of the rows and keys, -inf beyond the last key."""
        t, config = self.t, self.config
        k = self.load_keys("k", at, there, across=True)
        none = t.const(0.0, "f32", (self.tile.rows, self.tile.keys))
        s = t.dot(q, k, none) * config.scale
        if config.base.softcap:
            (s,) = pointwise(t, self.bounded, [s], [f32])
        return t.select(t.row(there), self.masked(s, t.row(key), t.row(there)), -math.inf)

    def bounded(self, k: Kernel, values: Sequence[Reg]) -> Sequence[Reg]:
        """A score under the softcap."""
        cap = self.config.softcap
        return [k.tanh(values[0] * (1.0 / cap)) * cap]

    def masked(self, s: Block, key: Block, there: Block) -> Block:
        """Scores under the mask; ``key`` are the keys as a row."""
        t, mask, position = self.t, self.config.base.mask, self.t.column(self.rows.position)
        if mask == "none":
            return s
        if mask == "bias":
            p = self.pointers["mask"]
            inside = there & t.column(self.rows.inside)
            return s + t.read(p, p.base + (self.row_offsets("mask") + key), inside)
        if mask == "custom":
            return t.select(self.hidden(key, there), HIDDEN, s)
        seen = key <= position
        if mask == "window":
            seen = seen & (key >= position - self.size["window"])
        return t.select(seen, s, HIDDEN)

    def hidden(self, key: Block, there: Block) -> Block:
        """Which keys a custom mask hides: those below one half."""
        t, p = self.t, self.pointers["mask"]
        base = p.base + t.wide(self.b) * self.size["mask_batch"]
        x = t.read(p, base + key, there)
        if p.dtype is bool_:
            return t.compare("eq", x, False)
        if p.dtype.is_float:
            return x < 0.5
        return t.compare("eq", x, 0) if p.dtype.kind == "uint" else x < 1


def emit(name: str, config: TritonAttentionConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    assert target.triton is not None, f"{target.name} has no Triton"
    emitter = _Emitter(name, config)
    emitter.emit()
    return emitter.t.text(config.tile.warps, target.triton.wave, config.tile.stages)

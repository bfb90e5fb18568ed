"""The gradients of attention by q, k and v, from q, k, v and the cotangent g of its result.

With p the weights of a query row over the keys, and s the scores (see ``attention``)::

    dp = g v^T;  ds = p (dp - sum(p dp)) * (the slope of s by q . k);  ds = 0 for a hidden key
    dq = ds k;   dk = ds^T q;   dv = p^T g

A task is a head of keys, for all query heads that read it. It takes a block of query rows at a
time, side by side in the lanes as ``blocks.py`` has them: their scores and dp for all keys
they see, ``[key][query]`` in scratch, become p and ds, and these go into dq, and into sums of dk
and dv. Nothing but the operands is needed from the forward pass, and the memory is linear in the
number of keys. Rows in scratch have room for whole register tiles; what lies beyond is never read
out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from rlx.base.dims import maximum
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.attention.args import (
    Arguments,
    AttentionGradConfig,
    AttentionGradSizes,
    Count,
    Tile,
    offsets,
    padded,
    positions,
    size_values,
    tile_for,
)
from rlx.kernels.attention.lanes import transpose
from rlx.kernels.attention.mask import HIDDEN, Masking, inverse_of, visible, weight_of
from rlx.types import i32

__all__ = ["AttentionGradConfig", "AttentionGradSizes", "emit", "launch", "name"]

name = "attention_grad"

_FMA_PER_NS = 6
"""What a fast core does: two vector FMA a cycle at 3 GHz."""


def emit(name: str, config: AttentionGradConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config. Buffers: q, k, v, [mask], g, dq, dk, dv."""
    k = Kernel(name, target)
    k.parallel(_Emitter(k, config, tile_for(target, config.compute)).task)
    return k.text()


def launch(config: AttentionGradConfig, target: KernelTarget, sizes: AttentionGradSizes) -> Launch:
    """One call of the kernel that ``emit`` made for the same config and target."""
    tile = tile_for(target, config.compute)
    _, end = offsets(_scratch_lengths(tile, config, sizes.dim, sizes.keys), 0)
    rows = sizes.queries * sizes.heads // sizes.key_heads
    task_ns = 5 * rows * sizes.keys * sizes.dim // (_FMA_PER_NS * tile.lanes)
    return Launch(
        range=sizes.batch * sizes.key_heads,
        grain=maximum(1, 4000 // maximum(task_ns, 1)),
        sizes=size_values(config, sizes),
        scratch=end * config.compute.bytes,
    )


def _scratch_lengths(
    tile: Tile, config: AttentionGradConfig, dim: Count, keys: Count
) -> dict[str, Count]:
    """The scratch arrays of a task, in elements of the compute type."""
    width, queries = padded(dim, tile), tile.queries
    rows = keys + (tile.rows - 1)
    by_key, by_query = rows * width, width * queries
    named = [
        (("keys", "values", "dkeys", "dvalues"), by_key),
        (("queries", "cotangents", "dqueries"), by_query),
        (("queries_across", "cotangents_across"), dim * queries),
        (("scores", "changes"), rows * queries),
    ]
    lengths = {name: size for names, size in named for name in names}
    if config.softcap:
        lengths["bends"] = rows * queries
    if config.mask == "custom":
        lengths["kept"] = rows
    if config.mask == "bias":
        lengths["bias"] = rows * queries
    return lengths


class _Factor(NamedTuple):
    """An array in scratch as a factor or result of a product: where it starts, and the distances
    between its rows and along the sum; columns lie side by side."""

    buffer: Buffer
    start: Reg
    row: Reg | int
    step: Reg | int = 0

    def at(self, row: Reg, step: Reg | int = 0) -> Reg:
        """The offset of an element."""
        return self.start + row * self.row + (step * self.step if isinstance(step, Reg) else 0)


class _Emitter:
    """Emits the body of the kernel, a phase a method."""

    b: Reg
    kv_head: Reg
    head: Reg

    def __init__(self, k: Kernel, config: AttentionGradConfig, tile: Tile) -> None:
        self.k, self.config, self.tile = k, config, tile
        self.args = a = Arguments(k, config)
        dt = config.compute
        starts, _ = offsets(_scratch_lengths(tile, config, a.dim, a.keys), k.index(0))
        self.scratch = {name: k.scratch(dt, at * dt.bytes) for name, at in starts.items()}
        self.width = padded(a.dim, tile)
        self.scale = a.float("scale")
        self.masking = Masking(k, config, a)
        self.lanes = [tile.lanes * v for v in range(tile.query_vectors)]

    # -- the order of work -------------------------------------------------------------------

    def task(self, t: Reg) -> None:
        """One head of keys."""
        k, a, size = self.k, self.args, self.tile.queries
        key_heads = a.heads // a.group
        self.b, self.kv_head = t // key_heads, t % key_heads
        k.loop(0, a.keys, 1, self.start_key)

        def head(h: Reg) -> None:
            self.head = self.kv_head * a.group + h
            k.loop(0, a.queries, size, lambda q: self.block(q, k.minimum(a.queries - q, size)))

        k.loop(0, a.group, 1, head)
        for name, source in (("dk", "dkeys"), ("dv", "dvalues")):
            self.put_rows(name, self.kv_head, k.index(0), a.keys, source)

    def block(self, first: Reg, rows: Reg) -> None:
        """The query rows ``[first, first + rows)``, on all keys that one of them sees."""
        k, a, t = self.k, self.args, self.tile
        self.copy_rows("q", first, rows, "queries", self.scale)
        self.copy_rows("g", first, rows, "cotangents", None)
        low, high = visible(k, a, self.config, first, rows)
        # Whole tiles of keys: those that nobody sees get the weight 0.
        low = low - low % t.rows
        high = k.minimum((high + (t.rows - 1)) // t.rows * t.rows, a.keys)
        count = high - low
        at, by_key = low * t.queries, low * self.width
        scores, changes = (
            _Factor(self.scratch[n], at, t.queries, 1) for n in ("scores", "changes")
        )
        for keys, rows_of, result in (
            ("keys", "queries", scores),
            ("values", "cotangents", changes),
        ):
            left = _Factor(self.scratch[keys], by_key, self.width, 1)
            right = _Factor(self.scratch[f"{rows_of}_across"], k.index(0), 0, t.queries)
            self.product(left, right, result, (count, a.dim, k.index(t.queries)))
        if self.config.mask == "bias":
            self.copy_bias(first, rows, low, count)
        self.weigh(first, low, count)
        for left, right, total in (
            (scores, "cotangents", "dvalues"),
            (changes, "queries", "dkeys"),
        ):
            b = _Factor(self.scratch[right], k.index(0), 0, self.width)
            c = _Factor(self.scratch[total], by_key, self.width)
            self.product(left, b, c, (count, rows, self.width), add=True)
        left = _Factor(self.scratch["changes"], at, 1, t.queries)
        right = _Factor(self.scratch["keys"], by_key, 0, self.width)
        result = _Factor(self.scratch["dqueries"], k.index(0), self.width)
        self.product(left, right, result, (rows, count, self.width))
        self.put_rows("dq", self.head, first, rows, "dqueries")

    # -- copies into scratch and out of it ---------------------------------------------------

    def start_key(self, j: Reg) -> None:
        """Copy a row of K and of V, and clear its gradients. Columns beyond the head dim stay as
        they are: they end in columns that nobody reads."""
        k, a, lanes = self.k, self.args, self.tile.lanes
        to = j * self.width
        for buffer, source, target in ((a.k, "k", "keys"), (a.v, "v", "values")):
            start = a.at(source, self.b, self.kv_head, j)
            self.move(buffer, start, self.scratch[target], to)
        zero = k.const(0.0, self.config.compute, lanes)
        for target in ("dkeys", "dvalues"):
            into = self.scratch[target]
            k.loop(to, to + self.width, lanes, lambda n, into=into: k.store(zero, into, n))
        if self.config.mask == "custom":
            k.store(self.masking.kept(self.b, j), self.scratch["kept"], j)

    def move(self, source: Buffer, start: Reg, target: Buffer, to: Reg) -> None:
        """Copy the elements of one head of a row."""
        k = self.k
        k.vector_loop(
            self.args.dim,
            self.tile.lanes,
            lambda d, n: k.store(k.load(source, start + d, n), target, to + d),
        )

    def copy_rows(self, name: str, first: Reg, rows: Reg, target: str, factor: Reg | None) -> None:
        """Copy query rows of q or g, and once more across and times a factor; lanes beyond the last
        row repeat it."""
        k, a, t = self.k, self.args, self.tile
        source = a.q if name == "q" else a.rest[name]
        start, stride = a.at(name, self.b, self.head, first), getattr(a, f"{name}_row")
        into, across = self.scratch[target], self.scratch[f"{target}_across"]
        k.loop(0, rows, 1, lambda r: self.move(source, start + r * stride, into, r * self.width))
        by = k.splat(factor, t.lanes) if factor is not None else None

        def some(lane: Reg) -> None:
            at = [start + k.minimum(lane + n, rows - 1) * stride for n in range(t.lanes)]

            def put(column: Reg, x: Reg) -> None:
                k.store(x if by is None else x * by, across, column * t.queries + lane)

            transpose(k, source, at, a.dim, put)

        k.loop(0, t.queries, t.lanes, some)

    def copy_bias(self, first: Reg, rows: Reg, at: Reg, count: Reg) -> None:
        """Transpose the rows' part of the bias into scratch."""
        k, a, t = self.k, self.args, self.tile
        assert a.mask is not None
        bias, source = self.scratch["bias"], a.mask

        def some(lane: Reg) -> None:
            ids = [first + k.minimum(lane + n, rows - 1) for n in range(t.lanes)]
            starts = [a.at("mask", self.b, self.head, i) + at for i in ids]

            def put(j: Reg, x: Reg) -> None:
                k.store(k.cast(x, self.config.compute), bias, (at + j) * t.queries + lane)

            transpose(k, source, starts, count, put)

        k.loop(0, t.queries, t.lanes, some)

    def put_rows(self, name: str, head: Reg, first: Reg, rows: Reg, source: str) -> None:
        """Write rows of a gradient out."""
        k, a = self.k, self.args
        found, into = self.scratch[source], a.rest[name]

        def row(r: Reg) -> None:
            self.move(found, r * self.width, into, a.at(name, self.b, head, first + r))

        k.loop(0, rows, 1, row)

    # -- the arithmetic ----------------------------------------------------------------------

    def product(
        self, a: _Factor, b: _Factor, c: _Factor, sizes: tuple[Reg, Reg, Reg], *, add: bool = False
    ) -> None:
        """C = A B, or C += A B, of ``sizes`` rows, steps of the sum, and columns.

        Tiles of rows and columns are whole: C and A have room for that, and so has a row of B.
        """
        k, t = self.k, self.tile
        rows, steps, columns = sizes
        parts = [t.lanes * v for v in range(t.dim_vectors)]

        def tile(column: Reg, row: Reg) -> None:
            starts = [a.at(row + n) for n in range(t.rows)]
            places = [c.at(row + n) + column + p for n in range(t.rows) for p in parts]
            zero = k.const(0.0, self.config.compute, t.lanes)
            sums = [k.load(c.buffer, at, t.lanes) if add else zero for at in places]

            def step(i: Reg, *sums: Reg) -> list[Reg]:
                along, line = i * a.step, b.start + i * b.step + column
                xs = [k.load(b.buffer, line + p, t.lanes) for p in parts]
                out: list[Reg] = []
                for n, start in enumerate(starts):
                    y = k.splat(k.load(a.buffer, start + along), t.lanes)
                    out += [k.fma(y, x, sums[n * len(xs) + v]) for v, x in enumerate(xs)]
                return out

            for at, x in zip(places, k.loop(0, steps, 1, step, sums), strict=True):
                k.store(x, c.buffer, at)

        k.loop(
            0,
            columns,
            t.columns,
            lambda d: k.loop(0, rows, t.rows, lambda row: tile(d, row)) and None,
        )

    def weigh(self, first: Reg, low: Reg, count: Reg) -> None:
        """Turn scores into weights p, and the changes dp of weights into those of ``q . k``."""
        k, t = self.k, self.tile
        scores, changes = self.scratch["scores"], self.scratch["changes"]
        adjust = self.adjustment(first, low)
        start = low * t.queries

        def queries(v: int, lane: int) -> None:
            def at(j: Reg) -> Reg:
                return start + j * t.queries + lane

            def highest(j: Reg, most: Reg) -> Reg:
                s = adjust(k.load(scores, at(j), t.lanes), j, v)
                k.store(s, scores, at(j))
                # Unlike k.maximum this drops nan, which the weights then bring back.
                return k.select(s > most, s, most)

            none = k.const(-math.inf, self.config.compute, t.lanes)
            (most,) = k.loop(0, count, 1, highest, [none])
            safe = k.select(k.compare("eq", most, -math.inf), 0.0, most)

            def weight(j: Reg, total: Reg, along: Reg) -> list[Reg]:
                w = weight_of(k.load(scores, at(j), t.lanes) - safe)
                k.store(w, scores, at(j))
                return [total + w, k.fma(w, k.load(changes, at(j), t.lanes), along)]

            zero = k.const(0.0, self.config.compute, t.lanes)
            total, along = k.loop(0, count, 1, weight, [zero, zero])
            inverse = inverse_of(total, self.config)
            mean, factor = along * inverse, k.splat(self.scale, t.lanes)
            if self.config.mask not in ("none", "bias"):
                # Where no key is seen the weights are alike, whatever q and k are.
                factor = k.select(most > HIDDEN, factor, 0.0)

            def change(j: Reg) -> None:
                p = k.load(scores, at(j), t.lanes) * inverse
                k.store(p, scores, at(j))
                d = p * (k.load(changes, at(j), t.lanes) - mean) * factor
                if self.config.softcap:
                    d = d * k.load(self.scratch["bends"], at(j), t.lanes)
                k.store(d, changes, at(j))

            k.loop(0, count, 1, change)

        for v, lane in enumerate(self.lanes):
            queries(v, lane)

    def adjustment(self, first: Reg, low: Reg) -> Callable[[Reg, Reg, int], Reg]:
        """What happens to a vector of scores (key ``low + j``, queries of vector ``v``); the slope
        of a softcap is kept."""
        k, t, masking = self.k, self.tile, self.masking
        own = [positions(k, masking.position(first) + v, t.lanes) for v in self.lanes]

        def adjust(s: Reg, j: Reg, v: int) -> Reg:
            key = low + j
            at = key * t.queries + self.lanes[v]
            if self.config.softcap:
                share = masking.bounded(s)
                k.store(1.0 - share * share, self.scratch["bends"], at)
                s = share * self.args.float("softcap")

            def extra() -> Reg:
                if self.config.mask == "custom":
                    return k.splat(k.load(self.scratch["kept"], key), t.lanes)
                return k.load(self.scratch["bias"], at, t.lanes)

            return masking.masked(s, k.splat(k.cast(key, i32), t.lanes), own[v], extra)

        return adjust

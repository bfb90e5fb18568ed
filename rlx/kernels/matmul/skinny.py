"""Products with few columns, by lanes along K: ``C[i] = A[i] @ B[i]`` where N is at most a vector.

In panels most columns would be zeros, and to pack takes as long as to multiply. Rows of A lie along
K. B lies along K too, column by column, or it is dense, [K, N] row by row. Either way lane l of a
sum takes the products of the steps k = l, l + lanes, ...:

    task (batch, part of K, some rows):
        for each tile of columns:
            for each vector of steps: add vectors of A times vectors of B      in registers
            the last vector ends with K; of it the steps that are left
            the lanes of each sum, half by half

A dense B has vectors of several columns: a vector of steps is N of them, and each is multiplied by
a vector in which each element of A stands where its step is. So all lanes are at work, and nothing
is moved but the few elements of A.

The order of a sum depends on K alone. A long K is cut into parts, of which another launch makes
the sum: the result is [batch, parts, M, N].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.combine import multiply_add
from rlx.codegen.family import Launch
from rlx.codegen.lanes import shuffle, totals
from rlx.codegen.reg import Buffer, Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul.tile import accumulate_type
from rlx.types import DType

__all__ = ["FewColumnsConfig", "config_of", "emit", "launch", "name", "steps_of"]

name = "skinny"

PART = 4 << 10
"""Steps of k of a part: one chain of additions has a lane's share of them."""

ROWS = 4
"""Rows of a tile at most, and columns of one of B that lies along K."""

GRAIN = 1 << 15
"""Multiply-adds that are worth a thread of their own: a few microseconds."""


@frozen
class FewColumnsConfig:
    """What the code depends on.

    A tile has ``rows`` and ``columns``. ``out`` is the type of the result. A ``dense`` B is [K, N]
    row by row, and its tile has all of its columns; another has its columns along K.
    """

    dtype: DType
    out: DType
    rows: int
    columns: int
    dense: bool


def steps_of(target: KernelTarget, dt: DType, k: int) -> int:
    """Steps of k of a part, which are whole vectors."""
    lanes = target.lanes(accumulate_type(dt))
    return ceil_div(ceil_div(k, ceil_div(k, PART)), lanes) * lanes


def config_of(
    target: KernelTarget, dt: DType, out: DType, m: int, n: int, dense: bool
) -> FewColumnsConfig:
    """The config for products of ``m`` rows and ``n`` columns, at most as many as a vector has
    lanes."""
    columns = n if dense else minimum(n, ROWS)
    fits = target.registers // 2 // columns
    return FewColumnsConfig(dt, out, maximum(1, minimum(m, ROWS, fits)), columns, dense)


def launch(
    config: FewColumnsConfig,
    target: KernelTarget,
    sizes: tuple[int, int, int, int],
    a: Sequence[int],
    b: Sequence[int],
) -> Launch:
    """The launch of ``sizes`` = (batch, m, n, k), k at least a vector. ``a`` has the distances
    between batch elements and rows of A, ``b`` those between batch elements and columns of B, of
    which a dense one has no use. The buffers are A, B, C [batch, parts, m, n]."""
    batch, m, n, k = sizes
    step = steps_of(target, config.dtype, k)
    parts, tiles = ceil_div(k, step), ceil_div(m, config.rows)
    grain = maximum(1, GRAIN // (config.rows * n * step))
    return Launch(batch * parts * tiles, grain, (m, n, k, parts, step, *a, *b))


def emit(name: str, config: FewColumnsConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


@frozen
class _Tile:
    """Where the rows of A of a tile begin and its product's B, and its steps of k."""

    a: list[Reg]
    b: Reg
    begin: Reg
    end: Reg


class _Emitter:
    """Emits one kernel."""

    def __init__(self, name: str, config: FewColumnsConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config, self.dt = config, accumulate_type(config.dtype)
        self.lanes = target.lanes(self.dt)
        self.a, self.b = k.buffer("a", config.dtype), k.buffer("b", config.dtype)
        self.c = k.buffer("c", config.out)
        self.m, self.n, self.depth = k.size("m"), k.size("n"), k.size("depth")
        self.parts, self.step = k.size("parts"), k.size("step")
        self.a_batch, self.a_row = k.size("a_batch"), k.size("a_row")
        self.b_batch, self.b_column = k.size("b_batch"), k.size("b_column")

    def emit(self) -> KernelText:
        if self.config.dense:
            self.room = self.k.stack(self.dt, self.lanes * (self.config.columns + 1))
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, t: Reg) -> None:
        """Some rows of one part of one product. Those that a tile has too many repeat the last."""
        k, rows = self.k, self.config.rows
        tiles = (self.m + (rows - 1)) / rows
        first, rest = t % tiles * rows, t / tiles
        part, batch = rest % self.parts, rest / self.parts
        numbers = [k.minimum(first + r, self.m - 1) if r else first for r in range(rows)]
        c = [(rest * self.m + r) * self.n for r in numbers]
        begin = part * self.step
        a = [batch * self.a_batch + r * self.a_row for r in numbers]
        tile = _Tile(a, batch * self.b_batch, begin, k.minimum(begin + self.step, self.depth))
        if self.config.dense:
            self.dense(tile, c)
        else:
            columns = self.config.columns
            k.loop(0, self.n, columns, lambda j: self.along(tile, c, j))

    def sums(self, t: _Tile, load: Callable[[Reg, Reg | None], list[Reg]]) -> list[Reg]:
        """The sums of a tile, by row and vector. ``load`` gives the vectors of B at a step; of the
        first ones as many count for nothing as it is told."""
        k, lanes = self.k, self.lanes
        width = self.config.columns

        def add(i: Reg, totals: Sequence[Reg], done: Reg | None = None) -> list[Reg]:
            across, out = load(i, done), list[Reg]([])
            for at in t.a:
                x = self.vector(self.a, at + i, 0, done)
                for v, y in enumerate(across):
                    out.append(multiply_add(k, self.spread(x, v), y, totals[len(out)]))
            return out

        zeros = [k.const(0, self.dt, lanes)] * (len(t.a) * width)
        whole = t.end - (t.end - t.begin) % lanes
        found = k.loop(t.begin, whole, lanes, lambda i, *totals: add(i, totals), zeros)
        # The last vector ends with K, and may begin before the part.
        last = t.end - lanes
        return k.when(whole < t.end, lambda: add(last, found, whole - last), lambda: found, found)

    def vector(self, b: Buffer, at: Reg, first: int, done: Reg | None) -> Reg:
        """A vector of elements, which are those from ``first`` on; zeros for the ``done`` ones."""
        k = self.k
        x = k.cast(k.load(b, at, self.lanes), self.dt)
        if done is None:
            return x
        zeros = k.const(0, self.dt, self.lanes)
        return k.select(k.first_lanes(done - first, self.lanes), zeros, x)

    def spread(self, x: Reg, v: int) -> Reg:
        """A vector of A as the vector ``v`` of B has its steps."""
        if not self.config.dense:
            return x
        n, lanes = self.config.columns, self.lanes
        return shuffle(self.k, x, x, [(v * lanes + lane) // n for lane in range(lanes)])

    def along(self, t: _Tile, c: Sequence[Reg], j: Reg) -> None:
        """Columns of B from ``j`` on, each along K; the last tile ends with the last column."""
        k, columns = self.k, self.config.columns
        j = k.minimum(j, self.n - columns)
        places = [t.b + (j + s if s else j) * self.b_column for s in range(columns)]
        found = self.sums(t, lambda i, done: [self.vector(self.b, p + i, 0, done) for p in places])
        most = maximum(1, self.lanes // columns)
        for first in range(0, len(c), most):
            rows = c[first : first + most]
            begin = first * columns
            total = totals(k, found[begin : begin + len(rows) * columns])
            for r, row in enumerate(rows):
                part = range(r * columns, (r + 1) * columns)
                k.store(shuffle(k, total, total, part), self.c, row + j, columns)

    def dense(self, t: _Tile, c: Sequence[Reg]) -> None:
        """All columns of a dense B. A sum's lanes are the columns' one after the other: they are
        added through memory, where each step's begin at an element of their own."""
        k, n, lanes = self.k, self.config.columns, self.lanes

        def load(i: Reg, done: Reg | None) -> list[Reg]:
            at, past = t.b + i * n, done and done * n
            return [self.vector(self.b, at + v * lanes, v * lanes, past) for v in range(n)]

        found = self.sums(t, load)
        for r, row in enumerate(c):
            for v in range(n):
                k.store(found[r * n + v], self.room, k.index(v * lanes))
            steps = [k.load(self.room, i * n, lanes) for i in range(lanes)]
            while len(steps) > 1:
                half = len(steps) // 2
                steps = [x + y for x, y in zip(steps[:half], steps[half:], strict=True)]
            if k.target.masks:
                k.store(steps[0], self.c, row, 0, k.first_lanes(k.index(n), lanes))
            else:
                for j in range(n):
                    k.store(k.extract(steps[0], j), self.c, row + j)

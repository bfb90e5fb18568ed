"""Matrix products with a pointwise epilogue on GPUs: ``C[b] = epilogue(A[b] @ B[b], operands)``.

Every operand lies as it lies: A [batch.., m, k], B [batch.., k, n], the rest [batch.., m, n], each
by its strides. 16-bit floats are multiplied and summed in f32. There are three kernels:

- a block computes a tile of C through shared memory (``tile``), for matrices;
- the same by matrix units (``gpu_matrix_tile.py``), where the target has one for the element types;
- a block computes a few rows of C and some of its columns, each sum split among its threads, for a
  matrix and a few vectors. B is read once, and nothing of it goes through shared memory.

The order of a sum depends on which of the three it is, and not on the tile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

from rlx.base.frozen import frozen
from rlx.base.guards import is_one, prefers
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.probe import step_cost
from rlx.codegen.program import Program
from rlx.codegen.reg import Reg
from rlx.codegen.strides import Access, Space, Strided, Strides, ceil_div, collapse
from rlx.errors import UnsupportedError
from rlx.kernels.matmul.gpu_matrix_tile import Fragments, emit_block
from rlx.kernels.matmul.gpu_matrix_units import unit_for
from rlx.kernels.matmul.gpu_tile import (
    Room,
    Tile,
    add_product,
    each_sum,
    lay_out,
    multiply,
    power_below,
    stage,
)
from rlx.kernels.matmul.tile import accumulate_type
from rlx.types import DType

__all__ = ["GpuContractionConfig", "Split", "emit", "launch", "name", "turns"]

name = "gpu_contraction"

FEW_ROWS = 8
"""Rows up to which nothing of B is used often enough to go through shared memory."""

ENOUGH_BLOCKS = 128
"""Blocks that keep a large GPU busy: with fewer, tiles are smaller."""

LINE = 32
"""Neighbouring elements that threads read together."""

UNROLLED = 96
"""Instructions of an epilogue, for all sums of a thread, up to which it is written out for each."""

STORE_COST = 4
"""Instructions to find and store an element."""


@frozen
class Split:
    """``columns`` columns of C, each by ``parts`` threads, and ``rows`` rows, by every thread."""

    rows: int
    columns: int
    parts: int

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return self.columns * self.parts


@frozen
class GpuContractionConfig:
    """What the code depends on. ``epilogue`` takes the product, rounded to its first input's type,
    and the operands; ``accesses`` are those of A, B, the operands and C, along the batch's dims and
    the two of the matrix."""

    a: DType
    b: DType
    epilogue: Program
    accesses: tuple[Access, ...]
    shape: Tile | Split | Fragments

    @property
    def accumulate(self) -> DType:
        """The element type in which products are summed."""
        return accumulate_type(self.a, self.b)


def turns(m: int, n: int) -> bool:
    """Whether the product B^T A^T is the faster one: it has few rows."""
    return n <= FEW_ROWS and n < m


def choose(
    target: KernelTarget, dtypes: tuple[DType, DType], batch: int, m: int, n: int
) -> Tile | Split | Fragments:
    """The variant for a product of these sizes: of the tiles that the target can hold, the largest
    that makes enough blocks."""
    if m <= FEW_ROWS:
        threads = power_below(min(target.most_threads, 256))
        return Split(m, LINE, max(1, threads // LINE))
    y, x = lay_out(target)
    found: list[Tile] | list[Fragments]
    if unit := unit_for(target, *dtypes):
        found = [t for t in Fragments.tiles(unit) if t.fits(target)]
    else:
        dt = accumulate_type(*dtypes)
        found = [Tile(y, x, e, e, d) for e, d in ((8, 16), (8, 8), (4, 16), (2, 16), (1, 16))]
        found = [t for t in found if t.fits(target, dt)]
    if not found:
        raise UnsupportedError(
            f"matmul: no tile fits the {target.shared_bytes} bytes that a block of"
            f" {target.name} shares"
        )
    # Sums run along the depth in order, by whichever tile.
    for t in found[:-1]:
        blocks = batch * ceil_div(m, t.height) * ceil_div(n, t.width)
        if prefers(lambda blocks=blocks: blocks >= ENOUGH_BLOCKS, otherwise=False):
            return t
    return found[-1]


def launch(
    epilogue: Program,
    target: KernelTarget,
    dtypes: tuple[DType, DType],
    shape: Sequence[int],
    strides: Sequence[Strides],
) -> tuple[GpuContractionConfig, Launch]:
    """The kernel and its arguments for ``shape`` = [batch.., m, n, k], none of them 0.

    ``strides`` are those of A [batch.., m, k], B [batch.., k, n], the operands and C [batch.., m,
    n], in elements; 0 where an operand is broadcast, C never. The buffers are in that order.
    """
    *lead, m, n, depth = shape
    space = collapse(Space(tuple(lead), tuple(s[:-2] for s in strides)))
    batch = space.shape if space.size > 1 else ()
    ends = [(m, depth), (depth, n), *[(m, n)] * (len(strides) - 2)]
    own = [
        (
            *(outer if batch else ()),
            *(0 if is_one(d) else s for s, d in zip(full[-2:], dims, strict=True)),
        )
        for outer, full, dims in zip(space.strides, strides, ends, strict=True)
    ]
    accesses = tuple(_access(s) for s in own)
    form = choose(target, dtypes, space.size, m, n)
    config = GpuContractionConfig(*dtypes, epilogue, accesses, form)
    if isinstance(form, Split):
        blocks = ceil_div(n, form.columns)
    else:
        blocks = ceil_div(m, form.height) * ceil_div(n, form.width)
    sizes = [*batch, m, n, depth]
    for s, access in zip(own, accesses, strict=True):
        sizes += [n for n, kind in zip(s, access, strict=True) if kind == "any"]
    return config, Launch(space.size * blocks, 1, tuple(sizes))


def _access(strides: Strides) -> Access:
    """How an operand moves: of the matrix's dims also the first may be the one of neighbours."""
    last = len(strides) - 2
    return tuple(
        "zero" if n == 0 else "one" if n == 1 and d >= last else "any"
        for d, n in enumerate(strides)
    )


def emit(name: str, config: GpuContractionConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    made = {Tile: _Tiled, Split: _Split, Fragments: _ByUnits}[type(config.shape)]
    return made(name, config, target).text()


class _Matrix(Strided):
    """An operand with strides along two dims of a matrix, behind those of the batch."""

    def place(self, base: Reg, row: Reg, column: Reg) -> Reg:
        """The offset of an element."""
        last = len(self.access) - 2
        for d, i in ((last, row), (last + 1, column)):
            if self.access[d] != "zero":
                base = base + (i if self.access[d] == "one" else i * self.strides[d])
        return base

    def element(self, base: Reg, row: Reg, column: Reg) -> Reg:
        """An element."""
        return self.k.load(self.buffer, self.place(base, row, column))


class _Emitter(ABC):
    """What the kernels have in common: operands, what a block is for, the epilogue."""

    def __init__(self, name: str, config: GpuContractionConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config = config
        dtypes = [config.a, config.b, *config.epilogue.inputs[1:], *config.epilogue.results]
        names = ["a", "b", *(f"operand{n}" for n in range(len(dtypes) - 3)), "c"]
        self.matrices = [
            _Matrix(k, n, dt, access)
            for n, dt, access in zip(names, dtypes, config.accesses, strict=True)
        ]
        self.a, self.b, *self.operands, self.c = self.matrices
        self.lead = [k.size(f"dim{d}") for d in range(len(config.accesses[0]) - 2)]
        self.m, self.n, self.depth = (k.size(x) for x in ("m", "n", "depth"))
        for matrix in self.matrices:
            matrix.declare_strides()

    def text(self) -> KernelText:
        """The finished kernel."""
        self.k.parallel_blocks(self.config.shape.threads, self.block)
        return self.k.text()

    @abstractmethod
    def block(self, i: Reg, thread: Reg) -> None:
        """One block."""

    def batch(self, i: Reg) -> None:
        """Where the matrices of the batch element ``i`` begin."""
        at: list[Reg] = []
        for d in range(len(self.lead) - 1, -1, -1):
            at.insert(0, i % self.lead[d] if d else i)
            i = i // self.lead[d] if d else i
        self.bases = {matrix: matrix.offset(at) for matrix in self.matrices}

    def corner(self, i: Reg, tile: Tile | Fragments) -> tuple[Reg, Reg]:
        """The first row and column of the tile that is block ``i``'s, of its batch element."""
        across = (self.n + (tile.width - 1)) // tile.width
        down = (self.m + (tile.height - 1)) // tile.height
        self.batch(i // across // down)
        return i // across % down * tile.height, i % across * tile.width

    def cast_element(self, matrix: _Matrix, row: Reg, column: Reg) -> Reg:
        """An element of A or B in the type of the sums."""
        return self.k.cast(matrix.element(self.bases[matrix], row, column), self.config.accumulate)

    def finish(self, product: Reg, row: Reg, column: Reg) -> None:
        """One element of C."""
        k, program = self.k, self.config.epilogue
        values = [k.round_to(product, program.inputs[0])]
        values += [o.element(self.bases[o], row, column) for o in self.operands]
        (result,) = program.emit(k, values)
        k.store(result, self.c.buffer, self.c.place(self.bases[self.c], row, column))

    def unrolls(self, sums: int) -> bool:
        """Whether the epilogue is written out for each of a thread's sums."""
        cost = STORE_COST + sum(step_cost(s) for s in self.config.epilogue.steps)
        return cost * sums <= UNROLLED


class _Tiled(_Emitter):
    """A tile of C through shared memory."""

    def block(self, i: Reg, thread: Reg) -> None:
        k, config, tile = self.k, self.config, self.config.shape
        assert isinstance(tile, Tile)
        row0, column0 = self.corner(i, tile)
        own = thread // tile.threads_x, thread % tile.threads_x
        dt = config.accumulate
        a, b = (Room.of(k, dt, size, tile.depth) for size in (tile.height, tile.width))

        def piece(step0: Reg, *sums: Reg) -> list[Reg]:
            def left(place: Reg, step: Reg) -> Reg:
                return self.within(self.a, row0 + place, self.m, step0 + step, self.depth)

            def right(place: Reg, step: Reg) -> Reg:
                return self.within(self.b, step0 + step, self.depth, column0 + place, self.n)

            along = self.a.access[-1] == "one", self.b.access[-2] == "one"
            stage(k, a, thread, tile.threads, along=along[0], element=left)
            stage(k, b, thread, tile.threads, along=along[1], element=right)
            k.barrier()
            sums = tuple(multiply(k, a, b, own, tile, sums))
            k.barrier()
            return list(sums)

        none = [k.const(0, dt)] * (tile.rows * tile.columns)
        sums = k.loop(0, self.depth, tile.depth, piece, none)
        self.epilogue(sums, row0 + own[0], column0 + own[1], tile)

    def within(self, matrix: _Matrix, row: Reg, rows: Reg, column: Reg, columns: Reg) -> Reg:
        """An element, or 0 outside the matrix, where the last is read instead."""
        k = self.k
        inside = (row < rows) & (column < columns)
        found = self.cast_element(matrix, k.minimum(row, rows - 1), k.minimum(column, columns - 1))
        return k.select(inside, found, 0)

    def epilogue(self, sums: Sequence[Reg], row: Reg, column: Reg, tile: Tile) -> None:
        """A thread's part of C, from its row and column on."""
        k = self.k

        def one(product: Reg, r: Reg, c: Reg) -> None:
            inside = (r < self.m) & (c < self.n)
            k.when(inside, lambda: self.finish(product, r, c))

        each_sum(k, tile, sums, (row, column), one, unrolled=self.unrolls(len(sums)))


class _ByUnits(_Emitter):
    """A tile of C by matrix units: elements of A and B are moved as they are."""

    def block(self, i: Reg, thread: Reg) -> None:
        form = self.config.shape
        assert isinstance(form, Fragments)
        emit_block(self, form, i, thread, unrolled=self.unrolls(form.sums))

    def bits(self, matrix: _Matrix, row: Reg, rows: Reg, column: Reg, columns: Reg) -> Reg:
        """The bits of an element, or 0 outside the matrix, where the last is read instead."""
        k = self.k
        near = k.minimum(row, rows - 1), k.minimum(column, columns - 1)
        found = k.load_bits(matrix.buffer, matrix.place(self.bases[matrix], *near))
        return k.select((row < rows) & (column < columns), found, 0)


class _Split(_Emitter):
    """A few rows of C by all threads of a block, each with a part of the depth."""

    def block(self, i: Reg, thread: Reg) -> None:
        k, form = self.k, self.config.shape
        assert isinstance(form, Split)
        across = (self.n + (form.columns - 1)) // form.columns
        self.batch(i // across)
        # Threads side by side read neighbours: steps where B's columns are contiguous.
        along = self.b.access[-2] == "one" and self.b.access[-1] != "one"
        if along:
            part, own, step = thread % form.parts, thread // form.parts, 1
        else:
            part, own, step = thread // form.columns, thread % form.columns, form.columns
        column = i % across * form.columns + own
        near = k.minimum(column, self.n - 1)
        rows = [k.index(r) for r in range(form.rows)]

        def one(at: Reg, *sums: Reg) -> list[Reg]:
            b = self.cast_element(self.b, at, near)
            left = [self.cast_element(self.a, r, at) for r in rows]
            return [add_product(k, a, b, s) for a, s in zip(left, sums, strict=True)]

        none = [k.const(0, self.config.accumulate)] * form.rows
        sums = k.loop(part, self.depth, form.parts, one, none)
        if form.parts > 1:
            sums = k.block_fold(thread, sums, lambda _, a, b: a + b, form.parts, step)
        mine = (part < 1) & (column < self.n)
        k.when(mine, partial(self.rows, sums, rows, column))

    def rows(self, sums: Sequence[Reg], rows: Sequence[Reg], column: Reg) -> None:
        """The elements of a column."""
        for product, row in zip(sums, rows, strict=True):
            self.finish(product, row, column)

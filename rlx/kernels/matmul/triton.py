"""Products with a pointwise epilogue as programs on blocks: ``C[b] = epilogue(A[b] @ B[b], ...)``.

The operands are those of ``rlx.kernels.matmul.gpu``, each by its strides, and C is summed in
f32. A program has a tile of C. Tiles that are near in time share rows and columns: they go down a
few rows of tiles before they go on to the next column.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from rlx.base.frozen import frozen
from rlx.codegen.builder import KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.probe import step_cost
from rlx.codegen.program import Program
from rlx.codegen.reg import Reg
from rlx.codegen.strides import Access, Space, Strides, ceil_div, collapse
from rlx.codegen.triton import pointwise
from rlx.codegen.triton.machine import TritonMachine
from rlx.codegen.triton.text import Block, Pointer, Text, register_type
from rlx.errors import UnsupportedError
from rlx.types import DType, f32

__all__ = [
    "ProductTile", "TritonContractionConfig", "emit", "launch", "name", "power_above",
    "refuses",
]  # fmt: skip

name = "triton_contraction"

FEW_ROWS = 8
"""Rows up to which a tile would be mostly empty."""

ENOUGH_PROGRAMS = 128
"""Programs that keep a large GPU busy: with fewer, tiles are smaller."""

CHEAP = 16
"""Instructions of an epilogue up to which a thread may have many sums."""

LONGEST = 1 << 30
"""Counters of 32 bits go beyond a dim by a tile."""

GROUP = 8
"""Rows of tiles that programs go down before the next column."""

ROUND = 16
"""Sizes and strides are told apart by their common divisor with this: what is read at once."""


@frozen
class ProductTile:
    """A tile of C by ``warps`` waves of threads; pieces of A and B have ``depth`` elements of the
    sums, and ``stages`` of them are in shared memory or on their way there."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int

    def shared_bytes(self, machine: TritonMachine, dt: DType) -> int:
        """What it takes: the pieces, or the sums where their layout changes."""
        piece = self.depth * (self.rows + self.columns) * dt.bytes
        return max(machine.pieces(self.stages) * piece, self.rows * self.columns * 4)


@frozen
class TritonContractionConfig:
    """What the code depends on, as far as ``GpuContractionConfig`` has it, and the tile.

    ``rounds`` are the largest divisors of ``ROUND`` that divide all strides of an operand and its
    view's first element, an operand each; ``sizes`` those of m, n and the depth. ``even`` says that
    the depth has no last piece that is shorter, ``wide`` that offsets in a tile need 64 bits.
    """

    dtype: DType
    epilogue: Program
    accesses: tuple[Access, ...]
    rounds: tuple[int, ...]
    sizes: tuple[int, int, int]
    even: bool
    wide: bool
    tile: ProductTile


def refuses(
    target: KernelTarget,
    dtypes: tuple[DType, DType],
    epilogue: Program,
    shape: tuple[int, int, int],
) -> str | None:
    """Why a product of ``shape`` = (m, n, k) is none of these kernels'; None if it is."""
    a, b = dtypes
    if a is not b:
        return f"it is of {a} and {b}"
    if why := target.triton and target.triton.refuses(a, target.name):
        return why
    if min(shape[:2]) <= FEW_ROWS:
        return f"it has at most {FEW_ROWS} rows or columns"
    if max(shape) >= LONGEST:
        return f"a dim has {max(shape)} elements"
    return pointwise.refused(epilogue)


def tiles(
    machine: TritonMachine, dt: DType, shape: tuple[int, int, int], cost: int
) -> list[ProductTile]:
    """The tiles that fit a machine and a product of ``shape`` = (m, n, k), the largest first.
    ``cost`` is that of the epilogue, in instructions."""
    m, n, depth = shape
    most = power_above(m), power_above(n)
    piece = min(128 // dt.bytes, power_above(depth))
    found: list[ProductTile] = []
    sides = [(128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (32, 64), (64, 32), (32, 32),
             (16, 64), (64, 16), (16, 32), (32, 16), (16, 16)]  # fmt: skip
    for rows, columns in sides:
        if rows > most[0] or columns > most[1]:
            continue
        if not machine.feeds(rows, most[0]):
            continue
        size = rows * columns
        warps = (8 if size >= 128 * 128 else 4 if size >= 64 * 16 else 2) * 32 // machine.wave
        # The largest is for what is short enough to be written out for each of a thread's sums.
        if rows * columns > 128 * 128 and (not machine.direct or cost > CHEAP):
            continue
        for stages in range(machine.stages, 0, -1):
            tile = ProductTile(rows, columns, piece, max(warps, 2), stages)
            if tile.shared_bytes(machine, dt) <= machine.shared:
                found.append(tile)
                break
    return found


def power_above(n: int) -> int:
    """The least power of two that is not below n, and at least 16: a side of a tile."""
    return max(16, 1 << (n - 1).bit_length())


def launch(
    epilogue: Program,
    machine: TritonMachine,
    dt: DType,
    shape: Sequence[int],
    strides: Sequence[Strides],
    starts: Sequence[int],
) -> tuple[TritonContractionConfig, Launch]:
    """The kernel and its arguments for ``shape`` = [batch.., m, n, k], none of them 0, as of
    ``rlx.kernels.matmul.gpu.launch``; ``starts`` are common divisors of the elements at which
    the operands' views begin, 0 for the first.
    """
    *lead, m, n, depth = shape
    space = collapse(Space(tuple(lead), tuple(s[:-2] for s in strides)))
    batch = space.shape if space.size > 1 else ()
    ends = [(m, depth), (depth, n), *[(m, n)] * (len(strides) - 2)]
    own = [
        (
            *(outer if batch else ()),
            *(s if d > 1 else 0 for s, d in zip(full[-2:], dims, strict=True)),
        )
        for outer, full, dims in zip(space.strides, strides, ends, strict=True)
    ]
    cost = sum(step_cost(s) for s in epilogue.steps)
    found = tiles(machine, dt, (m, n, depth), cost)
    if not found:
        raise UnsupportedError(f"matmul: no tile fits {machine.arch}'s {machine.shared} bytes")
    count = {t: space.size * ceil_div(m, t.rows) * ceil_div(n, t.columns) for t in found}
    tile = next((t for t in found if count[t] >= ENOUGH_PROGRAMS), found[-1])
    side = max(tile.rows, tile.columns, tile.depth)
    config = TritonContractionConfig(
        dt,
        epilogue,
        tuple(_access(s) for s in own),
        tuple(_round(s, start) for s, start in zip(own, starts, strict=True)),
        (gcd(m, ROUND), gcd(n, ROUND), gcd(depth, ROUND)),
        depth % tile.depth == 0,
        any(sum(map(abs, s[-2:])) * side >= 1 << 31 for s in own),
        tile,
    )
    sizes = [*batch, m, n, depth]
    for s, access in zip(own, config.accesses, strict=True):
        sizes += [step for step, kind in zip(s, access, strict=True) if kind == "any"]
    return config, Launch(count[tile], 1, tuple(sizes))


def _access(strides: Strides) -> Access:
    last = len(strides) - 2
    return tuple(
        "zero" if n == 0 else "one" if n == 1 and d >= last else "any"
        for d, n in enumerate(strides)
    )


def _round(strides: Strides, start: int) -> int:
    return gcd(ROUND, start, *(s for s in strides if s != 1))


class _Matrix:
    """An operand: its pointer, and its strides along the batch's dims and the two of the matrix.
    Dims along which it does not move have none."""

    def __init__(self, t: Text, name: str, access: Access, multiple: int, *, wide: bool) -> None:
        self.t, self.wide = t, wide
        self.pointer: Pointer = t.buffer(name, multiple)
        self.steps: list[Block | int | None] = [
            None if kind == "zero" else 1 if kind == "one" else t.size(f"{name}_{d}", multiple)
            for d, kind in enumerate(access)
        ]

    def offset(self, dim: int, i: Block, *, wide: bool) -> Block | None:
        """How far an index along a dim is from the first."""
        step = self.steps[dim]
        if step is None:
            return None
        i = self.t.wide(i) if wide else i
        return i if isinstance(step, int) else i * step

    def begin(self, at: Sequence[Block], row: Block | None, column: Block | None) -> Block:
        """The address of an element of the batch's element ``at``."""
        places = [*enumerate(at), (-2, row), (-1, column)]
        base = self.pointer.base
        for dim, i in places:
            if i is not None and (part := self.offset(dim, i, wide=True)) is not None:
                base = base + part
        return base

    def tile(self, base: Block, rows: Block, columns: Block) -> Block:
        """The addresses of a tile that begins at ``base``: a row or a column of them where the
        operand moves along one dim, one where along none."""
        for dim, i in ((-2, self.t.column(rows)), (-1, self.t.row(columns))):
            if (part := self.offset(dim, i, wide=self.wide)) is not None:
                base = base + part
        return base

    def mask(self, rows: Block, columns: Block) -> Block | None:
        """Of masks of rows and of columns, what concerns a tile's addresses."""
        parts = [m for m, s in zip((rows, columns), self.steps[-2:], strict=True) if s is not None]
        return parts[0] & parts[1] if len(parts) == 2 else parts[0] if parts else None


class _Emitter:
    """Emits one kernel."""

    def __init__(self, name: str, config: TritonContractionConfig, target: KernelTarget) -> None:
        self.config, self.tile = config, config.tile
        epilogue = config.epilogue
        dtypes = [config.dtype, config.dtype, *epilogue.inputs[1:], *epilogue.results]
        names = ["a", "b", *(f"operand{n}" for n in range(len(dtypes) - 3)), "c"]
        lead = [f"dim{d}" for d in range(len(config.accesses[0]) - 2)]
        steps = [
            f"{n}_{d}"
            for n, access in zip(names, config.accesses, strict=True)
            for d, kind in enumerate(access)
            if kind == "any"
        ]
        self.t = t = Text(
            name, list(zip(names, dtypes, strict=True)), [*lead, "m", "n", "depth", *steps]
        )
        self.program = t.program()
        self.lead = [t.size(d) for d in lead]
        self.m, self.n, self.depth = (
            t.size(s, by) for s, by in zip(("m", "n", "depth"), config.sizes, strict=True)
        )
        self.a, self.b, *self.operands, self.c = (
            _Matrix(t, n, access, by, wide=config.wide)
            for n, access, by in zip(names, config.accesses, config.rounds, strict=True)
        )

    def emit(self) -> None:
        """The whole kernel."""
        t, tile = self.t, self.tile
        at, row0, column0 = self.place()
        rows, columns = t.arange(tile.rows), t.arange(tile.columns)
        inside = t.column(rows + row0 < self.m), t.row(columns + column0 < self.n)
        steps = t.arange(tile.depth)
        a, b = self.a.begin(at, row0, None), self.b.begin(at, None, column0)

        def piece(first: Block, total: Block) -> list[Block]:
            here = steps + first < self.depth
            x = self.piece(self.a, a, (None, first), (rows, steps), (inside[0], t.row(here)))
            y = self.piece(self.b, b, (first, None), (steps, columns), (t.column(here), inside[1]))
            return [t.dot(x, y, total)]

        none = t.const(0.0, "f32", (tile.rows, tile.columns))
        (total,) = t.loop(t.const(0, "i32"), self.depth, tile.depth, piece, [none])
        self.finish(total, at, (row0, column0), (rows, columns), inside)

    def place(self) -> tuple[list[Block], Block, Block]:
        """The program's element of the batch, and the first row and column of its tile."""
        t, tile = self.t, self.tile
        across = (self.n + (tile.columns - 1)) // tile.columns
        down = (self.m + (tile.rows - 1)) // tile.rows
        own, i = self.program % (across * down), self.program // (across * down)
        first = own // (across * GROUP) * GROUP
        high = t.minimum(down - first, GROUP)
        own = own % (across * GROUP)
        at: list[Block] = []
        for d in range(len(self.lead) - 1, -1, -1):
            at.insert(0, i % self.lead[d] if d else i)
            i = i // self.lead[d] if d else i
        return at, (first + own % high) * tile.rows, own // high * tile.columns

    def piece(
        self, matrix: _Matrix, base: Block, first: tuple[Block | None, Block | None],
        places: tuple[Block, Block], inside: tuple[Block, Block],
    ) -> Block:  # fmt: skip
        """A piece of A or B from a step of the sums on, 0 outside the matrix."""
        t = self.t
        along = 1 if first[1] is not None else 0
        step = first[along]
        assert step is not None
        if (part := matrix.offset(along - 2, step, wide=True)) is not None:
            base = base + part
        shape = (places[0].shape[0], places[1].shape[0])
        pointers = t.spread(matrix.tile(base, *places), shape)
        outer = inside[1 - along]
        mask = outer if self.config.even else outer & inside[along]
        return t.load(pointers, t.spread(mask, shape))

    def finish(
        self, total: Block, at: Sequence[Block], corner: tuple[Block, Block],
        places: tuple[Block, Block], inside: tuple[Block, Block],
    ) -> None:  # fmt: skip
        """What becomes of a tile of sums."""
        t, program = self.t, self.config.epilogue
        values = [total]
        for o in self.operands:
            pointers = o.tile(o.begin(at, *corner), *places)
            found = t.read(o.pointer, pointers, o.mask(*inside))
            values.append(t.spread(found, total.shape))

        def elements(k: object, xs: Sequence[Reg]) -> Sequence[Reg]:
            first = xs[0].k.round_to(xs[0], program.inputs[0])
            return program.emit(xs[0].k, [first, *xs[1:]])

        dtypes = [f32, *map(register_type, program.inputs[1:])]
        (result,) = pointwise.pointwise(t, elements, values, dtypes)
        pointers = t.spread(self.c.tile(self.c.begin(at, *corner), *places), total.shape)
        t.write(self.c.pointer, pointers, result, inside[0] & inside[1])


def emit(name: str, config: TritonContractionConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    assert target.triton is not None, f"{target.name} has no Triton"
    emitter = _Emitter(name, config, target)
    emitter.emit()
    return emitter.t.text(config.tile.warps, target.triton.wave, config.tile.stages)

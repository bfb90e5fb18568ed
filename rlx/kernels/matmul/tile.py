"""The register tile of a contraction: its shape on a target, and the loop over K that fills it.

B comes in panels: [ceil(N / width)][K][width], the last one filled up with zeros. A tile is some
rows of A times some panels of B, with one accumulator for every row and vector of columns. Each
accumulator is one chain of fused multiply-adds over k = 0, 1, 2, ...; tiles of every size
therefore give the same bits.

With groups (``rlx.kernels.matmul.dot``) a panel is [K / group][width][group], and a link of the
chain adds the products of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.control import Body
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.matmul.dot import dot, dot_alike, word, words
from rlx.kernels.matmul.dot_arm import matrix_name
from rlx.kernels.matmul.tile_pairs import PairTile
from rlx.types import DType, f32, f64, i32, i64, u8, u32, u64

__all__ = [
    "TASK_PANELS",
    "Later",
    "Parts",
    "TileOperands",
    "TileRows",
    "TileShape",
    "accumulate_type",
    "emit_tile",
    "packed_bytes",
    "panel_width",
    "tile_shape",
]

TASK_PANELS = 4
"""Panels of a task, and of a tile of one row."""
STRIP_PANELS = 2
"""Panels of a task of more rows, and of a tile of few."""

CACHE_LINE = 64
PREFETCH_STEPS = 64
"""How many steps of k ahead a panel is requested; at its end that is the next panel's start."""
PLAIN_STEPS = 8
"""How many rows of a plain B ahead."""

CONVERSION_REGISTERS = 2
"""What it takes to convert a column of B."""

ROWS_AHEAD = 16
"""How many steps of k ahead an A that lies across is requested."""


@frozen
class TileShape:
    """The tile that fills the register file: ``rows`` times ``vectors`` accumulators.

    ``lanes`` counts elements of the accumulate type; ``width`` is the columns of a panel, and
    ``registers`` those for sums, columns and a value of A.
    """

    rows: int
    vectors: int
    lanes: int
    registers: int

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.vectors * self.lanes

    def computed(self, n: int) -> int:
        """Columns that tiles compute for ``n``."""
        return -(-n // self.width) * self.width

    @property
    def tail(self) -> tuple[tuple[int, int], ...]:
        """(rows, panels) of the tiles for fewer rows: one for every number, smallest first.

        Few rows take panels side by side, as long as sums and columns have registers: enough
        independent chains to hide the latency of a multiply-add, and as many streams for the
        memory.
        """
        return tuple((r, self._side_by_side(r)) for r in range(1, self.rows))

    def _side_by_side(self, rows: int) -> int:
        if rows == 1:
            return TASK_PANELS
        fits = STRIP_PANELS * self.vectors * (rows + 1) + 1 <= self.registers
        return STRIP_PANELS if fits and STRIP_PANELS * rows <= self.rows else 1


@cache
def accumulate_type(*dtypes: DType) -> DType:
    """The type in which products are summed: f64 for f64, f32 if any other float is among the
    operands. Sums of integers wrap, so those of fewer than 32 bits are the low bits of an i32."""
    for dt in (f64, i64, u64, u32):
        if dt in dtypes:
            return dt
    return f32 if any(dt.is_float for dt in dtypes) else i32


def tile_shape(target: KernelTarget, dt: DType, narrow: bool = False) -> TileShape:
    """The tile for operands of type ``dt``; B's vectors and one value of A need registers too.
    ``narrow`` asks for one of fewer columns, where a wide one has more than two vectors."""
    sums = accumulate_type(dt)
    lanes = target.lanes(sums)
    registers = target.registers - (0 if dt is sums else CONVERSION_REGISTERS)
    if target.registers >= 32:
        return TileShape(8, 2 if narrow else 3, lanes, registers)
    if target.registers >= 16:
        return TileShape(6, 2, lanes, registers)
    return TileShape(2, 2, lanes, registers)


def panel_width(target: KernelTarget, dt: DType) -> int:
    """Columns of a panel of packed B of type ``dt``."""
    return tile_shape(target, dt).width


def packed_bytes(target: KernelTarget, dt: DType, k: int, n: int, batch: int = 1) -> int:
    """Size of ``batch`` packed matrices [k, n], one after the other."""
    width = panel_width(target, dt)
    return batch * -(-n // width) * width * k * dt.bytes


@frozen
class TileOperands:
    """What a tile reads: the rows of A, packed B, and the type and group of the sums.

    ``flipped`` says that the sign bits of A are flipped, which makes it of the other signedness: an
    instruction takes one unsigned and one signed operand. That adds to each element of A what
    FLIP in its place gives, and the tile takes it off again. ``step`` is the distance of two
    elements of a row of A that lies across, and None else: there, the elements of the tile's rows
    lie side by side.
    """

    a: Buffer
    b: Buffer
    b_step: Reg
    sums: DType
    group: int = 1
    flipped: bool = False
    step: Reg | None = None
    keep: Buffer | None = None


@frozen
class TileRows:
    """The rows of A of a tile: how many, where the first begins, and the distance between them."""

    count: int
    first: Reg
    distance: Reg

    def place(self, o: TileOperands, n: int, i: Reg, above: Reg | None) -> Reg:
        """Where the row ``n`` has its element or group of step ``i``, given the place ``above``."""
        if o.step is not None:  # one address, with the rows as displacements
            at = self.first + i * o.step
            return at + n if n else at
        # From the row above: eight distances would leave no registers for requests of B.
        return self.first + i * o.group if above is None else above + self.distance


@frozen
class Later:
    """What a tile requests for those after it: in step i the line of ``at + i * step`` and those
    behind it, so many that all are asked for where ``step`` is at most half a panel's."""

    at: Reg
    step: Reg


@frozen
class Parts:
    """Equal parts of a tile's steps, and what each of them begins with, given its number."""

    count: Reg
    begin: Callable[[Reg], None]


FLIP = 0x80808080


def emit_tile(
    k: Kernel, shape: TileShape, operands: TileOperands, *, rows: TileRows, panels: list[Reg],
    depth: Reg, ahead: Reg | None, later: Later | None = None, start: Sequence[Reg],
    parts: Parts | None = None,
) -> list[Reg]:  # fmt: skip
    """Emit a tile; returns its accumulators in the order row, panel, vector, and after them where
    rows are flipped what that has added to each row.

    ``panels`` are the element offsets of the tile's panels of B, and ``depth`` is the number of
    elements of a row, a multiple of the group. B is requested ``ahead`` elements before it is read,
    what comes after the tile as ``later`` says, and an A that lies across some steps before.
    ``parts`` cuts the steps.
    """
    o = operands
    lanes = shape.lanes if shape.lanes > 1 else 0
    width = shape.width * o.group
    lines = range(0, width, CACHE_LINE // o.b.dtype.bytes)
    steps = depth / o.group if o.group > 1 else depth

    def one(i: Reg, *acc: Reg) -> list[Reg]:
        at = [p + i * o.b_step for p in panels]
        columns = [
            _column(k, o, p + v * shape.lanes * o.group, lanes)
            for p in at
            for v in range(shape.vectors)
        ]
        if o.keep is not None:
            for v, x in enumerate(columns):
                k.store(x, o.keep, i * width + v * shape.lanes, lanes)
        wanted = _wanted(at, lines, i, ahead, later)
        if o.step is not None:
            k.prefetch(o.a, rows.place(o, 0, i + ROWS_AHEAD, None))
        out: list[Reg] = []
        place: Reg | None = None
        for n in range(rows.count + o.flipped):
            # The code generator moves no load of A over a request: else all come first, and have
            # no registers.
            share = -(-len(wanted) // (rows.count + o.flipped - n))
            for address in wanted[:share]:
                k.prefetch(o.b, address)
            del wanted[:share]
            place = rows.place(o, n, i, place) if n < rows.count else None
            x = _element(k, o, place, lanes)
            out += [_product(k, o, x, y, acc[len(out) + v]) for v, y in enumerate(columns)]
        return out

    if o.flipped:
        start = [*start, *[k.const(0, o.sums, lanes)] * (len(panels) * shape.vectors)]
    pairs = _pairs(k, shape, o, rows, panels)
    if pairs is None:
        return _loop(k, steps, parts, one, start)

    def ask(i: Reg) -> None:
        _request(k, o, panels, lines, i, ahead, later)

    return _by_twos(k, pairs, steps, parts, one, ask, start, rows.count)


def _by_twos(
    k: Kernel, pairs: PairTile, steps: Reg, parts: Parts | None, one: Body,
    ask: Callable[[Reg], None], start: Sequence[Reg], rows: int,
) -> list[Reg]:  # fmt: skip
    """A loop over two steps at a time, and over the one that may be left."""

    def two(i: Reg, *acc: Reg) -> list[Reg]:
        ask(i * 2)
        return pairs.two(k, i * 2, acc)

    whole = steps / 2
    found = _loop(k, whole, parts, two, pairs.begin(k, start))
    return k.loop(whole * 2, steps, 1, one, pairs.end(k, found, rows))


def _request(
    k: Kernel, o: TileOperands, panels: list[Reg], lines: range, i: Reg, ahead: Reg | None,
    later: Later | None,
) -> None:  # fmt: skip
    """Request what a step asks for."""
    at = [p + i * o.b_step for p in panels]
    for address in _wanted(at, lines, i, ahead, later):
        k.prefetch(o.b, address)


def _pairs(
    k: Kernel, shape: TileShape, o: TileOperands, rows: TileRows, panels: list[Reg]
) -> PairTile | None:
    """The tile by instructions of two rows and columns, if there is one for it."""
    name = matrix_name(k.target, o.a.dtype, o.b.dtype) if o.group > 1 else None
    if name is None or o.flipped or o.keep is not None:
        return None

    def places(i: Reg) -> list[Reg]:
        found: list[Reg] = []
        for n in range(rows.count):
            found.append(rows.place(o, n, i, found[-1] if found else None))
        return found

    return PairTile(name, o.a, o.b, o.b_step, o.group, panels, shape.vectors, places)


def _wanted(
    at: list[Reg], lines: range, i: Reg, ahead: Reg | None, later: Later | None
) -> list[Reg]:
    """The lines of B that step ``i`` requests, which reads its own ``at`` some places."""
    wanted: list[Reg] = []
    if ahead is not None:
        wanted = [p + ahead + n if n else p + ahead for p in at for n in lines]
    if later is not None:
        far = later.at + i * later.step
        wanted += [far + n if n else far for n in lines[: -(-len(lines) // 2)]]
    return wanted


def _loop(k: Kernel, steps: Reg, parts: Parts | None, one: Body, init: Sequence[Reg]) -> list[Reg]:
    """A loop over ``steps``, part by part if there are any."""
    if parts is None:
        return k.loop(0, steps, 1, one, init)
    size = (steps + (parts.count - 1)) / parts.count

    def part(number: Reg, *carried: Reg) -> list[Reg]:
        parts.begin(number)
        begin = number * size
        return k.loop(begin, k.minimum(begin + size, steps), 1, one, carried)

    return k.loop(0, parts.count, 1, part, init)


def _column(k: Kernel, o: TileOperands, at: Reg, lanes: int) -> Reg:
    """A vector of columns of B: elements in the type of the sums, or groups."""
    if o.group > 1:
        return words(k, o.b, at, lanes)
    return k.cast(k.load(o.b, at, lanes), o.sums)


def _element(k: Kernel, o: TileOperands, at: Reg | None, lanes: int) -> Reg:
    """An element or a group of A in every lane, or FLIP."""
    if at is None:
        return k.const(FLIP, u32, lanes)
    if o.group > 1:
        return k.splat(word(k, o.a, at), lanes)
    x = k.cast(k.load(o.a, at), o.sums)
    return k.splat(x, lanes) if lanes else x


def _product(k: Kernel, o: TileOperands, x: Reg, y: Reg, total: Reg) -> Reg:
    """``total`` plus the product of an element or a group of A and one of B."""
    if o.group > 1 and o.sums.is_int and o.a.dtype is o.b.dtype:
        return dot_alike(k, x, y, total, o.b.dtype)
    if o.group > 1:
        return dot(k, y, x, total) if o.b.dtype is u8 else dot(k, x, y, total)
    return k.fma(x, y, total) if o.sums.is_float else total + x * y

"""Plans of contraction kernels: the config, and the tiling of a product into tasks.

The emitter is in ``contraction``; both go by the order of the size arguments that ``launch`` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from rlx.base.dims import at_least, ceil_div, choose, maximum, minimum
from rlx.base.frozen import frozen
from rlx.base.guards import prefers
from rlx.codegen.builder import KernelTarget
from rlx.codegen.family import Launch
from rlx.codegen.program import Program
from rlx.kernels.matmul import amx
from rlx.kernels.matmul.dot import takes_alike
from rlx.kernels.matmul.tile import (
    CACHE_LINE,
    STRIP_PANELS,
    TASK_PANELS,
    TileShape,
    accumulate_type,
    packed_bytes,
    tile_shape,
)
from rlx.types import DType, f64, i8, u8

__all__ = ["SHORT", "ContractionConfig", "OperandKind", "launch"]

OperandKind = Literal["row", "full", "column", "scalar"]
"""What an epilogue operand is: a row [N], a matrix [M, N], a column [M], or one element."""

LONG_DEPTH = 1 << 10
"""Steps of k of one chain of additions at most: what each rounds off adds up."""

SHORT = 6
"""Instructions of an epilogue up to which a tile's code has it once for each of its vectors."""


@frozen
class ContractionConfig:
    """What the code depends on.

    ``epilogue`` takes the product, rounded to its input type 0, and the operands; it has one
    result. ``operands`` says how each operand is addressed. ``group`` is that of packed B, which K
    is a multiple of (``dot.py``), and ``amx`` says that AMX multiplies. ``across``: the
    elements of a column of A are neighbours, not those of a row; a tile reads them as they are.
    ``plain_b``: B is not packed but [K, N] with adjacent columns, at least as many as a panel has;
    ``narrow`` says which tile multiplies it. A ``turned`` B is not packed either, but [N, K] with
    adjacent rows: each block of a panel is transposed into scratch. ``rest``: there may be rows
    that fill no tile, which have tiles of their own; these are half of the code (``for_sizes``).
    ``long``: every block of K has sums of its own, which are added to those before, whatever M is.
    ``alike``: the target multiplies groups of integers of one signedness.
    """

    a: DType
    b: DType
    epilogue: Program
    operands: tuple[OperandKind, ...] = ()
    group: int = 1
    amx: bool = False
    across: bool = False
    plain_b: bool = False
    turned: bool = False
    narrow: bool = False
    rest: bool = True
    long: bool = False
    alike: bool = False

    def __post_init__(self) -> None:
        if f64 in (self.a, self.b) and self.a is not self.b:
            raise TypeError(f"contraction: A is {self.a} and B is {self.b}; cast one of them")
        if len(self.operands) != len(self.epilogue.inputs) - 1:
            raise ValueError("contraction: the epilogue's inputs are the product and the operands")
        if self.across and (self.copies or self.group > 1):
            raise ValueError(f"contraction: an A that lies across is not copied, found {self.a}")
        if self.turned and self.plain_b:
            raise ValueError("contraction: a plain B has adjacent columns or rows, not both")
        if self.narrow and not self.as_it_lies:
            raise ValueError("contraction: packed panels have the width of the wide tile")
        if self.as_it_lies and (self.copies or self.group > 1 or self.b is not self.accumulate):
            raise ValueError(f"contraction: {self.a} and {self.b} are not multiplied as they lie")

    @property
    def as_it_lies(self) -> bool:
        """Whether B is not packed."""
        return self.plain_b or self.turned

    @property
    def c(self) -> DType:
        """The element type of the result."""
        return self.epilogue.results[0]

    @property
    def accumulate(self) -> DType:
        """The element type in which products are summed: f32 too where the result of 8-bit integers
        is f32."""
        return accumulate_type(self.a, self.b, self.epilogue.inputs[0])

    @property
    def flips(self) -> bool:
        """Whether rows of A are read with their sign bits flipped (``TileOperands``)."""
        same = self.a.is_int and self.a is self.b
        return self.group > 1 and not self.amx and same and not self.alike

    @property
    def rows(self) -> DType:
        """The element type of rows of A as a tile reads them."""
        if self.flips:
            return u8 if self.a is i8 else i8
        return self.a if self.group > 1 else self.accumulate

    @property
    def copies(self) -> bool:
        """Whether rows of A go to scratch before they are used: to be converted, and for AMX, which
        reads whole tiles, whatever M is."""
        return self.amx or self.rows is not self.a

    @property
    def row_pad(self) -> int:
        """Elements between rows in scratch, so that they do not fall into the same cache set."""
        return CACHE_LINE // self.rows.bytes

    @property
    def resumes(self) -> bool:
        """Whether a block of K goes on with the sums of the one before: of integers, whatever K is,
        and of a turned B, whose blocks are short."""
        return not self.long and (self.turned or not self.accumulate.is_float)

    def shape(self, target: KernelTarget) -> TileShape:
        """The tile of registers."""
        return tile_shape(target, self.b, self.narrow)

    def for_sizes(self, target: KernelTarget, m: int, k: int) -> ContractionConfig:
        """The least that serves products of ``m`` rows and sums of ``k`` products."""
        rows = self.shape(target).rows
        rest = not self.amx and prefers(lambda: m % rows > 0, otherwise=True)
        long = k > LONG_DEPTH and not self.amx and self.accumulate.is_float
        return replace(self, rest=rest, long=long, alike=takes_alike(target))

    def tile_rows(self, shape: TileShape) -> int:
        """Rows that a task has a multiple of in scratch."""
        return 2 * amx.ROWS if self.amx else shape.rows


CHUNK_ROWS = 128
"""Rows of a task at most: more add nothing to the reuse of B, and leave A outside the L2 cache."""
WIDE_BYTES = 256 * 1024
"""Size of a task's converted rows of A: half of a small L2 cache."""
ENOUGH_TASKS = 16
GROUP = 4
"""A multiple of the elements of any group."""
GRAIN_NS = 4000
"""Run time of the smallest share worth handing to another thread."""


def launch(
    config: ContractionConfig,
    target: KernelTarget,
    *,
    m: int,
    n: int,
    k: int,
    batch: int = 1,
    lda: int | None = None,
    ldb: int | None = None,
    ldc: int | None = None,
    a_batch: int | None = None,
    b_batch: int | None = None,
    operands: Sequence[tuple[int, int]] = (),
) -> Launch:
    """The launch of ``batch`` products [m, k] x [k, n].

    ``lda``, ``ldb`` (of a plain B) and ``ldc`` are the distances between rows in elements, those of
    an A that lies across and of a turned B between columns; ``*_batch`` those between batch
    elements, 0 for a matrix that all share; the defaults are dense. ``operands`` gives for each
    epilogue operand the distance between rows (of "full" and "column"; else 0) and between batch
    elements. The kernel's buffers are A, B, the operands, C. ValueError for a plain B with fewer
    columns than a panel.
    """
    shape = config.shape(target)
    if config.plain_b and n < shape.width:
        raise ValueError(f"contraction: a plain B has {shape.width} columns or more, not {n}")
    if not (config.rest or config.amx) and m % shape.rows:
        raise ValueError(f"contraction: {m} rows fill no tiles of {shape.rows}; use for_sizes")
    dense = m if config.across else k
    lda, ldc = dense if lda is None else lda, n if ldc is None else ldc
    a_batch = m * k if a_batch is None else a_batch
    if b_batch is None:
        b_batch = (
            k * n if config.as_it_lies else packed_bytes(target, config.b, k, n) // config.b.bytes
        )
    if len(operands) != len(config.operands):
        raise ValueError(f"contraction: {len(config.operands)} operands, {len(operands)} strides")

    groups, group_panels = _group_panels(config, shape, m, n)
    rows = _chunk_rows(config, shape, m, k, batch * groups)
    tasks = batch * groups * ceil_div(m, rows)
    wide = rows * (k + config.row_pad) if config.copies else 0
    strip = _strip_panels(config, m)
    sums = (rows + shape.rows) * STRIP_PANELS * shape.width  # and a tile of zeros
    block = _block_depth(config, shape, m, k)
    copied = 1 if config.turned else at_least(m, shape.rows) if config.plain_b else 0
    panel = block * shape.width * copied
    sizes, strides = (m, n, k, lda, n if ldb is None else ldb, ldc), (a_batch, b_batch, m * ldc)
    plan = (rows, group_panels, strip, block, _rows_first(config, m, n, k))
    return Launch(
        tasks,
        _grain(config, shape, minimum(rows, m), minimum(n, group_panels * shape.width), k),
        (*sizes, *strides, *plan, *(s for o in operands for s in o)),
        scratch=sums * config.accumulate.bytes + wide * config.rows.bytes + panel * config.b.bytes,
    )


def _group_panels(config: ContractionConfig, shape: TileShape, m: int, n: int) -> tuple[int, int]:
    """How many groups the panels fall into, and the panels of one.

    A task that converts its rows does it once for its whole group; any other of many rows is done
    with one strip.
    """
    panels = ceil_div(n, shape.width)
    most = TASK_PANELS if config.copies else _strip_panels(config, m)
    groups = ceil_div(panels, most)
    per_group = maximum(1, groups // 4) if config.copies and m > shape.rows else 1
    return ceil_div(groups, per_group), per_group * most


def _strip_panels(config: ContractionConfig, m: int) -> int:
    """Panels that are finished together, epilogue included: those of a one-row tile, and else so
    few that the sums of a long chunk and a panel share the L1 cache. One of a turned B, of which a
    single one is in scratch."""
    if config.turned:
        return 1
    few = not config.amx and prefers(lambda: m <= 1, otherwise=False)
    return TASK_PANELS if few else STRIP_PANELS


LAST_BYTES = 8 << 20
"""What the tasks of some panels may read of A, for it to stay in the last cache."""


def _rows_first(config: ContractionConfig, m: int, n: int, k: int) -> int:
    """1 if the tasks after one have its panels and other rows, rather than its rows. Each panel,
    or else each chunk of rows, then comes from memory but once, and the other operand as often as
    that has parts: so that is the smaller one, if a cache holds it. Not panels of a plain B, which
    are read across."""
    a, b = m * k * config.a.bytes, n * k * config.b.bytes
    return 0 if config.plain_b else at_least(minimum(b, LAST_BYTES), a)


BLOCK_DEPTH = 768
"""Steps of k of a block of i32, and more of shorter integers: that of a panel and that of a chunk's
rows stay in the L2 cache, and to store and load the sums takes no time beside them."""

LONG_BLOCK = 384
"""The same where each block is a chain: sums over 1536 elements are off by half of what they are
off by in one chain, about as much as other libraries'."""

TURNED_DEPTH = 256
"""Steps of k of a block of a turned B, where its blocks are no chains: a panel's is in the L1 cache
while its tiles read it."""


def _block_depth(config: ContractionConfig, shape: TileShape, m: int, k: int) -> int:
    """Steps of k of a block: equal shares, of whole groups; all, if K is one chain that is not
    resumed, or a panel is read but once."""
    if not (config.long or config.resumes):
        return maximum(k, 1)
    most = (LONG_BLOCK if config.long else BLOCK_DEPTH) * max(1, 4 // config.rows.bytes)
    once = 0
    if not config.long and config.turned:
        most = TURNED_DEPTH
    elif not config.long:
        once = at_least(shape.rows - (1 if config.plain_b else 0), m)
    share = ceil_div(k, maximum(1, ceil_div(k, most)))
    return choose(once, maximum(k, 1), maximum(1, ceil_div(share, GROUP)) * GROUP)


def _chunk_rows(config: ContractionConfig, shape: TileShape, m: int, k: int, others: int) -> int:
    """Rows of a task: whole tiles, and equal shares."""
    enough = at_least(others * ceil_div(m, CHUNK_ROWS), ENOUGH_TASKS)
    most = choose(enough, CHUNK_ROWS, CHUNK_ROWS // 2)
    if config.copies:
        most = minimum(most, WIDE_BYTES // (maximum(k, 1) * config.rows.bytes))
    tile = config.tile_rows(shape)
    most = maximum(most, tile)
    share = ceil_div(m, maximum(1, ceil_div(m, most)))
    return maximum(1, ceil_div(share, tile)) * tile


def _grain(config: ContractionConfig, shape: TileShape, rows: int, columns: int, k: int) -> int:
    """Tasks that take GRAIN_NS on a fast core: 20 GB/s of B, two vector FMA a cycle at 3 GHz."""
    bytes_ns = columns * k * config.b.bytes // 20
    steps_ns = rows * columns * k // (shape.lanes * 2 * 3)
    return maximum(1, GRAIN_NS // maximum(bytes_ns, steps_ns, 1))

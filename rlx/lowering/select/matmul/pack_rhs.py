"""The right operand of a product: read where it lies, or packed, once or in every call: whole, or
some columns at a time."""

from __future__ import annotations

from collections.abc import Iterator

from rlx._mlir import ir
from rlx.base.frozen import frozen
from rlx.base.guards import prefers
from rlx.codegen.builder import KernelTarget
from rlx.dialects.convert import from_type
from rlx.ir.op import Op
from rlx.kernels.matmul import pack, pack_strided
from rlx.kernels.matmul.pack import PackConfig
from rlx.kernels.matmul.pack_strided import PackAcrossConfig
from rlx.kernels.matmul.tile import (
    TASK_PANELS,
    accumulate_type,
    packed_bytes,
    panel_width,
    tile_shape,
)
from rlx.lowering.region import producer
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.views import Memory, View
from rlx.ops.movement.slicing import Concat
from rlx.ops.pointwise.cast import Cast
from rlx.types import DType, bf16, f16, f32

__all__ = ["Geometry", "PackedRhs", "Panels", "columns_of", "packed_rhs"]


@frozen
class Geometry:
    """A matmul as ``batch`` products [m, k] x [k, n]; a shared right operand takes all rows."""

    batch: int
    m: int
    n: int
    k: int
    shared: bool

    @staticmethod
    def of(node: Op) -> Geometry:
        """That of a matmul whose dims are known."""
        a, b = (v.type.static_shape for v in node.present)
        out = node.out.type.static_shape
        rows = 1
        for d in out[:-2]:
            rows *= d
        if len(b) == 2:
            return Geometry(1, rows * out[-2], out[-1], a[-1], True)
        return Geometry(rows, out[-2], out[-1], a[-1], False)


@frozen
class Panels:
    """How the right operand is packed: its elements, and how many make a group."""

    dtype: DType
    group: int

    def config(self, source: View) -> PackConfig:
        """The packing of a matrix, or of matrices in a batch."""
        given = None if source.dtype is self.dtype else source.dtype
        return PackConfig(self.dtype, source.strides[-1] == 1, self.group, given)

    def turn(self, source: View) -> bool:
        """Whether packing turns a matrix that lies column by column, and leaves its elements."""
        row, column = source.strides[-2:]
        return row == 1 != column and source.dtype is self.dtype


@frozen
class PackedRhs:
    """What a product of ``columns`` columns from ``first`` on reads: panels, or a matrix as it lies
    with ``step`` elements between its rows, or its columns if it is ``turned``. ``batch`` elements
    are between those of a batch; ``turned`` and ``narrow`` are those of the config."""

    view: View
    first: int
    columns: int
    batch: int
    step: int | None = None
    turned: bool = False
    narrow: bool = False


def columns_of(v: View, first: int, count: int) -> View:
    """Some columns of a matrix, or of the rows of one; a number is read whole."""
    if v.shape[-1:] in ((), (count,)):
        return v
    starts, ones = [0] * (len(v.shape) - 1), [1] * len(v.shape)
    return v.slice([*starts, first], [*v.shape[:-1], count], ones)


def packed_rhs(
    lowering: Lowering,
    leaf: ir.Value,
    shape: tuple[int, ...],
    out: tuple[int, ...],
    g: Geometry,
    panels: Panels,
    may_lie: bool,
) -> Iterator[PackedRhs]:
    """The right operand of type ``shape`` of a product of type ``out``, by parts. ``may_lie`` says
    that the product can read it where it lies, if that pays.

    A part is packed when it is asked for, and takes the place of the one before: the product of
    one is to be launched before the next is taken.
    """
    static = lowering.static_of(leaf) if g.shared else None
    if static is None and may_lie:
        wide = shape if g.shared else (*out[:-2], g.k, g.n)
        found = _plain(lowering.target.kernels, lowering.view(leaf).expand(wide), g, panels)
        if found is not None:
            yield found
            return
    if static is not None:
        yield PackedRhs(_packed_once(lowering, static, g, panels), 0, g.n, 0)
        return
    source = lowering.view(leaf).expand(shape)
    if g.shared:
        yield from _packed_parts(lowering, source, g, panels)
    else:
        view, batch = _packed_batch(lowering, source, out, g, panels)
        yield PackedRhs(view, 0, g.n, batch)


PLAIN_BYTES = 4 << 20
"""Size of a right operand up to which it is read where it lies: a few times an L2 cache. Each chunk
of rows packs it for itself, and the rows of larger ones are in too many pages for that."""
PLAIN_ROWS = 32
"""Rows up to which one of any size is, since packing it takes longer than its one or two chunks."""


def _plain(target: KernelTarget, source: View, g: Geometry, panels: Panels) -> PackedRhs | None:
    """A right operand to be read where it lies; None if that takes longer than to pack it, if
    neither its columns nor its rows are adjacent, or if it is to be converted."""
    dt = source.dtype
    if panels.group > 1 or dt is not accumulate_type(dt):
        return None
    flat = source.reshape((1 if g.shared else g.batch, g.k, g.n))
    if flat is None:
        return None
    batch, row, column = flat.strides
    size = g.k * g.n * dt.bytes
    tiles = (tile_shape(target, dt, narrow) for narrow in (True, False))
    few, many = (tile.computed(g.n) for tile in tiles)
    width = panel_width(target, dt)
    plain = prefers(
        lambda: column == 1 and g.n >= width and (g.m <= PLAIN_ROWS or size <= PLAIN_BYTES),
        otherwise=False,
    )
    if plain:
        return PackedRhs(flat, 0, g.n, batch, row, narrow=few < many)
    if target.lanes(dt) > 1 and prefers(lambda: row == 1 and g.m <= PLAIN_ROWS, otherwise=False):
        return PackedRhs(flat, 0, g.n, batch, column, turned=True, narrow=few < many)
    return None


def _packed_once(lowering: Lowering, static: ir.Value, g: Geometry, panels: Panels) -> View:
    """One that depends on params alone, which the prologue packs, once for all its uses."""
    size = packed_bytes(lowering.target.kernels, panels.dtype, g.k, g.n)
    key = ("panels", static, g.k, g.n, panels)
    if key not in lowering.packs:
        with lowering.prologue_of(static):
            packed = View.dense(lowering.pack(size), panels.dtype, (size // panels.dtype.bytes,))
            if from_type(static.type).shape == (g.k, g.n):
                _pack_columns(lowering, static, packed, g, panels)
            else:
                _pack(lowering, lowering.view(static).expand((g.k, g.n)), packed, panels)
        lowering.packs[key] = packed
    return lowering.packs[key]


PART_BYTES = 2 << 20
"""What is packed at a time of a right operand that takes more than twice as much: packed whole it
would be the largest value of many a training step."""


def _packed_parts(
    lowering: Lowering, source: View, g: Geometry, panels: Panels
) -> Iterator[PackedRhs]:
    """One for all rows that is packed in every call: all columns, or some at a time."""
    target = lowering.target.kernels

    def size(columns: int) -> int:
        return packed_bytes(target, panels.dtype, g.k, columns)

    whole = prefers(lambda: size(g.n) <= 2 * PART_BYTES, otherwise=True)
    step = g.n
    if not whole:
        task = panel_width(target, panels.dtype) * TASK_PANELS
        step = max(1, PART_BYTES // size(task)) * task
    room: Memory | None = None
    for first in (0,) if whole else range(0, g.n, step):
        columns = g.n if whole else min(step, g.n - first)
        shape = (size(columns) // panels.dtype.bytes,)
        if room is None:
            packed = lowering.fresh(panels.dtype, shape)
            room = packed.memory
        else:
            packed = View.dense(room, panels.dtype, shape)
        _pack(lowering, columns_of(source, first, columns), packed, panels)
        yield PackedRhs(packed, first, columns, 0)


def _packed_batch(
    lowering: Lowering, source: View, out: tuple[int, ...], g: Geometry, panels: Panels
) -> tuple[View, int]:
    """Every matrix of a batched right operand, packed in every call, and how far one is from the
    next in the product's batch order."""
    each = packed_bytes(lowering.target.kernels, panels.dtype, g.k, g.n) // panels.dtype.bytes
    own = 1
    for d in source.shape[:-2]:
        own *= d
    flat = source.reshape((own, g.k, g.n))
    if own not in (g.batch, 1):
        # Matrices that broadcast along only some batch dims are packed once a batch element.
        source, own = source.expand((*out[:-2], g.k, g.n)), g.batch
        flat = source.reshape((own, g.k, g.n))
    if flat is None:
        flat = lowering.copied(source).reshape((own, g.k, g.n))
    assert flat is not None
    packed = lowering.fresh(panels.dtype, (own * each,))
    if panels.turn(flat):
        across = PackAcrossConfig(panels.dtype, group=panels.group)
        transposed = pack_strided.launch(
            across, lowering.target.kernels, k=g.k, n=g.n, column_stride=flat.strides[2],
            batch=own, source_batch=flat.strides[0], packed_batch=each,
        )  # fmt: skip
        lowering.launch("pack_strided", across, [flat, packed], transposed)
        return packed, each if own == g.batch and own > 1 else 0
    config = panels.config(flat)
    launch = pack.launch(
        config, lowering.target.kernels, k=g.k, n=g.n, row_stride=flat.strides[1],
        column_stride=flat.strides[2], batch=own, source_batch=flat.strides[0], packed_batch=each,
    )  # fmt: skip
    with lowering.preparing("pack"):
        lowering.launch("pack", config, [flat, packed], launch)
    return packed, each if own == g.batch and own > 1 else 0


def _pack_columns(
    lowering: Lowering, v: ir.Value, packed: View, g: Geometry, panels: Panels
) -> None:
    """Pack a static matrix; the parts of a concatenation each go to their columns."""
    parts = _column_parts(v)
    at = 0
    for i, part in enumerate(parts):
        source = _unrounded(part)
        with lowering.prologue_of(source):
            view = lowering.view(source)
            _pack(lowering, view, packed, panels, at, fill=i == len(parts) - 1)
        at += view.shape[1]


def _unrounded(v: ir.Value) -> ir.Value:
    """What is rounded to 16 bits where packing can do it: then it takes no memory of its own."""
    op = producer(v)
    if op is None or op.name != Cast.name:
        return v
    types = [from_type(x.type).dtype for x in (op.operands[0], v)]
    return op.operands[0] if types[0] is f32 and types[1] in (bf16, f16) else v


def _column_parts(v: ir.Value) -> list[ir.Value]:
    op = producer(v)
    if op is None or op.name != Concat.name or ir.IntegerAttr(op.attributes["axis"]).value != 1:
        return [v]
    return [p for operand in op.operands for p in _column_parts(operand)]


def _pack(
    lowering: Lowering,
    source: View,
    packed: View,
    panels: Panels,
    column: int = 0,
    fill: bool = True,
) -> None:
    k, n = source.shape
    width = panel_width(lowering.target.kernels, panels.dtype)
    if panels.turn(source) and column % width == 0 and (fill or n % width == 0):
        across = PackAcrossConfig(panels.dtype, group=panels.group)
        transposed = pack_strided.launch(
            across, lowering.target.kernels, k=k, n=n, column_stride=source.strides[1]
        )
        whole = packed.slice([column * k], [packed.size - column * k], [1])
        lowering.launch("pack_strided", across, [source, whole], transposed)
        return
    config = panels.config(source)
    launch = pack.launch(
        config, lowering.target.kernels, k=k, n=n, row_stride=source.strides[0],
        column_stride=source.strides[1], column=column, fill=fill,
    )  # fmt: skip
    with lowering.preparing("pack"):
        lowering.launch("pack", config, [source, packed], launch)

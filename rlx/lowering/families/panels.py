"""The right operand of a product, packed in panels: whole, or some columns at a time."""

from __future__ import annotations

from dataclasses import dataclass

from rlx._mlir import ir
from rlx.dialects.convert import from_type
from rlx.kernels import pack, pack_across
from rlx.kernels.contraction_tile import TASK_PANELS, packed_bytes, panel_width
from rlx.kernels.pack import PackConfig
from rlx.kernels.pack_across import PackAcrossConfig
from rlx.lowering.lowering import Lowering
from rlx.lowering.region import producer
from rlx.lowering.views import Memory, View
from rlx.ops.base import Op
from rlx.ops.cast import Cast
from rlx.ops.slicing import Concat
from rlx.types import DType, bf16, f16, f32

__all__ = ["Geometry", "Panels", "columns_of", "packed_operand", "parts"]


@dataclass(frozen=True)
class Geometry:
    """A matmul as ``batch`` products [m, k] x [k, n]; a shared right operand takes all rows."""

    batch: int
    m: int
    n: int
    k: int
    shared: bool

    @staticmethod
    def of(node: Op) -> Geometry:
        """That of a matmul."""
        a, b = (v.type.static_shape for v in node.present)
        out = node.out.type.static_shape
        rows = 1
        for d in out[:-2]:
            rows *= d
        if len(b) == 2:
            return Geometry(1, rows * out[-2], out[-1], a[-1], True)
        return Geometry(rows, out[-2], out[-1], a[-1], False)


@dataclass(frozen=True)
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
        return row == 1 != column and self.group == 1 and source.dtype is self.dtype


def columns_of(v: View, first: int, count: int) -> View:
    """Some columns of a matrix, or of the rows of one."""
    if count == v.shape[-1]:
        return v
    starts, ones = [0] * (len(v.shape) - 1), [1] * len(v.shape)
    return v.slice([*starts, first], [*v.shape[:-1], count], ones)


PART_BYTES = 2 << 20
"""What is packed at a time of a right operand that takes more than twice as much: packed whole it
would be the largest value of many a training step."""


def parts(lowering: Lowering, leaf: ir.Value, g: Geometry, panels: Panels) -> list[tuple[int, int]]:
    """The columns that are packed and multiplied at a time: the first, and how many."""
    target = lowering.target.kernels
    whole = packed_bytes(target, panels.dtype, g.k, g.n)
    if not g.shared or lowering.static_of(leaf) is not None or whole <= 2 * PART_BYTES:
        return [(0, g.n)]
    task = panel_width(target, panels.dtype) * TASK_PANELS
    tasks = max(1, PART_BYTES // packed_bytes(target, panels.dtype, g.k, task))
    return [(at, min(tasks * task, g.n - at)) for at in range(0, g.n, tasks * task)]


def packed_operand(
    lowering: Lowering,
    leaf: ir.Value,
    shape: tuple[int, ...],
    out: tuple[int, ...],
    g: Geometry,
    panels: Panels,
    first: int = 0,
    room: Memory | None = None,
) -> tuple[View, int]:
    """The right operand in panels, and the distance between batch elements in elements.

    One that depends on params alone is packed by the prologue, once for all its uses. Of another
    that is shared, the ``g.n`` columns from ``first`` on are packed: into ``room``, where there is
    one already.
    """
    target = lowering.target.kernels
    size = packed_bytes(target, panels.dtype, g.k, g.n)
    count = size // panels.dtype.bytes
    static = lowering.static_of(leaf)
    if static is not None and g.shared:
        key = ("panels", static, g.k, g.n, panels)
        if key not in lowering.packs:
            with lowering.prologue_of(static):
                packed = View.dense(lowering.pack(size), panels.dtype, (count,))
                if tuple(ir.RankedTensorType(static.type).shape) == (g.k, g.n):
                    _pack_columns(lowering, static, packed, g, panels)
                else:
                    source = lowering.view(static).expand((g.k, g.n))
                    _pack(lowering, source, packed, panels)
            lowering.packs[key] = packed
        return lowering.packs[key], 0
    source = lowering.view(leaf).expand(shape)
    if g.shared:
        packed = (
            lowering.fresh(panels.dtype, (count,))
            if room is None
            else View.dense(room, panels.dtype, (count,))
        )
        _pack(lowering, columns_of(source, first, g.n), packed, panels)
        return packed, 0
    return _pack_batch(lowering, source, out, g, panels, count)


def _pack_batch(
    lowering: Lowering,
    source: View,
    out: tuple[int, ...],
    g: Geometry,
    panels: Panels,
    each: int,
) -> tuple[View, int]:
    """Pack every matrix of a batched right operand, and read them in the product's batch order.
    ``each`` is the number of elements of a packed one."""
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
        across = PackAcrossConfig(panels.dtype)
        turning = pack_across.launch(
            across, lowering.target.kernels, k=g.k, n=g.n, column_stride=flat.strides[2],
            batch=own, source_batch=flat.strides[0], packed_batch=each,
        )  # fmt: skip
        lowering.launch("pack_across", across, [flat, packed], turning)
        return packed, each if own == g.batch and own > 1 else 0
    config = panels.config(flat)
    launch = pack.launch(
        config, lowering.target.kernels, k=g.k, n=g.n, row_stride=flat.strides[1],
        column_stride=flat.strides[2], batch=own, source_batch=flat.strides[0], packed_batch=each,
    )  # fmt: skip
    lowering.launch("pack", config, [flat, packed], launch)
    return packed, each if own == g.batch and own > 1 else 0


def _pack_columns(
    lowering: Lowering, v: ir.Value, packed: View, g: Geometry, panels: Panels
) -> None:
    """Pack a static matrix; the parts of a concatenation each go to their columns."""
    sources = _column_parts(v)
    at = 0
    for i, part in enumerate(sources):
        source = _unrounded(part)
        with lowering.prologue_of(source):
            view = lowering.view(source)
            _pack(lowering, view, packed, panels, at, fill=i == len(sources) - 1)
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
    if panels.turn(source) and column == 0 and fill:
        across = PackAcrossConfig(panels.dtype)
        turning = pack_across.launch(
            across, lowering.target.kernels, k=k, n=n, column_stride=source.strides[1]
        )
        lowering.launch("pack_across", across, [source, packed], turning)
        return
    config = panels.config(source)
    launch = pack.launch(
        config, lowering.target.kernels, k=k, n=n, row_stride=source.strides[0],
        column_stride=source.strides[1], column=column, fill=fill,
    )  # fmt: skip
    lowering.launch("pack", config, [source, packed], launch)

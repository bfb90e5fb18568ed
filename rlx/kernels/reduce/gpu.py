"""Reductions on GPUs: a block of threads for some columns, each column split among its threads.

The operand is [outer, reduced, inner] by its strides, the result [outer, parts, inner], dense:

    block (outer, part, some columns):
        each thread: every so many elements of its column, in order, in a register
        the threads of a column: a tree in shared memory

Mostly there is one part. Where the blocks would be few and the columns long, each column is cut
into parts, and a second launch reduces those. The order of a sum depends on the sizes alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.base.guards import is_one
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.combine import ReduceKind, Total, add, settle, start
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import Access, Strided, Strides, ceil_div
from rlx.kernels.matmul.gpu_tile import power_below
from rlx.kernels.reduce.emit import accumulate_type
from rlx.types import DType

__all__ = ["GpuReduceConfig", "emit", "launch", "name", "rows_of_part"]

name = "gpu_reduce"

COLUMNS = 32
"""Columns of a block at most: neighbours that threads read together."""

ENOUGH_BLOCKS = 128
"""Blocks that keep a large GPU busy."""

ROUNDS = 8
"""Elements of a thread from which a column is cut into parts."""


@frozen
class GpuReduceConfig:
    """A reduction of elements of ``dtype`` to the type ``out`` by blocks of ``columns`` columns and
    ``parts`` threads for each. ``access`` is how the operand moves along its three dims."""

    kind: ReduceKind
    dtype: DType
    out: DType
    access: Access
    columns: int
    parts: int


def _layout(target: KernelTarget, shape: Sequence[int]) -> tuple[int, int]:
    """Columns of a block, and threads of a column."""
    _, reduced, inner = shape
    threads = power_below(min(target.most_threads, 256))
    columns = min(_power(inner, COLUMNS), threads)
    # No more threads than elements, but blocks of some size.
    most = threads // columns
    return columns, min(most, max(COLUMNS // columns, _power(reduced, most)))


def _power(count: int, most: int) -> int:
    """The least power of two that is ``count`` or more, but no more than ``most``, which is one."""
    if count > most // 2:
        return most
    return 1 << maximum(0, count - 1).bit_length()


def rows_of_part(target: KernelTarget, shape: Sequence[int]) -> int:
    """How much of the reduced axis of [outer, reduced, inner] a block takes."""
    outer, reduced, inner = shape
    columns, threads = _layout(target, shape)
    blocks = maximum(1, outer * ceil_div(inner, columns))
    parts = minimum(ceil_div(ENOUGH_BLOCKS, blocks), reduced // (threads * ROUNDS))
    return ceil_div(reduced, parts) if parts > 1 else reduced


def launch(
    kind: ReduceKind,
    target: KernelTarget,
    dtypes: tuple[DType, DType],
    shape: Sequence[int],
    strides: Strides,
    *,
    rows: int | None = None,
    count: int | None = None,
) -> tuple[GpuReduceConfig, Launch]:
    """The kernel and its arguments for an operand of ``shape`` [outer, reduced, inner].

    A block takes ``rows`` of the reduced axis, by default all. A mean divides by ``count``, by
    default the reduced axis.
    """
    outer, reduced, inner = shape
    rows = reduced if rows is None else rows
    parts = ceil_div(reduced, rows) if rows else 1
    own = tuple(0 if is_one(n) else s for s, n in zip(strides, shape, strict=True))
    access: Access = tuple(
        "zero" if s == 0 else "one" if s == 1 and d else "any" for d, s in enumerate(own)
    )
    config = GpuReduceConfig(kind, *dtypes, access, *_layout(target, (outer, rows, inner)))
    count = reduced if count is None else count
    moving = [s for s, a in zip(own, access, strict=True) if a == "any"]
    blocks = outer * parts * ceil_div(inner, config.columns)
    return config, Launch(blocks, 1, (reduced, rows, parts, inner, count, *moving))


def emit(name: str, config: GpuReduceConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel. Arguments: operand, result; the sizes that ``launch`` lists."""
    k = Kernel(name, target)
    source = Strided(k, "source", config.dtype, config.access)
    result = k.buffer("result", config.out)
    names = ("reduced", "rows", "parts", "inner", "count")
    reduced, rows, parts, inner, count = map(k.size, names)
    source.declare_strides()
    accumulate, kind = accumulate_type(config.dtype), config.kind
    # Threads side by side read neighbours: of a column where those are contiguous.
    along = config.access[1] == "one"

    def both(_: int, a: Reg, b: Reg) -> Reg:
        return settle(k, add(k, kind, (a,), b))

    def block(i: Reg, thread: Reg) -> None:
        across = (inner + (config.columns - 1)) // config.columns
        if along:
            part, own, step = thread % config.parts, thread // config.parts, 1
        else:
            part, own, step = thread // config.columns, thread % config.columns, config.columns
        column = i % across * config.columns + own
        p, o = i // across % parts, i // across // parts
        near = k.minimum(column, inner - 1)
        last = k.minimum(p * rows + rows, reduced)

        def one(r: Reg, *total: Reg) -> Total:
            x = k.load(source.buffer, source.offset([o, r, near]))
            return add(k, kind, total, k.cast(x, accumulate))

        none = start(k, kind, accumulate, 0)
        total = settle(k, tuple(k.loop(p * rows + part, last, config.parts, one, none)))
        if config.parts > 1:
            (total,) = k.block_fold(thread, [total], both, config.parts, step)
        if kind == "mean":
            total = total / k.cast(count, accumulate)
        mine = (part < 1) & (column < inner)
        k.when(mine, lambda: k.store(total, result, (o * parts + p) * inner + column))

    k.parallel_blocks(config.columns * config.parts, block)
    return k.text()

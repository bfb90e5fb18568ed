"""Reductions of columns: along an axis behind which contiguous elements lie.

The operand is [outer, reduced, inner] with contiguous inner elements, the result [outer, inner],
dense. Every lane of a vector is a column of its own, so no vector is ever folded:

    task (outer, block of inner):
        for j in the block, by vectors:
            for r in order: add element (r, j)          in registers
            store

The order of a sum is that of the axis, whatever the vectors and threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx.kernels.builder import Kernel, KernelTarget, KernelText
from rlx.kernels.elementwise import walk
from rlx.kernels.family import Launch
from rlx.kernels.folding import ReduceKind, combine, identity
from rlx.kernels.reg import Reg
from rlx.kernels.strides import Strides, ceil_div
from rlx.types import DType, bf16, f16, f32

__all__ = ["ReduceConfig", "emit", "launch"]

name = "reduce"

COLUMNS = 64
"""Columns of a task: whole cache lines, yet enough tasks for several threads in a row of few
hundred."""

SHARE = 1 << 16
"""Elements that are worth a thread of their own: several microseconds."""

VECTORS = 4
"""Vectors of a round: as many independent sums as hide the latency of an addition."""


@dataclass(frozen=True)
class ReduceConfig:
    """A reduction of elements of ``dtype`` to the same type; 16-bit floats accumulate in f32."""

    kind: ReduceKind
    dtype: DType


def launch(shape: Sequence[int], strides: Strides, block: int = COLUMNS) -> Launch:
    """The kernel's arguments for an operand of ``shape`` [outer, reduced, inner] with ``strides``,
    the last of which is 1 (unless there is one inner element). ``block`` is the number of columns
    of a task."""
    outer, reduced, inner = shape
    tasks = outer * ceil_div(inner, block)
    work = min(block, inner) * max(1, reduced)
    return Launch(tasks, max(1, SHARE // max(1, work)), (reduced, inner, block, *strides[:2]))


def emit(name: str, config: ReduceConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel. Arguments: operand, result; the sizes that ``launch`` lists."""
    k = Kernel(name, target)
    source, result = k.buffer("source", config.dtype), k.buffer("result", config.dtype)
    reduced, inner, block = (k.size(n) for n in ("reduced", "inner", "block"))
    outer_stride, stride = k.size("outer_stride"), k.size("stride")
    accumulate = f32 if config.dtype in (f16, bf16) else config.dtype
    lanes = target.lanes(config.dtype)
    start = identity(config.kind, accumulate)
    blocks = (inner + (block - 1)) // block

    def task(t: Reg) -> None:
        begin = t % blocks * block
        end = k.minimum(begin + block, inner)
        o = t // blocks

        def columns(j: Reg, n: int) -> None:
            at = o * outer_stride + j

            def add(r: Reg, total: Reg) -> Reg:
                return combine(k, config.kind, total, k.load(source, at + r * stride, n))

            (total,) = k.loop(0, reduced, 1, add, [k.const(start, accumulate, n)])
            if config.kind == "mean":
                total = total / k.cast(reduced, accumulate)
            k.store(total, result, o * inner + j)

        walk(k, begin, end, columns, lanes=lanes if lanes > 1 else 0, vectors=VECTORS, overlap=True)

    k.parallel(task)
    return k.text()

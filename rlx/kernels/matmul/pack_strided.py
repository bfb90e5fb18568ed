"""Packing of a matrix whose columns are contiguous, [K, N] stored as [N, K], into panels.

The panels are those of ``pack``: [ceil(N / width)][K][width], with zeros where the last one goes
beyond N. A task is one of them (``rlx.kernels.matmul.transpose_panel``).
"""

from __future__ import annotations

from rlx.base.dims import maximum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul.tile import panel_width
from rlx.kernels.matmul.transpose_panel import transpose_panel
from rlx.types import DType

__all__ = ["PackAcrossConfig", "emit", "launch", "name", "packed_size"]

name = "pack_strided"

GRAIN_BYTES = 64 * 1024


@frozen
class PackAcrossConfig:
    """What the code depends on: the element type, the columns of a panel, whole vectors (0 for
    those of the contraction family), and the group, which K is a multiple of."""

    dtype: DType
    width: int = 0
    group: int = 1

    def columns(self, target: KernelTarget) -> int:
        """Columns of a panel."""
        return self.width or panel_width(target, self.dtype)


def packed_size(target: KernelTarget, config: PackAcrossConfig, k: int, n: int) -> int:
    """Elements of a packed matrix [k, n]."""
    width = config.columns(target)
    return ceil_div(n, width) * width * k


def launch(
    config: PackAcrossConfig,
    target: KernelTarget,
    *,
    k: int,
    n: int,
    column_stride: int,
    batch: int = 1,
    source_batch: int = 0,
    packed_batch: int | None = None,
) -> Launch:
    """The launch that packs ``batch`` matrices [k, n], whose columns are ``column_stride`` elements
    apart. ``*_batch`` are distances between batch elements; packed ones follow one another unless
    given. The kernel's buffers are the source and the panels."""
    width = config.columns(target)
    if packed_batch is None:
        packed_batch = packed_size(target, config, k, n)
    panels = ceil_div(n, width)
    grain = maximum(1, GRAIN_BYTES // maximum(1, k * width * config.dtype.bytes))
    return Launch(batch * panels, grain, (k, n, column_stride, source_batch, packed_batch, panels))


def emit(name: str, config: PackAcrossConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    def __init__(self, name: str, config: PackAcrossConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.width, self.group = config.columns(target), config.group
        self.source = k.buffer("source", config.dtype)
        self.packed = k.buffer("packed", config.dtype)
        names = ("k", "n", "column_stride", "source_batch", "packed_batch", "panels")
        self.depth, self.n, self.stride, self.source_batch, self.packed_batch, self.panels = map(
            k.size, names
        )

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, t: Reg) -> None:
        k = self.k
        batch, first = t / self.panels, t % self.panels * self.width
        source = batch * self.source_batch + first * self.stride
        to = batch * self.packed_batch + first * self.depth
        count = k.minimum(self.n - first, k.index(self.width))
        transpose_panel(
            k, self.source, source, self.stride, self.packed, to, self.depth, count, self.width,
            self.group,
        )  # fmt: skip

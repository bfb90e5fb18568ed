"""Plans of GPU attention kernels: the config, and block sizes that fit a target."""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.codegen.builder import KernelTarget
from rlx.codegen.family import Launch
from rlx.codegen.strides import ceil_div
from rlx.errors import UnsupportedError
from rlx.kernels.attention.args import (
    AttentionConfig,
    AttentionSizes,
    float_names,
    size_names,
    size_values,
)
from rlx.kernels.matmul.gpu_tile import Tile, lay_out, power_below

__all__ = ["GpuAttentionConfig", "argument_names", "argument_values", "launch"]

SPAN = 256
"""Columns of the result that a block computes at most."""

SUMS = 32
"""Sums of a thread, about, that leave room in its registers for the scores."""

FEW_ROWS = 8
"""Rows up to which every thread has them all: so a step of decoding has threads for many keys."""

_CONSTANT = (
    "dim", *float_names("scale"), *float_names("softcap"), "per_task", "splits", "key_block",
)  # fmt: skip
"""Sizes of CPU kernels that are constants of the code here, or have no meaning."""


@frozen
class GpuAttentionConfig:
    """What the code depends on. ``tile`` is that of the scores: rows, keys, and the elements of the
    dim that a piece has; ``whole`` says that all of the rows' queries stay in shared memory.
    ``keys`` are the keys of a piece of V."""

    base: AttentionConfig
    scale: float
    softcap: float
    dim: int
    tile: Tile
    whole: bool
    keys: int

    @property
    def span(self) -> int:
        """Columns of the result that a block computes."""
        return min(self.dim, SPAN)

    @property
    def columns(self) -> int:
        """Columns of the result that a thread computes."""
        return ceil_div(self.span, self.tile.threads_x)

    @property
    def shared(self) -> int:
        """Elements of shared memory: weights, queries, and a piece of K or V."""
        t = self.tile
        weights = (t.height + 1) * t.width
        queries = (t.height + 1) * self.query_depth
        values = (t.threads_x * self.columns + 1) * self.keys
        return weights + queries + max((t.width + 1) * t.depth, values)

    @property
    def query_depth(self) -> int:
        """Elements of the dim that are in shared memory of each query."""
        return (
            ceil_div(self.dim, self.tile.depth) * self.tile.depth if self.whole else self.tile.depth
        )


def choose(base: AttentionConfig, target: KernelTarget, s: AttentionSizes) -> GpuAttentionConfig:
    """The largest pieces for these sizes that fit the target's shared memory."""
    rows, span = s.queries * s.heads // s.key_heads, min(s.dim, SPAN)
    if rows <= FEW_ROWS:
        most = power_below(min(target.most_threads, 256))
        tiles = [Tile(1, x, rows, 1, d) for x in (most, most // 2, most // 4) for d in (16, 8, 4)]
    else:
        y, x = lay_out(target)
        most = max(1, min(4, SUMS // ceil_div(span, x), ceil_div(rows, y)))
        tiles = [Tile(y, x, r, 2, d) for r in range(most, 0, -1) for d in (16, 8, 4)]
    found = [
        GpuAttentionConfig(base, s.scale, s.softcap, s.dim, tile, whole, keys)
        for tile in tiles
        for whole in (True, False)
        for keys in (16, 8, 4, 2, 1)
    ]
    smallest = found[-1]
    for config in found:
        if config.shared * base.compute.bytes <= target.shared_bytes:
            return config
    raise UnsupportedError(
        f"attention: the smallest block of rows needs {smallest.shared * base.compute.bytes} bytes"
        f" of shared memory, and {target.name} has {target.shared_bytes}"
    )


def launch(
    base: AttentionConfig, target: KernelTarget, s: AttentionSizes
) -> tuple[GpuAttentionConfig, Launch]:
    """The kernel and its arguments. Buffers: q, k, v, [mask], out."""
    config = choose(base, target, s)
    rows = s.queries * s.heads // s.key_heads
    blocks = ceil_div(rows, config.tile.height) * ceil_div(s.dim, config.span)
    return config, Launch(s.batch * s.key_heads * blocks, 1, argument_values(base, s))


def argument_names(base: AttentionConfig) -> list[str]:
    """The size arguments of a kernel, in order."""
    return [n for n in size_names(base) if n not in _CONSTANT]


def argument_values(base: AttentionConfig, s: AttentionSizes) -> tuple[int, ...]:
    """The values of ``argument_names``."""
    values = size_values(base, s, per_task=0, splits=0, key_block=0)
    named = dict(zip(size_names(base), values, strict=True))
    return tuple(named[n] for n in argument_names(base))

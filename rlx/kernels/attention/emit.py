"""Attention: out = softmax(mask(softcap(scale Q K^T))) V, heads and batches side by side.

The definition, which tests and other emitters follow. For query row i of head h, and key j of
head h // (heads / key_heads)::

    s[j] = scale (q[i] . k[j])                        float of the compute type
    s[j] = c tanh(s[j] / c)                           with softcap c
    s[j] = s[j] + bias[i, j]                          mask "bias"
    s[j] = -1e9 where key j is hidden from row i      masks "causal", "window" and "custom"
    out[i] = sum_j exp(s[j] - max s) v[j] / sum_j exp(s[j] - max s)

With p = i + keys - queries (the last query sees the last key), a key is hidden

- by "causal" unless j <= p;
- by "window" unless p - window <= j <= p;
- by "custom" if mask[batch, j] < 0.5: zero, or false.

A hidden score is -1e9 and not -inf, so a row that sees no key weighs all keys alike. Beside a
visible key a hidden one has the weight 0 (scores are taken to lie above -1e9), and blocks of keys
that nobody sees are skipped. A bias may hold -inf, and a row of -inf alone is 0. The least finite
number is a bias like others: beside it no score counts, so a row of it alone weighs all keys alike.

The bits of a row depend neither on the range that a call was given nor on hidden keys after its
last visible one: sums go key by key from the first, a chain a block of keys.
"""

from __future__ import annotations

from rlx.base.dims import maximum, minimum
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.kernels.attention.args import (
    AttentionConfig,
    AttentionSizes,
    MaskKind,
    Strides,
    offsets,
    size_values,
    tile_for,
)
from rlx.kernels.attention.blocks import Blocks
from rlx.kernels.attention.decode import Decode, decode_lengths
from rlx.kernels.attention.pairs import Pairs
from rlx.kernels.attention.sums import scratch_lengths
from rlx.kernels.matmul.dot import group_of

__all__ = [
    "AttentionConfig",
    "AttentionSizes",
    "MaskKind",
    "Strides",
    "decodes",
    "emit",
    "launch",
    "name",
    "pairs",
]

name = "attention"


def decodes(config: AttentionConfig, target: KernelTarget, sizes: AttentionSizes) -> bool:
    """Whether the variant ``decode`` can run these sizes, and is the faster one."""
    tile = tile_for(target, config.compute)
    return sizes.dim % tile.lanes == 0 and 8 * sizes.queries <= 3 * tile.queries


def pairs(config: AttentionConfig, target: KernelTarget, sizes: AttentionSizes) -> bool:
    """Whether the variant ``pairs`` can run these sizes."""
    fits = target.masks and group_of(target, config.dtype, config.dtype) == 2
    return fits and sizes.dim % 2 == 0


def emit(name: str, config: AttentionConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config. Buffers: q, k, v, [mask], out; sizes and scratch by ``launch``."""
    k = Kernel(name, target)
    if config.decode:
        k.parallel(Decode(k, config, target.lanes(config.compute)).task)
    else:
        kind = Pairs if config.pairs else Blocks
        k.parallel(kind(k, config, tile_for(target, config.compute)).task)
    return k.text()


def launch(config: AttentionConfig, target: KernelTarget, sizes: AttentionSizes) -> Launch:
    """One call of the kernel that ``emit`` made for the same config and target."""
    return (_launch_decode if config.decode else _launch_blocks)(config, target, sizes)


def _launch_blocks(config: AttentionConfig, target: KernelTarget, sizes: AttentionSizes) -> Launch:
    tile, width = tile_for(target, config.compute), config.compute.bytes
    all_blocks = -(-sizes.queries // tile.queries)
    most = maximum(1, _TASK_BYTES // (2 * tile.queries * sizes.dim * width))
    splits = maximum(
        -(-all_blocks // most), minimum(all_blocks, -(-_TASKS // (sizes.batch * sizes.heads)))
    )
    blocks = -(-all_blocks // splits)
    splits = -(-all_blocks // blocks)
    _, end = offsets(scratch_lengths(tile, config, sizes.dim, _KEY_BLOCK, blocks), 0)
    rows = minimum(sizes.queries, blocks * tile.queries)
    return Launch(
        range=sizes.batch * sizes.heads * splits,
        grain=_grain(2 * rows * sizes.keys * sizes.dim // (_FMA_PER_NS * tile.lanes)),
        sizes=size_values(config, sizes, per_task=blocks, splits=splits, key_block=_KEY_BLOCK),
        scratch=end * width,
    )


def _launch_decode(config: AttentionConfig, target: KernelTarget, sizes: AttentionSizes) -> Launch:
    lanes = target.lanes(config.compute)
    if sizes.dim % lanes:
        raise ValueError(f"attention: decode needs a head dim of whole vectors, not {sizes.dim}")
    all_rows, tasks = sizes.queries * sizes.heads // sizes.key_heads, sizes.batch * sizes.key_heads
    rows = -(-all_rows // minimum(all_rows, -(-_DECODE_TASKS // tasks)))
    splits = -(-all_rows // rows)
    _, end = offsets(decode_lengths(lanes, config, sizes.dim, _DECODE_KEY_BLOCK, rows), 0)
    return Launch(
        range=tasks * splits,
        grain=_grain(2 * sizes.keys * sizes.dim * config.dtype.bytes // _BYTES_PER_NS),
        sizes=size_values(config, sizes, per_task=rows, splits=splits, key_block=_DECODE_KEY_BLOCK),
        scratch=end * config.compute.bytes,
    )


def _grain(task_ns: int) -> int:
    """Tasks that take a thread long enough to be worth waking it."""
    return maximum(1, _GRAIN_NS // maximum(task_ns, 1))


_GRAIN_NS = 1000
_FMA_PER_NS = 6
_BYTES_PER_NS = 20
"""What a fast core does: two vector FMA a cycle at 3 GHz, and reads from its outer caches."""

_TASK_BYTES = 96 << 10
"""What the query rows of a task and their sums may take of the L2 cache."""

_TASKS = 16
"""Tasks enough to balance a few threads; more would copy K and V more often."""


_KEY_BLOCK = 128
"""Keys a block, for all shapes: the bits of a row hang on it. A multiple of the key tiles."""

_DECODE_KEY_BLOCK = 128
"""The same for decode: a block of K and of V stays in cache for all rows of a task."""

_DECODE_TASKS = 4
"""Key heads enough not to split their rows over tasks, which then read the same keys."""

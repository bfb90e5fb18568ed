"""Overlapping frames of a signal, by slices alone: so their derivatives are fast, too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlx.base.dims import is_known, maximum
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.sugar import concat
from rlx.types import Dim

__all__ = ["framed", "overlapped", "reflected"]


def _pieces(size: int, hop: int) -> Iterator[tuple[int, int]]:
    """A frame as parts of the blocks of ``hop`` samples that it reaches into: the block's number,
    counted from the frame's, and how much of it."""
    for block in range(-(-size // hop)):
        yield block, min(hop, size - block * hop)


def framed(x: Value, size: int, hop: int, count: Dim) -> Value:
    """Frames of the last axis that begin ``hop`` samples apart: [..., count, size]."""
    pieces = list(_pieces(size, hop))
    blocks = count + len(pieces) - 1
    *batch, n = x.shape
    wanted = blocks * hop
    more = maximum(wanted - n, 0)
    if more != 0:
        x = x.pad([0] * x.rank, [*[0] * (x.rank - 1), more])
    x = x.narrow(-1, 0, wanted)
    rows = x.reshape([*batch, blocks, hop])
    parts = [rows.narrow(-2, at, count).narrow(-1, 0, width) for at, width in pieces]
    return concat(parts, -1)


def overlapped(frames: Value, hop: int) -> Value:
    """Frames [..., count, size] added where they overlap: a signal of size + hop * (count - 1)."""
    *batch, count, size = frames.shape
    assert is_known(count)
    assert is_known(size)
    pieces = list(_pieces(size, hop))
    total: Value | None = None
    for at, width in pieces:
        part = frames.narrow(-1, at * hop, width)
        low = [*[0] * len(batch), at, 0]
        high = [*[0] * len(batch), len(pieces) - 1 - at, hop - width]
        placed = part.pad(low, high)
        total = placed if total is None else total + placed
    assert total is not None
    flat = total.reshape([*batch, (count + len(pieces) - 1) * hop])
    return flat.narrow(-1, 0, size + hop * (count - 1))


def reflected(x: Value, side: int) -> Value:
    """The signal with ``side`` samples mirrored at both ends, which themselves come once."""
    if side == 0:
        return x
    n = x.shape[-1]
    back = np.arange(side - 1, -1, -1)
    left = Gather.build(x.narrow(-1, 1, side), back, axis=-1)
    right = Gather.build(x.narrow(-1, n - 1 - side, side), back, axis=-1)
    return concat([left, x, right], -1)

"""The arena plan: offsets for buffers so that those alive at the same time do not overlap."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from rlx.lowering.views import Memory

__all__ = ["ALIGN", "plan"]

ALIGN = 64
"""Bytes: a cache line, and the widest vector."""


def plan(buffers: Sequence[Memory]) -> int:
    """Set the offset of every buffer, first fit by time of birth, larger first; return the total.

    A buffer is alive from its first to its last step, both included: a kernel's result never lies
    over one of its operands.
    """
    alive: list[Memory] = []  # by offset
    total = 0
    for b in sorted(buffers, key=lambda b: (b.first, -b.size)):
        at = 0
        alive = [p for p in alive if b.first <= p.last]
        for p in alive:
            if at + b.size <= p.offset:
                break
            at = max(at, -(-(p.offset + p.size) // ALIGN) * ALIGN)
        b.offset = at
        insort(alive, b, key=lambda p: p.offset)
        total = max(total, at + b.size)
    return -(-total // ALIGN) * ALIGN

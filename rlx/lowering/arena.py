"""The arena plan: offsets for buffers so that those alive at the same time do not overlap."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from rlx.lowering.views import Memory

__all__ = ["ALIGN", "plan", "plan_slots"]

ALIGN = 64
"""Bytes: a cache line, and the widest vector."""


def plan_slots(buffers: Sequence[Memory]) -> tuple[int, list[int]]:
    """Set the offset of every buffer so that those alive at the same time have slots of their own;
    return the total, and where the slots begin. A slot is as large as the largest of its buffers.
    """
    slots: list[list[Memory]] = []
    for b in sorted(buffers, key=lambda b: (b.first, -b.size)):
        free = [s for s in slots if s[-1].last < b.first]
        # The smallest that is large enough, else the largest, which grows least.
        fitting = [s for s in free if _size(s) >= b.size]
        if fitting:
            min(fitting, key=_size).append(b)
        elif free:
            max(free, key=_size).append(b)
        else:
            slots.append([b])
    starts, total = [0], 0
    for slot in slots:
        for b in slot:
            b.offset = total
        total += max(ALIGN, -(-_size(slot) // ALIGN) * ALIGN)
        starts.append(total)
    return total, starts[:-1] or [0]


def _size(slot: Sequence[Memory]) -> int:
    return max(b.size for b in slot)


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

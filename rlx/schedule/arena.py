"""The arena plan: offsets for buffers so that those alive at the same time do not overlap."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Protocol, TypeVar

__all__ = ["ALIGN", "Placed", "plan", "plan_slots"]

ALIGN = 64
"""Bytes: a cache line, and the widest vector."""


class Placed(Protocol):
    """A buffer: its bytes, the first and the last step that touches it, and where it is put."""

    size: int
    first: int
    last: int
    offset: int


M = TypeVar("M", bound=Placed)


def plan_slots(buffers: Sequence[M]) -> tuple[int, list[int]]:
    """Set the offset of every buffer so that those alive at the same time have slots of their own;
    return the total, and where the slots begin. A slot is as large as the largest of its buffers.
    """
    slots: list[list[M]] = []
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


def _size(slot: Sequence[M]) -> int:
    return max(b.size for b in slot)


def plan(buffers: Sequence[M]) -> int:
    """Set the offset of every buffer, the better of two ways; return the total.

    A buffer is alive from its first to its last step, both included: a kernel's result never lies
    over one of its operands.
    """
    total = _by_birth(buffers)
    found = [b.offset for b in buffers]
    if _by_size(buffers) < total:
        total = max((b.offset + b.size for b in buffers), default=0)
    else:
        for b, at in zip(buffers, found, strict=True):
            b.offset = at
    return -(-total // ALIGN) * ALIGN


def _by_birth(buffers: Sequence[M]) -> int:
    """First fit by time of birth, larger first: right for stacks of layers of one size."""
    alive: list[M] = []  # by offset
    total = 0
    for b in sorted(buffers, key=lambda b: (b.first, -b.size)):
        alive = [p for p in alive if b.first <= p.last]
        total = max(total, _put(b, alive))
    return total


def _by_size(buffers: Sequence[M]) -> int:
    """First fit by size, the largest first: right where few large ones decide."""
    placed: list[M] = []  # by offset
    total = 0
    for b in sorted(buffers, key=lambda b: (-b.size, b.first)):
        meets = [p for p in placed if p.first <= b.last and b.first <= p.last]
        total = max(total, _put(b, meets))
        insort(placed, b, key=lambda p: p.offset)
    return total


def _put(b: M, others: list[M]) -> int:
    """Place a buffer in the first gap that those ``others``, by offset, leave; where it ends."""
    at = 0
    for p in others:
        if at + b.size <= p.offset:
            break
        at = max(at, -(-(p.offset + p.size) // ALIGN) * ALIGN)
    b.offset = at
    insort(others, b, key=lambda p: p.offset)
    return at + b.size

"""A schedule of symbolic sizes, bound to numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlx.base.dims import Dim, bind_dim
from rlx.schedule.arena import plan
from rlx.schedule.plan import Buffer, Schedule, Signature
from rlx.schedule.steps import Launch, Origin, Place, Step, map_each

__all__ = ["Lifetime", "bind_schedule", "unplaced"]


def bind_schedule(schedule: Schedule, sizes: Mapping[str, int]) -> Schedule:
    """The schedule for sizes of its dims, with its arena planned for these."""
    known: dict[str, Dim] = dict(sizes)
    known |= _planned(schedule.buffers, sizes)
    bind = _Binder(known)
    before, follows = zip(*schedule.prologue, strict=True) if schedule.prologue else ((), ())
    return replace(
        schedule,
        arena_bytes=bind.number(schedule.arena_bytes),
        packed_bytes=bind.number(schedule.packed_bytes),
        params=[bind.signature(s) for s in schedule.params],
        inputs=[bind.signature(s) for s in schedule.inputs],
        outputs=[bind.signature(s) for s in schedule.outputs],
        prologue=tuple(zip(bind.steps(before), follows, strict=True)),
        main=bind.steps(schedule.main),
        buffers=(),
    )


def _planned(buffers: Sequence[Buffer], sizes: Mapping[str, int]) -> dict[str, int]:
    """The offsets of the arena's buffers and its size, by the names of their symbols."""
    placed = unplaced(buffers, sizes)
    total = plan(placed)
    return {f"arena.{n}": b.offset for n, b in enumerate(placed)} | {"arena.size": total}


@dataclass
class Lifetime:
    """A buffer of the arena for sizes: its bytes, the first and the last step that touches it, and
    where it is put."""

    size: int
    first: int
    last: int
    offset: int = 0


def unplaced(buffers: Sequence[Buffer], sizes: Mapping[str, int]) -> list[Lifetime]:
    """Buffers for sizes of their dims, which are still to be placed."""
    bind = _Binder(sizes)
    return [Lifetime(bind.number(b.size), b.first, b.last) for b in buffers]


class _Binder:
    def __init__(self, known: Mapping[str, Dim]) -> None:
        self._known = known

    def number(self, d: Dim) -> int:
        found = bind_dim(d, self._known)
        assert isinstance(found, int), f"{d} has no size"
        return found

    def numbers(self, many: Sequence[Dim]) -> tuple[int, ...]:
        return tuple([self.number(d) for d in many])

    def signature(self, s: Signature) -> Signature:
        return (*s[:2], self.numbers(s[2]))

    def place(self, p: Place) -> Place:
        layout = p.layout and replace(
            p.layout, shape=self.numbers(p.layout.shape), strides=self.numbers(p.layout.strides)
        )
        moves = tuple([(depth, self.number(n)) for depth, n in p.moves])
        moves = tuple([m for m in moves if m[1]])
        return Place(p.base, self.number(p.offset), moves, layout)

    def launch(self, step: Launch[Place]) -> Launch[Place]:
        places = tuple([self.place(p) for p in step.places])
        grid: Any = self.numbers(step.grid)
        return Launch(step.kernel, grid, places, self.numbers(step.sizes), self.origin(step.origin))

    def origin(self, o: Origin) -> Origin:
        return replace(o, flops=self.number(o.flops), bytes=self.number(o.bytes))

    def steps(self, steps: Sequence[Step[Place]]) -> tuple[Step[Place], ...]:
        return map_each(steps, self.launch, self.place, self.number)

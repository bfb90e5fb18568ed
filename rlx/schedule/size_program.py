"""Steps of symbolic sizes as data: what a runtime evaluates for the sizes of a call.

Every number that is an expression becomes an instruction of one straight line, which the native
runtime carries out (``rlx/runtime/native/size_program.h``): first what the guards need, then what
the buffers of the arena need, then, with the arena planned, the words of the steps.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from rlx.base.dim_atoms import Atom, Call, Symbol
from rlx.base.dims import Dim, SymDim
from rlx.base.guards import Guard
from rlx.schedule.codec import main_items
from rlx.schedule.plan import Buffer, Schedule, Signature
from rlx.schedule.sizes import OPS, RELATIONS, SizeProgram, in_order
from rlx.schedule.steps import Place, Step, launches

__all__ = ["dims_of", "size_program", "steps_program"]


def size_program(
    schedule: Schedule, guards: Sequence[Guard], symbols: Iterable[str]
) -> SizeProgram:
    """A schedule of sizes of ``symbols`` for a CPU as data. Its params and its prologue have no
    symbolic dims."""
    origins = [step.origin for step in launches(schedule.main)]
    results = [
        schedule.arena_bytes, *dims_of(schedule.inputs), *dims_of(schedule.outputs),
        *(n for origin in origins for n in (origin.flops, origin.bytes)),
    ]  # fmt: skip
    return steps_program(schedule.main, results, guards, symbols, schedule.buffers)


def dims_of(signatures: Iterable[Signature]) -> list[Dim]:
    """The dims of signatures, one after the other."""
    return [d for _, _, shape in signatures for d in shape]


def steps_program(
    main: Sequence[Step[Place]],
    results: Sequence[Dim],
    guards: Sequence[Guard],
    symbols: Iterable[str],
    arena: Sequence[Buffer] = (),
) -> SizeProgram:
    """Steps of sizes of ``symbols`` as data, with the buffers of the ``arena`` that is planned for
    them; ``results`` are numbers that are made beside the steps."""
    line = _Line([*in_order(symbols), *(f"arena.{n}" for n in range(len(arena))), "arena.size"])
    guarded = [(line.value(g.dim), RELATIONS.index(g.relation), g.number) for g in guards]
    buffers = [(line.value(b.size), b.first, b.last) for b in arena]
    numbers = [line.value(d) for d in results]
    items = main_items(main)
    patches = [(at, line.value(d)) for at, d in enumerate(items) if isinstance(d, SymDim)]
    return SizeProgram(
        tuple(map(str, guards)),
        _words(0 if isinstance(d, SymDim) else d for d in items),
        _words(n for row in line.rows for n in row),
        _words(n for row in guarded for n in row),
        _words(n for row in buffers for n in row),
        _words(n for row in patches for n in row),
        _words(numbers),
    )


def _words(numbers: Iterable[int]) -> bytes:
    found = list(numbers)
    return struct.pack(f"<{len(found)}q", *found)


class _Line:
    """Instructions, of which equal ones are one."""

    def __init__(self, sizes: Sequence[str]) -> None:
        self._sizes = {name: n for n, name in enumerate(sizes)}
        self._made: dict[tuple[int, int, int], int] = {}
        self._dims: dict[Dim, int] = {}
        self.rows: list[tuple[int, int, int]] = []

    def value(self, d: Dim) -> int:
        """The number of the instruction that makes a dim."""
        if d not in self._dims:
            self._dims[d] = self._sum(d) if isinstance(d, SymDim) else self._row("number", d)
        return self._dims[d]

    def _sum(self, d: SymDim) -> int:
        total = -1
        for atoms, factor in d.terms:
            part = -1 if factor == 1 and atoms else self._row("number", factor)
            for atom in atoms:
                part = self._two("*", part, self._atom(atom))
            total = self._two("+", total, part)
        return total

    def _atom(self, atom: Atom) -> int:
        if isinstance(atom, Symbol):
            return self._row("size", self._sizes[atom.name])
        assert isinstance(atom, Call), "an atom is a symbol or a call"
        found = -1
        for a in atom.args:
            found = self._two(atom.kind, found, self.value(a))
        return found

    def _two(self, op: str, a: int, b: int) -> int:
        return b if a < 0 else self._row(op, a, b)

    def _row(self, op: str, a: int, b: int = 0) -> int:
        row = OPS.index(op), a, b
        if row not in self._made:
            self._made[row] = len(self.rows)
            self.rows.append(row)
        return self._made[row]

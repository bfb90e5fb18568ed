"""Launches of loaded schedules: the ops that they are of, and the events recorded of them.

The native runtime numbers launches through the whole process; here a number becomes a kernel, the
ops that it computes, and the user's line.
"""

from __future__ import annotations

import json
import struct
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rlx.runtime import _native
from rlx.runtime.artifact import Variant
from rlx.tracing import Event, Recording, add_source

if TYPE_CHECKING:
    from rlx.schedule.steps import Place, Step

__all__ = ["CAPACITY", "LaunchInfo", "launches_of", "register"]

CAPACITY = 1 << 18
"""Events that one trace keeps of runs: 10 MiB, and some 50 MiB of JSON."""

_EVENT = struct.Struct("<qqIIqq")
_RUN, _PROLOGUE, _LAUNCH, _CHUNK = range(4)
_NAMES = {_RUN: "run", _PROLOGUE: "prologue"}


class LaunchInfo(NamedTuple):
    """A launch of a schedule: its kernel, the ops that it computes, and the user's line.

    ``flops`` is the arithmetic of those ops by their own account; ``bytes`` is what it moves if it
    reads and writes each of its buffers once. ``range`` is its parallel range, ``sizes`` are the
    kernel's size arguments.
    """

    kernel: str
    ops: str
    file: str
    line: int
    flops: int
    bytes: int
    range: int
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        """The ops, or the kernel where they are not known."""
        return self.ops or self.kernel

    def to_json(self) -> dict[str, Any]:
        """The facts that a trace shows."""
        return {
            "kernel": self.kernel, "at": f"{self.file}:{self.line}", "flops": self.flops,
            "bytes": self.bytes, "range": self.range, "sizes": self.sizes,
        }  # fmt: skip


Launches: TypeAlias = Callable[[], list[LaunchInfo]]
"""What gives the launches of an entry."""


def launches_of(variant: Variant) -> tuple[list[LaunchInfo], list[LaunchInfo]]:
    """The launches of the prologue and of main, in the order in which the runtime numbers them."""
    from rlx.schedule.steps import launches

    facts = iter(variant.launches)

    def made(steps: Iterable[Step[Place]]) -> list[LaunchInfo]:
        return [
            LaunchInfo(variant.kernels[s.kernel].name, *next(facts), s.grid[0], s.sizes)
            for s in launches(steps)
        ]

    return made([step for step, _ in variant.prologue]), made(variant.main)


class _Runtime:
    """The native runtime as a source of events."""

    def __init__(self) -> None:
        self.known: dict[int, Launches] = {}
        self.owners: dict[int, weakref.ref[Any]] = {}
        self.gone: list[int] = []
        self.on = False

    def start(self) -> None:
        for first in self.gone:
            self.known.pop(first, None)
        self.gone.clear()
        self.on = True
        _native.trace_start(CAPACITY)

    def stop(self) -> None:
        self.on = False
        _native.trace_stop()

    def recorded(self) -> Recording:
        parts, dropped = _native.trace_events()
        running = {t.native_id: t.name for t in threading.enumerate() if t.native_id is not None}
        threads: dict[int, str] = {}
        for thread, worker, _ in parts:
            named = f"rlx worker {worker}" if worker else running.get(thread, f"thread {thread}")
            threads[thread] = named
        return Recording(self._events(parts), threads, dropped)

    def _events(self, parts: list[tuple[int, int, bytes]]) -> Iterator[Event]:
        texts = _Texts(self.known)
        for thread, _, data in parts:
            for begin, end, number, kind, first, last in _EVENT.iter_unpack(data):
                if kind in _NAMES:
                    yield Event(begin, end, kind, thread, _NAMES[kind], "run")
                    continue
                name, args = texts.of(number)
                if kind == _CHUNK:
                    args = f'{{"first": {first}, "last": {last}}}'
                category = "chunk" if kind == _CHUNK else "launch"
                yield Event(begin, end, kind, thread, name, category, args)

    def forget(self, first: int) -> None:
        """Its launches are gone; what was traced of them is still to be written."""
        self.owners.pop(first, None)
        if self.on:
            self.gone.append(first)
        else:
            self.known.pop(first, None)


class _Texts:
    """Names and JSON texts of launches by number, each made once."""

    def __init__(self, known: dict[int, Launches]) -> None:
        self._known = known
        self._firsts = sorted(known)
        self._made: dict[int, tuple[str, str]] = {}

    def of(self, number: int) -> tuple[str, str]:
        """The name and the facts of a launch; a program of the runtime's own has none."""
        if number not in self._made:
            at = bisect_right(self._firsts, number) - 1
            first = self._firsts[at] if at >= 0 else number
            launches = self._known[first]() if first in self._known else []
            if number - first < len(launches):
                launch = launches[number - first]
                self._made[number] = (launch.name, json.dumps(launch.to_json()))
            else:
                self._made[number] = (f"launch {number}", "{}")
        return self._made[number]


_runtime = _Runtime()
add_source(_runtime)


def register(owner: object, first: int, launches: Launches) -> None:
    """Say what the launches from number ``first`` on are, for as long as ``owner`` lives: they are
    asked for where a trace names them."""
    _runtime.known[first] = launches
    _runtime.owners[first] = weakref.ref(owner, lambda _: _runtime.forget(first))

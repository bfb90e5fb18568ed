"""A cache of compiled graphs within a process, for programs that build the same graph often."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from rlx import knobs
from rlx.base.digest import digest
from rlx.base.process import lock_of
from rlx.errors import GraphError
from rlx.ir.builders import public
from rlx.ir.graph import Graph

if TYPE_CHECKING:
    from rlx.runtime.session import CompiledGraph, Session

__all__ = ["CompileCache", "settings"]

CHOICES = (knobs.cpu, knobs.c_compiler, knobs.gpu, knobs.triton, knobs.kernel_dispatch)
"""The environment variables on which it depends what a compile gives."""


def settings(session: Session) -> tuple[Hashable, ...]:
    """What of a compile neither the graph nor its options say: the device and the precision of a
    session, and the environment."""
    return (session.device, session.types, *(knob.get() for knob in CHOICES))


@public
class CompileCache:
    """Keeps up to ``capacity`` things that took a compile; the one unused for longest goes first.
    Safe to use from many threads, of which one at a time builds."""

    def __init__(self, capacity: int = 64) -> None:
        if capacity < 1:
            raise GraphError(f"a cache holds at least 1 entry, found capacity {capacity}")
        self.capacity, self.hits, self.misses = capacity, 0, 0
        self._entries: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = lock_of(self)

    def get_or_compile(self, key: Hashable, build: Callable[[], Any]) -> Any:
        """What is kept under ``key``, or else what ``build`` makes."""
        with self._lock:
            if key in self._entries:
                self.hits += 1
                self._entries.move_to_end(key)
                return self._entries[key]
            self.misses += 1
            made = self._entries[key] = build()
            while len(self._entries) > self.capacity:
                self._entries.popitem(last=False)
            return made

    def compile(
        self,
        session: Session,
        graph: Graph,
        *,
        dims: Mapping[str, int] | None = None,
        **options: Any,
    ) -> CompiledGraph:
        """``session.compile`` of a graph, or the compiled graph of an equal one, which the callers
        then share, params included."""
        key = self.key(session, graph, dims=dims, **options)
        return self.get_or_compile(key, lambda: session.compile(graph, dims=dims, **options))

    @staticmethod
    def key(
        session: Session,
        graph: Graph,
        *,
        dims: Mapping[str, int] | None = None,
        **options: Any,
    ) -> str:
        """What a compile depends on: the graph with its constants and values, wherever it was
        written, the device and precision of the session, dims, options and environment."""
        from rlx.text import graph_text

        parts = [*settings(session), sorted((dims or {}).items()), sorted(options.items())]
        return digest(repr(parts).encode(), graph_text(graph, places=False).encode())

    def clear(self) -> None:
        """Forget all entries."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

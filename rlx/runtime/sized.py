"""Executables of a graph with symbolic dims: compiled for conditions on sizes, bound to sizes.

A call's sizes run on the first variant whose guards they meet: the native runtime evaluates its
steps for them, which takes no compiler. The first call compiles one for its sizes. A general one,
which serves as many sizes as it can, follows in the background, as does what serves sizes better
that the general one serves, and takes over; the results have the same bits. The general one is
made in haste, as a call may wait for it: where that left out kernels, another one takes over.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING
from weakref import ref

from rlx import knobs
from rlx.base.clock import Tick
from rlx.base.frozen import frozen
from rlx.base.gc_pause import importing
from rlx.base.giving_way import GaveWayError, giving_way
from rlx.base.process import lock_of
from rlx.errors import RlxError
from rlx.ir.graph import Graph, symbols_of, with_bodies
from rlx.lowering.locations import Places
from rlx.lowering.report import print_reports
from rlx.runtime.artifact import Artifact
from rlx.runtime.background import later
from rlx.runtime.cache.artifacts import placed
from rlx.runtime.cache.variants import VariantSource
from rlx.runtime.sized_code import SizedCode
from rlx.runtime.sized_variant import (
    MakeCode,
    SizedVariant,
    SizedVariants,
    bound_for,
    key_of,
    listed,
)

if TYPE_CHECKING:
    from rlx.lowering.compilation import CompileReport, Options
    from rlx.targets.base import Target

__all__ = ["EVERY", "OWN", "SOON", "Kind", "Variants"]


@frozen
class Kind:
    """A kind of variant: ``general``, and of these ``hasty``, one that a call may wait for."""

    general: bool = False
    hasty: bool = False

    def is_of(self, variant: SizedVariant) -> bool:
        """Whether a variant will do where this kind is asked for."""
        return self.general == variant.general and (self.hasty or not variant.hasty)


OWN, SOON, EVERY = Kind(), Kind(general=True, hasty=True), Kind(general=True)
"""For sizes like those at hand; for all, soon; for all, as fast as may be."""

MOST = 16
"""Variants from which on none is made for speed alone: general ones serve what is left."""
LIMIT = 64 << 20
"""Bytes of the variants of a graph that are kept; those that served sizes longest ago go."""
MOST_SAID = 8
"""Conditions of a variant that a line of the log has."""


class Variants(SizedVariants):
    """What is compiled of a graph, for one target: the name and the features of what
    ``make_target`` makes."""

    def __init__(
        self,
        graph: Graph,
        target: tuple[str, str],
        make_target: Callable[[], Target],
        options: Options,
        code: MakeCode = SizedCode,
    ) -> None:
        self._graph, self._make_target, self._options = graph, make_target, options
        self._target = ":".join(target)
        leaves = (v.type for v in (*graph.inputs, *graph.params))
        what = f"the graph {graph.name!r}"
        super().__init__(symbols_of(leaves), what, code, options.donate)
        self._source = VariantSource(graph, target, options, make_target)
        # Ranks that meet run the same variants: no rank gets one at a time of its own.
        self._meets = any(op.meets for op in with_bodies(graph.nodes()))
        self._lock = lock_of(self)  # of making variants
        self._calls: deque[int] = deque()  # the processes of calls that wait for it
        self._refused = False  # the graph cannot be compiled with symbols
        self._enough = False  # no better variant can be made
        self._asked = 0  # the process in which a better one is being made
        self._numbers = count(1)  # of sizes that are served

    def provide(self, sizes: Mapping[str, int]) -> SizedVariant | None:
        """The variant for sizes of a call, of those that serve them the best; where none does,
        another is compiled. None where the graph cannot be compiled with symbols, which is
        reported.

        The first of all is made for the sizes of the call: often they are the only ones. A general
        variant follows at once, in the background, and once it is there calls wait no more.

        ShapeError for a size outside its dim's range, and for sizes that no memory holds; PassError
        for missed fusions where the options ask for none.
        """
        found = super().provide(sizes)
        if found is None:
            with self._called():
                found = self._there(sizes, None)
                if found is None and not self._refused:
                    found = self._needed(sizes)
        return _clean(found)

    @contextmanager
    def _called(self) -> Generator[None]:
        """The lock, for who waits for it, to which the making of what is only better gives way."""
        self._calls.append(process := os.getpid())
        try:
            with self._lock:
                yield
        finally:
            self._calls.remove(process)

    def _needed(self, sizes: Mapping[str, int]) -> SizedVariant | None:
        self._graph.bind(sizes)  # which says where sizes do not fit
        if knobs.ir_dump.get():
            with importing():
                from rlx.compiler.driver import show_levels
            show_levels(self._graph.bind(sizes), self._make_target(), self._options)
        start = Tick.now()
        try:
            made = self._source.compile(sizes, self._serves_more, self._serves_more)
        except RlxError as e:
            self._refused = True
            self._report(sizes, f"it is compiled for these sizes alone: {e.message}")
            return None
        return self._made(made, sizes, start)

    @property
    def _serves_more(self) -> bool:
        """Whether the next variant that a call waits for is to be a general one: where there is a
        first one, and general ones are not each for one size."""
        return bool(self.found) and not any(v.general and v.pinned for v in self.found)

    def prepare(self, sizes: Mapping[str, int], alone: bool = False) -> SizedVariant | None:
        """Compile what serves sizes, a general variant and, where it is worth it or they are
        ``alone``, a better one; the one for calls. Raises as the compiles do."""
        self._check(sizes)
        with self._called():
            for kind in (OWN, EVERY):
                wanted = kind.general or alone or self._gains
                if wanted and self._there(sizes, kind) is None:
                    self._compiled(sizes, kind, "prepared")
        return _clean(super().provide(sizes))

    def _there(self, sizes: Mapping[str, int], kind: Kind | None) -> SizedVariant | None:
        """A variant that serves sizes, of those that there are and those of the cache: one of a
        kind, or any."""
        key = key_of(sizes)

        def fits(variant: SizedVariant) -> bool:
            return (kind is None or kind.is_of(variant)) and variant.serves(key)

        with bound_for(self._what, sizes):
            for variant in self.found:
                if fits(variant):
                    return variant
            while (kept := self._source.read()) is not None:
                if fits(variant := self._added(*kept)):
                    return variant
        return None

    def _compiled(self, sizes: Mapping[str, int], kind: Kind, why: str) -> SizedVariant:
        self._graph.bind(sizes)  # which says where sizes do not fit
        start = Tick.now()
        return self._made(self._source.compile(sizes, kind.general, kind.hasty), sizes, start, why)

    def _made(
        self,
        made: tuple[Artifact, CompileReport],
        sizes: Mapping[str, int],
        start: Tick,
        why: str = "",
    ) -> SizedVariant:
        why = why or f"no variant of {len(self.found)} serves it"
        variant = self._added(*made)
        kind = "a general one" if variant.general else "one"
        seconds = Tick.now().seconds_since(start)
        self._report(sizes, f"{why}; {kind} for {_few(variant.conditions)}; {seconds:.2f} s")
        return variant

    def _added(self, artifact: Artifact, report: CompileReport) -> SizedVariant:
        places, compilation = Places(self._graph), report.compilation
        compilation.fusion = places.fusion(compilation.fusion)
        print_reports(self._graph.name, self._target, compilation)
        variant = SizedVariant(placed(artifact, places), report, self._code)
        kept = self._kept(variant)
        # A new list: threads that call are looking at the old one. General variants come last.
        gone = len(kept) <= len(self.found)
        self.found = sorted(kept, key=_rank)
        self.changes += gone or _rank(variant) < _rank(self.found[-1])
        return variant

    def _kept(self, added: SizedVariant) -> list[SizedVariant]:
        """The variants with one more, without those that there is no room for."""
        kept = [*self.found, added]
        added.last = next(self._numbers)
        for oldest in sorted(self.found, key=lambda v: v.last):
            if _bytes_of(kept) <= LIMIT:
                break
            kept.remove(oldest)
        return kept

    def _served(self, variant: SizedVariant, sizes: tuple[int, ...]) -> None:
        variant.last = next(self._numbers)
        process = os.getpid()
        if (
            self._meets or self._asked == process
        ):  # a child of a fork has nothing of what its parent asked for
            return
        if variant.hasty:
            kind = EVERY
        elif not variant.general:
            kind = None if any(v.general for v in self.found) else SOON
        else:
            kind = OWN if self._gains else None
        if kind is None or self._enough:
            return
        mine = ref(self)

        def work() -> None:
            variants = mine()
            if variants is not None:  # else nobody uses the graph any more
                variants._improve(sizes, kind)

        self._asked = process
        if not later(work):
            self._asked = 0

    @property
    def _gains(self) -> bool:
        """Whether better variants than a general one are worth their compiles: those for one size
        are not, nor are many."""
        return len(self.found) < MOST and not any(v.pinned for v in self.found)

    def _improve(self, key: tuple[int, ...], kind: Kind) -> None:
        """Make the general variant that is to serve what others do not, or one that takes over from
        it at sizes."""
        sizes = dict(zip((s.name for s in self.symbols), key, strict=True))

        # Calls wait for a general variant, but not for another one.
        def waited_for() -> bool:
            return kind != SOON and os.getpid() in self._calls

        try:
            with self._lock, giving_way(waited_for):
                if self._there(sizes, kind) is None:
                    self._compiled(sizes, kind, why="in the background")
        except GaveWayError:
            raise  # it is put off
        except RlxError as e:
            self._enough = True
            self._report(sizes, f"what there is goes on serving it: {e.message}")
        except BaseException:
            self._asked = 0
            raise
        self._asked = 0

    def _report(self, sizes: Mapping[str, int], message: str) -> None:
        if "compile" in knobs.log.get():
            at = f"{self._graph.name!r} at {listed(sizes)}"
            print(f"rlx: compile: {at}: {message}", file=sys.stderr)


def _few(conditions: str) -> str:
    """Conditions in a line that one reads: of many the first."""
    each = conditions.split(", ")
    if len(each) <= MOST_SAID:
        return conditions
    return f"{each[0]} and {len(each) - 1} more conditions"


def _rank(variant: SizedVariant) -> tuple[bool, bool]:
    """The order in which variants are asked."""
    return variant.general, variant.hasty


def _clean(variant: SizedVariant | None) -> SizedVariant | None:
    """PassError for missed fusions where the options ask for none. A general variant fuses less: it
    is there for what no other one serves."""
    if variant is not None and variant.report is not None and not variant.general:
        variant.report.compilation.check_clean()
    return variant


def _bytes_of(variants: Sequence[SizedVariant]) -> int:
    objects = {key: len(data) for v in variants for key, data in v.objects.items()}
    return sum(v.bytes for v in variants) + sum(objects.values())

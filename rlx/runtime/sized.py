"""Executables of a graph with symbolic dims: compiled for conditions on sizes, bound to sizes.

A call's sizes run on the first variant whose guards they meet: the native runtime evaluates its
steps for them, which takes no compiler. Sizes that meet none compile one variant more: for a second
time a general one, which serves as many sizes as it can. What serves them better is compiled in the
background, and takes over; the results have the same bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import ref

from rlx import knobs
from rlx.base.clock import Tick
from rlx.base.gc_pause import importing
from rlx.base.process import lock_of
from rlx.errors import RlxError
from rlx.ir.graph import Graph, symbols_of
from rlx.lowering.locations import Places
from rlx.lowering.report import print_reports
from rlx.runtime.artifact import Artifact
from rlx.runtime.background import later
from rlx.runtime.cache.artifacts import placed
from rlx.runtime.cache.variants import VariantSource
from rlx.runtime.executable import Executable
from rlx.runtime.sized_variant import (
    SizedVariant,
    SizedVariants,
    check_sizes,
    first_serving,
    listed,
)
from rlx.runtime.weights import Weights

if TYPE_CHECKING:
    from rlx.lowering.compilation import CompileReport, Options
    from rlx.targets.base import Target

__all__ = ["Variants"]

MOST = 16
"""Variants from which on none is made for speed alone: general ones serve what is left."""


class Variants(SizedVariants):
    """What is compiled of a graph, for one target: the name and the features of what
    ``make_target`` makes. ``prepare`` may be called by several threads at once."""

    def __init__(
        self,
        graph: Graph,
        target: tuple[str, str],
        options: Options,
        make_target: Callable[[], Target],
    ) -> None:
        self._graph, self._make_target, self._options = graph, make_target, options
        self._target = ":".join(target)
        leaves = (v.type for v in (*graph.inputs, *graph.params))
        super().__init__(symbols_of(leaves))
        self._source = VariantSource(graph, target, options, make_target)
        self._lock = lock_of(self)  # of making variants
        self._refused = self._asked = False

    def executable(self, sizes: Mapping[str, int], shared: Sequence[Weights]) -> Executable | None:
        """The executable for sizes; where no variant serves them, another is compiled. ``shared``
        are weights for a new one to use if they fit. None where the graph cannot be compiled with
        symbols, which is reported.

        ShapeError for a size outside its dim's range, and for sizes that no memory holds.
        """
        check_sizes(self.symbols, sizes)
        what, donate = f"the graph {self._graph.name!r}", self._options.donate
        return first_serving(self._offered(sizes), sizes, shared, what, donate)

    def prepare(self, sizes: Mapping[str, int]) -> None:
        """Compile what serves sizes, a general variant and, of those that are not too many, one of
        their own, where that is not there. Raises as the compiles do."""
        check_sizes(self.symbols, sizes)
        with self._lock:
            for general in (False, True):
                wanted = general or len(self.found) < MOST
                if wanted and self._there(_key(sizes), general) is None:
                    self._made(sizes, general, where="prepared")

    def _offered(self, sizes: Mapping[str, int]) -> Iterator[SizedVariant]:
        """The variants for a call, the best first, and one that is made if none of them serves it.

        The first of all is made for the sizes of the call: often they are the only ones. When there
        are others, a general variant is made, and from then on calls wait no more.
        """
        key = _key(sizes)
        for variant in self.found:
            if variant.serves(key):
                self._served(variant, key)
                yield variant
        with self._lock:
            found = self._there(key, None)
            if found is None and not self._refused:
                self._check(sizes)
                try:
                    found = self._made(sizes, general=bool(self.found))
                except RlxError as e:
                    self._refused = True
                    self._report(sizes, f"it is compiled for these sizes alone: {e.message}")
        if found is not None:
            self._served(found, key)
            yield found

    def _check(self, sizes: Mapping[str, int]) -> None:
        self._graph.bind(sizes)  # which says where sizes do not fit
        if knobs.ir_dump.get():
            with importing():
                from rlx.compiler.driver import show_levels
            show_levels(self._graph.bind(sizes), self._make_target(), self._options)

    def _there(self, key: tuple[int, ...], general: bool | None) -> SizedVariant | None:
        """A variant that serves sizes, of those that there are and those of the cache: a
        ``general`` one, none that is, or any."""

        def fits(variant: SizedVariant) -> bool:
            return general in (None, variant.general) and variant.serves(key)

        for variant in self.found:
            if fits(variant):
                return variant
        while (kept := self._source.read()) is not None:
            if fits(variant := self._added(*kept)):
                return variant
        return None

    def _made(self, sizes: Mapping[str, int], general: bool, where: str = "") -> SizedVariant:
        start, count = Tick.now(), len(self.found)
        variant = self._added(*self._source.compile(sizes, general))
        kind = "a general one" if general else "one"
        why = where or f"no variant of {count} serves it"
        seconds = Tick.now().seconds_since(start)
        self._report(sizes, f"{why}; {kind} for {variant.conditions}; {seconds:.2f} s")
        return variant

    def _added(self, artifact: Artifact, report: CompileReport) -> SizedVariant:
        places, compilation = Places(self._graph), report.compilation
        compilation.fusion = places.fusion(compilation.fusion)
        compilation.check_clean()
        print_reports(self._graph.name, self._target, compilation)
        variant = SizedVariant(placed(artifact, places), report)
        # A new list: threads that call are looking at the old one. General variants come last.
        found = [v for v in (*self.found, variant) if not v.general]
        self.found = [*found, *(v for v in (*self.found, variant) if v.general)]
        self.changes += self.found[-1].general and not variant.general
        return variant

    def _served(self, variant: SizedVariant, sizes: tuple[int, ...]) -> None:
        if not variant.general or self._asked or self._refused or len(self.found) >= MOST:
            return
        self._asked = True
        mine = ref(self)

        def work() -> None:
            variants = mine()
            if variants is not None:  # else nobody uses the graph any more
                variants._specialise(sizes)

        later(work)

    def _specialise(self, key: tuple[int, ...]) -> None:
        """Make the variant that takes over from a general one at sizes."""
        sizes = dict(zip((s.name for s in self.symbols), key, strict=True))
        try:
            with self._lock:
                if self._there(key, general=False) is None:
                    self._made(sizes, general=False, where="in the background")
        except RlxError as e:
            self._refused = True
            self._report(sizes, f"a general variant goes on serving it: {e.message}")
        finally:
            self._asked = False

    def _report(self, sizes: Mapping[str, int], message: str) -> None:
        if "compile" in knobs.log.get():
            at = f"{self._graph.name!r} at {listed(sizes)}"
            print(f"rlx: compile: {at}: {message}", file=sys.stderr)


def _key(sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple([sizes[name] for name in sorted(sizes)])

"""Executables of a graph with symbolic dims: compiled for conditions on sizes, bound to sizes.

A call's sizes run on the first variant whose guards they meet: the native runtime evaluates its
steps for them, which takes no compiler. Sizes that meet none compile one variant more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rlx import knobs
from rlx.base.clock import Tick
from rlx.base.gc_pause import importing
from rlx.errors import RlxError
from rlx.ir.graph import Graph, symbols_of
from rlx.lowering.locations import Places
from rlx.lowering.report import print_reports
from rlx.runtime.artifact import Artifact
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


class Variants(SizedVariants):
    """What is compiled of a graph, for one target: the name and the features of what
    ``make_target`` makes. To be used by one thread at a time."""

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
        self._refused = False

    def executable(self, sizes: Mapping[str, int], shared: Sequence[Weights]) -> Executable | None:
        """The executable for sizes; where no variant serves them, another is compiled. ``shared``
        are weights for a new one to use if they fit. None where the graph cannot be compiled with
        symbols, which is reported.

        ShapeError for a size outside its dim's range, and for sizes that no memory holds.
        """
        check_sizes(self.symbols, sizes)
        what, donate = f"the graph {self._graph.name!r}", self._options.donate
        return first_serving(self._all(sizes), sizes, shared, what, donate)

    def serving(self, sizes: Mapping[str, int]) -> SizedVariant:
        """The variant that serves sizes; where there is none, it is compiled. Raises as the compile
        does."""
        key = [sizes[name] for name in sorted(sizes)]
        for variant in self._all(sizes, strict=True):
            if variant.serves(key):
                return variant
        raise AssertionError("a variant serves the sizes that it is compiled for")

    def _all(self, sizes: Mapping[str, int], strict: bool = False) -> Iterator[SizedVariant]:
        """The variants: those that are there, those of the cache, and one more, for ``sizes``."""
        yield from self.found
        while (kept := self._source.read()) is not None:
            yield self._added(*kept)
        if not self._refused:
            start, count = Tick.now(), len(self.found)
            made = self._source.compile(sizes) if strict else self._compiled(sizes)
            if made is not None:
                variant = self._added(*made)
                what = f"no variant of {count} serves it; one for {variant.conditions}"
                self._report(sizes, f"{what}; {Tick.now().seconds_since(start):.2f} s")
                yield variant

    def _compiled(self, sizes: Mapping[str, int]) -> tuple[Artifact, CompileReport] | None:
        self._graph.bind(sizes)  # which says where sizes do not fit
        if knobs.ir_dump.get():
            with importing():
                from rlx.compiler.driver import show_levels
            show_levels(self._graph.bind(sizes), self._make_target(), self._options)
        try:
            return self._source.compile(sizes)
        except RlxError as e:
            self._refused = True
            self._report(sizes, f"it is compiled for these sizes alone: {e.message}")
            return None

    def _added(self, artifact: Artifact, report: CompileReport) -> SizedVariant:
        places, compilation = Places(self._graph), report.compilation
        compilation.fusion = places.fusion(compilation.fusion)
        compilation.check_clean()
        print_reports(self._graph.name, self._target, compilation)
        variant = SizedVariant(placed(artifact, places), report)
        self.found.append(variant)
        return variant

    def _report(self, sizes: Mapping[str, int], message: str) -> None:
        if "compile" in knobs.log.get():
            at = f"{self._graph.name!r} at {listed(sizes)}"
            print(f"rlx: compile: {at}: {message}", file=sys.stderr)

"""Executables of a graph with symbolic dims: compiled for conditions on sizes, bound to sizes.

A call's sizes run on the first variant whose guards they meet: the native runtime evaluates its
steps for them, which takes no compiler. Sizes that meet none compile one variant more.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlx import knobs
from rlx.base.clock import Tick
from rlx.base.gc_pause import importing
from rlx.errors import RlxError, ShapeError
from rlx.ir.graph import Graph, symbols_of
from rlx.lowering.locations import Places
from rlx.lowering.report import print_reports
from rlx.runtime import _native
from rlx.runtime.artifact import Artifact
from rlx.runtime.cache.artifacts import placed
from rlx.runtime.cache.variants import VariantSource
from rlx.runtime.executable import Executable
from rlx.runtime.weights import Weights
from rlx.schedule.sizes import SizeProgram

if TYPE_CHECKING:
    from rlx.lowering.compilation import CompileReport, Options
    from rlx.schedule.plan import Signature
    from rlx.targets.base import Target

__all__ = ["SizedVariant", "Variants"]


_RANGE = re.compile(r"(?<=\w)\[\d+\.\.\d*\]")
"""What tells a symbol with a range from one without, which people need not see."""


class SizedVariant:
    """A variant: an artifact for some sizes, with what binds it to others, and its report. It is
    loaded when it first serves a call."""

    def __init__(self, artifact: Artifact, report: CompileReport) -> None:
        self.artifact, self.report = artifact, report
        program = SizeProgram.from_bytes(artifact.extras["sizes"])
        self.conditions = _RANGE.sub("", ", ".join(program.conditions)) or "all sizes"
        parts: dict[str, Any] = {**program.parts}
        self._native = _native.SizeProgram(sizes=len(program.symbols), **parts)
        self.executable: Executable | None = None

    def bind(self, sizes: Sequence[int]) -> tuple[bytes, tuple[int, ...]] | None:
        """The words of its steps and the results of its program for sizes, by the order of names;
        None if they do not meet the guards."""
        return self._native.bind(sizes)

    def at(
        self,
        bound: tuple[bytes, tuple[int, ...]],
        shared: Sequence[Weights],
        donate: Sequence[tuple[int, int]],
    ) -> Executable:
        """The executable for what ``bind`` gave. ``shared`` are weights to use if they fit."""
        words, (arena, *dims) = bound
        if self.executable is None:
            self.executable = Executable(self.artifact, self.report, shared, donate)
        whole = self.artifact
        inputs, left = _shaped(whole.inputs, dims)
        outputs, left = _shaped(whole.outputs, left)
        assert not left, "the results are the dims of the signatures"
        variant = replace(self.executable.variant, arena_bytes=arena, main_words=words)
        found = Artifact(whole.target, whole.params, inputs, outputs, (variant,))
        return self.executable.of_words(found, variant)


def _shaped(
    signatures: Sequence[Signature], dims: Sequence[int]
) -> tuple[list[Signature], Sequence[int]]:
    """Signatures with shapes of the dims that come first, and the other dims."""
    found: list[Signature] = []
    for name, dt, shape in signatures:
        found.append((name, dt, tuple(dims[: len(shape)])))
        dims = dims[len(shape) :]
    return found, dims


def _listed(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sorted(sizes.items()))


class Variants:
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
        self._symbols = {s.name: s for s in symbols_of(leaves)}
        self._source = VariantSource(graph, target, options, make_target)
        self._refused = False
        self.found: list[SizedVariant] = []

    @property
    def conditions(self) -> list[str]:
        """Of each variant the conditions on sizes under which it serves them."""
        return [v.conditions for v in self.found]

    @property
    def loaded(self) -> list[Executable]:
        """The executables of the variants that have served a call."""
        return [v.executable for v in self.found if v.executable is not None]

    def executable(self, sizes: Mapping[str, int], shared: Sequence[Weights]) -> Executable | None:
        """The executable for sizes; where no variant serves them, another is compiled. ``shared``
        are weights for a new one to use if they fit. None where the graph cannot be compiled with
        symbols, which is reported.

        ShapeError for a size outside its dim's range, and for sizes that no memory holds.
        """
        for name, symbol in self._symbols.items():
            symbol.checked(sizes[name])
        key = [sizes[name] for name in sorted(sizes)]
        for variant in self._all(sizes):
            try:
                bound = variant.bind(key)
                if bound is not None:
                    return variant.at(bound, shared, self._options.donate)
            except _native.Error as e:
                what = f"the graph {self._graph.name!r} at {_listed(sizes)}"
                raise ShapeError(f"{what}: {e}") from None
        return None

    def _all(self, sizes: Mapping[str, int]) -> Iterator[SizedVariant]:
        """The variants: those that are there, those of the cache, and one more, for ``sizes``."""
        yield from self.found
        while (kept := self._source.read()) is not None:
            yield self._added(*kept)
        if not self._refused:
            start, count = Tick.now(), len(self.found)
            made = self._compiled(sizes)
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
            at = f"{self._graph.name!r} at {_listed(sizes)}"
            print(f"rlx: compile: {at}: {message}", file=sys.stderr)

"""Executables of a graph with symbolic dims: compiled for conditions on sizes, bound to sizes.

A call's sizes run on the first variant whose guards they meet: the native runtime evaluates its
steps for them, which takes no compiler. Sizes that meet none compile one variant more.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlx import knobs
from rlx.base.clock import Tick
from rlx.base.frozen import record
from rlx.base.gc_pause import importing
from rlx.errors import RlxError, ShapeError
from rlx.ir.graph import Graph, symbols_of
from rlx.lowering.report import print_reports
from rlx.runtime import _native
from rlx.runtime.artifact import Artifact
from rlx.runtime.executable import Executable
from rlx.runtime.weights import Weights
from rlx.schedule.plan import Signature

if TYPE_CHECKING:
    from rlx.compiler.symbolic import SymbolicArtifact
    from rlx.lowering.compilation import Options
    from rlx.targets.base import Target

__all__ = ["SizedVariant", "Variants"]


_RANGE = re.compile(r"(?<=\w)\[\d+\.\.\d*\]")
"""What tells a symbol with a range from one without, which people need not see."""


@record
class SizedVariant:
    """A variant in memory: what was compiled, its executable for the sizes that it was compiled
    for, and what binds it to others."""

    compiled: SymbolicArtifact
    executable: Executable
    native: _native.SizeProgram

    def at(self, sizes: Sequence[int]) -> Executable | None:
        """The executable for sizes, by the order of names; None if they do not meet the guards."""
        bound = self.native.bind(sizes)
        if bound is None:
            return None
        words, (arena, *dims) = bound
        artifact = self.compiled.artifact
        inputs, left = _shaped(artifact.inputs, dims)
        outputs, left = _shaped(artifact.outputs, left)
        assert not left, "the results are the dims of the signatures"
        variant = replace(self.executable.variant, arena_bytes=arena, main_words=words)
        found = Artifact(artifact.target, artifact.params, inputs, outputs, (variant,))
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


def _met(made: SymbolicArtifact) -> str:
    return _RANGE.sub("", ", ".join(map(str, made.guards))) or "all sizes"


def _report(message: str) -> None:
    if "compile" in knobs.log.get():
        print(f"rlx: compile: {message}", file=sys.stderr)


class Variants:
    """What is compiled of a graph, for one target. To be used by one thread at a time."""

    def __init__(self, graph: Graph, make_target: Callable[[], Target], options: Options) -> None:
        self._graph, self._make_target, self._options = graph, make_target, options
        leaves = (v.type for v in (*graph.inputs, *graph.params))
        self._symbols = {s.name: s for s in symbols_of(leaves)}
        self.found: list[SizedVariant] = []

    @property
    def conditions(self) -> list[str]:
        """Of each variant the conditions on sizes under which it serves them."""
        return [_met(v.compiled) for v in self.found]

    def executable(self, sizes: Mapping[str, int], shared: Sequence[Weights]) -> Executable | None:
        """The executable for sizes; where no variant serves them, another is compiled. ``shared``
        are weights for a new one to use if they fit. None where the graph cannot be compiled with
        symbols at these sizes, which is reported.

        ShapeError for a size outside its dim's range, and for sizes that no memory holds.
        """
        for name, symbol in self._symbols.items():
            symbol.checked(sizes[name])
        key = [sizes[name] for name in sorted(sizes)]
        try:
            for variant in self.found:
                executable = variant.at(key)
                if executable is not None:
                    return executable
        except _native.Error as e:
            raise ShapeError(f"the graph {self._graph.name!r} at {_listed(sizes)}: {e}") from None
        return self._compiled(sizes, shared)

    def _compiled(self, sizes: Mapping[str, int], shared: Sequence[Weights]) -> Executable | None:
        with importing():
            from rlx.compiler.symbolic import compile_symbolic
        start, what = Tick.now(), f"{self._graph.name!r} at {_listed(sizes)}"
        self._graph.bind(sizes)  # which says where sizes do not fit
        try:
            made = compile_symbolic(self._graph, sizes, self._make_target(), self._options)
        except RlxError as e:
            _report(f"{what} is compiled for these sizes alone: {e.message}")
            return None
        compilation = made.report.compilation
        compilation.check_clean()
        print_reports(self._graph.name, "cpu", compilation)
        took = Tick.now().elapsed_ns(start) * 1e-9
        count = len(self.found)
        _report(f"{what}: no variant of {count} serves it; one for {_met(made)}; {took:.2f} s")
        executable = Executable(made.artifact, made.report, shared, self._options.donate)
        p = made.program
        parts: dict[str, Any] = {
            "instructions": p.instructions, "guards": p.guards, "buffers": p.buffers,
            "words": p.words, "patches": p.patches, "results": p.results,
        }  # fmt: skip
        native = _native.SizeProgram(sizes=len(p.symbols), **parts)
        self.found.append(SizedVariant(made, executable, native))
        return executable

"""One lowering for many sizes: the schedule of a graph whose dims are symbols.

The passes run as they do for a graph of numbers. Where they have to decide by a size, they decide
for the sizes at hand and leave a guard (``rlx.base.guards``): the schedule is right for all sizes
that meet the guards, and equal to the one that a compile for such sizes makes
(``rlx.schedule.bind``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlx.base.dims import SymDim
from rlx.base.frozen import frozen
from rlx.base.giving_way import compiles
from rlx.base.guards import Deciding, Guard
from rlx.compiler.driver import compile_device, compile_schedule, lowered
from rlx.errors import UnsupportedError
from rlx.ir.clone import rebuild
from rlx.ir.graph import Graph, symbols_of
from rlx.ir.value import Value
from rlx.lowering.compilation import Compilation, CompileReport, Options
from rlx.runtime.artifact import Artifact, Variant
from rlx.runtime.cache.objects import Shelf
from rlx.schedule.bind import bind_schedule
from rlx.schedule.plan import Schedule, Signature, prologue_first
from rlx.schedule.size_program import size_program
from rlx.targets.base import Target
from rlx.tracing import span

__all__ = ["SymbolicSchedule", "compile_symbolic", "lower_symbolic"]


@frozen
class SymbolicSchedule:
    """A schedule of symbolic sizes, and the conditions on sizes under which it is right."""

    schedule: Schedule
    guards: tuple[Guard, ...]
    hasty: bool = False

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes meet all guards."""
        return all(g.holds(sizes) for g in self.guards)


def compile_symbolic(
    graph: Graph,
    sizes: Mapping[str, int],
    target: Target,
    options: Options,
    shelf: Shelf | None = None,
    general: bool = False,
    hasty: bool = False,
) -> tuple[Artifact, CompileReport]:
    """Compile a graph with symbolic dims for ``sizes``, and for all others that meet its guards, as
    many as it can if ``general``, and soon if ``hasty``. The facts of its launches are those for
    ``sizes``. As ``compile_structure``, with numbers for the user's lines.

    Raises UnsupportedError for params with symbolic dims, and as ``lower_symbolic`` does.
    """
    if symbols_of(v.type for v in graph.params):
        raise UnsupportedError(
            "a graph whose params have symbolic dims is bound to sizes before it is compiled; bind"
            " them with dims={...}"
        )
    compilation = Compilation(target, options)
    report = CompileReport(compilation, general=general)
    with compiles, span("compile", graph=graph.name):
        found = lower_symbolic(graph, sizes, compilation, general, hasty)
        report.hasty = found.hasty
        if target.programs:
            artifact = compile_device(found.schedule, target, report, sizes, found.guards)
        else:
            artifact = _for_cpu(found, sizes, target, report, shelf)
    return replace(
        artifact,
        inputs=_shaped(artifact.inputs, graph.inputs),
        outputs=_shaped(artifact.outputs, graph.outputs),
    ), report


def _for_cpu(
    found: SymbolicSchedule,
    sizes: Mapping[str, int],
    target: Target,
    report: CompileReport,
    shelf: Shelf | None,
) -> Artifact:
    schedule, _, _ = prologue_first(found.schedule)
    program = size_program(schedule, found.guards, sizes)
    artifact = compile_schedule(bind_schedule(schedule, sizes), target, report, shelf)
    (variant,) = artifact.variants
    assert isinstance(variant, Variant), "it is of a CPU"
    variant = replace(variant, arena_bytes=0, main_words=program.words, sizes=program)
    return replace(artifact, variants=(variant,))


def _shaped(signatures: Sequence[Signature], values: Sequence[Value]) -> list[Signature]:
    """Signatures with the shapes of the graph's values."""
    shapes: list[Any] = [v.type.shape for v in values]
    return [(name, dt, s) for (name, dt, _), s in zip(signatures, shapes, strict=True)]


def lower_symbolic(
    graph: Graph, sizes: Mapping[str, int], compilation: Compilation, general: bool = False,
    hasty: bool = False,
) -> SymbolicSchedule:  # fmt: skip
    """Lower a graph with symbolic dims for ``sizes`` and all others that are decided alike.

    A dim of size 0 is bound for good, and one of size 1 too: what has one element is broadcast, and
    its axis is dropped. A ``general`` schedule is for sizes of 1 as for others, and decides nothing
    that only makes it faster (``rlx.base.guards.prefers``); its results have the same bits. A
    ``hasty`` one does without kernels whose code takes long to make.
    """
    symbols = symbols_of(v.type for v in (*graph.inputs, *graph.params))
    least = 1 if general else 2
    with Deciding(sizes) as first:
        few = {s.name: n for s in symbols if (n := sizes[s.name]) < least}
        for s in symbols:
            # Asking records the guard: the schedule is for sizes of which the answer is the same.
            _ask(SymDim({(s,): 1}), sizes[s.name] if s.name in few else None, least)
    known: dict[str, int | SymDim] = {
        s.name: SymDim.symbol(s.name, max(least, s.least), s.most)
        for s in symbols
        if s.name not in few
    }
    known |= few
    graph = rebuild(graph, lambda t: t.bind(known), known)
    with Deciding(sizes, general, hasty) as then:
        schedule = lowered(graph, compilation)
    both = Deciding(sizes).assume((*first.guards, *then.guards))
    return SymbolicSchedule(schedule, both.guards, then.left_out)


def _ask(dim: SymDim, size: int | None, least: int) -> None:
    """Ask whether a dim is of a size, or of ``least`` and more, as it is for the sizes at hand."""
    holds = dim >= least if size is None else dim == size
    if not holds:
        raise AssertionError(f"{dim} contradicts the size that it was decided for")

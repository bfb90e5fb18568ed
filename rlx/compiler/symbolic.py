"""One lowering for many sizes: the schedule of a graph whose dims are symbols.

The passes run as they do for a graph of numbers. Where they have to decide by a size, they decide
for the sizes at hand and leave a guard (``rlx.base.guards``): the schedule is right for all sizes
that meet the guards, and equal to the one that a compile for such sizes makes
(``rlx.schedule.bind``).
"""

from __future__ import annotations

from collections.abc import Mapping

from rlx.base.dims import SymDim
from rlx.base.frozen import frozen
from rlx.base.guards import Deciding, Guard
from rlx.compiler.driver import compile_schedule, exclusively, lowered
from rlx.errors import UnsupportedError
from rlx.ir.clone import rebuild
from rlx.ir.graph import Graph, symbols_of
from rlx.lowering.base import Compilation, Options
from rlx.lowering.compilation import CompileReport
from rlx.lowering.locations import Places
from rlx.runtime.artifact import Artifact
from rlx.runtime.cache.artifacts import placed
from rlx.schedule.bind import bind_schedule
from rlx.schedule.plan import Schedule, prologue_first
from rlx.schedule.size_program import SizeProgram, size_program
from rlx.targets.base import Target

__all__ = ["SymbolicArtifact", "SymbolicSchedule", "compile_symbolic", "lower_symbolic"]


@frozen
class SymbolicSchedule:
    """A schedule of symbolic sizes, and the conditions on sizes under which it is right."""

    schedule: Schedule
    guards: tuple[Guard, ...]

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes meet all guards."""
        return all(g.holds(sizes) for g in self.guards)


@frozen
class SymbolicArtifact:
    """A compile for all sizes that meet ``guards``: an artifact for some, and what binds its steps
    to others. ``schedule`` is the symbolic one, for those who look at it."""

    artifact: Artifact
    report: CompileReport
    program: SizeProgram
    guards: tuple[Guard, ...]
    schedule: Schedule


def compile_symbolic(
    graph: Graph, sizes: Mapping[str, int], target: Target, options: Options
) -> SymbolicArtifact:
    """Compile a graph with symbolic dims for ``sizes``, and for all others that meet its guards.

    Raises UnsupportedError as ``lower_symbolic`` and ``size_program`` do.
    """
    places, compilation = Places(graph), Compilation(target, options)
    report = CompileReport(compilation)
    with exclusively(), places.errors():
        found = lower_symbolic(graph, sizes, compilation)
        schedule, _, _ = prologue_first(found.schedule)
        program = size_program(schedule, found.guards, sorted(sizes))
        artifact = compile_schedule(bind_schedule(schedule, sizes), target, report)
    report.compilation.fusion = places.fusion(report.compilation.fusion)
    return SymbolicArtifact(placed(artifact, places), report, program, found.guards, schedule)


def lower_symbolic(
    graph: Graph, sizes: Mapping[str, int], compilation: Compilation
) -> SymbolicSchedule:
    """Lower a graph with symbolic dims for ``sizes`` and all others that are decided alike.

    A dim of size 0 or 1 is bound for good: what has one element is broadcast, and its axis is
    dropped. Raises UnsupportedError for a target that plans its memory while it compiles.
    """
    if compilation.target.kernels.frame != "cpu":
        raise UnsupportedError(
            f"symbolic sizes are lowered for a CPU, found {compilation.target.name!r}; bind the"
            " dims with dims={...}"
        )
    symbols = symbols_of(v.type for v in (*graph.inputs, *graph.params))
    with Deciding(sizes) as first:
        few = {s.name: n for s in symbols if (n := sizes[s.name]) <= 1}
        for s in symbols:
            dim = SymDim({(s,): 1})
            assert (dim == sizes[s.name]) if s.name in few else dim >= 2
    known: dict[str, int | SymDim] = {
        s.name: SymDim.symbol(s.name, max(2, s.least), s.most) for s in symbols
    }
    known |= few
    graph = rebuild(graph, lambda t: t.bind(known), known)
    with Deciding(sizes) as then:
        schedule = lowered(graph, compilation)
    return SymbolicSchedule(schedule, (*first.guards, *then.guards))

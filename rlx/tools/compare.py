"""A graph on devices, level by level, against the reference interpreter: the first op that differs.

    rlx compare model.mlir --targets cpu,vulkan

A level is what a graph has become after a pass, run by the interpreter, and at last the device's
own run. Where a level differs, the graph is tried with every value as an output, so that the first
op whose results differ is named; where that changes what is fused and hides the fault, parts of the
graph are tried that end with one op each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.compiler.graph_module import GraphModule, GraphStage
from rlx.errors import RlxError
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.ir.op import Op
from rlx.lowering.compilation import Compilation, Options
from rlx.lowering.levels import passes_between
from rlx.runtime.session import Session
from rlx.targets import TARGETS, find_target
from rlx.tools.reduce.change import Array, Change, Subject, changed
from rlx.tools.reduce.failures import difference

__all__ = ["Comparison", "Divergence", "Level", "compare", "levels"]

LAST_GRAPH = "simplify"
"""The last pass after which a module is still a graph."""


@frozen
class Level:
    """A form of a graph, by the name of the pass that made it, and how it is run."""

    name: str
    run: Callable[[Subject], Sequence[Array]]

    def wrong(self, subject: Subject, tolerance: float | None) -> str | None:
        """The first output that differs from the interpreter's, or the error of running it."""
        try:
            found = self.run(subject)
        except RlxError as e:
            return f"{type(e).__name__}: {e.message}"
        expected = [subject.values[v] for v in subject.graph.outputs]
        for n, (a, e) in enumerate(zip(found, expected, strict=True)):
            said = difference(a, e, tolerance)
            if said is not None:
                return f"output {n}: {said}"
        return None


@frozen
class Divergence:
    """Where a device's results leave the interpreter's.

    ``op`` made the first value that differs, None where no part of the graph by itself does;
    ``said`` is what is wrong with it, and ``alone`` what is wrong where the op is run by itself on
    the interpreter's values: None if nothing is, so that only what surrounds it brings it out.
    """

    level: str
    said: str
    op: Op | None = None
    alone: str | None = None

    def __str__(self) -> str:
        if self.op is None:
            return f"differs at {self.level}: {self.said}; no single op of the graph brings it out"
        file, line = self.op.location
        context = "by itself it differs too" if self.alone else "by itself it agrees"
        first = f"first in {self.op.name} ({file}:{line})"
        return f"differs at {self.level}, {first}: {self.said}; {context}"


@frozen
class Comparison:
    """What became of a graph on a device: the levels that agree, and the divergence if there is
    one."""

    device: str
    agreed: tuple[str, ...]
    divergence: Divergence | None = None

    def __str__(self) -> str:
        if self.divergence is not None:
            return f"{self.device}: {self.divergence}"
        return f"{self.device}: agrees at {', '.join(self.agreed)}"


def levels(device: str, options: Mapping[str, Any]) -> list[Level]:
    """The levels of a device that a graph goes through, the device's own run last; one that is
    registered from outside has only that."""
    session = Session(device)
    found: list[Level] = []
    if device in TARGETS:
        names = [p.name for p in passes_between("hir", "fused")]
        for count in range(1, names.index(LAST_GRAPH) + 2):
            found.append(Level(names[count - 1], _passed(device, count, options)))
    return [*found, Level("run", _on(session, options))]


def _passed(device: str, count: int, options: Mapping[str, Any]) -> Callable[[Subject], Any]:
    def run(subject: Subject) -> list[Array]:
        compilation = Compilation(find_target(device), Options(**options))
        passes = passes_between("hir", "fused")[:count]
        module = GraphModule.of(subject.graph).after(passes, compilation, GraphStage.MIR)
        return _interpreted(module.graph(), subject)

    return run


def _interpreted(graph: Graph, subject: Subject) -> list[Array]:
    """The results of a graph that the passes made, which may have dropped what it does not need."""
    assert subject.arrays is not None
    names = {str(v.name) for v in (*graph.inputs, *graph.params)}
    with np.errstate(all="ignore"):
        return interpret(graph, {n: a for n, a in subject.arrays.items() if n in names})


def _on(session: Session, options: Mapping[str, Any]) -> Callable[[Subject], Any]:
    def run(subject: Subject) -> list[Array]:
        assert subject.arrays is not None
        compiled = session.compile(subject.graph, **options)
        for v in subject.graph.params:
            compiled.set_param(str(v.name), subject.arrays[str(v.name)])
        return compiled.run(
            {str(v.name): subject.arrays[str(v.name)] for v in subject.graph.inputs}
        )

    return run


def compare(
    subject: Subject,
    device: str,
    options: Mapping[str, Any] | None = None,
    tolerance: float | None = None,
) -> Comparison:
    """Take a graph with arrays through the levels of a device, up to the first that differs from
    the interpreter by more than ``tolerance`` of an output's largest element (by default what the
    element type explains). DeviceError if there is no such device."""
    agreed: list[str] = []
    for level in levels(device, options or {}):
        said = level.wrong(subject, tolerance)
        if said is not None:
            return Comparison(device, tuple(agreed), _located(subject, level, said, tolerance))
        agreed.append(level.name)
    return Comparison(device, tuple(agreed))


def _located(subject: Subject, level: Level, said: str, tolerance: float | None) -> Divergence:
    """The first op whose results differ at a level."""
    nodes = [op for op in subject.graph.nodes() if op.results]
    first = _tapped(subject, level, nodes, tolerance) or _ending(subject, level, nodes, tolerance)
    if first is None:
        return Divergence(level.name, said)
    op, why = first
    cut = frozenset(v for v in op.present)
    alone = changed(subject, Change(outputs=op.results, cut=cut))
    return Divergence(level.name, why, op, None if alone is None else level.wrong(alone, tolerance))


def _tapped(
    subject: Subject, level: Level, nodes: Sequence[Op], tolerance: float | None
) -> tuple[Op, str] | None:
    """The first op that differs where every value is an output."""
    owners = [(op, v) for op in nodes for v in op.results]
    tapped = changed(subject, Change(outputs=[v for _, v in owners]))
    if tapped is None:
        return None
    try:
        found = level.run(tapped)
    except RlxError:
        return None
    for (op, v), a in zip(owners, found, strict=True):
        said = difference(a, subject.values[v], tolerance)
        if said is not None:
            return op, said
    return None


def _ending(
    subject: Subject, level: Level, nodes: Sequence[Op], tolerance: float | None
) -> tuple[Op, str] | None:
    """The first op that differs where the graph ends with it: what was wrong before it is wrong
    after it too, so that halving finds it."""

    def wrong(n: int) -> str | None:
        part = changed(subject, Change(outputs=nodes[n].results))
        return None if part is None else level.wrong(part, tolerance)

    low, high = 0, len(nodes) - 1
    if high < 0 or wrong(high) is None:
        return None
    while low < high:
        middle = (low + high) // 2
        if wrong(middle) is None:
            low = middle + 1
        else:
            high = middle
    said = wrong(low)
    return None if said is None else (nodes[low], said)

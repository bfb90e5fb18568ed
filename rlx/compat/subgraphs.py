"""Control flow by the host: graphs that are run one after another, as their results say.

``rlx.cond`` and ``rlx.while_loop`` are parts of a graph, and faster. These helpers are for graphs
that stand by themselves, or that other code must look at in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.compat.compile_cache import CompileCache, settings
from rlx.errors import FaultError, GraphError, NameError
from rlx.ir.builders import located, public
from rlx.ir.graph import Graph
from rlx.ir.location import caller
from rlx.runtime.session import CompiledGraph, Session

__all__ = ["SubgraphCache", "run_if", "run_while"]

Array = np.ndarray[Any, Any]


@public
class SubgraphCache(CompileCache):
    """Keeps the compiled forms of up to ``capacity`` graphs, so that a loop compiles each once. A
    graph is known by its leaves, its outputs and their names: one that has changed is compiled
    again."""

    def compiled(self, session: Session, graph: Graph) -> CompiledGraph:
        """The compiled graph of a graph."""
        if not _is_graph(graph):
            return session.compile(graph)  # which refuses it
        leaves = (*graph.inputs, None, *graph.params, None)
        key = (*settings(session), (*leaves, *graph.outputs), graph.output_names)
        return self.get_or_compile(key, lambda: session.compile(graph))


@located
def run_if(
    cache: SubgraphCache,
    session: Session,
    pred: Graph | Any,
    then: Graph,
    otherwise: Graph,
    inputs: Mapping[str, Any],
) -> list[Array]:
    """The outputs of ``then`` on ``inputs`` where ``pred`` is true, else of ``otherwise``.

    ``pred`` is a bool, or a graph that gives one. Each graph takes those of the inputs that it
    declares. Only the chosen one runs, or is compiled.
    """
    given = _run(cache, session, pred, inputs) if _is_graph(pred) else [np.asarray(pred)]
    holds = _truth(given, "pred")
    return _run(cache, session, then if holds else otherwise, inputs)


@located
def run_while(
    cache: SubgraphCache,
    session: Session,
    test: Graph,
    body: Graph,
    initial: Mapping[str, Any],
    names: Sequence[str] | None = None,
    max_iterations: int | None = None,
) -> list[Array]:
    """Replace values of ``initial`` by the outputs of ``body`` while ``test`` gives true.

    ``names`` says which value each output of the body replaces, by default its first inputs in
    order; the others stay as they are. Returns the values of these names at the end. FaultError if
    the test is still true after ``max_iterations`` rounds.
    """
    outputs = len(body.outputs) if _is_graph(body) else 0
    replaced = list(names) if names is not None else [str(v.name) for v in body.inputs[:outputs]]
    if len(replaced) != outputs:
        raise GraphError(f"run_while: {len(replaced)} names for {outputs} outputs of the body")
    values = dict(initial)
    for name in replaced:
        if name not in values:
            raise NameError(f"run_while: nothing was given for {name!r}, which the body replaces")
    rounds = 0
    while _truth(_run(cache, session, test, values), "test"):
        if rounds == max_iterations:
            raise FaultError(f"run_while: its test is still true after {rounds} rounds", caller())
        given = _run(cache, session, body, values)
        values.update(zip(replaced, given, strict=True))
        rounds += 1
    return [np.asarray(values[name]) for name in replaced]


def _is_graph(graph: Any) -> bool:
    return isinstance(graph, Graph)


def _run(
    cache: SubgraphCache, session: Session, graph: Graph, values: Mapping[str, Any]
) -> list[Array]:
    compiled = cache.compiled(session, graph)
    wanted = [str(v.name) for v in graph.inputs]
    return compiled.run({name: values[name] for name in wanted if name in values})


def _truth(found: Sequence[Array], what: str) -> bool:
    if len(found) != 1 or found[0].size != 1 or found[0].dtype != np.bool_:
        kinds = ", ".join(f"{a.dtype}{list(a.shape)}" for a in found)
        raise GraphError(f"{what} gives {kinds}, expected one bool")
    return bool(found[0].reshape(()))

"""Looking at graphs and at what the compiler makes of them.

``inspect_graph`` lists a graph, ``inspect_hir``, ``inspect_mir`` and ``inspect_lir`` a level of its
compile, and ``inspect_pipeline`` returns all levels as the text that ``rlx-opt`` reads. With
``_stats`` the ops are only counted; with ``_diff`` two levels are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx.compiler.graph_module import GraphModule, GraphStage
from rlx.compiler.observe import PipelineInspect, inspect_pipeline
from rlx.errors import GraphError, a_type
from rlx.inspect.listing import Listing, NodeOrigin, Stats, list_graph, node_label
from rlx.ir.builders import located
from rlx.ir.graph import Graph

__all__ = [
    "Listing",
    "NodeOrigin",
    "PipelineInspect",
    "Stats",
    "inspect_graph",
    "inspect_graph_diff",
    "inspect_hir",
    "inspect_hir_stats",
    "inspect_lir",
    "inspect_mir",
    "inspect_mir_diff",
    "inspect_mir_stats",
    "inspect_mir_with_diff",
    "inspect_module",
    "inspect_pipeline",
    "node_label",
]

Source = Graph | GraphModule


@located
def inspect_graph(graph: Graph) -> str:
    """A graph for people: how many ops of which kinds, then its inputs, params and nodes."""
    return str(list_graph(graph))


@located
def inspect_graph_diff(before: Graph, after: Graph) -> str:
    """Which ops one graph has more or fewer of than another."""
    return list_graph(before).stats.diff(list_graph(after).stats)


@located
def inspect_hir(source: Source) -> str:
    """The hir of a graph for people: blocks as the model builder said them, and ops."""
    return str(_hir(source))


@located
def inspect_hir_stats(source: Source) -> str:
    """How many blocks and ops of which kinds the hir of a graph has."""
    return str(_hir(source).stats)


@located
def inspect_mir(source: Source, stage: str | None = None, **how: Any) -> str:
    """The mir of a graph for people, fused with ``stage="fused"``; a fused module is listed as it
    is.

    ``source`` is a graph or a module of a level before. ``how`` says ``target``, ``dims`` and the
    options of a compile, as for ``inspect_pipeline``; errors too are those.
    """
    return str(_mir(source, stage, how))


@located
def inspect_mir_stats(source: Source, stage: str | None = None, **how: Any) -> str:
    """How many ops of which kinds the mir of a graph has; arguments as for ``inspect_mir``."""
    return str(_mir(source, stage, how).stats)


@located
def inspect_mir_diff(before: Source, after: Source | None = None, **how: Any) -> str:
    """Which ops fused mir has more or fewer of than mir before fusion: of one graph, or of a
    module and another one. Arguments as for ``inspect_mir``."""
    if after is not None:
        first = before.stage if isinstance(before, GraphModule) else "mir"
        second = after.stage if isinstance(after, GraphModule) else "mir"
        return _mir(before, first, how).stats.diff(_mir(after, second, how).stats)
    return _mir(before, "mir", how).stats.diff(_mir(before, "fused", how).stats)


@located
def inspect_mir_with_diff(source: Source, **how: Any) -> str:
    """The fused mir of a graph for people, and what fusion changed."""
    return f"{inspect_mir(source, 'fused', **how)}\n\n{inspect_mir_diff(source, **how)}"


@located
def inspect_lir(source: Source, **how: Any) -> str:
    """The schedule of a graph for people: memories with their sizes, and the launches of the
    prologue and of main with what they touch. Arguments as for ``inspect_mir``."""
    from rlx.inspect.modules import list_schedule
    from rlx.lowering.passes.lir_reader import read_schedule

    return _listed(_at(source, "lir", how), lambda m: list_schedule(read_schedule(m)))


@located
def inspect_module(module: GraphModule) -> str:
    """The listing of a module at the level at which it is."""
    if module.stage is GraphStage.LIR:
        return inspect_lir(module)
    return (
        inspect_hir(module) if module.stage is GraphStage.HIR else inspect_mir(module, module.stage)
    )


def _hir(source: Source) -> Listing:
    graph = source.graph() if isinstance(source, GraphModule) else source
    return list_graph(graph, "hir")


def _mir(source: Source, stage: str | None, how: dict[str, Any]) -> Listing:
    from rlx.inspect.modules import list_module

    fused = isinstance(source, GraphModule) and source.stage == GraphStage.FUSED
    module = _at(source, stage or ("fused" if fused else "mir"), how)
    return _listed(module, lambda m: list_module(m, f"{module.stage}"))


def _at(source: Source, stage: str, how: Mapping[str, Any]) -> GraphModule:
    """The module of a level of ``source``."""
    given = dict(how)
    dims = given.pop("dims", None)
    if isinstance(source, Graph):
        return GraphModule.of(source, dims).to(stage, **given)
    if not isinstance(source, GraphModule):
        raise GraphError(f"expected a Graph or a GraphModule, found {a_type(source)}")
    if dims:
        raise GraphError("a module has its dims already; bind them in GraphModule.of")
    return source.to(stage, **given)


def _listed(module: GraphModule, show: Any) -> Any:
    from rlx.dialects.context import make_context, parse

    with make_context() as context:
        return show(parse(module.located, context))

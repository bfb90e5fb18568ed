"""Transforms of graphs that are registered by name and applied to those that ask for them.

A model is built as ever, and what others have registered changes it before it is compiled:

    def halved(graph):
        graph = copy.copy(graph)
        graph.set_outputs([v * 0.5 for v in graph.outputs])
        return graph

    rlx.register_hir_extension("half", halved)
    graph = rlx.apply_hir_extensions(graph)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rlx.errors import GraphError, NameError, did_you_mean, shown
from rlx.ir.builders import located
from rlx.ir.graph import Graph

__all__ = [
    "apply_hir_extensions", "apply_hir_extensions_named", "register_hir_extension",
    "registered_hir_extensions", "unregister_hir_extension",
]  # fmt: skip

Extension = Callable[[Graph], Graph]

_registered: dict[str, Extension] = {}


@located
def register_hir_extension(name: str, extension: Extension) -> None:
    """Register a transform: a function from a graph to a graph, which leaves the first as it was. A
    name that is taken is given to the new one, which comes last."""
    if not isinstance(name, str) or not name:
        raise GraphError(f"an extension's name is text, found {shown(name)}")
    if not callable(extension):
        raise GraphError(f"extension {name!r} is a function of a graph, found {shown(extension)}")
    _registered.pop(name, None)
    _registered[name] = extension


@located
def unregister_hir_extension(name: str) -> None:
    """Forget a transform; NameError if there is none of that name."""
    _known(name)
    del _registered[name]


@located
def registered_hir_extensions() -> tuple[str, ...]:
    """The names, in the order in which they are applied."""
    return tuple(_registered)


@located
def apply_hir_extensions(graph: Graph) -> Graph:
    """A graph after all registered transforms, in order."""
    return apply_hir_extensions_named(graph, _registered)


@located
def apply_hir_extensions_named(graph: Graph, names: Iterable[str]) -> Graph:
    """A graph after the transforms of some names, in the order of registration; NameError for a
    name that there is not, GraphError for a transform that gives no graph."""
    wanted = set(map(_known, names))
    for name, extension in list(_registered.items()):
        if name in wanted:
            graph = extension(graph)
            if not isinstance(graph, Graph):
                raise GraphError(f"extension {name!r} gave {shown(graph)}, expected a Graph")
    return graph


def _known(name: str) -> str:
    if name not in _registered:
        raise NameError(
            f"no extension is called {name!r}{did_you_mean(str(name), _registered)};"
            f" there are {', '.join(_registered) or 'none'}"
        )
    return name

"""``rlx_model``: a function that writes a graph, with the graph compiled once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from rlx.errors import GraphError, shown
from rlx.ir.builders import located, public
from rlx.ir.graph import Graph
from rlx.runtime.session import CompiledGraph, Session

__all__ = ["TracedModel", "rlx_model"]


@public
class TracedModel:
    """A function of a graph, which may be called as before, and its graph on the CPU."""

    def __init__(self, function: Callable[[Graph], Any], name: str) -> None:
        self._function, self.name = function, name
        self._lock = threading.Lock()
        self._compiled: CompiledGraph | None = None

    def __call__(self, graph: Graph) -> Any:
        """What the function gives: values of ``graph``."""
        return self._function(graph)

    def graph(self) -> Graph:
        """A graph of its own: what the function gives are the outputs."""
        made = Graph(self.name)
        made.set_outputs(self._function(made))
        return made

    def compiled(self) -> CompiledGraph:
        """The graph compiled for the CPU: the first call traces and compiles, all others give the
        same."""
        with self._lock:
            if self._compiled is None:
                self._compiled = Session("cpu").compile(self.graph())
            return self._compiled


@located
def rlx_model(function: Callable[[Graph], Any]) -> TracedModel:
    """Decorate a function that takes a graph, declares inputs and params there, and gives its
    outputs: ``f.compiled()`` is the compiled graph, made once. GraphError for what is no function.
    """
    if not callable(function):
        raise GraphError(f"rlx_model decorates a function of a graph, found {shown(function)}")
    return TracedModel(function, getattr(function, "__name__", "main"))

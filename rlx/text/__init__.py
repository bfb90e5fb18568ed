"""Graphs as text, and back: ``rlx.save`` and ``rlx.load``.

The text is hir, as ``rlx-opt`` reads and prints it. It is written and read here without MLIR,
so that a program that loads a graph and finds it compiled already does not wait for MLIR to load.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from rlx.errors import IRError
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.text.files import decode
from rlx.text.read import parse_graph
from rlx.text.write import graph_text

__all__ = ["graph_text", "load", "parse_graph", "save"]


@located
def save(graph: Graph, path: str | PathLike[str], *, values: bool = True) -> None:
    """Write a graph to a file, with the values of its params unless ``values`` is False.

    ``load`` gives the same graph: its name, inputs and params (unused ones too), symbolic dims,
    attributes and constants to the bit, outputs, and the places in the user's files. GraphError for
    a graph without outputs, IRError for a file that cannot be written.
    """
    text = graph_text(graph, values=values)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as e:
        raise IRError(f"cannot write {path}: {e.strerror}") from None


@located
def load(path: str | PathLike[str]) -> Graph:
    """Read a graph from a file of hir or mir: what ``save`` wrote, or MLIR's text of such a module.

    IRError, with the line, for a file that cannot be read or whose text is no graph.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as e:
        raise IRError(f"cannot read {path}: {e.strerror}") from None
    return parse_graph(decode(data, str(path)), str(path))

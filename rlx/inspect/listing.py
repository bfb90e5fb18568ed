"""Graphs and their levels as a listing for people: a histogram of ops, then an aligned line an op.

A listing is made of rows, so that a Graph and an MLIR module are printed by one function.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rlx.base.frozen import frozen
from rlx.base.units import bytes_text
from rlx.ir.attrs import same
from rlx.ir.builders import located
from rlx.ir.graph import Graph, names_of_outputs
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.types import TensorType, dtype

__all__ = ["Listing", "NodeOrigin", "Row", "Stats", "list_graph", "node_label", "node_row"]

WIDEST = 72
"""Columns beyond which a long line no longer moves the types of the others to the right."""


class NodeOrigin(NamedTuple):
    """Where a node comes from: a file and a line of the user's."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@frozen
class Row:
    """A line of a listing: what is computed, its type, and a remark such as its origin."""

    text: str
    type: str = ""
    remark: str = ""
    depth: int = 0


@frozen
class Stats:
    """How large a level is: its ops by name, its outputs, and the bytes of all results (None if
    a dim is symbolic)."""

    title: str
    kinds: Counter[str]
    outputs: int
    nbytes: int | None

    @property
    def nodes(self) -> int:
        """The number of ops."""
        return self.kinds.total()

    def __str__(self) -> str:
        size = (
            "of symbolic size" if self.nbytes is None else f"{bytes_text(self.nbytes)} of results"
        )
        listed = ", ".join(f"{k}={n}" for k, n in by_count(self.kinds)) or "none"
        return (
            f"{self.title} ({self.nodes} nodes, {self.outputs} outputs, {size})\nop kinds: {listed}"
        )

    def diff(self, after: Stats) -> str:
        """What became of this level in a later one, op by op."""
        lines = [
            f"diff: {self.nodes} -> {after.nodes} nodes ({self.outputs} -> {after.outputs} outputs)"
        ]
        changed = Counter(
            {k: abs(after.kinds[k] - self.kinds[k]) for k in self.kinds | after.kinds}
        )
        for kind, n in by_count(changed):
            if n:
                was, now = self.kinds[kind], after.kinds[kind]
                lines.append(f"  {now - was:+5d}  {kind} ({was} -> {now})")
        return "\n".join(lines)


@dataclass
class Listing:
    """The rows of a level under its statistics."""

    stats: Stats
    rows: list[Row] = field(default_factory=list[Row])

    def __str__(self) -> str:
        lefts = [f"{'  ' * r.depth}{r.text}" for r in self.rows]
        widths = [len(left) for left, r in zip(lefts, self.rows, strict=True) if r.type]
        wide = max((w for w in widths if w <= WIDEST), default=0)
        types = max((len(r.type) for r in self.rows if r.remark), default=0)
        lines: list[str] = []
        for left, r in zip(lefts, self.rows, strict=True):
            line = f"{left:{wide}s} : {r.type:{types}s}" if r.type else left
            lines.append(f"{line}  // {r.remark}" if r.remark else line.rstrip())
        return "\n".join([str(self.stats), "", *lines])


def by_count(kinds: Counter[str]) -> list[tuple[str, int]]:
    """Counted names, the most frequent first, then by name."""
    return sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0]))


def list_graph(graph: Graph, title: str = "graph") -> Listing:
    """The listing of a graph."""
    nodes, rows = graph.nodes(), _rows(graph, 0)
    kinds = Counter(node.short for node in nodes)
    results = [v.type for node in nodes for v in node.results]
    title = f"{title} @{graph.name}"
    return Listing(Stats(title, kinds, len(graph.outputs), total_bytes(results)), rows)


def _rows(graph: Graph, depth: int) -> list[Row]:
    """The rows of a graph, and below each control op those of its bodies."""
    rows, names = list[Row](), dict[Value, str]()
    for role, leaves in (("input", graph.inputs), ("param", graph.params)):
        for v in leaves:
            names[v] = leaf_name(str(v.name))
            origin = NodeOrigin(*graph.leaf_location(str(v.name)))
            rows.append(Row(f"{names[v]} [{role}]", str(v.type), str(origin), depth))
    for number, node in enumerate(graph.nodes()):
        name_results(node.results, number, names)
        remark = str(NodeOrigin(*node.location))
        ends = zip(names_of_outputs(graph), graph.outputs, strict=True)
        outs = [name for name, v in ends if v.op is node]
        remark += f"  <- output {', '.join(outs)}" if outs and not depth else ""
        rows.append(node_row(node, names, remark, depth))
        for name, body in node.attrs.items():
            if isinstance(body, Graph):
                rows += [Row(f"{name}:", depth=depth + 1), *_rows(body, depth + 2)]
    rows.append(Row(f"return {', '.join(names[v] for v in graph.outputs)}", depth=depth))
    return rows


def total_bytes(types: Iterable[TensorType]) -> int | None:
    """The bytes of tensors, or None if one is symbolic."""
    sizes = [t.nbytes if t.is_static else None for t in types]
    return None if None in sizes else sum(n for n in sizes if n is not None)


def leaf_name(name: str) -> str:
    """An input or param as a value: ``%x``, or ``%"layer.0/w"``."""
    return f"%{name}" if re.fullmatch(r"[\w.]+", name) else f'%"{name}"'


def name_results(results: Sequence[Any], number: int, names: dict[Any, str]) -> None:
    """Name the results of a node by its number."""
    for i, v in enumerate(results):
        names[v] = f"%{number}" if len(results) == 1 else f"%{number}.{i}"


def node_row(node: Op, names: Mapping[Value, str], remark: str = "", depth: int = 0) -> Row:
    """The line of a node; attributes at their defaults are left out."""
    arguments = [names[v] if v is not None else "none" for v in node.operands]
    while arguments and arguments[-1] == "none":
        arguments.pop()
    given = [a for a in node.attr_fields if _is_said(node.attrs[a.name], a.default)]
    arguments += [f"{a.name}={attr_text(node.attrs[a.name])}" for a in given]
    results = ", ".join(names[v] for v in node.results)
    types = ", ".join(str(v.type) for v in node.results)
    return Row(f"{results} = {node.short}({', '.join(arguments)})", types, remark, depth)


def _is_said(value: Any, default: Any) -> bool:
    """Whether an attribute is shown: a body only by its symbol, else its rows are there."""
    if isinstance(value, Graph):
        return value.name.startswith("@")
    return not same(value, default)


def attr_text(value: Any) -> str:
    """An attribute for people: large arrays are their types alone."""
    if isinstance(value, np.ndarray):
        if value.size > 8:
            return str(TensorType(value.shape, dtype(value.dtype)))
        return str(value.tolist())
    if isinstance(value, Graph):
        return value.name
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return repr(value) if isinstance(value, str) else str(value)


@located
def node_label(graph: Graph, node: Value | Op) -> str:
    """The best name of a node or value: an input's or param's own, else the op, its number in the
    graph, and where it was made."""
    op = node if isinstance(node, Op) else node.op
    if isinstance(node, Value) and op is None:
        return str(node.name)
    nodes = graph.nodes()
    assert op is not None
    number = f"%{nodes.index(op)} " if op in nodes else ""
    return f"{number}{op.short} at {NodeOrigin(*op.location)}"

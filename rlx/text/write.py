"""A graph as text: the hir module that ``Graph.to_mlir`` makes, written without MLIR."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlx.ir.graph import Graph
from rlx.ir.mlir_text import CONTROL, OUTPUT, place_text, quoted, type_text
from rlx.ir.op import Op
from rlx.ir.slots import SEGMENTS, needs_segments
from rlx.ir.value import Value
from rlx.ops.control.control import Control
from rlx.text.values import array_text, write_attr

__all__ = ["graph_text"]


def graph_text(graph: Graph, *, values: bool = True, places: bool = True) -> str:
    """The text of a graph, which ``parse_graph`` and rlx-opt read.

    ``values`` includes those that params carry, ``places`` the user's files and lines. Nodes that
    no output needs are no part of a graph. GraphError for a graph without outputs.
    """
    writer = _Writer(values, places)
    writer.function("main", graph)
    head = f"module attributes {{rlx.graph = {quoted(graph.name)}}} {{"
    aliases = [f"{alias} = {place_text(place)}" for place, alias in writer.aliases.items()]
    return "\n".join([head, *writer.lines, "}", *aliases, ""])


class _Writer:
    """Writes functions, @main last: what it calls stands before it."""

    def __init__(self, values: bool, places: bool) -> None:
        self.values, self.places = values, places
        self.lines: list[str] = []
        self.aliases: dict[tuple[str, int], str] = {}
        self.symbols: dict[str, int] = {}

    def function(self, symbol: str, graph: Graph, name: str = "") -> None:
        """A function of a graph. A body (all but @main) is called ``name`` where it is used, and
        says its own name if that is another."""
        nodes = graph.nodes()
        callees: dict[Op, str] = {n: self.declare(n) for n in nodes if isinstance(n, Control)}
        names: dict[Value, str] = {}
        main = symbol == "main"
        called = (
            ""
            if main or graph.name == name
            else f" attributes {{rlx.graph = {quoted(graph.name)}}}"
        )
        self.lines.append(f"  func.func {'' if main else 'private '}@{symbol}(")
        self.lines += self.arguments(graph, names, main=main)
        results = _results(graph) if main else _types(graph.outputs)
        self.lines.append(f"  ) -> ({results}){called} {{")
        for number, node in enumerate(nodes):
            self.lines.append(f"    {self.node(number, node, names, callees.get(node))}")
        listed = ", ".join(names[v] for v in graph.outputs)
        self.lines += [f"    return {listed} : {_types(graph.outputs)}", "  }"]

    def arguments(self, graph: Graph, names: dict[Value, str], *, main: bool) -> list[str]:
        """A line for each input and param. The inputs of a body are x0, x1, … unless it says so."""
        lines: list[str] = []
        for role, leaves in (("input", graph.inputs), ("param", graph.params)):
            for v in leaves:
                name, number = str(v.name), len(names)
                names[v] = f"%arg{number}"
                marks = [f"rlx.{role} = {quoted(name)}"] if main or name != f"x{number}" else []
                if self.values and name in graph.param_values:
                    marks.append(f"rlx.value = {array_text(graph.param_values[name])}")
                said = f" {{{', '.join(marks)}}}" if marks else ""
                place = self.place(graph.leaf_location(name))
                lines.append(f"    {names[v]}: {type_text(v.type)}{said}{place}")
        return [*(f"{line}," for line in lines[:-1]), *lines[-1:]]

    def node(self, number: int, node: Op, names: dict[Value, str], callee: str | None) -> str:
        """The line of a node: an op, or a call of what ``declare`` wrote."""
        many = len(node.results) != 1
        for v in node.results:
            names[v] = f"%{number}#{v.index}" if many else f"%{number}"
        left = f"%{number}:{len(node.results)}" if many else f"%{number}"
        results = f"({_types(node.results)})" if many else _types(node.results)
        operands = ", ".join(names[v] for v in node.present)
        op = f"call {callee}" if callee else quoted(node.name)
        attrs = "" if callee else _attributes(node)
        return (
            f"{left} = {op}({operands}){attrs} : ({_types(node.present)}) -> {results}"
            f"{self.place(node.location)}"
        )

    def declare(self, node: Control) -> str:
        """Write the bodies of a control op, and the declaration that names them; its symbol."""
        attrs = {CONTROL: quoted(node.short)}
        for a in node.attr_fields:
            value = node.attrs[a.name]
            if a.kind == "Graph":
                symbol = self.unique(a.name)
                self.function(symbol, value, a.name)
                attrs[a.name] = f"@{symbol}"
            else:
                attrs[a.name] = write_attr(value, a.kind)
        symbol = f"@{self.unique(node.short)}"
        signature = f"({_types(node.present)}) -> ({_types(node.results)})"
        place = self.place(node.location)
        self.lines.append(
            f"  func.func private {symbol}{signature} attributes {_listed(attrs)}{place}"
        )
        return symbol

    def unique(self, name: str) -> str:
        """A symbol that no other function has."""
        self.symbols[name] = number = self.symbols.get(name, -1) + 1
        return f"{name}_{number}"

    def place(self, place: tuple[str, int]) -> str:
        """A location behind what it is of."""
        if not self.places:
            return ""
        alias = self.aliases.setdefault(place, f"#loc{len(self.aliases) + 1}")
        return f" loc({alias})"


def _types(values: Iterable[Value]) -> str:
    return ", ".join(type_text(v.type) for v in values)


def _results(graph: Graph) -> str:
    """The types of the outputs, each with its name where they have names."""
    if not graph.output_names:
        return _types(graph.outputs)
    pairs = zip(graph.outputs, graph.output_names, strict=True)
    return ", ".join(f"{type_text(v.type)} {{{OUTPUT} = {quoted(name)}}}" for v, name in pairs)


def _attributes(node: Op) -> str:
    attrs = {a.name: write_attr(node.attrs[a.name], a.kind) for a in node.attr_fields}
    if needs_segments(type(node)):
        attrs[SEGMENTS] = _present(node.operands)
    return f" {_listed(attrs)}" if attrs else ""


def _listed(attrs: dict[str, str]) -> str:
    return "{" + ", ".join(f"{name} = {attrs[name]}" for name in sorted(attrs)) + "}"


def _present(operands: Sequence[Value | None]) -> str:
    return f"array<i32: {', '.join(str(int(v is not None)) for v in operands)}>"

"""A graph as text: the hir module that ``Graph.to_mlir`` makes, written without MLIR."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rlx.graph import Graph
from rlx.ops.base import Op
from rlx.ops.control import KEY, ControlFunction, GraphFunction, functions_of
from rlx.ops.slots import SEGMENTS, needs_segments
from rlx.ops.value import Value
from rlx.text.elements import place_text, quoted, type_text
from rlx.text.values import array_text, write_attr

__all__ = ["graph_text"]


def graph_text(graph: Graph, *, values: bool = True, places: bool = True) -> str:
    """The text of a graph, which ``parse_graph`` and rlx-opt read.

    ``values`` includes those that params carry, ``places`` the user's files and lines. Nodes that
    no output needs are no part of a graph. GraphError for a graph without outputs.
    """
    return "\n".join(_Writer(graph, values, places).lines())


class _Writer:
    """Writes a module; ``aliases`` are the places, each written once, at its end."""

    def __init__(self, graph: Graph, values: bool, places: bool) -> None:
        self.graph, self.values, self.places = graph, values, places
        self.aliases: dict[tuple[str, int], str] = {}

    def lines(self) -> Iterator[str]:
        functions = functions_of(self.graph)
        yield f"module attributes {{rlx.graph = {quoted(self.graph.name)}}} {{"
        for f in functions:
            if isinstance(f, ControlFunction):
                yield self.control(f)
            else:
                yield from _Function(self, f).lines()
        yield "}"
        for place, alias in self.aliases.items():
            yield f"{alias} = {place_text(place)}"
        yield ""

    def control(self, f: ControlFunction) -> str:
        node = f.node
        attrs = {a.name: write_attr(node.attrs[a.name], a.kind) for a in node.attr_fields
                 if a.kind != "Graph"}  # fmt: skip
        attrs |= {name: write_attr(body, "Graph") for name, body in f.bodies.items()}
        attrs[KEY] = quoted(node.short)
        listed = ", ".join(f"{name} = {attrs[name]}" for name in sorted(attrs))
        types = f"({_types(node.present)}) -> ({_types(node.results)})"
        place = self.place(node.location)
        return f"  func.func private @{f.name}{types} attributes {{{listed}}}{place}"

    def place(self, place: tuple[str, int]) -> str:
        if not self.places:
            return ""
        alias = self.aliases.setdefault(place, f"#loc{len(self.aliases) + 1}")
        return f" loc({alias})"


class _Function:
    """Writes a graph as a function: the module's main, or a body."""

    def __init__(self, module: _Writer, function: GraphFunction) -> None:
        self.module, self.function, self.graph = module, function, function.graph
        self.main = function.graph is module.graph
        self.names: dict[Value, str] = {}

    def lines(self) -> Iterator[str]:
        outputs = self.graph.outputs
        yield f"  func.func {'' if self.main else 'private '}@{self.function.name}("
        yield ",\n".join(f"    {a}" for a in self.arguments())
        yield f"  ) -> ({_types(outputs)}) {{"
        for i, node in enumerate(self.graph.nodes()):
            yield f"    {self.node(i, node)}"
        yield f"    return {self.listed(outputs)} : {_types(outputs)}"
        yield "  }"

    def arguments(self) -> Iterator[str]:
        values = self.graph.param_values if self.module.values else {}
        for role, leaves in (("input", self.graph.inputs), ("param", self.graph.params)):
            for v in leaves:
                name = str(v.name)
                self.names[v] = f"%arg{len(self.names)}"
                marks = f"rlx.{role} = {quoted(name)}"
                if name in values:
                    marks += f", rlx.value = {array_text(values[name])}"
                marks = f" {{{marks}}}" if self.main else ""  # a body's go by their order
                place = self.module.place(self.graph.leaf_location(name))
                yield f"{self.names[v]}: {type_text(v.type)}{marks}{place}"

    def node(self, number: int, node: Op) -> str:
        many = len(node.results)
        for v in node.results:
            self.names[v] = f"%{number}" if many == 1 else f"%{number}#{v.index}"
        left = f"%{number}" if many == 1 else f"%{number}:{many}"
        results = _types(node.results) if many == 1 else f"({_types(node.results)})"
        callee = self.function.callees.get(node)
        op = f"{quoted(node.name)}" if callee is None else f"call @{callee}"
        attributes = _attributes(node) if callee is None else ""
        return (
            f"{left} = {op}({self.listed(node.present)}){attributes}"
            f" : ({_types(node.present)}) -> {results}{self.module.place(node.location)}"
        )

    def listed(self, values: Iterable[Value]) -> str:
        return ", ".join(self.names[v] for v in values)


def _types(values: Iterable[Value]) -> str:
    return ", ".join(type_text(v.type) for v in values)


def _attributes(node: Op) -> str:
    attrs = {a.name: write_attr(node.attrs[a.name], a.kind) for a in node.attr_fields}
    if needs_segments(type(node)):
        present = ", ".join(str(int(v is not None)) for v in node.operands)
        attrs[SEGMENTS] = f"array<i32: {present}>"
    listed = ", ".join(f"{name} = {attrs[name]}" for name in sorted(attrs))
    return f" {{{listed}}}" if listed else ""

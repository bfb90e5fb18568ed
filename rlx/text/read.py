"""Text to a graph, without MLIR: hir or mir as ``graph_text`` writes it and MLIR prints it.

A module is @main, before which stand the functions that it needs: bodies of control ops, and for
each control op a declaration that names its bodies (see ``rlx.dialects.control``).
"""

from __future__ import annotations

from typing import Any

from rlx.base.frozen import frozen
from rlx.errors import did_you_mean
from rlx.ir.graph import Graph
from rlx.ir.mlir_text import CONTROL, OUTPUT
from rlx.ir.op import located, op_class
from rlx.ir.value import Value
from rlx.ops import OP_MODULES
from rlx.ops.control.control import Control
from rlx.text.body import SYMBOL, VALUE, Body, Declared
from rlx.text.cursor import Cursor
from rlx.text.values import read_array, read_attr, read_string
from rlx.types import TensorType

__all__ = ["parse_graph"]

ROLES = ("rlx.input", "rlx.param")
VALUES, NAME = "rlx.value", "rlx.graph"


def parse_graph(text: str, source: str = "<text>") -> Graph:
    """The graph that a text says. ``source`` is the name of its file, for errors.

    An op or argument without a location in the text is placed at its own line there. IRError, with
    the line, for text that is no graph: bad syntax, unknown ops, types that are not those that the
    ops infer, functions that are no bodies, or a level below hir and mir.
    """
    return _Reader(Cursor(text, source)).graph()


@frozen
class _Argument:
    """An argument of a function; one of a declaration has no name."""

    name: str
    type: TensorType
    marks: dict[str, Any]
    place: tuple[str, int]
    at: int


class _Reader:
    def __init__(self, cursor: Cursor) -> None:
        self.s = cursor
        self.bodies: dict[str, Graph] = {}
        self.unnamed: set[str] = set()
        self.declared: dict[str, Declared] = {}

    def graph(self) -> Graph:
        s = self.s
        s.skip_aliases()
        name, wrapped = "main", s.accept("module")
        if wrapped:
            if s.accept("attributes"):
                found = s.attributes(lambda key: read_string(s), (NAME,), "a module")
                name = found.get(NAME, name)
            s.expect("{")
        while "@main" not in self.bodies:
            self.function(name)
        if wrapped:
            if not s.accept("}"):
                raise s.expected("the } of the module (@main is its last function)")
            s.optional_place()
        s.skip_aliases()
        if s.skip() < len(s.text):
            raise s.expected("the end")
        return self.bodies["@main"]

    def function(self, main: str) -> None:
        """Take a function: @main, a body, or the declaration of a control op."""
        s = self.s
        if not s.accept("func.func"):
            raise s.expected("func.func @main, or a function that it needs")
        s.accept("private")
        at = s.skip()
        symbol = s.take(SYMBOL, "the name of a function such as @main")
        if symbol in self.bodies or symbol in self.declared:
            raise s.error(f"{symbol} is defined twice", at)
        s.expect("(")
        arguments: list[_Argument] = []
        while not s.accept(")"):
            if arguments:
                s.expect(",")
            arguments.append(self.argument())
        results, names = self.results(symbol) if s.accept("->") else ([], [])
        attrs = self.function_attributes() if s.accept("attributes") else {}
        if NAME not in attrs:
            self.unnamed.add(symbol)
        if s.accept("{"):
            graph = Graph(main if symbol == "@main" else attrs.pop(NAME, symbol))
            if attrs:
                raise s.error(f"{symbol} has ops and the attributes of a declaration", at)
            self.define(symbol, graph, arguments, results, at)
            graph.output_names = tuple(names)
        else:
            s.optional_place()
            self.declare(symbol, attrs, at)

    def results(self, symbol: str) -> tuple[list[TensorType], list[str]]:
        """Take the types of results, in parentheses or one alone, and in @main their names."""
        s = self.s
        if not s.accept("("):
            return [s.type_at(0)], []
        at, types, names = s.skip(), list[TensorType](), list[str]()
        while not s.accept(")"):
            types.append(s.type_at(len(types)))
            known = (OUTPUT,) if symbol == "@main" else ()
            marks = s.attributes(lambda key: read_string(s), known, f"a result of {symbol}")
            names += marks.values()
        if names and (len(set(names)) < len(types) or not all(names)):
            raise s.error(
                f"{len(types)} results have the names {', '.join(map(repr, names))}; each has its"
                f" own {OUTPUT}, or none has one",
                at,
            )
        return types, names

    def argument(self) -> _Argument:
        s = self.s
        at = s.skip()
        name = ""
        if s.text.startswith("%", at):
            name = s.take(VALUE, "an argument such as %arg0")
            s.expect(":")
        kind = s.type_at(0)
        marks = s.attributes(
            lambda key: read_array(s) if key == VALUES else read_string(s),
            (*ROLES, VALUES), "an argument",
        )  # fmt: skip
        return _Argument(name, kind, marks, s.optional_place() or s.place(at), at)

    def function_attributes(self) -> dict[str, Any]:
        s = self.s
        kinds = {a.name: a.kind for name in _CONTROLS for a in op_class(name).attr_fields}

        def value(key: str) -> Any:
            if key in (CONTROL, NAME):
                return read_string(s)
            return self.body_of(key) if kinds[key] == "Graph" else read_attr(s, kinds[key])

        return s.attributes(value, (CONTROL, NAME, *kinds), "a function")

    # -- what a function is ----------------------------------------------------------------

    def define(
        self,
        symbol: str,
        graph: Graph,
        arguments: list[_Argument],
        results: list[TensorType],
        at: int,
    ) -> None:
        """Take the ops of a function, and keep its graph."""
        s, body = self.s, Body(self.s, graph, self.declared)
        for number, a in enumerate(arguments):
            marks = a.marks
            if symbol != "@main" and not marks:
                marks = {ROLES[0]: f"x{number}"}
            roles = [r for r in ROLES if r in marks]
            if not a.name or len(roles) != 1 or (VALUES in marks and roles != [ROLES[1]]):
                raise s.error(
                    f"{a.name or 'an argument'} is neither input nor param; write "
                    '%x: tensor<2xf32> {rlx.input = "x"}, or {rlx.param = "w"}',
                    a.at,
                )
            with located(a.place):
                made = s.at_line(lambda a=a, m=marks, r=roles[0]: _leaf(graph, a.type, r, m), a.at)
            body.define(a.name, made, a.at)
        body.read(results, at)
        self.bodies[symbol] = graph

    def declare(self, symbol: str, attrs: dict[str, Any], at: int) -> None:
        """Keep what a declaration stands for."""
        name = f"control.{attrs.pop(CONTROL, '')}"
        if name not in _CONTROLS:
            known = ", ".join(n.split(".")[1] for n in _CONTROLS)
            raise self.s.error(f"{symbol} has no ops, and no {CONTROL} that is one of {known}", at)
        cls = op_class(name)
        assert issubclass(cls, Control)
        wanted = [a.name for a in cls.attr_fields]
        if set(wanted) != set(attrs):
            raise self.s.error(
                f"{symbol}: {name} has the attributes {', '.join(wanted)}, "
                f"found {', '.join(attrs) or 'none'}",
                at,
            )
        self.declared[symbol] = Declared(cls, attrs)

    def body_of(self, key: str) -> Graph:
        """Take the name of a body; its graph is called ``key`` unless the text says otherwise."""
        s = self.s
        at = s.skip()
        symbol = s.take(SYMBOL, "a function such as @body_0")
        if symbol not in self.bodies:
            hint = did_you_mean(symbol, self.bodies)
            raise s.error(f"no function {symbol} stands above{hint}", at)
        if symbol in self.unnamed:
            self.bodies[symbol].name = key
        return self.bodies[symbol]


_CONTROLS = tuple(name for name in OP_MODULES if name.startswith("control."))


def _leaf(graph: Graph, kind: TensorType, role: str, marks: dict[str, Any]) -> Value:
    if role == "rlx.input":
        return graph.input(marks[role], kind.shape, kind.dtype)
    return graph.param(marks[role], kind.shape, kind.dtype, marks.get(VALUES))

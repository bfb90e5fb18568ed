"""Text to a graph, without MLIR: hir or mir as ``graph_text`` writes it and MLIR prints it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from rlx.errors import IRError, RlxError, did_you_mean
from rlx.graph import Graph
from rlx.ops.base import Op, located, op_class
from rlx.ops.control import CONTROLS, KEY, Control, control_class
from rlx.ops.slots import SEGMENTS, present_slots
from rlx.ops.value import Value
from rlx.text.elements import type_text, unquoted
from rlx.text.scanner import STRING, Scanner
from rlx.text.values import read_array, read_attr, read_ints, read_string, read_symbol, read_type
from rlx.types import TensorType

__all__ = ["parse_graph"]

T = TypeVar("T")
Place = tuple[str, int]

_VALUE = re.compile(r"%[\w.$-]+(?:#[0-9]+)?")
_KEY = re.compile(r"[A-Za-z_][\w.]*")
_COUNT = re.compile(r"[0-9]{1,9}")
_ALIAS = re.compile(r"^\s*(#\w+) = loc\((.*)\)\s*$", re.MULTILINE)
_PLACE = re.compile(rf"({STRING}):([0-9]{{1,9}})|(#\w+)")
ROLES = ("rlx.input", "rlx.param")


def parse_graph(text: str, source: str = "<text>") -> Graph:
    """The graph that a text says. ``source`` is the name of its file, for errors.

    An op or argument without a location in the text is placed at its own line there. IRError, with
    the line, for text that is no graph: bad syntax, unknown ops, types that are not those that the
    ops infer, more than one function, or a level below hir and mir.
    """
    return _Reader(Scanner(text, source)).graph()


class _Reader:
    """Reads a module: functions in order, of which main is the graph."""

    def __init__(self, scanner: Scanner) -> None:
        self.s = scanner
        self.aliases = {m[1]: m[2] for m in _ALIAS.finditer(scanner.text)}
        self.values: dict[str, Value] = {}
        self.bodies: dict[str, Graph] = {}
        self.controls: dict[str, tuple[type[Control], dict[str, Any]]] = {}

    # -- module and functions --------------------------------------------------------------

    def graph(self) -> Graph:
        s = self.s
        self.skip_aliases()
        name, wrapped = "main", s.accept("module")
        if wrapped:
            if s.accept("attributes"):
                name = self.attributes(lambda key: read_string(s), ("rlx.graph",), "a module").get(
                    "rlx.graph", name
                )
            s.expect("{")
        while self.private():
            pass
        self.built = graph = Graph(name)
        self.function(main=True)
        if wrapped:
            self.expect_end_of("module", "a graph ends with main")
            self.optional_place()
        self.skip_aliases()
        if s.skip() < len(s.text):
            raise s.expected("the end")
        return graph

    def skip_aliases(self) -> None:
        while found := _ALIAS.match(self.s.text, self.s.skip()):
            self.s.at = found.end()

    def expect_end_of(self, what: str, hint: str) -> None:
        if not self.s.accept("}"):
            raise self.s.expected(f"the }} of the {what} ({hint})")

    def private(self) -> bool:
        """Take a body or a control function if it comes next."""
        s = self.s
        start = s.skip()
        if not s.accept("func.func") or not s.accept("private"):
            s.at = start
            return False
        at = s.skip()
        name = read_symbol(s)
        if name in self.bodies or name in self.controls:
            raise s.error(f"@{name} is defined twice", at)
        opened = s.skip()
        if s.accept("(") and not s.accept("%"):
            s.at = opened
            self.control(name, at)
        else:
            s.at = opened
            self.built = Graph(name.rpartition("_")[0] or name)
            self.function(main=False)
            self.bodies[name] = self.built
        return True

    def control(self, name: str, at: int) -> None:
        """Take the rest of a control function: its types, and the attributes of its op."""
        s = self.s
        self.types()
        if s.accept("->"):
            self.types()
        s.expect("attributes")
        kinds = {a.name: a.kind for c in CONTROLS for a in c.attr_fields} | {KEY: "str"}
        attrs = self.attributes(lambda key: read_attr(s, kinds[key]), tuple(kinds), f"@{name}")
        self.optional_place()
        if KEY not in attrs:
            raise s.error(f"@{name} is no control function: it has no {KEY}", at)
        cls = self.at_line(lambda: control_class(attrs.pop(KEY)), at)
        for a in cls.attr_fields:
            if a.name not in attrs:
                raise s.error(f"@{name} needs the attribute {a.name!r}", at)
            if a.kind == "Graph":
                body = attrs[a.name]
                if body not in self.bodies:
                    hint = did_you_mean(body, self.bodies)
                    raise s.error(f"@{name} runs @{body}, which stands not before it{hint}", at)
                attrs[a.name] = self.bodies[body]
        self.controls[name] = cls, attrs

    def function(self, main: bool) -> None:
        """Take a function: all of main, or a body from its arguments on."""
        s = self.s
        self.values = {}
        if main:
            s.expect("func.func")
            s.expect("@main")
        s.expect("(")
        while not s.accept(")"):
            if self.values:
                s.expect(",")
            self.argument(main)
        at = s.skip()
        declared = self.types() if s.accept("->") else []
        s.expect("{")
        while not s.accept("return"):
            self.operation()
        outputs = self.operands(end=":")
        given = [self.type_at(i) for i in range(len(outputs))]
        self.optional_place()
        if [v.type for v in outputs] != declared or given != declared:
            raise s.error("the types of what is returned are not those that it declares", at)
        self.expect_end_of("function", "return is its last op")
        self.optional_place()
        with located(s.place(at)):
            self.at_line(lambda: self.built.set_outputs(outputs), at)

    def argument(self, main: bool) -> None:
        s = self.s
        at = s.skip()
        name = s.take(_VALUE, "an argument such as %arg0")
        s.expect(":")
        kind = self.at_line(lambda: read_type(s), at)
        marks = self.attributes(
            lambda key: read_array(s) if key == "rlx.value" else read_string(s),
            (*ROLES, "rlx.value"), "an argument",
        )  # fmt: skip
        place = self.optional_place() or s.place(at)
        if not main and not marks:
            marks = {"rlx.input": f"x{len(self.values)}"}
        roles = [r for r in ROLES if r in marks]
        if len(roles) != 1 or ("rlx.value" in marks and roles != ["rlx.param"]):
            raise s.error(
                f"{name} is neither input nor param; write "
                '{rlx.input = "x"} or {rlx.param = "w"} after its type',
                at,
            )
        with located(place):
            self.define(name, self.at_line(lambda: self.leaf(kind, roles[0], marks), at), at)

    def leaf(self, kind: TensorType, role: str, marks: dict[str, Any]) -> Value:
        if role == "rlx.input":
            return self.built.input(marks[role], kind.shape, kind.dtype)
        return self.built.param(marks[role], kind.shape, kind.dtype, marks.get("rlx.value"))

    # -- ops -------------------------------------------------------------------------------

    def operation(self) -> None:
        s = self.s
        at = s.skip()
        left = s.take(_VALUE, "an op such as %0 = ..., or return")
        count = int(s.take(_COUNT, "a number of results")) if s.accept(":") else None
        s.expect("=")
        called = self.callee()
        cls, attrs = called or (self.op_class(), {})
        s.expect("(")
        given = self.operands(end=")")
        if called is None:
            attrs = self.op_attributes(cls)
        s.expect(":")
        if [v.type for v in given] != self.types():
            raise s.error(f"{cls.name}: its operand types are not those of its operands", at)
        s.expect("->")
        found = self.types()
        place = self.optional_place() or s.place(at)
        segments = attrs.pop(SEGMENTS, None)

        def make() -> Op:
            if called is not None:
                return cls(*given, **attrs)
            slots, rest = present_slots(cls, len(given), segments), iter(given)
            return cls(*(next(rest) if there else None for there in slots), **attrs)

        with located(place):
            node = self.at_line(make, at, f"{cls.name}: ")
        expected = [v.type for v in node.results]
        if found != expected:
            listed = [", ".join(map(type_text, types)) for types in (found, expected)]
            raise s.error(f"{cls.name}: result is {listed[0]}, expected {listed[1]}", at)
        if (count or 1) != len(expected):
            raise s.error(f"{cls.name} has {len(expected)} results, found {count or 1}", at)
        for i, v in enumerate(node.results):
            self.define(left if count is None else f"{left}#{i}", v, at)

    def callee(self) -> tuple[type[Op], dict[str, Any]] | None:
        """Take the callee of a call if one comes next: its op, and the attributes of that."""
        s = self.s
        if not s.accept("call") and not s.accept("func.call"):
            return None
        at = s.skip()
        name = read_symbol(s)
        if name not in self.controls:
            hint = did_you_mean(name, self.controls)
            raise s.error(f"@{name} is no control function that stands before this{hint}", at)
        return self.controls[name]

    def op_class(self) -> type[Op]:
        s = self.s
        at = s.skip()
        name = read_string(s, 'the name of an op, such as "mir.add"')
        return self.at_line(lambda: op_class(name), at)

    def op_attributes(self, cls: type[Op]) -> dict[str, Any]:
        s = self.s
        kinds = {a.name: a.kind for a in cls.attr_fields}

        def value(key: str) -> Any:
            return read_ints(s, "i32") if key == SEGMENTS else read_attr(s, kinds[key])

        at = s.skip()
        attrs = self.attributes(value, (*kinds, SEGMENTS), cls.name)
        missing = [k for k in kinds if k not in attrs]
        if missing:
            raise s.error(f"{cls.name}: the attribute {missing[0]!r} is missing", at)
        return attrs

    def attributes(
        self, value: Callable[[str], Any], known: tuple[str, ...], of: str
    ) -> dict[str, Any]:
        """Take ``{key = value, ...}`` if it comes next, with keys among ``known``."""
        s, found = self.s, dict[str, Any]()
        if not s.accept("{"):
            return found
        while not s.accept("}"):
            if found:
                s.expect(",")
            at = s.skip()
            key = s.take(_KEY, "the name of an attribute")
            if key not in known:
                raise s.error(f"{of} has no attribute {key!r}{did_you_mean(key, known)}", at)
            if key in found:
                raise s.error(f"{of} has the attribute {key!r} twice", at)
            s.expect("=")
            found[key] = self.at_line(lambda key=key: value(key), at)
        return found

    # -- values and types ------------------------------------------------------------------

    def define(self, name: str, value: Value, at: int) -> None:
        if name in self.values:
            raise self.s.error(f"{name} is defined twice", at)
        self.values[name] = value

    def operands(self, end: str) -> list[Value]:
        s, found = self.s, list[Value]()
        while not s.accept(end):
            if found:
                s.expect(",")
            at = s.skip()
            name = s.take(_VALUE, "a value such as %0")
            if name not in self.values:
                raise s.error(f"{name} is not defined{did_you_mean(name, self.values)}", at)
            found.append(self.values[name])
        return found

    def types(self) -> list[TensorType]:
        s = self.s
        if not s.accept("("):
            return [self.type_at(0)]
        found: list[TensorType] = []
        while not s.accept(")"):
            found.append(self.type_at(len(found)))
        return found

    def type_at(self, index: int) -> TensorType:
        s = self.s
        if index:
            s.expect(",")
        at = s.skip()
        return self.at_line(lambda: read_type(s), at)

    # -- places ----------------------------------------------------------------------------

    def optional_place(self) -> Place | None:
        """Take ``loc(...)`` if it comes next; the first file and line in it, if it has one."""
        if not self.s.accept("loc"):
            return None
        at, text = self.s.at, self.s.parenthesised()
        try:
            return self.place_in(text)
        except ValueError:
            raise self.s.error(f"loc({text}) has an escape that there is not", at) from None

    def place_in(self, text: str) -> Place | None:
        """The first file and line, aliases looked up; each once, whatever refers to what."""
        todo, seen = [text], set[str]()
        while todo:
            part = todo.pop()
            for found in _PLACE.finditer(part):
                file, line, alias = found.groups()
                if file:
                    return unquoted(file), int(line)
                if alias not in seen:
                    seen.add(alias)
                    todo += [part[found.end() :], self.aliases.get(alias, "")]
                    break
        return None

    def at_line(self, make: Callable[[], T], at: int, what: str = "") -> T:
        """What ``make`` makes; its error becomes one of this line."""
        try:
            return make()
        except RlxError as e:
            if isinstance(e, IRError) and e.location is not None:
                raise
            raise self.s.error(f"{what}{e.message}", at) from None

"""The ops of a function: each line becomes a node of a graph."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlx.base.frozen import frozen
from rlx.errors import did_you_mean
from rlx.ir.graph import Graph
from rlx.ir.mlir_text import type_text
from rlx.ir.op import Op, located, op_class
from rlx.ir.slots import SEGMENTS, present_slots
from rlx.ir.value import Value
from rlx.ops.control.control import Control
from rlx.text.cursor import Cursor
from rlx.text.values import read_attr, read_ints, read_string
from rlx.types import TensorType

__all__ = ["SYMBOL", "VALUE", "Body", "Declared"]

VALUE = re.compile(r"%[\w.$-]+(?:#[0-9]{1,9})?")
SYMBOL = re.compile(r"@[\w.$-]+")
_COUNT = re.compile(r"[0-9]{1,9}")


@frozen
class Declared:
    """A function that stands for a control op: its class and its attributes, bodies among them."""

    cls: type[Control]
    attrs: dict[str, Any]


@dataclass
class Body:
    """The graph that a function becomes, and what its names stand for."""

    s: Cursor
    graph: Graph
    declared: dict[str, Declared]
    values: dict[str, Value] = field(default_factory=dict[str, Value])

    def define(self, name: str, value: Value, at: int) -> None:
        """Give a name its value."""
        if name in self.values:
            raise self.s.error(f"{name} is defined twice", at)
        self.values[name] = value

    def read(self, declared: list[TensorType], at: int) -> None:
        """Take the ops and the return of a function that gives ``declared``; set the outputs."""
        s = self.s
        while not s.accept("return"):
            self.operation()
        outputs = self.operands(end=":")
        given = [s.type_at(i) for i in range(len(outputs))]
        s.optional_place()
        if [v.type for v in outputs] != declared or given != declared:
            raise s.error("the types of what is returned are not those that are declared", at)
        if not s.accept("}"):
            raise s.expected("the } of the function (return is its last op)")
        s.optional_place()
        with located(s.place(at)):
            s.at_line(lambda: self.graph.set_outputs(outputs), at)

    def operation(self) -> None:
        """Take one op."""
        s = self.s
        at = s.skip()
        left = s.take(VALUE, "an op such as %0 = ..., or return")
        count = int(s.take(_COUNT, "a number of results")) if s.accept(":") else None
        s.expect("=")
        called = s.accept("func.call") or s.accept("call")
        name, make = self.call() if called else self.plain()
        place = s.optional_place() or s.place(at)
        with located(place):
            node = s.at_line(make, at, f"{name}: ")
        self.check_results(node, name, count, at)
        for i, v in enumerate(node.results):
            self.define(left if count is None else f"{left}#{i}", v, at)

    def plain(self) -> tuple[str, Callable[[], Op]]:
        """An op by its name in quotes, up to its types; what makes the node."""
        s = self.s
        at = s.skip()
        name = read_string(s, 'the name of an op, such as "mir.add"')
        cls = s.at_line(lambda: op_class(name), at)
        if issubclass(cls, Control):
            raise s.error(f"{name} is written as a call of a function that declares it", at)
        s.expect("(")
        given = self.operands(end=")")
        attrs = self.op_attributes(cls)
        self.signature(name, given, at)
        segments = attrs.pop(SEGMENTS, None)

        def make() -> Op:
            slots, rest = present_slots(cls, len(given), segments), iter(given)
            return cls(*(next(rest) if there else None for there in slots), **attrs)

        return name, make

    def call(self) -> tuple[str, Callable[[], Op]]:
        """A call of a function that declares a control op."""
        s = self.s
        at = s.skip()
        name = s.take(SYMBOL, "a function such as @cond_0")
        if name not in self.declared:
            hint = did_you_mean(name, self.declared)
            raise s.error(f"no function {name} that declares a control op stands above{hint}", at)
        called = self.declared[name]
        s.expect("(")
        given = self.operands(end=")")
        self.signature(name, given, at)
        # The bodies are known by now; that there are too few operands is for the class to say.
        return name, lambda: called.cls(*given, **called.attrs)

    def signature(self, name: str, given: list[Value], at: int) -> None:
        """Take the types of operands and results; the latter are kept for ``check_results``."""
        s = self.s
        s.expect(":")
        if [v.type for v in given] != s.types():
            raise s.error(f"{name}: its operand types are not those of its operands", at)
        s.expect("->")
        self.results = s.types()

    def check_results(self, node: Op, name: str, count: int | None, at: int) -> None:
        """IRError unless a node has the results that the text says."""
        expected = [v.type for v in node.results]
        if self.results != expected:
            listed = [", ".join(map(type_text, types)) for types in (self.results, expected)]
            raise self.s.error(f"{name}: result is {listed[0]}, expected {listed[1]}", at)
        if (count or 1) != len(expected):
            raise self.s.error(f"{name} has {len(expected)} results, found {count or 1}", at)

    def op_attributes(self, cls: type[Op]) -> dict[str, Any]:
        """Take the attributes of an op, all of those that its class has."""
        s = self.s
        kinds = {a.name: a.kind for a in cls.attr_fields}

        def value(key: str) -> Any:
            return read_ints(s, "i32") if key == SEGMENTS else read_attr(s, kinds[key])

        at = s.skip()
        attrs = s.attributes(value, (*kinds, SEGMENTS), cls.name)
        missing = [k for k in kinds if k not in attrs]
        if missing:
            raise s.error(f"{cls.name}: the attribute {missing[0]!r} is missing", at)
        return attrs

    def operands(self, end: str) -> list[Value]:
        """Take values up to ``end``."""
        s, found = self.s, list[Value]()
        while not s.accept(end):
            if found:
                s.expect(",")
            at = s.skip()
            name = s.take(VALUE, "a value such as %0")
            if name not in self.values:
                raise s.error(f"{name} is not defined{did_you_mean(name, self.values)}", at)
            found.append(self.values[name])
        return found

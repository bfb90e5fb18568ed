"""An ONNX graph under construction: its nodes, their names, and constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeAlias

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from rlx.errors import UnsupportedError
from rlx.frontends.onnx.tensors import ELEM_TYPES
from rlx.ir.graph import Graph
from rlx.ir.op import Op
from rlx.types import DType, dtype

__all__ = ["OPSET", "Name", "Row", "Rows", "Writer", "elem_type", "same", "tensor"]

Array = np.ndarray[Any, Any]

OPSET = 20
"""The version of ONNX's op types that models are written in: ONNX Runtime reads it since 1.17."""

Name: TypeAlias = str
"""A value of the model."""
Row: TypeAlias = "Callable[[Writer, Any, Sequence[Any]], Name | Sequence[Name]]"
"""Takes the writer, an op and the names of its operands (None for one that is absent), and gives
those of its results."""
Rows: TypeAlias = dict[str, Row]
Body: TypeAlias = "Callable[[Writer, Graph, Sequence[Name]], list[Name]]"


def elem_type(dt: DType, what: str) -> int:
    """ONNX's number of an element type; UnsupportedError for those that it has no ops for."""
    if dt.name not in ELEM_TYPES:
        raise UnsupportedError(f"{what} has the element type {dt}, which no op type of ONNX takes")
    return ELEM_TYPES[dt.name]


def tensor(name: str, a: Array) -> TensorProto:
    """An array as a tensor of a file."""
    kind = elem_type(dtype(a.dtype), f"the constant {name!r}")
    return helper.make_tensor(name, kind, a.shape, np.ascontiguousarray(a).tobytes(), raw=True)


class Writer:
    """The nodes of a graph, or of a body within one, in the order in which they are computed."""

    def __init__(self, outer: Writer | None = None, body: Body | None = None) -> None:
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.outer, self._body = outer, body if outer is None else outer._body
        self._numbers: count[int] = count() if outer is None else outer._numbers
        self._taken: set[str] = set() if outer is None else outer._taken
        self._constants: dict[Any, Name] = {}
        self.known: dict[Any, Name] = {}
        """Sizes that were computed, by what they are of."""

    def body(self, graph: Graph, inputs: Sequence[Name]) -> list[Name]:
        """Write a body of control flow here; the names of its outputs."""
        assert self._body is not None, "a walk said how"
        return self._body(self, graph, inputs)

    def reserve(self, name: str) -> Name:
        """A name that the caller needs as it is."""
        self._taken.add(name)
        return name

    def free(self, name: str) -> Name:
        """That name, or if it is taken a longer one."""
        return self.reserve(name) if name not in self._taken else self.fresh(name)

    def fresh(self, base: str) -> Name:
        """A name that nothing has."""
        while True:
            name = f"{base}_{next(self._numbers)}"
            if name not in self._taken:
                return self.reserve(name)

    def node(self, kind: str, *inputs: Name | None, **attributes: Any) -> Name:
        """A node of one result."""
        return self.nodes_of(kind, inputs, 1, **attributes)[0]

    def nodes_of(
        self, kind: str, inputs: Sequence[Name | None], results: int, **attributes: Any
    ) -> list[Name]:
        """A node with its results."""
        names = [self.fresh(kind.lower()) for _ in range(results)]
        given = ["" if n is None else n for n in inputs]
        self.nodes.append(helper.make_node(kind, given, names, name=names[0], **attributes))
        return names

    def constant(self, value: Any, dt: DType | None = None) -> Name:
        """A literal; of the same elements there is one."""
        a = np.asarray(value, None if dt is None else dt.numpy)
        key = (a.tobytes(), str(a.dtype), a.shape) if a.nbytes <= 1024 else object()
        level: Writer | None = self
        while level is not None:
            if key in level._constants:
                return level._constants[key]
            level = level.outer
        name = self._constants[key] = self.fresh("constant")
        self.initializers.append(tensor(name, a))
        return name

    def ints(self, numbers: Sequence[int]) -> Name:
        """A line of i64."""
        return self.constant(np.asarray(list(numbers), np.int64))

    def cast(self, x: Name, to: DType) -> Name:
        """Another element type, as ONNX casts."""
        return self.node("Cast", x, to=elem_type(to, "a cast"))

    def reshape(self, x: Name, shape: Name) -> Name:
        """Another shape, in which no 0 stands for what was there."""
        return self.node("Reshape", x, shape, allowzero=1)

    def graph(
        self, name: str, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]
    ) -> GraphProto:
        """All of it."""
        return helper.make_graph(self.nodes, name, inputs, outputs, self.initializers)


def same(kind: str, **attributes: Any) -> Row:
    """An op that is an op type, with the same operands."""

    def row(w: Writer, op: Op, xs: Sequence[Name]) -> Name:
        return w.node(kind, *xs, **attributes)

    return row

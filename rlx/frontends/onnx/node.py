"""A node as its row sees it: operands as values or as elements, and typed attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np
from onnx import NodeProto

from rlx.base.dims import SymDim
from rlx.errors import ModelError, UnsupportedError
from rlx.frontends.onnx.edges import STEP, Edge, is_symbolic
from rlx.ir.value import Value
from rlx.ops.movement.movement import axis_of
from rlx.types import Dim

if TYPE_CHECKING:
    from rlx.frontends.onnx.importer import Importer
    from rlx.frontends.onnx.scopes import Context

__all__ = [
    "Node",
    "Result",
    "Row",
    "Rows",
    "VariesError",
    "domain_of",
    "full_name",
    "title",
]

Array = np.ndarray[Any, Any]
T = TypeVar("T")

Result: TypeAlias = Value | Edge | Array | None
"""A result: a value, or elements that are known now; None for one that nothing uses."""
Row: TypeAlias = "Callable[[Node], Any]"
"""Takes a node and gives a ``Result`` or a sequence of them; NotImplemented for a node that the
function of its op type is to do, if it has one."""
Rows: TypeAlias = dict[str, Row]
"""Op types by name, outside ONNX's own domain as ``domain.name``, with what each becomes."""


def domain_of(name: str) -> str:
    """A domain by its short name, which is empty for ONNX's own."""
    return "" if name == "ai.onnx" else name


def full_name(proto: NodeProto) -> str:
    """The name of a node's op type, with its domain if that is not ONNX's own."""
    domain = domain_of(proto.domain)
    return f"{domain}.{proto.op_type}" if domain else proto.op_type


def title(proto: NodeProto, index: int) -> str:
    """How messages call a node."""
    name = full_name(proto)
    return f"{name} {proto.name!r}" if proto.name else f"{name} (node {index + 1})"


def label(proto: NodeProto, index: int) -> str:
    """How profiles call a node: by its name, or by the first output that has one."""
    named = next((n for n in (proto.name, *proto.output) if n), "")
    return named or f"node {index + 1}"


class VariesError(UnsupportedError):
    """Elements that are needed now change from round to round of a loop."""


class Node:
    """A node of an op type at a version. Inputs are edges, None where one is left out.

    What a row reads of inputs and attributes is noted: what it leaves out is refused after it.
    """

    def __init__(
        self,
        importer: Importer,
        proto: NodeProto,
        version: int,
        inputs: Sequence[Edge | None],
        attributes: dict[str, Any],
        context: Context,
    ) -> None:
        self.importer, self.proto, self.version = importer, proto, version
        self.context = context
        self._inputs, self._attributes = inputs, attributes
        self._read: set[int | str] = set()

    def on(self, inputs: Sequence[Edge | None]) -> Node:
        """The node on other inputs."""
        return Node(self.importer, self.proto, self.version, inputs, self._attributes, self.context)

    def unread(self, defaults: Mapping[str, Any]) -> str:
        """What is there, is no default and was not read, in words; empty if there is nothing."""
        for name, value in self._attributes.items():
            if name not in self._read and (name not in defaults or defaults[name] != value):
                return f"its attribute {name!r} ({value!r})"
        left = [i for i, e in enumerate(self._inputs) if e is not None and i not in self._read]
        return f"its input {left[0]} ({self.proto.input[left[0]]!r})" if left else ""

    def ignore(self, *names: str) -> None:
        """Note attributes that mean nothing here."""
        self._read.update(names)

    # -- operands --------------------------------------------------------------------------

    @property
    def inputs(self) -> Sequence[Edge | None]:
        """All inputs."""
        self._read.update(range(len(self._inputs)))
        return self._inputs

    def optional_edge(self, i: int) -> Edge | None:
        """Input ``i``; None if it is not there."""
        self._read.add(i)
        return self._inputs[i] if i < len(self._inputs) else None

    def edge(self, i: int) -> Edge:
        """Input ``i``, which the schema says is there."""
        found = self.optional_edge(i)
        assert found is not None, "the schema says how many inputs there are"
        return found

    def has(self, i: int) -> bool:
        """Whether input ``i`` is there."""
        return self.optional_edge(i) is not None

    def wants(self, i: int) -> bool:
        """Whether output ``i`` is used."""
        return i < len(self.proto.output) and bool(self.proto.output[i])

    def optional(self, i: int) -> Value | None:
        """Input ``i`` as a value; None if it is not there."""
        found = self.optional_edge(i)
        return None if found is None else found.value

    def zero_point(self, i: int) -> Value | None:
        """Input ``i``, a zero point; None if it is not there, or 0."""
        known = self.known(i)
        return None if known is not None and not known.any() else self.optional(i)

    def __getitem__(self, i: int) -> Value:
        return self.edge(i).value

    def spend(self, elements: int = 0, ops: int = 0) -> None:
        """Count what is written down for this node; UnsupportedError if an import has too much."""
        self.importer.evaluator.spend(max(elements, 0) + max(ops, 0) * STEP)

    def line(self, count: int, start: int = 0) -> Array:
        """So many whole numbers from ``start`` on; UnsupportedError if there are too many to be
        written down."""
        self.spend(count)
        return np.arange(start, start + count, dtype=np.int64)

    def values(self) -> list[Value]:
        """All inputs that are there."""
        return [e.value for e in self.inputs if e is not None]

    # -- elements that are needed now ------------------------------------------------------

    def known(self, i: int) -> Array | None:
        """The elements of input ``i``, some of which may be symbolic dims; None if the input is
        not there, or they are not known."""
        edge = self.optional_edge(i)
        found = None if edge is None else self.importer.evaluator.known(edge)
        return None if isinstance(found, set) else found

    def _needed(self, i: int) -> Array:
        known = self.importer.evaluator.known(self.edge(i))
        if not isinstance(known, set):
            return known
        if "" in known:
            raise VariesError(
                f"the elements of its input {self.proto.input[i]!r} decide shapes, and change from"
                " round to round of a loop; export the model without such a loop"
            )
        raise UnsupportedError(self._advice(i, known))

    def _advice(self, i: int, names: set[str]) -> str:
        inputs = {str(v.name) for v in self.importer.graph.inputs}
        given = [n for n in sorted(names) if n in inputs]
        symbols = sorted(names - inputs)
        advice = [
            *([f"constants={{{', '.join(f'{n!r}: array' for n in given)}}}"] if given else []),
            *([f"dims={{{', '.join(f'{n!r}: size' for n in symbols)}}}"] if symbols else []),
        ]
        which = repr(self.proto.input[i])
        return (
            f"the elements of its input {which} decide shapes, and are not known while importing;"
            f" give from_onnx {' and '.join(advice)}"
        )

    def array(self, i: int) -> Array:
        """The elements of input ``i``, without symbolic dims; UnsupportedError that says what to
        fix if they are not known."""
        found = self._needed(i)
        if is_symbolic(found):
            names = {s for d in found.flat if isinstance(d, SymDim) for s in d.symbols}
            raise UnsupportedError(self._advice(i, names))
        return found

    def dims(self, i: int) -> list[Dim]:
        """The elements of input ``i`` as dims, some of which may be symbolic, or negative."""
        return [d if isinstance(d, SymDim) else int(d) for d in self._needed(i).reshape(-1)]

    def ints(self, i: int) -> list[int]:
        """The elements of input ``i`` as ints."""
        return [int(d) for d in self.array(i).reshape(-1)]

    def axes(self, i: int) -> list[int] | None:
        """Axes, which older versions have as an attribute, newer ones as input ``i``; None if
        neither is there."""
        if self.given("axes"):
            return list(self.need("axes"))
        return self.ints(i) if self.has(i) else None

    # -- attributes ------------------------------------------------------------------------

    def given(self, name: str) -> bool:
        """Whether an attribute is there."""
        return name in self._attributes

    def attr(self, name: str, default: T) -> T:
        """An attribute, checked against the schema already, or the default."""
        self._read.add(name)
        return cast(T, self._attributes.get(name, default))

    def need(self, name: str) -> Any:
        """An attribute that must be there."""
        self._read.add(name)
        if name not in self._attributes:
            raise ModelError(f"its attribute {name!r} is missing; export the model again")
        return self._attributes[name]

    def axis(self, default: int, rank: int | None = None, name: str = "axis") -> int:
        """An axis, counted from the front; of the first input unless ``rank`` is given."""
        return axis_of(self.attr(name, default), self[0].rank if rank is None else rank, name)

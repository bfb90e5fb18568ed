"""A smaller graph from a graph: what a step of a reduction changes, and the graph that it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from rlx.base.cached import cached_property
from rlx.errors import RlxError, ShapeError
from rlx.ir.attrs import DIMS, OFFSETS
from rlx.ir.graph import Graph, topological
from rlx.ir.interpreter import evaluate
from rlx.ir.op import Op, located
from rlx.ir.replay import cloned, replay
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import Expand, Reshape
from rlx.ops.movement.slicing import Slice
from rlx.types import DType, TensorType

__all__ = ["Change", "Subject", "changed"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Subject:
    """A graph of static shapes, and arrays for its inputs and params by name; None where what it
    computes does not matter."""

    graph: Graph
    arrays: Mapping[str, Array] | None = None

    @cached_property
    def values(self) -> dict[Value, Array]:
        """What the interpreter gives for every value. Raises what it raises."""
        env: dict[Value, Array] = {}
        if self.arrays is None:
            return env
        for v in (*self.graph.inputs, *self.graph.params):
            env[v] = self.arrays[str(v.name)]
        return replay(self.graph.nodes(), env, evaluate)


@dataclass(frozen=True, eq=False)
class Change:
    """What is other than before. ``cut`` values become inputs, ``swap`` puts a value in the place
    of another, ``sizes`` replaces sizes wherever they occur and ``axes`` the type of a leaf, whose
    first elements are kept, or by ``tail`` its last. ``dtypes`` replaces element types, ``attrs``
    attributes of a node, ``expand`` is a node whose expansion takes its place, ``drop`` an optional
    operand of a node to leave out, by position, ``as_inputs`` are params that become inputs, and
    ``inline`` names the body of a node with bodies that takes its place, run once."""

    outputs: Sequence[Value] | None = None
    cut: frozenset[Value] = frozenset()
    swap: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    sizes: Mapping[int, int] = field(default_factory=dict[int, int])
    axes: Mapping[Value, TensorType] = field(default_factory=dict[Value, TensorType])
    tail: bool = False
    dtypes: Mapping[DType, DType] = field(default_factory=dict[DType, DType])
    attrs: Mapping[Op, Mapping[str, Any]] = field(default_factory=dict[Op, Mapping[str, Any]])
    expand: Op | None = None
    drop: Mapping[Op, int] = field(default_factory=dict[Op, int])
    as_inputs: frozenset[Value] = frozenset()
    inline: Mapping[Op, str] = field(default_factory=dict[Op, str])


def changed(subject: Subject, change: Change) -> Subject | None:
    """The subject after a change; None if there is no such graph."""
    try:
        return _Rebuild(subject, change).run()
    except (RlxError, ValueError):
        return None


class _Rebuild:
    def __init__(self, subject: Subject, change: Change) -> None:
        self.subject, self.change = subject, change
        self.graph = Graph(subject.graph.name)
        self.arrays: dict[str, Array] = {}
        self.env: dict[Value, Value] = {}
        self.params = set(subject.graph.params) - change.as_inputs
        self.names = {str(v.name) for v in (*subject.graph.inputs, *subject.graph.params)}

    def run(self) -> Subject:
        c = self.change
        outputs = [self.source(v) for v in c.outputs or self.subject.graph.outputs]
        for op in self.needed(outputs):
            self.node(op)
        ends = [self.value(v) for v in outputs]
        with located(("<reduced>", 0)):
            self.graph.set_outputs(ends)
        arrays = None if self.subject.arrays is None else self.arrays
        return Subject(self.graph, arrays)

    def source(self, v: Value) -> Value:
        while v in self.change.swap:
            v = self.change.swap[v]
        return v

    def is_leaf(self, v: Value) -> bool:
        return v.op is None or v in self.change.cut

    def needed(self, outputs: Sequence[Value]) -> list[Op]:
        """The nodes that the outputs need, in order, where values are cut and swapped."""
        order = topological([*self.subject.graph.outputs, *outputs])
        wanted = set(outputs)
        found: list[Op] = []
        for op in reversed(order):
            if any(v in wanted and not self.is_leaf(v) for v in op.results):
                found.append(op)
                wanted.update(self.source(v) for v in self.operands(op) if v is not None)
        return found[::-1]

    def operands(self, op: Op) -> list[Value | None]:
        gone = self.change.drop.get(op)
        return [None if i == gone else v for i, v in enumerate(op.operands)]

    # -- leaves ----------------------------------------------------------------------------

    def value(self, v: Value) -> Value:
        source = self.source(v)
        if source not in self.env:
            self.env[source] = self.leaf(source)
        return self.env[source]

    def leaf(self, v: Value) -> Value:
        if not self.is_leaf(v):
            raise ShapeError("a value is used before it is made")
        t = self.change.axes.get(v) or self.resized(v.type)
        name = str(v.name) if v.op is None else self.fresh()
        if self.subject.arrays is not None:
            self.arrays[name] = self.part(self.subject.values[v], t)
        declare = self.graph.param if v in self.params else self.graph.input
        place = v.op.location if v.op else self.subject.graph.leaf_location(name)
        with located(place):
            return declare(name, t.shape, t.dtype)

    def fresh(self) -> str:
        number = len(self.names)
        while f"v{number}" in self.names:
            number += 1
        self.names.add(f"v{number}")
        return f"v{number}"

    def part(self, a: Array, t: TensorType) -> Array:
        """The elements of ``a`` that are left, in the element type of ``t``."""
        ends = zip(a.shape, t.static_shape, strict=True)
        kept = a[tuple(slice(n - d, n) if self.change.tail else slice(0, d) for n, d in ends)]
        return np.ascontiguousarray(kept, t.dtype.numpy).reshape(kept.shape)

    def resized(self, t: TensorType) -> TensorType:
        shape = [self.change.sizes.get(d, d) for d in t.static_shape]
        return TensorType.of(shape, self.change.dtypes.get(t.dtype, t.dtype))

    # -- nodes -----------------------------------------------------------------------------

    def node(self, op: Op) -> None:
        operands = [None if v is None else self.value(v) for v in self.operands(op)]
        if op in self.change.inline:
            self.env.update(zip(op.results, self.inlined(op, operands), strict=True))
            return
        made = self.made(op, operands, {**self.attributes(op), **self.change.attrs.get(op, {})})
        results = made.expansion() if op is self.change.expand else made.results
        self.env.update(
            (v, r) for v, r in zip(op.results, results, strict=True) if v not in self.env
        )

    def inlined(self, op: Op, operands: Sequence[Value | None]) -> list[Value]:
        """The results of a body on the last of the operands, as many as it takes."""
        body: Graph = op.attrs[self.change.inline[op]]
        given = operands[len(operands) - len(body.inputs) :]
        env = dict(zip(body.inputs, given, strict=True))
        replay(body.nodes(), env, cloned)
        return [v for v in (env[out] for out in body.outputs) if v is not None]

    def made(self, op: Op, operands: Sequence[Value | None], attrs: dict[str, Any]) -> Op:
        try:
            return op.with_operands(operands, **attrs)
        except RlxError:
            # Sizes that follow from those of the operand are not all among those replaced.
            if type(op) not in _FITTED or operands[0] is None:
                raise
            fitted = _FITTED[type(op)](operands[0].type.static_shape, {**op.attrs, **attrs})
            return op.with_operands(operands, **{**attrs, **fitted})

    def attributes(self, op: Op) -> dict[str, Any]:
        """The attributes that hold sizes or element types, with those replaced."""
        found: dict[str, Any] = {}
        for a in op.attr_fields:
            value = op.attrs[a.name]
            if a.kind in (DIMS, OFFSETS):
                found[a.name] = tuple(self.change.sizes.get(d, d) for d in value)
            elif a.kind == "DType":
                found[a.name] = self.change.dtypes.get(value, value)
            elif isinstance(op, Constant):
                found[a.name] = self.part(value, self.resized(op.out.type))
        return {n: v for n, v in found.items() if v is not op.attrs[n]}


def _fit_reshape(source: tuple[int, ...], attrs: dict[str, Any]) -> dict[str, Any]:
    """As many elements, by another size of one dim."""
    dims = [int(d) for d in attrs["shape"]]
    for i in range(len(dims)):
        rest = prod(dims[:i] + dims[i + 1 :])
        if rest and prod(source) % rest == 0:
            return {"shape": (*dims[:i], prod(source) // rest, *dims[i + 1 :])}
    raise ShapeError(f"no dim of {dims} can change so that it has the elements of {list(source)}")


def _fit_expand(source: tuple[int, ...], attrs: dict[str, Any]) -> dict[str, Any]:
    """The operand's own sizes, where it has any but 1."""
    shape = [int(d) for d in attrs["shape"]]
    extra = len(shape) - len(source)
    own = [n if d == 1 else d for d, n in zip(source, shape[extra:], strict=True)]
    return {"shape": (*shape[:extra], *own)}


def _fit_slice(source: tuple[int, ...], attrs: dict[str, Any]) -> dict[str, Any]:
    """As much of the part as lies within the operand."""
    starts: list[int] = []
    sizes: list[int] = []
    for d, start, size, step in zip(
        source, attrs["starts"], attrs["sizes"], attrs["steps"], strict=True
    ):
        sizes.append(min(size, -(-d // step)))
        starts.append(max(0, min(start, d - 1 - (sizes[-1] - 1) * step)))
    return {"starts": tuple(starts), "sizes": tuple(sizes)}


_FITTED: dict[type[Op], Callable[[tuple[int, ...], dict[str, Any]], dict[str, Any]]] = {
    Reshape: _fit_reshape,
    Expand: _fit_expand,
    Slice: _fit_slice,
}
"""How the attributes of a movement follow its operand."""

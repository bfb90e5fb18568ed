"""Shared parts of the graph transforms: a copy of a graph to add to, and the leaves that
a derivative is taken by."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, GraphError, UnsupportedError, a_type
from rlx.ir.clone import leaves_of
from rlx.ir.graph import Graph, names_of_outputs, topological
from rlx.ir.replay import cloned, replay
from rlx.ir.value import Value
from rlx.ops.movement.movement import zeros
from rlx.ops.rules import carries_derivative, moved_by
from rlx.types import TensorType

__all__ = ["Derived", "check_reached", "chosen", "described", "filled", "floats_only", "labels"]


class Derived:
    """A graph made of ``source``: its leaves and its nodes, to which a transform adds.

    ``env`` says what stands for each value of the source. ``names`` are those of its outputs, and
    ``float_names`` those of the ones that can have a derivative.
    """

    def __init__(self, source: Graph, what: str) -> None:
        if not isinstance(source, Graph):
            kind = a_type(source)
            raise GraphError(f"{what} takes a Graph, found {kind}")
        nodes = source.nodes()
        self.source = source
        self.graph, self.env = leaves_of(source, lambda v: v.type)
        self.graph.name = f"{source.name}_{what}"
        replay(nodes, self.env, cloned)
        self.outputs = [self.env[v] for v in source.outputs]
        self.names = list(names_of_outputs(source))
        pairs = zip(self.names, self.outputs, strict=True)
        self.float_names = [name for name, v in pairs if carries_derivative(v)]

    def values(self, of: Iterable[Value]) -> list[Value]:
        """What stands for values of the source."""
        return [self.env[v] for v in of]

    def input(self, name: str, t: TensorType) -> Value:
        """A new input; if the name is taken, it is the first of ``name_2``, ``name_3``, ... that is
        not."""
        taken = {str(v.name) for v in (*self.graph.inputs, *self.graph.params)}
        return self.graph.input(_free(name, taken), t.shape, t.dtype)

    def done(self, outputs: Sequence[Value], names: Iterable[str]) -> Graph:
        """The graph with these outputs. Where the source names its outputs, they have these
        ``names``, with a number behind what would be there twice."""
        self.graph.set_outputs(outputs)
        if self.source.output_names:
            taken: list[str] = []
            for name in names:
                taken.append(_free(name, taken))
            assert len(taken) == len(outputs)
            self.graph.output_names = tuple(taken)
        return self.graph


def labels(values: Iterable[Value]) -> list[str]:
    """What outputs by values are called after: their names, or the ops that give them."""
    return [str(v.name) if v.op is None else v.op.short for v in values]


def _free(name: str, taken: Collection[str]) -> str:
    n, free = 1, name
    while free in taken:
        n += 1
        free = f"{name}_{n}"
    return free


def chosen(source: Graph, wrt: Any, what: str, leaves: bool = False) -> list[Value]:
    """The values that ``wrt`` means, a name or a Value or several of them: inputs, params and,
    unless ``leaves`` alone are taken, values that the outputs need."""
    named = {str(v.name): v for v in (*source.inputs, *source.params)}
    known = {*named.values(), *(v for op in source.nodes() for v in op.results)}
    found: dict[Value, None] = {}  # in order, by identity
    for given in _listed(wrt, what):
        if isinstance(given, str):
            source.leaf_location(given)
        elif not isinstance(given, Value):
            kind = a_type(given)
            raise GraphError(f"{what}: wrt holds {kind}, expected names or Values")
        elif given not in known:
            raise GraphError(
                f"{what}: {given!r} of wrt is no value of the graph {source.name!r}; a transform"
                " makes a new graph, in which inputs and params keep their names: give the name"
            )
        w = named[given] if isinstance(given, str) else given
        if leaves and w.op is not None:
            raise GraphError(
                f"{what}: {w!r} of wrt is computed; inputs and params have tangents", w.op.location
            )
        if not carries_derivative(w):
            raise DTypeError(
                f"{what}: {described(w)} is {w.dtype}, by which nothing has a derivative; take a"
                " value of floats",
                w.op.location if w.op is not None else source.leaf_location(str(w.name)),
            )
        if w in found:
            raise GraphError(f"{what}: {described(w)} stands in wrt twice")
        found[w] = None
    if not found:
        raise GraphError(f"{what}: wrt is empty, expected names or Values to differentiate by")
    return list(found)


def _listed(wrt: Any, what: str) -> list[Any]:
    if isinstance(wrt, str | Value):
        return [wrt]
    if not isinstance(wrt, Iterable) or isinstance(wrt, np.ndarray):
        kind = a_type(wrt)
        raise GraphError(f"{what}: wrt is {kind}, expected a name or a Value, or a list of them")
    return list(wrt)


def described(v: Value) -> str:
    """A value as messages name it."""
    return f"the result of {v.op.short}" if v.op is not None else repr(v.name)


def floats_only(values: Sequence[Value]) -> list[Value]:
    """Those that can have a derivative."""
    return [v for v in values if carries_derivative(v)]


def filled(values: Sequence[Value], found: Sequence[Value | None]) -> list[Value]:
    """Derivatives of values, with zeros where there is none."""
    pairs = zip(values, found, strict=True)
    return [zeros(v.shape, v.dtype) if d is None else d for v, d in pairs]


def check_reached(outputs: Sequence[Value], wrt: Sequence[Value], what: str) -> None:
    """UnsupportedError if one of ``wrt``, by which no output has a derivative, reaches the outputs
    through integers: there the derivative is cut, and zeros would hide it.

    What does not reach them, or only through comparisons and roundings, has the gradient zero.
    """
    nodes = topological(outputs)
    for w in wrt:
        moving = moved_by(nodes, [w])
        if not moving.isdisjoint(outputs):
            continue
        for op in nodes:
            if not moving.isdisjoint(op.present) and any(r.dtype.is_int for r in op.results):
                raise UnsupportedError(
                    f"{what}: {described(w)} reaches the output through integers alone ({op.short}"
                    " gives them), which have no derivative; a custom_fn can declare one, and"
                    " stop_gradient says that it is zero",
                    op.location,
                )

"""If, Loop and Scan: a branch or a body becomes one of ``rlx.ops.control``, or is imported in
place where the condition is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import GraphProto

from rlx.errors import UnsupportedError
from rlx.frontends.common.values import constant
from rlx.frontends.onnx.edges import Edge
from rlx.frontends.onnx.node import Node, Result, Rows, VariesError
from rlx.frontends.onnx.rows.movement import pick
from rlx.ir.graph import inner_graph
from rlx.ir.value import Value
from rlx.ops.control.builders import cond, scan, while_loop
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.movement import is_negative
from rlx.ops.sugar import concat
from rlx.types import Dim, bool_, i64

__all__ = ["ROWS"]

UNROLL = 64
"""The most rounds of a loop that are written one after the other."""


def branch(n: Node) -> Sequence[Result]:
    bodies = [n.need(name) for name in ("then_branch", "else_branch")]
    known = n.known(0)
    if known is not None:
        return _body(n, bodies[0] if known.all() else bodies[1], [])
    then, otherwise = (lambda b=b: tuple(e.value for e in _body(n, b, [])) for b in bodies)
    return list(cond(n[0], then, otherwise))


def _body(n: Node, graph: GraphProto, inputs: Sequence[Edge]) -> list[Edge]:
    return n.importer.body(graph, inputs, n.context)


def loop(n: Node) -> Sequence[Result]:
    body: GraphProto = n.need("body")
    initial = [e for e in n.inputs[2:] if e is not None]
    start = n.known(1)
    ever = not n.has(1) or (start is not None and bool(start.all()))
    if n.known(0) is not None and ever and _goes_on(n, body, initial):
        (rounds,) = n.dims(0)
        return _counted(n, body, initial, 0 if is_negative(rounds) else rounds)
    done = _unrolled(n, body, initial)
    if done is not None:
        return done
    if len(body.output) > 1 + len(initial):
        for i in (0, 1):
            if n.has(i):
                n.array(i)  # says what to fix
        raise UnsupportedError(
            "it stacks values from a number of rounds that depends on data; RLX has no tensors of"
            " such a length"
        )
    return _while(n, body, initial)


def _goes_on(n: Node, body: GraphProto, initial: Sequence[Edge]) -> bool:
    """Whether the condition is true after every round, whatever the round does."""
    probe = inner_graph("probe")
    carried = [Edge.of(probe.input(f"x{i}", e.shape, e.dtype)) for i, e in enumerate(initial)]
    number = Edge.of(probe.input("i", [], i64))
    try:
        test = _body(n, body, [number, Edge.literal(np.asarray(True)), *carried])[0]
    except VariesError:
        return False
    known = n.importer.evaluator.known(test)
    return not isinstance(known, set) and bool(known.all())


def _counted(n: Node, body: GraphProto, initial: Sequence[Edge], rounds: Dim) -> Sequence[Result]:
    """A number of rounds that is known, or a symbolic dim."""
    true = Edge.literal(np.asarray(True))

    def one(carry: tuple[Value, ...], i: Value) -> Any:
        _, *given = (e.value for e in _body(n, body, [Edge.of(i), true, *map(Edge.of, carry)]))
        return tuple(given[: len(carry)]), tuple(given[len(carry) :])

    carried, stacks = scan(one, tuple(e.value for e in initial), Iota((rounds,), 0, i64).out)
    return [*carried, *(stacks or ())]


def _unrolled(n: Node, body: GraphProto, initial: Sequence[Edge]) -> Sequence[Result] | None:
    """The rounds one after the other, where each says by what is known whether another follows."""
    trip, start = n.known(0), n.known(1)
    if (n.has(0) and trip is None) or (n.has(1) and start is None):
        return None
    most = int(trip.reshape(())) if trip is not None else UNROLL + 1
    go, carried, stacks, i = start is None or bool(start.all()), list(initial), [], 0
    while go and i < most:
        if i == UNROLL:
            return None
        edges = [Edge.literal(np.asarray(i, np.int64)), Edge.literal(np.asarray(True)), *carried]
        test, *given = _body(n, body, edges)
        carried, ys = given[: len(initial)], given[len(initial) :]
        stacks = [[*s, y] for s, y in zip(stacks or [[] for _ in ys], ys, strict=True)]
        known = n.importer.evaluator.known(test)
        if isinstance(known, set):
            return None
        go, i = bool(known.all()), i + 1
    if not i and len(body.output) > 1 + len(initial):
        return None
    joined = [_stacked([e.value for e in s]) for s in stacks]
    return [*carried, *joined]


def _stacked(values: Sequence[Value]) -> Value:
    return concat([v.reshape([1, *v.shape]) for v in values], 0)


def _while(n: Node, body: GraphProto, initial: Sequence[Edge]) -> Sequence[Result]:
    """Rounds while the condition is true, and fewer than the trip count if there is one."""
    true = constant(True)
    start = (constant(0, i64), true if not n.has(1) else n[1].reshape([]))
    most = n.optional(0)

    def test(i: Value, go: Value, *_: Value) -> Value:
        return go if most is None else go.logical_and(i.lt(most.reshape([])))

    def one(i: Value, go: Value, *carry: Value) -> tuple[Value, ...]:
        given = [e.value for e in _body(n, body, [Edge.of(i), Edge.of(go), *map(Edge.of, carry)])]
        return (i + 1, given[0].cast(bool_).reshape([]), *given[1:])

    found = while_loop(test, one, (*start, *(e.value for e in initial)))
    return list(found[2:])


def scanned(n: Node) -> Sequence[Result]:
    """A body over the elements along an axis of some operands."""
    if n.version < 9:
        raise UnsupportedError("before opset 9 it has a batch axis; export for a newer opset")
    body: GraphProto = n.need("body")
    count = int(n.need("num_scan_inputs"))
    values = n.values()
    states, xs = values[: len(values) - count], values[len(values) - count :]
    stacks = len(body.output) - len(states)
    ready = [
        _turned(n, _moved(x, axis, 0), backward)
        for x, axis, backward in zip(
            xs, n.attr("scan_input_axes", (0,) * count),
            n.attr("scan_input_directions", (0,) * count), strict=True,
        )
    ]  # fmt: skip

    def one(carry: tuple[Value, ...], x: tuple[Value, ...]) -> Any:
        given = [e.value for e in _body(n, body, [Edge.of(v) for v in (*carry, *x)])]
        return tuple(given[: len(carry)]), tuple(given[len(carry) :])

    carried, ys = scan(one, tuple(states), tuple(ready))
    axes = n.attr("scan_output_axes", (0,) * stacks)
    backward = n.attr("scan_output_directions", (0,) * stacks)
    turned = [
        _moved(_turned(n, y, back), 0, axis)
        for y, axis, back in zip(ys or (), axes, backward, strict=True)
    ]
    return [*carried, *turned]


def _moved(x: Value, source: int, to: int) -> Value:
    """The tensor with one axis at another place."""
    order = [i for i in range(x.rank) if i != source % x.rank]
    order.insert(to % x.rank, source % x.rank)
    return x.transpose(order)


def _turned(n: Node, x: Value, backward: int) -> Value:
    """The first axis from its end."""
    return pick(x, 0, n.line(x.type.static_shape[0])[::-1].copy()) if backward else x


ROWS: Rows = {"If": branch, "Loop": loop, "Scan": scanned}

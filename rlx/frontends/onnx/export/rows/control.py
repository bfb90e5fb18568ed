"""Branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import ValueInfoProto, helper

from rlx.frontends.onnx.export import sizes
from rlx.frontends.onnx.export.writer import Name, Rows, Writer, elem_type
from rlx.ir.value import Value
from rlx.types import TensorType, bool_, i64

__all__ = ["ROWS", "info"]


def info(name: Name, t: TensorType) -> ValueInfoProto:
    """A value with its type; symbolic dims are named."""
    shape = [d if isinstance(d, int) else str(d) for d in t.shape]
    return helper.make_tensor_value_info(name, elem_type(t.dtype, repr(name)), shape)


def _given(w: Writer, names: Sequence[Name]) -> list[Name]:
    """Outputs of a body, each by a node of its own."""
    return [w.node("Identity", n) for n in names]


def _infos(names: Sequence[Name], values: Sequence[Value]) -> list[ValueInfoProto]:
    return [info(n, v.type) for n, v in zip(names, values, strict=True)]


def branch(w: Writer, op: Any, xs: Sequence[Name]) -> list[Name]:
    pred = w.reshape(xs[0], w.ints([]))
    bodies: list[Any] = []
    for name, body in (("then", op.then), ("otherwise", op.otherwise)):
        inner = Writer(w)
        found = _given(inner, inner.body(body, xs[1:]))
        bodies.append(inner.graph(name, [], _infos(found, body.outputs)))
    return w.nodes_of("If", [pred], len(op.results), then_branch=bodies[0], else_branch=bodies[1])


def _truth(w: Writer, name: Name) -> Name:
    return w.reshape(name, w.ints([]))


def loop(w: Writer, op: Any, xs: Sequence[Name]) -> list[Name]:
    """Rounds while a test holds, which each round asks for the next."""
    carried, fixed = list(xs[: op.carries]), list(xs[op.carries :])
    first = _truth(w, w.body(op.test, xs)[0])
    inner = Writer(w)
    names = [inner.fresh("carried") for _ in carried]
    count, going = inner.fresh("round"), inner.fresh("going")
    found = inner.body(op.body, [*names, *fixed])
    goes_on = _truth(inner, inner.body(op.test, [*found, *fixed])[0])
    outs = _given(inner, [goes_on, *found])
    values = op.args[: op.carries]
    truth, number = TensorType((), bool_), TensorType((), i64)
    ins = [info(count, number), info(going, truth), *_infos(names, values)]
    body = inner.graph("body", ins, [info(outs[0], truth), *_infos(outs[1:], values)])
    return w.nodes_of("Loop", [None, first, *carried], op.carries, body=body)


def scan(w: Writer, op: Any, xs: Sequence[Name]) -> list[Name]:
    """Rounds over the first axis: what is scanned is read at the round, from the last one on if
    they go back, and what is stacked is turned round."""
    end = len(xs) - op.scanned
    carried, fixed, scanned = xs[: op.carries], xs[op.carries : end], xs[end:]
    inner = Writer(w)
    names = [inner.fresh("carried") for _ in carried]
    count, going = inner.fresh("round"), inner.fresh("going")
    rounds = sizes.scalar(w, op.rounds)
    at = count
    if op.reverse:
        last = w.node("Sub", rounds, w.constant(1, i64))
        at = inner.node("Sub", last, count)
    elements = [inner.node("Gather", x, at, axis=0) for x in scanned]
    found = inner.body(op.body, [at, *names, *fixed, *elements])
    outs = _given(inner, [going, *found])
    truth, number = TensorType((), bool_), TensorType((), i64)
    ins = [info(count, number), info(going, truth), *_infos(names, op.args[: op.carries])]
    body = inner.graph("body", ins, [info(outs[0], truth), *_infos(outs[1:], op.body.outputs)])
    start = w.constant(True)
    results = w.nodes_of("Loop", [rounds, start, *carried], len(op.results), body=body)
    stacks = results[op.carries :]
    if op.reverse:
        back, end_ = w.ints([-1]), w.ints([-(2**63)])
        stacks = [w.node("Slice", s, back, end_, w.ints([0]), back) for s in stacks]
    return [*results[: op.carries], *stacks]


ROWS: Rows = {"control.cond": branch, "control.while_loop": loop, "control.scan": scan}

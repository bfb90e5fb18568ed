"""Derivatives of control ops: each is a control op again.

- cond: the branch that ran is differentiated, within a cond on the same condition.
- scan, forwards: the tangents are carried beside the values.
- scan, backwards: see ``scan_reverse.py``.
- while_loop, forwards: as scan. Backwards it would have to keep as much as the rounds that it runs,
  which nothing bounds: it is refused.

Which values have a tangent or cotangent is found first, by tracing until nothing more gets one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.errors import UnsupportedError
from rlx.ir.graph import Graph
from rlx.ir.op import placeholders
from rlx.ir.value import Value
from rlx.ops.control.bodies import (
    Maybe,
    either,
    graph_of,
    make,
    marks_of,
    run_scan,
    settled,
    split,
    spread,
    there,
    types_of,
    zero,
)  # fmt: skip
from rlx.ops.control.control import Cond, Scan, WhileLoop
from rlx.ops.rules import inline, jvp, vjp
from rlx.types import TensorType

__all__ = ["cond_jvp", "cond_vjp", "scan_jvp", "while_jvp", "while_vjp"]


# -- cond -------------------------------------------------------------------------------------


def cond_vjp(op: Cond, cotangents: Maybe) -> list[Value | None]:
    """Cotangents of the operands."""
    given = marks_of(cotangents)

    def of(body: Graph, args: Sequence[Value], gs: Sequence[Value]) -> list[Value | None]:
        return vjp(inline(body, args), args, spread(gs, given))

    return [None, *_cond_rule(op, op.args, there(cotangents), of)]


def cond_jvp(op: Cond, tangents: Maybe) -> tuple[Value | None, ...]:
    """Tangents of the results."""
    given = marks_of(tangents[1:])

    def of(body: Graph, args: Sequence[Value], ts: Sequence[Value]) -> list[Value | None]:
        return jvp(inline(body, args), args, spread(ts, given))

    return tuple(_cond_rule(op, op.results, there(tangents[1:]), of))


def _cond_rule(
    op: Cond,
    wanted: Sequence[Value],
    given: Sequence[Value],
    of: Callable[[Graph, Sequence[Value], Sequence[Value]], list[Value | None]],
) -> list[Value | None]:
    """A cond of what ``of`` makes of each body and of ``given``: derivatives of ``wanted``."""
    n = len(op.args)
    found: list[list[Value | None]] = []

    def traced(body: Graph) -> Graph:
        graph = Graph(body.name)
        types = types_of([*op.args, *given])
        inputs = [graph.input(f"x{i}", t.shape, t.dtype) for i, t in enumerate(types)]
        found.append(of(body, inputs[:n], inputs[n:]))
        return graph

    graphs = [traced(body) for body in (op.then, op.otherwise)]
    has = either(marks_of(found[0]), marks_of(found[1]))
    if not any(has):
        return [None] * len(wanted)
    for graph, values in zip(graphs, found, strict=True):
        filled = [zero(w) if v is None else v for v, w in zip(values, wanted, strict=True)]
        graph.set_outputs([v for v, there in zip(filled, has, strict=True) if there])
    node = make(Cond, [op.pred, *op.args, *given], then=graphs[0], otherwise=graphs[1])
    return spread(node.results, has)


# -- scan -------------------------------------------------------------------------------------


def scan_jvp(op: Scan, tangents: Maybe) -> tuple[Value | None, ...]:
    """Tangents of the results."""
    at, end = op.carries, len(op.args) - op.scanned
    fixed, scanned = tangents[at:end], tangents[end:]
    body = op.body

    def rule(carried: Sequence[bool], inputs: Sequence[Value], ts: Sequence[Value]) -> Maybe:
        marks = [*carried, *marks_of(fixed), *marks_of(scanned)]
        return jvp(inline(body, inputs), inputs, [None, *spread(ts, marks)])

    def tangent_types(carried: Sequence[bool]) -> list[TensorType]:
        marks = [False, *carried, *marks_of(fixed), *marks_of(scanned)]
        return [v.type for v, has in zip(body.inputs, marks, strict=True) if has]

    def traced(carried: Sequence[bool]) -> list[bool]:
        inputs = there(placeholders(types_of(body.inputs)))
        return marks_of(rule(carried, inputs, there(placeholders(tangent_types(carried)))))

    carried, marks = settled(marks_of(tangents[:at]), traced)
    if not any(marks):
        return (None,) * len(op.results)
    parts = [sum(carried), len(there(fixed)), len(there(scanned))]

    def one_round(i: Value, *values: Value) -> list[Value]:
        cs, ct, fs, ft, xs, xt = split(
            values, at, parts[0], end - at, parts[1], op.scanned, parts[2]
        )
        inputs = [i, *cs, *fs, *xs]
        ts = rule(carried, inputs, [*ct, *ft, *xt])
        outs = inline(body, inputs)
        moved = [zero(o) if t is None else t for o, t in zip(outs[:at], ts[:at], strict=True)]
        moved = [t for t, has in zip(moved, carried, strict=True) if has]
        return [*outs[:at], *moved, *there(ts[at:])]

    start = [zero(v) if t is None else t for v, t in zip(op.args[:at], tangents[:at], strict=True)]
    start = [t for t, has in zip(start, carried, strict=True) if has]
    results = run_scan(
        op, [*op.args[:at], *start], [*op.args[at:end], *there(fixed)],
        [*op.args[end:], *there(scanned)], one_round,
    ).results  # fmt: skip
    ends = spread(results[at : at + parts[0]], carried)
    return (*ends, *spread(results[at + parts[0] :], marks[at:]))


# -- while_loop -------------------------------------------------------------------------------


def while_jvp(op: WhileLoop, tangents: Maybe) -> tuple[Value | None, ...]:
    """Tangents of the results."""
    at, body = op.carries, op.body
    fixed = tangents[at:]

    def rule(carried: Sequence[bool], inputs: Sequence[Value], ts: Sequence[Value]) -> Maybe:
        return jvp(inline(body, inputs), inputs, spread(ts, [*carried, *marks_of(fixed)]))

    def traced(carried: Sequence[bool]) -> list[bool]:
        marks = [*carried, *marks_of(fixed)]
        types = [v.type for v, has in zip(op.args, marks, strict=True) if has]
        inputs = there(placeholders(types_of(op.args)))
        return marks_of(rule(carried, inputs, there(placeholders(types))))

    carried, _ = settled(marks_of(tangents[:at]), traced)
    if not any(carried):
        return (None,) * at
    count = sum(carried)

    def parts(values: Sequence[Value]) -> list[list[Value]]:
        return split(values, at, count, len(op.args) - at, len(there(fixed)))

    def test(*values: Value) -> list[Value]:
        cs, _, fs, _ = parts(values)
        return inline(op.test, [*cs, *fs])

    def one_round(*values: Value) -> list[Value]:
        cs, ct, fs, ft = parts(values)
        ts = rule(carried, [*cs, *fs], [*ct, *ft])
        moved = [
            zero(c) if t is None else t for c, t, has in zip(cs, ts, carried, strict=True) if has
        ]
        return [*inline(body, [*cs, *fs]), *moved]

    start = [
        zero(v) if t is None else t
        for v, t, has in zip(op.args, tangents, carried, strict=False)
        if has
    ]
    args = [*op.args[:at], *start, *op.args[at:], *there(fixed)]
    node = make(
        WhileLoop, args, test=graph_of("test", types_of(args), test),
        body=graph_of("body", types_of(args), one_round), carries=at + count, limit=op.limit,
    )  # fmt: skip
    return tuple(spread(node.results[at:], carried))


def while_vjp(op: WhileLoop) -> list[Value | None]:
    """Refused: UnsupportedError."""
    raise UnsupportedError(
        "while_loop has no reverse derivative: it would have to keep the values of every round, and"
        " nothing bounds their number; use fori or scan with a number of rounds, or the forward"
        " derivative (jvp)",
        op.location,
    )

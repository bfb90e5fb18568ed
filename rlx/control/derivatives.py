"""Derivatives of control ops: each is a control op again.

- cond: the branch that ran is differentiated, within a cond on the same condition.
- scan, forwards: the tangents are carried beside the values.
- scan, backwards: a scan forwards stacks what was carried; a scan the other way computes each round
  again and carries the cotangents, of what is carried and, summed up, of what every round reads.
- while_loop, forwards: as scan. Backwards it would have to keep as much as the rounds that it runs,
  which nothing bounds: it is refused.

Which values have a tangent or cotangent is found first, by tracing until nothing more gets one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.chain import inline, jvp, vjp
from rlx.control.bodies import graph_of, make, types_of
from rlx.errors import UnsupportedError
from rlx.graph import Graph
from rlx.ops.base import placeholders
from rlx.ops.control import Cond, Scan, WhileLoop
from rlx.ops.movement import zeros
from rlx.ops.value import Value
from rlx.types import TensorType

__all__ = ["cond_jvp", "cond_vjp", "scan_jvp", "scan_vjp", "while_jvp", "while_vjp"]

Maybe = Sequence[Value | None]


def zero(like: Value) -> Value:
    """Zeros of a value's type."""
    return zeros(like.shape, like.dtype)


def _there(values: Maybe) -> list[Value]:
    return [v for v in values if v is not None]


def _spread(values: Sequence[Value], where: Sequence[bool]) -> list[Value | None]:
    """The values at the places that are marked, None at the others."""
    rest = iter(values)
    return [next(rest) if there else None for there in where]


def _marks(values: Maybe) -> list[bool]:
    return [v is not None for v in values]


def _either(a: Sequence[bool], b: Sequence[bool]) -> list[bool]:
    return [x or y for x, y in zip(a, b, strict=True)]


# -- cond -------------------------------------------------------------------------------------


def cond_vjp(op: Cond, cotangents: Maybe) -> list[Value | None]:
    """Cotangents of the operands."""
    given = _marks(cotangents)

    def of(body: Graph, args: Sequence[Value], gs: Sequence[Value]) -> list[Value | None]:
        return vjp(inline(body, args), args, _spread(gs, given))

    return [None, *_cond_rule(op, op.args, _there(cotangents), of)]


def cond_jvp(op: Cond, tangents: Maybe) -> tuple[Value | None, ...]:
    """Tangents of the results."""
    given = _marks(tangents[1:])

    def of(body: Graph, args: Sequence[Value], ts: Sequence[Value]) -> list[Value | None]:
        return jvp(inline(body, args), args, _spread(ts, given))

    return tuple(_cond_rule(op, op.results, _there(tangents[1:]), of))


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
    has = _either(_marks(found[0]), _marks(found[1]))
    if not any(has):
        return [None] * len(wanted)
    for graph, values in zip(graphs, found, strict=True):
        filled = [zero(w) if v is None else v for v, w in zip(values, wanted, strict=True)]
        graph.set_outputs([v for v, there in zip(filled, has, strict=True) if there])
    node = make(Cond, [op.pred, *op.args, *given], then=graphs[0], otherwise=graphs[1])
    return _spread(node.results, has)


# -- scan -------------------------------------------------------------------------------------


def scan_jvp(op: Scan, tangents: Maybe) -> tuple[Value | None, ...]:
    """Tangents of the results."""
    at, end = op.carries, len(op.args) - op.scanned
    fixed, scanned = tangents[at:end], tangents[end:]
    body = op.body

    def rule(carried: Sequence[bool], inputs: Sequence[Value], ts: Sequence[Value]) -> Maybe:
        marks = [*carried, *_marks(fixed), *_marks(scanned)]
        return jvp(inline(body, inputs), inputs, [None, *_spread(ts, marks)])

    def tangent_types(carried: Sequence[bool]) -> list[TensorType]:
        marks = [False, *carried, *_marks(fixed), *_marks(scanned)]
        return [v.type for v, has in zip(body.inputs, marks, strict=True) if has]

    def traced(carried: Sequence[bool]) -> list[bool]:
        inputs = _present(placeholders(types_of(body.inputs)))
        return _marks(rule(carried, inputs, _present(placeholders(tangent_types(carried)))))

    carried, marks = _settled(_marks(tangents[:at]), traced)
    if not any(marks):
        return (None,) * len(op.results)
    parts = [sum(carried), len(_there(fixed)), len(_there(scanned))]

    def one_round(i: Value, *values: Value) -> list[Value]:
        cs, ct, fs, ft, xs, xt = _split(
            values, at, parts[0], end - at, parts[1], op.scanned, parts[2]
        )
        inputs = [i, *cs, *fs, *xs]
        ts = rule(carried, inputs, [*ct, *ft, *xt])
        outs = inline(body, inputs)
        moved = [zero(o) if t is None else t for o, t in zip(outs[:at], ts[:at], strict=True)]
        moved = [t for t, has in zip(moved, carried, strict=True) if has]
        return [*outs[:at], *moved, *_there(ts[at:])]

    start = [zero(v) if t is None else t for v, t in zip(op.args[:at], tangents[:at], strict=True)]
    start = [t for t, has in zip(start, carried, strict=True) if has]
    results = run_scan(
        op, [*op.args[:at], *start], [*op.args[at:end], *_there(fixed)],
        [*op.args[end:], *_there(scanned)], one_round,
    )  # fmt: skip
    ends = _spread(results[at : at + parts[0]], carried)
    return (*ends, *_spread(results[at + parts[0] :], marks[at:]))


def scan_vjp(op: Scan, cotangents: Maybe) -> list[Value | None]:
    """Cotangents of the operands."""
    at, end = op.carries, len(op.args) - op.scanned
    body, stacked = op.body, _marks(cotangents[at:])

    def rule(carried: Sequence[bool], inputs: Sequence[Value], gs: Sequence[Value]) -> Maybe:
        spread = _spread(gs, [*carried, *stacked])
        return vjp(inline(body, inputs), inputs[1:], spread)

    def cotangent_types(carried: Sequence[bool]) -> list[TensorType]:
        marks = [*carried, *stacked]
        return [v.type for v, has in zip(body.outputs, marks, strict=True) if has]

    def traced(carried: Sequence[bool]) -> list[bool]:
        inputs = _present(placeholders(types_of(body.inputs)))
        return _marks(rule(carried, inputs, _present(placeholders(cotangent_types(carried)))))

    carried, marks = _settled(_marks(cotangents[:at]), traced)
    summed = [v for v, has in zip(op.args[at:end], marks[at:end], strict=True) if has]
    count = sum(carried)

    def one_round(i: Value, *values: Value) -> list[Value]:
        gs, sums, fs, cs, xs, ys = _split(
            values, count, len(summed), end - at, at, op.scanned, sum(stacked)
        )
        found = rule(carried, [i, *cs, *fs, *xs], [*gs, *ys])
        before = [
            zero(v) if g is None else g
            for v, g, has in zip(body.inputs[1:], found[:at], carried, strict=False)
            if has
        ]
        added = [a + g for a, g in zip(sums, _there(found[at:end]), strict=True)]
        return [*before, *added, *_there(found[end:])]

    last = [
        zero(v) if g is None else g
        for v, g, has in zip(op.results, cotangents, carried, strict=False)
        if has
    ]
    results = run_scan(
        op, [*last, *(zero(v) for v in summed)], op.args[at:end],
        [*_before(op), *op.args[end:], *_there(cotangents[at:])], one_round,
        reverse=not op.reverse,
    )  # fmt: skip
    firsts = _spread(results[:count], carried)
    return [*firsts, *_spread(results[count:], marks[at:])]


def _before(op: Scan) -> list[Value]:
    """What was carried into each round, stacked, by a scan of its own."""
    at, end = op.carries, len(op.args) - op.scanned
    if at == 0:
        return []

    def one_round(i: Value, *values: Value) -> list[Value]:
        return [*inline(op.body, [i, *values])[:at], *values[:at]]

    return list(run_scan(op, op.args[:at], op.args[at:end], op.args[end:], one_round)[at:])


def run_scan(
    op: Scan, carry: Sequence[Value], fixed: Sequence[Value], scanned: Sequence[Value],
    function: Callable[..., Sequence[Value]], reverse: bool | None = None,
) -> Sequence[Value]:  # fmt: skip
    """A scan over the rounds of another: the results."""
    elements = [v.type.with_shape(v.shape[1:]) for v in scanned]
    types = [op.body.inputs[0].type, *types_of([*carry, *fixed]), *elements]
    node = make(
        Scan, [*carry, *fixed, *scanned],
        body=graph_of("body", types, function), length=op.length, carries=len(carry),
        scanned=len(scanned), reverse=op.reverse if reverse is None else reverse,
    )  # fmt: skip
    return node.results


# -- while_loop -------------------------------------------------------------------------------


def while_jvp(op: WhileLoop, tangents: Maybe) -> tuple[Value | None, ...]:
    """Tangents of the results."""
    at, body = op.carries, op.body
    fixed = tangents[at:]

    def rule(carried: Sequence[bool], inputs: Sequence[Value], ts: Sequence[Value]) -> Maybe:
        return jvp(inline(body, inputs), inputs, _spread(ts, [*carried, *_marks(fixed)]))

    def traced(carried: Sequence[bool]) -> list[bool]:
        marks = [*carried, *_marks(fixed)]
        types = [v.type for v, has in zip(op.args, marks, strict=True) if has]
        inputs = _present(placeholders(types_of(op.args)))
        return _marks(rule(carried, inputs, _present(placeholders(types))))

    carried, _ = _settled(_marks(tangents[:at]), traced)
    if not any(carried):
        return (None,) * at
    count = sum(carried)

    def split(values: Sequence[Value]) -> list[list[Value]]:
        return _split(values, at, count, len(op.args) - at, len(_there(fixed)))

    def test(*values: Value) -> list[Value]:
        cs, _, fs, _ = split(values)
        return inline(op.test, [*cs, *fs])

    def one_round(*values: Value) -> list[Value]:
        cs, ct, fs, ft = split(values)
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
    args = [*op.args[:at], *start, *op.args[at:], *_there(fixed)]
    node = make(
        WhileLoop, args, test=graph_of("test", types_of(args), test),
        body=graph_of("body", types_of(args), one_round), carries=at + count, limit=op.limit,
    )  # fmt: skip
    return tuple(_spread(node.results[at:], carried))


def while_vjp(op: WhileLoop) -> list[Value | None]:
    """Refused: UnsupportedError."""
    raise UnsupportedError(
        "while_loop has no reverse derivative: it would have to keep the values of every round, and"
        " nothing bounds their number; use fori or scan with a number of rounds, or the forward"
        " derivative (jvp)",
        op.location,
    )


# -- what both have in common -----------------------------------------------------------------


def _settled(
    carried: list[bool], traced: Callable[[Sequence[bool]], list[bool]]
) -> tuple[list[bool], list[bool]]:
    """Which carried values have a derivative in some round, and which of all values a round gives
    one then. ``traced`` says which it gives if the carried ones have it that are marked."""
    while True:
        marks = traced(carried)
        more = _either(carried, marks[: len(carried)])
        if more == carried:
            return carried, marks
        carried = more


def _present(values: Sequence[Value | None]) -> list[Value]:
    return [v for v in values if v is not None]


def _split(values: Sequence[Value], *sizes: int) -> list[list[Value]]:
    """Neighbouring parts of these sizes."""
    parts: list[list[Value]] = []
    at = 0
    for n in sizes:
        parts.append(list(values[at : at + n]))
        at += n
    assert at == len(values), (sizes, len(values))
    return parts

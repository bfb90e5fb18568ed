"""The derivative of scan in reverse mode, in memory that does not grow with the number of rounds.

A scan the other way computes each round again, from what was carried into it, and carries the
cotangents: of what is carried and, summed up, of what every round reads.

What was carried into the rounds is kept by the scan forwards, beside its results. Where all that is
more than ``RECORD_BYTES``, the scan becomes one over segments of about as many rounds as there are
segments: what was carried into each segment is kept, and the reverse derivative runs a segment once
more to have the rest (A. Griewank, "Achieving logarithmic growth of temporal and spatial
complexity in reverse automatic differentiation", 1992; with one level). Then each round runs three
times in all, in place of twice, and of n rounds about 2 sqrt(n) are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx.base.dims import is_known
from rlx.ir.op import Op, placeholders
from rlx.ir.value import Value
from rlx.ops.control.bodies import (
    Maybe,
    marks_of,
    run_scan,
    settled,
    split,
    spread,
    there,
    types_of,
    zero,
)
from rlx.ops.control.control import Scan
from rlx.ops.movement.slicing import Concat
from rlx.ops.rules import Records, inline, moved_by, vjp
from rlx.types import TensorType

__all__ = ["scan_record", "scan_vjp"]

RECORD_BYTES = 1 << 24
"""So much of what was carried is kept whole: a multiple of what caches hold."""


def scan_vjp(
    op: Scan,
    cotangents: Maybe,
    record: Sequence[Value] | None = None,
    wanted: Sequence[bool] | None = None,
) -> list[Value | None]:
    """Cotangents of the operands that are wanted. ``record`` is what was carried into each round,
    stacked."""
    at, end = op.carries, len(op.args) - op.scanned
    body, stacked = op.body, marks_of(cotangents[at:])
    moves = _moving(op, [True] * len(op.args) if wanted is None else wanted)

    def rule(carried: Sequence[bool], inputs: Sequence[Value], gs: Sequence[Value]) -> Maybe:
        by = [v for v, has in zip(inputs[1:], moves, strict=True) if has]
        found = vjp(inline(body, inputs), by, spread(gs, [*carried, *stacked]))
        return spread(found, moves)

    def cotangent_types(carried: Sequence[bool]) -> list[TensorType]:
        marks = [*carried, *stacked]
        return [v.type for v, has in zip(body.outputs, marks, strict=True) if has]

    def traced(carried: Sequence[bool]) -> list[bool]:
        inputs = there(placeholders(types_of(body.inputs)))
        return marks_of(rule(carried, inputs, there(placeholders(cotangent_types(carried)))))

    given = zip(cotangents[:at], moves, strict=False)
    carried, marks = settled([g is not None and has for g, has in given], traced)
    if not any([*carried, *marks[at:]]):
        return [None] * len(op.args)
    summed = [v for v, has in zip(op.args[at:end], marks[at:end], strict=True) if has]
    count = sum(carried)

    def one_round(i: Value, *values: Value) -> list[Value]:
        gs, sums, fs, cs, xs, ys = split(
            values, count, len(summed), end - at, at, op.scanned, sum(stacked)
        )
        found = rule(carried, [i, *cs, *fs, *xs], [*gs, *ys])
        before = [
            zero(v) if g is None else g
            for v, g, has in zip(body.inputs[1:], found[:at], carried, strict=False)
            if has
        ]
        added = [a + g for a, g in zip(sums, there(found[at:end]), strict=True)]
        return [*before, *added, *there(found[end:])]

    last = [
        zero(v) if g is None else g
        for v, g, has in zip(op.results, cotangents, carried, strict=False)
        if has
    ]
    before = _kept(op).results[len(op.results) :] if record is None else record
    results = run_scan(
        op, [*last, *(zero(v) for v in summed)], op.args[at:end],
        [*before, *op.args[end:], *there(cotangents[at:])], one_round,
        reverse=not op.reverse,
    ).results  # fmt: skip
    firsts = spread(results[:count], carried)
    return [*firsts, *spread(results[count:], marks[at:])]


def _moving(op: Scan, wanted: Sequence[bool]) -> list[bool]:
    """Which of what a round takes depends on the operands that are wanted, in some round."""
    nodes, inputs = op.body.nodes(), op.body.inputs[1:]

    def carried_on(carried: Sequence[bool]) -> list[bool]:
        marks = [*carried, *wanted[op.carries :]]
        moved = moved_by(nodes, [v for v, has in zip(inputs, marks, strict=True) if has])
        return [v in moved for v in op.body.outputs[: op.carries]]

    carried, _ = settled(list(wanted[: op.carries]), carried_on)
    return [*carried, *wanted[op.carries :]]


def scan_record(op: Scan) -> tuple[Sequence[Value], Records]:
    """The results of a scan that keeps what is carried, and that."""
    if op.carries == 0:
        return op.results, dict.fromkeys([op], ())
    size = _segment(op)
    if size is not None:
        return _in_segments(op, size)
    node, n = _kept(op), len(op.results)
    return node.results[:n], {node: node.results[n:]}


def _segment(op: Scan) -> int | None:
    """How many rounds a segment has; None if all of what is carried is kept, as it is where a dim
    is not known."""
    sizes = [v.type.size for v in op.args[: op.carries]]
    n = op.rounds
    if not is_known(n) or not all(is_known(s) for s in sizes):
        return None
    one = sum(int(str(s)) * v.dtype.bytes for s, v in zip(sizes, op.args, strict=False))
    if n * one <= RECORD_BYTES or n < 4:
        return None
    root = math.isqrt(n)
    near = sorted(range(max(2, root // 2), 2 * root + 1), key=lambda d: abs(d - root))
    return next((d for d in near if n % d == 0), root)


def _kept(
    op: Scan, carry: Sequence[Value] | None = None, first: int = 0, rounds: int | None = None
) -> Op:
    """The scan, or ``rounds`` of its rounds from ``first`` on, beginning with ``carry``; its last
    results are what is carried into each of them, stacked."""
    at, end = op.carries, len(op.args) - op.scanned

    def one_round(i: Value, *values: Value) -> list[Value]:
        return [*inline(op.body, [i + first if first else i, *values]), *values[:at]]

    xs = op.args[end:] if rounds is None else [x[first : first + rounds] for x in op.args[end:]]
    carry = op.args[:at] if carry is None else carry
    return run_scan(op, carry, op.args[at:end], xs, one_round, rounds=rounds)


def _in_segments(op: Scan, size: int) -> tuple[list[Value], Records]:
    """The scan as one over segments, and one over the rounds that are left, which run last."""
    at, end = op.carries, len(op.args) - op.scanned
    assert is_known(op.rounds)
    count, rest = divmod(op.rounds, size)
    first = rest if op.reverse else 0

    def segment(i: Value, *values: Value) -> list[Value]:
        def one_round(j: Value, *inner: Value) -> list[Value]:
            cs, fs, (base,), xs = split(inner, at, end - at, 1, op.scanned)
            return inline(op.body, [j + base, *cs, *fs, *xs])

        fixed = [*values[at:end], i * size + first]
        inner = run_scan(op, values[:at], fixed, values[end:], one_round, rounds=size)
        return [*inner.results, *values[:at]]

    xs = [
        x[first : first + count * size].reshape((count, size, *x.shape[1:])) for x in op.args[end:]
    ]
    node = run_scan(op, op.args[:at], op.args[at:end], xs, segment, rounds=count)
    n = len(op.results)
    records: Records = {node: node.results[n:]}
    ends = node.results[:at]
    stacks = [y.reshape((count * size, *y.shape[2:])) for y in node.results[at:n]]
    if rest:
        tail = _kept(op, ends, 0 if op.reverse else count * size, rest)
        records[tail] = tail.results[n:]
        ends, more = tail.results[:at], tail.results[at:n]
        pairs = zip(more, stacks, strict=True) if op.reverse else zip(stacks, more, strict=True)
        stacks = [Concat.build(a, b, 0) for a, b in pairs]
    return [*ends, *stacks], records

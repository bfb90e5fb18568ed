"""Batching rules of control ops: what vmap makes of them.

Where the condition of a cond, or the test of a loop, differs within the batch, there is no one way
to go: both branches run and each element takes its own, and a loop runs until the last element is
done, the others keeping what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.ir.graph import Graph
from rlx.ir.op import placeholders
from rlx.ir.value import Value
from rlx.ops.control.bodies import graph_of, make, run_scan, types_of
from rlx.ops.control.control import Cond, Scan, WhileLoop
from rlx.ops.rules import batch
from rlx.types import Dim, TensorType

__all__ = ["cond_batch", "scan_batch", "while_batch"]

Pairs = list[tuple[Value, bool]]


def cond_batch(op: Cond, operands: Sequence[Value], batched: Sequence[bool]) -> tuple[Value, ...]:
    """The results, with the new axis in front."""
    n = _size(operands, batched)
    pred, *args = operands
    if not batched[0]:
        then, otherwise = (
            graph_of(b.name, types_of(args), lambda *xs, b=b: _run(b, xs, batched[1:], n))
            for b in (op.then, op.otherwise)
        )
        return make(Cond, operands, then=then, otherwise=otherwise).results
    flags = batched[1:]
    both = zip(_run(op.then, args, flags, n), _run(op.otherwise, args, flags, n), strict=True)
    return tuple(_choose(pred.reshape((n,)), a, b) for a, b in both)


def while_batch(
    op: WhileLoop, operands: Sequence[Value], batched: Sequence[bool]
) -> tuple[Value, ...]:
    """The results, with the new axis in front."""
    n, at = _size(operands, batched), op.carries
    fixed = list(batched[at:])

    def flags(carried: Sequence[bool]) -> list[bool]:
        return _traced(op.body, [*carried, *fixed], n)

    carried = _settled(list(batched[:at]), flags)
    masked = _traced(op.test, [*carried, *fixed], n)[0]
    carried = [True] * at if masked else carried
    marks = [*carried, *fixed]

    def more(values: Sequence[Value]) -> Value:
        ((found, _),) = batch(op.test.outputs, _leaves(op.test, values, marks))
        return found.reshape((n,)) if masked else found

    def test(*values: Value) -> list[Value]:
        found = more(values)
        return [found.cast("i32").max() > 0 if masked else found]

    def body(*values: Value) -> list[Value]:
        pairs = batch(op.body.outputs, _leaves(op.body, values, marks))
        new = [
            _with_axis(v, has, n) if c else v for (v, has), c in zip(pairs, carried, strict=True)
        ]
        if not masked:
            return new
        going = more(values)
        return [_choose(going, a, b) for a, b in zip(new, values, strict=False)]

    args = [
        _with_axis(v, has, n) if c else v
        for v, has, c in zip(operands, batched, marks, strict=True)
    ]
    node = make(
        WhileLoop, args, test=graph_of("test", types_of(args), test),
        body=graph_of("body", types_of(args), body), carries=at, limit=op.limit,
    )  # fmt: skip
    return tuple(_with_axis(v, has, n) for v, has in zip(node.results, carried, strict=True))


def scan_batch(op: Scan, operands: Sequence[Value], batched: Sequence[bool]) -> tuple[Value, ...]:
    """The results, with the new axis in front."""
    n, at, end = _size(operands, batched), op.carries, len(op.args) - op.scanned
    rest = list(batched[at:])

    def flags(carried: Sequence[bool]) -> list[bool]:
        return _traced(op.body, [False, *carried, *rest], n)

    carried = _settled(list(batched[:at]), flags)
    stacked = flags(carried)[at:]
    marks = [False, *carried, *rest]

    def one_round(*values: Value) -> list[Value]:
        pairs = batch(op.body.outputs, _leaves(op.body, values, marks))
        return [
            _with_axis(v, has, n) if c else v
            for (v, has), c in zip(pairs, [*carried, *stacked], strict=True)
        ]

    carry = [
        _with_axis(v, has, n) if c else v
        for v, has, c in zip(operands[:at], batched, carried, strict=False)
    ]
    # The rounds go along the first axis, so the new one becomes the second.
    scanned = [
        _swapped(v) if has else v for v, has in zip(operands[end:], batched[end:], strict=True)
    ]
    results = run_scan(op, carry, operands[at:end], scanned, one_round).results
    ends = [_with_axis(v, has, n) for v, has in zip(results, carried, strict=False)]
    stacks = [
        _swapped(v) if has else _with_axis(v, False, n)
        for v, has in zip(results[at:], stacked, strict=True)
    ]
    return (*ends, *stacks)


def _size(operands: Sequence[Value], batched: Sequence[bool]) -> Dim:
    return next(v.shape[0] for v, has in zip(operands, batched, strict=True) if has)


def _leaves(
    body: Graph, values: Sequence[Value], batched: Sequence[bool]
) -> dict[Value, tuple[Value, bool]]:
    return dict(zip(body.inputs, zip(values, batched, strict=True), strict=True))


def _run(body: Graph, values: Sequence[Value], batched: Sequence[bool], n: Dim) -> list[Value]:
    """The outputs of a body, all with the new axis."""
    pairs = batch(body.outputs, _leaves(body, values, batched))
    return [_with_axis(v, has, n) for v, has in pairs]


def _traced(body: Graph, batched: Sequence[bool], n: Dim) -> list[bool]:
    """Which outputs of a body have the new axis if these inputs have it."""

    def wide(t: TensorType, has: bool) -> TensorType:
        return t.with_shape((n, *t.shape)) if has else t

    types = [wide(v.type, has) for v, has in zip(body.inputs, batched, strict=True)]
    values = [v for v in placeholders(types) if v is not None]
    return [has for _, has in batch(body.outputs, _leaves(body, values, batched))]


def _settled(carried: list[bool], flags: Callable[[Sequence[bool]], list[bool]]) -> list[bool]:
    """Which carried values have the axis in some round."""
    while True:
        found = flags(carried)[: len(carried)]
        more = [a or b for a, b in zip(carried, found, strict=True)]
        if more == carried:
            return carried
        carried = more


def _with_axis(v: Value, has: bool, n: Dim) -> Value:
    return v if has else v.expand((n, *v.shape))


def _swapped(v: Value) -> Value:
    return v.transpose([1, 0, *range(2, v.rank)])


def _choose(cond: Value, a: Value, b: Value) -> Value:
    """``a`` where the condition of the batch's element is true, else ``b``."""
    wide = cond.reshape((*cond.shape, *[1] * (a.rank - 1)))
    return wide.where(a, b)

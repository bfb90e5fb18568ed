"""Derivatives and batches of regions whose values are computed again (``rlx.checkpoint``).

The derivative in reverse mode runs the region once more, from its operands. A barrier holds that
back until the cotangents are there, so that nothing of the region lies in memory in between; and a
second one lets nothing further go on before all cotangents of the region are made, since they need
what the region has computed. A value that was kept is read in the place of the one computed again,
which is then computed for nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.ir.op import placeholders
from rlx.ir.value import Value
from rlx.ops.control.bodies import Maybe, graph_of, make, marks_of, spread, there, types_of
from rlx.ops.control.checkpoint import Barrier, Checkpoint
from rlx.ops.rules import batch, inline, jvp, substituted, vjp_of_operands

__all__ = ["checkpoint_batch", "checkpoint_jvp", "checkpoint_vjp", "expanded"]


def expanded(node: Checkpoint) -> tuple[Value, ...]:
    """What the body gives."""
    return tuple(inline(node.body, node.args))


def checkpoint_vjp(
    node: Checkpoint, cotangents: Maybe, wanted: Sequence[bool]
) -> list[Value | None]:
    """Cotangents of the operands that are wanted, by running the region again."""
    given = there(cotangents)
    saved = node.results[len(node.results) - node.kept :]
    # Weights stay in memory anyway, and behind a barrier they would not be known as such.
    waiting = list(dict.fromkeys(v for v in (*node.args, *saved) if not _is_param(v)))
    held = barrier([*waiting, *given])
    env = dict(zip(waiting, held, strict=False))
    args = [env.get(v, v) for v in node.args]
    gs = spread(held[len(waiting) :], marks_of(cotangents))
    by = [v for v, has in zip(args, wanted, strict=True) if has]
    outputs = inline(node.body, args)
    found = vjp_of_operands(outputs, by, gs)
    kept = outputs[len(outputs) - node.kept :]
    read = dict(zip(kept, [env[v] for v in saved], strict=True))
    cotangents = barrier(substituted(there(found), read, {*held, *args}))
    return spread(spread(cotangents, marks_of(found)), wanted)


def checkpoint_jvp(node: Checkpoint, tangents: Maybe) -> tuple[Value | None, ...]:
    """Tangents of the results: a region again, so that its derivative too computes it again."""
    n, given = len(node.args), there(tangents)

    def rule(args: Sequence[Value], ts: Sequence[Value]) -> list[Value | None]:
        return jvp(inline(node.body, args), args, spread(ts, marks_of(tangents)))

    leaves = there(placeholders(types_of([*node.args, *given])))
    found = rule(leaves[:n], leaves[n:])
    if all(t is None for t in found):
        return tuple(found)

    def region(*values: Value) -> list[Value]:
        return there(rule(values[:n], values[n:]))

    operands = [*node.args, *given]
    made = make(Checkpoint, operands, body=graph_of("region", types_of(operands), region))
    return tuple(spread(made.results, marks_of(found)))


def checkpoint_batch(
    node: Checkpoint, operands: Sequence[Value], flags: Sequence[bool]
) -> tuple[tuple[Value, bool], ...]:
    """A region of batches."""
    marks: list[bool] = []

    def region(*values: Value) -> list[Value]:
        leaves = dict(zip(node.body.inputs, zip(values, flags, strict=True), strict=True))
        pairs = batch(node.body.outputs, leaves)
        marks[:] = [has for _, has in pairs]
        return [v for v, _ in pairs]

    body = graph_of("region", types_of(operands), region)
    made = make(Checkpoint, operands, body=body, kept=node.kept)
    return tuple(zip(made.results, marks, strict=True))


def barrier(values: Sequence[Value]) -> Sequence[Value]:
    """The values, of which none is there before all are."""
    return make(Barrier, values).results if values else values


def _is_param(v: Value) -> bool:
    return v.op is None and v.graph is not None and any(v is p for p in v.graph.params)

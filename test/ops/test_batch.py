"""Batching rules of every op against a loop over the unbatched op."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlx.ir.graph import Graph
from rlx.ir.interpreter import evaluate
from rlx.ir.op import Op
from rlx.ops import rules
from rlx.types import bool_, c64, f16, f32, i32
from support.per_op import each_op
from support.samples import Array, Case, cases, run
from support.sweeps import covering
from support.tolerances import assert_close

SIZE = 3
"""Length of the new axis."""

CASES = covering(
    (
        c
        for c in cases(f16, f32, i32, bool_, c64)
        if hasattr(c.op, "batch") and any(t is not None for t in c.types)
    ),
    lambda c: [(c.op, c.number), (c.op, c.dtype)],
)


def patterns(node: Op) -> Iterator[list[bool]]:
    """Which operands get the new axis: all of them, each alone, all but each."""
    there = [i for i, v in enumerate(node.operands) if v is not None]
    chosen = {frozenset(there)}
    chosen |= {frozenset({i}) for i in there}
    chosen |= {frozenset(there) - {i} for i in there}
    for s in sorted(chosen - {frozenset()}, key=sorted):
        yield [i in s for i in range(len(node.operands))]


@each_op(CASES)
def test_batch_rule_is_a_loop(case: Case) -> None:
    for batched in patterns(case.node()):
        check(case, batched)


def check(case: Case, batched: list[bool]) -> None:
    node = case.node()
    graph = Graph("batched")
    draws = [case.arrays(seed) for seed in range(SIZE)]
    stacked: list[Array | None] = []
    operands = list(node.operands)
    feeds = {}
    for i, (v, has) in enumerate(zip(node.operands, batched, strict=True)):
        first = draws[0][i]
        if v is None or first is None:
            stacked.append(None)
            continue
        a = np.stack([d[i] for d in draws]) if has else first  # type: ignore[type-var]
        operands[i] = graph.input(f"x{i}", a.shape, v.dtype)
        feeds[operands[i]] = a
        stacked.append(a)

    out = node.batch(operands, batched)
    results = list(out) if isinstance(out, tuple) else [out]
    assert [v.type for v in results] == [
        v.type.with_shape((SIZE, *v.shape)) for v in node.results
    ], f"batched {batched}"

    loop = [
        evaluate(
            node,
            [a if a is None or not has else a[n] for a, has in zip(stacked, batched, strict=True)],
        )
        for n in range(SIZE)
    ]
    for found, *rows in zip(run(results, feeds), *loop, strict=True):
        assert_close(found, np.stack(rows))


@each_op(c for c in CASES if c.number == 0)
def test_a_batch_of_nothing_has_the_results_axes(case: Case) -> None:
    """Of each operand alone: a Jacobian by an operand without elements makes such a batch."""
    node = case.node()
    for batched in patterns(node):
        leaves = {
            v: (Graph("none").input(f"x{i}", (0, *v.shape), v.dtype), True)
            for i, (v, has) in enumerate(zip(node.operands, batched, strict=True))
            if v is not None and has
        }
        found = rules.batch(node.results, leaves)
        assert [(v.type, has) for v, has in found] == [
            (v.type.with_shape((0, *v.shape)), True) for v in node.results
        ]

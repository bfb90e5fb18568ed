"""Batches of every op, its vjp and its jvp against a loop over single ones, in f64 and c128."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import pytest

from rlx.errors import ShapeError
from rlx.ir.graph import Graph
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.rules import batch
from support.derived import SMOOTH, Derived, draw, has_derivatives
from support.samples import Array, Case, cases, run
from support.sweeps import covering
from support.tolerances import assert_close

SIZE = 2
"""Length of the new axis."""


CASES = {
    op: covering(group, lambda c: [c.number, c.dtype])
    for op, group in groupby(
        (c for c in cases(*SMOOTH) if has_derivatives(c) and c.sample.derivatives),
        key=lambda case: case.op,
    )
}


FEW = 6
"""Leaves up to which all but each are tried."""


def patterns(count: int, whole: bool) -> Iterator[list[bool]]:
    """Which of the leaves get the new axis: all of them, each alone, all but each. Of what expands
    (no ``whole``), whose ops have been through this, all and the first alone."""
    everything = frozenset(range(count))
    chosen = {everything, frozenset({0})}
    chosen |= {frozenset({i}) for i in everything if whole}
    chosen |= {everything - {i} for i in everything if whole and count <= FEW}
    for s in sorted(chosen - {frozenset()}, key=sorted):
        yield [i in s for i in range(count)]


@pytest.mark.parametrize("op", CASES, ids=lambda op: op.name)
def test_batched_derivatives_are_a_loop(op: type[Op]) -> None:
    for case in CASES[op]:
        node = case.node()
        derived = Derived(node.present, node.results, order=1)
        draws = [draw(case, derived.leaves, seed) for seed in range(SIZE)]
        first = run(derived.outputs, dict(zip(derived.leaves, draws[0], strict=True)))
        for pattern in patterns(len(derived.leaves), hasattr(op, "batch")):
            check(case, derived, draws, pattern, first)


def check(
    case: Case,
    derived: Derived,
    draws: Sequence[Sequence[Array]],
    pattern: Sequence[bool],
    of_first: list[Array],
) -> None:
    """One pattern of leaves that have the new axis; ``of_first`` is the result of the first draw,
    which is the first of every batch."""
    graph = Graph(case.op.name)
    pairs: dict[Value, tuple[Value, bool]] = {}
    feeds: dict[Value, Array] = {}
    for i, (leaf, has) in enumerate(zip(derived.leaves, pattern, strict=True)):
        a = np.stack([d[i] for d in draws]) if has else draws[0][i]
        v = graph.input(f"x{i}", a.shape, leaf.dtype)
        pairs[leaf], feeds[v] = (v, has), a
    outputs = batch(derived.outputs, pairs)
    found = run([v for v, _ in outputs], feeds)
    rows = [of_first]
    for n in range(1, SIZE):
        arrays = [
            d if has else first for d, first, has in zip(draws[n], draws[0], pattern, strict=True)
        ]
        rows.append(run(derived.outputs, dict(zip(derived.leaves, arrays, strict=True))))
    for a, (_, has), *single in zip(found, outputs, *rows, strict=True):
        for n, row in enumerate(single):
            assert_close(a[n] if has else a, row)


def test_experts_of_a_number_that_is_not_known_cannot_be_batched() -> None:
    """Those of each batch are told apart by their numbers."""
    g = Graph("experts")
    x, w, experts = g.input("x", [3, 2]), g.input("w", ["e", 2, 4]), g.input("i", [3], "i64")
    many = Value(w.type.with_shape((5, *w.shape)))
    leaves = {x: (x, False), w: (many, True), experts: (experts, False)}
    with pytest.raises(ShapeError, match="number of experts e is not known"):
        batch([x.grouped_matmul(w, experts)], leaves)

"""What derivatives and batches cost, beside the op itself: no work or memory of another order.

Every sample is enlarged, and the graphs of its vjp and jvp are looked at, not run: the operations
of all nodes, and the largest value that a node makes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from rlx.errors import RlxError
from rlx.ir.graph import Graph, topological
from rlx.ir.op import Op
from rlx.ir.value import Value, bytes_of
from rlx.ops.rules import batch, jvp, vjp
from rlx.types import c128, f64
from support.samples import Case, cases

FACTOR = 16
"""By which sizes of 2 and more grow."""

WORK = 20
"""Most operations of a derivative, for one of the op (or an element that it reads or writes): those
of factorizations are about 15."""

ROOM = 4
"""The largest value in a derivative, for the largest that the op or its expansion has."""

EXCEPTIONS: dict[str, str] = {
    "mir.gated_delta_net": "its derivative is by chunks: matrices of the size of a chunk",
    "mir.selective_scan": "its derivative keeps the state of every step",
}

SMOOTH = (f64, c128)


class Size(NamedTuple):
    """Operations, and the bytes of the largest value."""

    work: int
    room: int

    @staticmethod
    def of(outputs: Iterable[Value | None]) -> Size:
        """What computing values takes."""
        nodes = topological([v for v in outputs if v is not None])
        made = [bytes_of([r]) for op in nodes for r in op.results]
        return Size(sum(op.cost().flops for op in nodes), max(made, default=0))


def enlarged(case: Case) -> Op | None:
    """The op on larger operands; None if its attributes or tables do not allow that."""
    g = Graph("large")
    leaves = [
        None
        if t is None
        else g.input(f"x{i}", [d * FACTOR if d > 1 else d for d in t.static_shape], t.dtype)
        for i, t in enumerate(case.types)
    ]
    try:
        return case.op(*leaves, **case.sample.attrs)
    except RlxError:
        return None


def own(node: Op) -> Size:
    """What the op takes itself."""
    values = [*node.present, *node.results]
    elements = sum(v.type.size for v in values if isinstance(v.type.size, int))
    inside = Size(0, 0)
    if node.composite():
        out = node.expand()
        inside = Size.of(out if isinstance(out, tuple) else [out])
    room = max(bytes_of([v]) for v in values)
    return Size(max(node.cost().flops, inside.work, elements), max(room, inside.room))


LARGE = [
    (case, node)
    for case in cases(*SMOOTH)
    if case.op.differentiable and case.sample.derivatives and case.op.name not in EXCEPTIONS
    if all(t is None or t.size for t in case.types)
    if (node := enlarged(case)) is not None and any(v.dtype in SMOOTH for v in node.present)
]


def test_there_are_many() -> None:
    ops = {case.op for case, _ in LARGE}
    assert len(ops) > 110


@pytest.mark.parametrize(("case", "node"), LARGE, ids=[str(case) for case, _ in LARGE])
def test_a_derivative_costs_a_few_times_the_op(case: Case, node: Op) -> None:
    smooth = [v for v in node.present if v.dtype in SMOOTH]
    along = [Value(v.type) if v.dtype in SMOOTH else None for v in node.results]
    backward = Size.of(vjp(node.results, smooth, along))
    forward = Size.of(jvp(node.results, smooth, [Value(v.type) for v in smooth]))
    itself = own(node)
    for found in (backward, forward):
        assert found.work <= WORK * itself.work
        assert found.room <= ROOM * itself.room


@pytest.mark.parametrize("name", ["mir.solve", "mir.triangular_solve", "mir.lstsq"])
def test_a_matrix_that_batches_share_is_factorised_once(name: str) -> None:
    node = next(c for c in cases(f64) if c.op.name == name).node()
    a, b = node.present
    many = Value(b.type.with_shape((64, *b.shape)))
    ((out, has),) = batch(node.results, {a: (a, False), b: (many, True)})
    assert has
    assert [op.operands[0] for op in topological([out]) if op.name == name] == [a]


@pytest.mark.parametrize("name", ["mir.conv", "mir.conv_transpose"])
def test_an_image_that_batches_of_weights_share_is_not_copied(name: str) -> None:
    node = next(c for c in cases(f64) if c.op.name == name and c.sample.attrs.get("groups")).node()
    x, w = node.present
    many = Value(w.type.with_shape((64, *w.shape)))
    ((out, _),) = batch(node.results, {x: (x, False), w: (many, True)})
    assert [op.operands[0] for op in topological([out]) if op.name == name] == [x]


def test_a_weight_that_a_batch_shares_is_summed_inside_its_product() -> None:
    """No [B, K, N] is made on the way to the gradient [K, N]."""
    g = Graph("shared")
    x, w = g.input("x", [64, 5, 7], f64), g.input("w", [7, 9], f64)
    y = x @ w
    (found,) = vjp([y], [w], [Value(y.type)])
    assert Size.of([found]).room <= max(bytes_of([v]) for v in (x, w, y))

"""Derivative rules of every op against central differences of its reference, and each other.

All in f64 and c128, on every sample of every differentiable op. Of complex values a cotangent is
paired with a tangent as the real part of their product, with no conjugate: JAX's convention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from rlx.errors import UnsupportedError
from rlx.ir.graph import Graph
from rlx.ir.interpreter import evaluate
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.types import DType, f32
from support import ad
from support.derived import DECLARED, SMOOTH
from support.per_op import each_op
from support.samples import Case, cases, run
from support.tolerances import STEP, assert_derivative

Array = np.ndarray[Any, Any]


def smooth(case: Case, types: Sequence[DType] = SMOOTH) -> bool:
    return any(t is not None and t.dtype in types for t in case.types) and any(
        v.dtype in types for v in case.node().results
    )


ALL = [c for c in cases(*SMOOTH) if smooth(c) and c.op.name not in DECLARED]
"""Cases with operands and results that could have derivatives, which differences can show."""

# stop_gradient passes no derivative on, whatever its slope.
FLAT = [c for c in ALL if not c.op.differentiable and c.op.name != "hir.stop_gradient"]
CASES = [c for c in ALL if c.op.differentiable and c.sample.derivatives >= 1]
TWICE = [c for c in CASES if c.sample.derivatives == 2]
REFUSED = [c for c in ALL if c.op.differentiable and c.sample.derivatives < 2]


class Point:
    """A case with its arrays, and a direction for every smooth operand and result."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        self.node: Op = case.node()
        self.arrays = case.arrays(seed)
        rng = np.random.default_rng(seed + 1)
        graph = next(v.graph for v in self.node.present)
        assert graph is not None
        self.graph: Graph = graph
        pairs = zip(self.node.operands, self.arrays, strict=True)
        self.feeds: dict[Value, Array] = {v: a for v, a in pairs if v is not None and a is not None}
        self.smooth = [v for v in self.node.operands if v is not None and v.dtype in SMOOTH]
        self.outputs = [v for v in self.node.results if v.dtype in SMOOTH]
        self.tangents = self.directions("t", self.smooth, rng)
        self.cotangents = self.directions("u", self.outputs, rng)

    def directions(
        self, prefix: str, like: Sequence[Value], rng: np.random.Generator
    ) -> list[Value]:
        """Further inputs of the graph with random values."""
        out: list[Value] = []
        for i, v in enumerate(like):
            d = self.graph.input(f"{prefix}{i}", v.shape, v.dtype)
            a = rng.standard_normal(v.type.static_shape)
            self.feeds[d] = a + 1j * rng.standard_normal(a.shape) if v.dtype.is_complex else a
            out.append(d)
        return out

    def patterns(self) -> Iterator[list[Value | None]]:
        """Tangents of all operands together, and of each alone."""
        yield list(self.tangents)
        if len(self.tangents) > 1:
            for t in self.tangents:
                yield [s if s is t else None for s in self.tangents]

    def difference(
        self, values: list[Value] | None, tangents: Sequence[Value | None]
    ) -> list[Array]:
        """Central difference of the node's smooth results (or of ``values``) along the tangents."""
        sides: list[list[Array]] = []
        for step in (STEP, -STEP):
            feeds = dict(self.feeds)
            for v, t in zip(self.smooth, tangents, strict=True):
                if t is not None:
                    feeds[v] = feeds[v] + step * feeds[t]
            if values is None:
                arrays = [None if v is None else feeds[v] for v in self.node.operands]
                many = evaluate(self.node, arrays)
                sides.append(
                    [a for a, v in zip(many, self.node.results, strict=True) if v.dtype in SMOOTH]
                )
            else:
                sides.append(run(values, feeds))
        return [(plus - minus) / (2 * STEP) for plus, minus in zip(*sides, strict=True)]

    def values(self, values: Sequence[Value | None], like: Sequence[Value]) -> list[Array]:
        """The arrays of derivatives; None is zero in the shape of its counterpart."""
        there = [v for v in values if v is not None]
        found = iter(run(there, self.feeds) if there else [])
        return [
            np.zeros(w.type.static_shape, w.dtype.numpy) if v is None else next(found)
            for v, w in zip(values, like, strict=True)
        ]

    def finite(self) -> bool:
        """Whether the results are, at this point: the mean of nothing is not."""
        arrays = [None if v is None else self.feeds[v] for v in self.node.operands]
        return all(np.isfinite(a).all() for a in evaluate(self.node, arrays))


def dot(xs: Sequence[Array], ys: Sequence[Array]) -> float:
    return float(sum(np.sum(x * y).real for x, y in zip(xs, ys, strict=True)))


@each_op(CASES)
def test_jvp_is_the_directional_derivative(case: Case) -> None:
    p = Point(case)
    for tangents in p.patterns():
        found = p.values(ad.jvp(p.outputs, p.smooth, tangents), p.outputs)
        for a, b in zip(found, p.difference(None, tangents), strict=True):
            assert_derivative(a, b)


@each_op(CASES)
def test_vjp_is_the_adjoint(case: Case) -> None:
    """<u, J t> = <J^T u, t>, with J t once from differences and once from the jvp rule."""
    for seed in range(2 if case.number == 0 else 1):
        p = Point(case, seed)
        if not p.finite():
            continue
        u = [p.feeds[c] for c in p.cotangents]
        grads = p.values(ad.vjp(p.outputs, p.smooth, p.cotangents), p.smooth)
        for tangents in p.patterns():
            moved = p.values(tangents, p.smooth)
            assert_derivative(dot(grads, moved), dot(u, p.difference(None, tangents)))
            forward = p.values(ad.jvp(p.outputs, p.smooth, tangents), p.outputs)
            np.testing.assert_allclose(dot(grads, moved), dot(u, forward), rtol=1e-9, atol=1e-9)


@each_op(TWICE)
def test_second_derivatives(case: Case) -> None:
    """The vjp's own derivatives, and the jvp's, in both modes; of what expands, whose ops have been
    through this, the vjp's alone."""
    p = Point(case)
    found = [ad.vjp(p.outputs, p.smooth, p.cotangents)]
    if hasattr(case.op, "jvp"):
        found.append(ad.jvp(p.outputs, p.smooth, p.tangents))
    for n, derivatives in enumerate(found):
        firsts = [d for d in derivatives if d is not None]
        if not firsts or not p.finite():
            continue
        expected = p.difference(firsts, p.tangents)
        forward = p.values(ad.jvp(firsts, p.smooth, p.tangents), firsts)
        for a, b in zip(forward, expected, strict=True):
            assert_derivative(a, b)

        weights = p.directions(f"w{n}_", firsts, np.random.default_rng(7))
        back = p.values(ad.vjp(firsts, p.smooth, weights), p.smooth)
        t = [p.feeds[v] for v in p.tangents]
        assert_derivative(dot(back, t), dot([p.feeds[w] for w in weights], expected))


@each_op(REFUSED)
def test_what_is_refused(case: Case) -> None:
    """No derivative of an order that the sample says is not there passes for zero."""
    p = Point(case)

    def vjp(outputs: Sequence[Value]) -> list[Value | None]:
        return ad.vjp(outputs, p.smooth, [Value(v.type) for v in outputs])

    def jvp(outputs: Sequence[Value]) -> list[Value | None]:
        return ad.jvp(outputs, p.smooth, p.tangents)

    there = [p.outputs]
    if case.sample.derivatives == 1:
        there = [[d for d in way(p.outputs) if d is not None] for way in (vjp, jvp)]
    for outputs in there:
        for way in (vjp, jvp):
            with pytest.raises(UnsupportedError):
                way(outputs)


WIDE = {a.op for a in ALL}
FEW_BITS = [
    c for c in cases(f32)
    if c.op not in WIDE and c.op.name not in DECLARED and smooth(c, (f32,))
]  # fmt: skip


@each_op(FEW_BITS)
def test_ops_that_take_no_f64(case: Case) -> None:
    """Differences cannot show what is flat, so a derivative is refused unless there is a rule."""
    if case.op.name in ("mir.bitcast", "mir.quantize_rows"):
        assert case.op.differentiable
        return
    node = case.node()
    moved = [v for v in node.present if v.dtype.is_float]
    found = [v for v in node.results if v.dtype.is_float]
    for way, given in ((ad.vjp, found), (ad.jvp, moved)):
        with pytest.raises(UnsupportedError, match="is for inference and has no derivative"):
            way(found, moved, [Value(v.type) for v in given])


@each_op(FLAT)
def test_what_is_declared_flat(case: Case) -> None:
    """An op of floats that is not differentiable is constant around every point but its jumps."""
    p = Point(case)
    assert ad.vjp(p.outputs, p.smooth, p.cotangents) == [None] * len(p.smooth)
    assert ad.jvp(p.outputs, p.smooth, p.tangents) == [None] * len(p.outputs)
    for change in p.difference(None, p.tangents):
        np.testing.assert_array_equal(change, 0)

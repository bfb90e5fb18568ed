"""Values together with their derivatives, in one graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.ir.value import Value
from rlx.ops.rules import jvp, vjp
from rlx.types import c128, f64
from support.samples import Array, Case

__all__ = ["DECLARED", "SMOOTH", "Derived", "directions", "draw", "has_derivatives"]

SMOOTH = (f64, c128)
"""Types in which derivatives are tested."""

DECLARED = frozenset({"mir.fake_quantize", "mir.fake_quantize_lsq"})
"""Ops whose derivative is one that is chosen, and not that of their values."""


def has_derivatives(case: Case) -> bool:
    """Whether an op is differentiable, and the case of it has an operand of these types."""
    types = [t for t in case.types if t is not None]
    return case.op.differentiable and any(t.dtype in SMOOTH for t in types)


class Derived:
    """What is computed, and from which leaves: the inputs, a tangent for each smooth one, and a
    cotangent for each smooth output, in this order.

    ``parts`` are the outputs, and up to ``order`` the vjp (by input), the jvp (by output) and the
    jvp of the vjp along the same tangents (by input); None is zero. Without ``reverse`` there is no
    vjp, and the last is the jvp of the jvp (by output).
    """

    def __init__(
        self, inputs: Sequence[Value], outputs: Sequence[Value], order: int, reverse: bool = True
    ) -> None:
        graph = inputs[0].graph
        assert graph is not None
        self.inputs, self.results, self.order, self.reverse = inputs, outputs, order, reverse
        self.smooth = [v for v in inputs if v.dtype in SMOOTH]
        self.given = [v for v in outputs if v.dtype in SMOOTH]
        tangents = [graph.input(f"t{i}", v.shape, v.dtype) for i, v in enumerate(self.smooth)]
        cotangents = [graph.input(f"u{i}", v.shape, v.dtype) for i, v in enumerate(self.given)]
        self.leaves = [*inputs, *tangents, *cotangents]
        self.parts: dict[str, list[Value | None]] = {"value": list(outputs)}
        if order >= 1:
            if reverse:
                self.parts["vjp"] = vjp(self.given, self.smooth, cotangents)
            self.parts["jvp"] = jvp(self.given, self.smooth, tangents)
        if order >= 2:
            firsts = self.parts["vjp" if reverse else "jvp"]
            found = iter(jvp([v for v in firsts if v is not None], self.smooth, tangents))
            self.parts["second"] = [None if v is None else next(found) for v in firsts]
        self.outputs = [v for part in self.parts.values() for v in part if v is not None]


def draw(case: Case, leaves: Sequence[Value], seed: int) -> list[Array]:
    """An array a leaf: those of the case, and random directions."""
    arrays = [a for a in case.arrays(seed) if a is not None]
    return [*arrays, *directions(leaves[len(arrays) :], seed)]


def directions(like: Sequence[Value], seed: int) -> list[Array]:
    """Random arrays, complex ones too."""
    rng = np.random.default_rng(seed)
    out: list[Array] = []
    for v in like:
        a = rng.standard_normal(v.type.static_shape)
        out.append(a + 1j * rng.standard_normal(a.shape) if v.dtype.is_complex else a)
    return out

"""Functions of elements whose formulas have loops."""

from __future__ import annotations

from typing import Any

from rlx.targets.graph.rows.common import Row, kept, shape_of
from rlx.targets.graph.tensor import Tensor
from rlx.targets.graph.whole import Whole
from rlx.types import f64

__all__ = ["ROWS"]


def _incomplete_gamma(k: Whole, node: Any, a: Tensor, x: Tensor) -> Tensor:
    a, x = k.same(k.widened(a), k.widened(x))
    if 0 in shape_of(node):
        return k.literal(0, node.out.dtype, shape_of(node))
    return kept(k, node, node.formula(k, a, x, wide=a.dtype is f64))


ROWS: dict[str, Row] = {
    "mir.igamma": _incomplete_gamma,
    "mir.igammac": _incomplete_gamma,
    "mir.igamma_grad_a": _incomplete_gamma,
}

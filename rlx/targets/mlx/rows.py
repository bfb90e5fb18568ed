"""What MLX has whole, for the forms of it that MLX takes."""

from __future__ import annotations

from typing import Any

from rlx.targets.graph.rows.common import Row, kept
from rlx.targets.graph.tensor import Tensor
from rlx.targets.mlx.words import Words

__all__ = ["OWN"]


def _softmax(k: Words, node: Any, x: Tensor) -> Tensor:
    if 0 in x.shape:
        return x
    wide = k.widened(x)
    found = k.mx.softmax(wide.handle, axis=node.axis, precise=True)
    return kept(k, node, k.tensor(found, wide.dtype))


OWN: dict[str, Row] = {"mir.softmax": _softmax}
"""By the name of the op."""

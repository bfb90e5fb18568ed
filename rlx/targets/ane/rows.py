"""What Core ML has whole, for the forms of it that it takes."""

from __future__ import annotations

from typing import Any

from rlx.targets.ane.words import Words
from rlx.targets.graph.rows.common import Row, kept
from rlx.targets.graph.tensor import Tensor

__all__ = ["OWN"]


def _softmax(k: Words, node: Any, x: Tensor) -> Tensor:
    wide = k.widened(x)
    if none := k.empty(x.dtype, x.shape):
        return none
    found = k.mb.softmax(x=k.full(wide), axis=node.axis)
    return kept(k, node, k.tensor(found, wide.dtype, x.shape))


OWN: dict[str, Row] = {"mir.softmax": _softmax}
"""By the name of the op."""

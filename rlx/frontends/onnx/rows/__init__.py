"""Conversions of ONNX op types to ops of RLX: a table per family, all of them in one here.

A row takes the node and gives its results. Its operands and attributes fit the schema of the op
type; differences between the versions of a type are the row's to handle.
"""

from __future__ import annotations

from rlx.frontends.onnx.node import Rows
from rlx.frontends.onnx.rows import (
    attention,
    contraction,
    contrib,
    control,
    image,
    indexing,
    movement,
    normalization,
    pointwise,
    quantization,
    recurrent,
    reduction,
    shape,
    window,
)

__all__ = ["OUTSIDE", "ROWS"]

FAMILIES = (
    pointwise, reduction, contraction, normalization, attention, movement, indexing, shape,
    window, quantization, image, control, recurrent, contrib,
)  # fmt: skip

ROWS: Rows = {name: row for family in FAMILIES for name, row in family.ROWS.items()}

OUTSIDE = frozenset(contrib.ROWS)
"""Op types with a row that ONNX has no schema of."""

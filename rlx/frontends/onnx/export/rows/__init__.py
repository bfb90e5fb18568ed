"""What each op is in ONNX: a table per family, all of them in one here."""

from __future__ import annotations

from rlx.frontends.onnx.export.rows import (
    control,
    elementwise,
    indexing,
    movement,
    products,
    window,
)
from rlx.frontends.onnx.export.writer import Rows

__all__ = ["FAMILIES", "ROWS"]

FAMILIES = (elementwise, movement, products, indexing, window, control)

ROWS: Rows = {name: row for family in FAMILIES for name, row in family.ROWS.items()}

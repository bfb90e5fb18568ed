"""What each ATen op is in ops of ours: a table per family, all of them in one here."""

from __future__ import annotations

from rlx.frontends.torch.node import Rows
from rlx.frontends.torch.rows import (
    attention,
    contraction,
    elementwise,
    gradient,
    image,
    indexing,
    linalg,
    loss,
    movement,
    normalization,
    random,
    reduction,
    special,
    spectral,
    strided,
    window,
)

__all__ = ["FAMILIES", "ROWS"]

FAMILIES = (
    elementwise, reduction, contraction, normalization, attention, loss, movement, strided,
    indexing, window, image, linalg, spectral, special, random, gradient,
)  # fmt: skip

ROWS: Rows = {name: row for family in FAMILIES for name, row in family.ROWS.items()}

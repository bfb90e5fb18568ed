"""What the ops are in JAX, each formulated from its definition: an outside judge.

``OPS`` has a function for each, by family in the modules here. It can be read without JAX.
"""

from __future__ import annotations

from support.jax_ops import (
    axes,
    blocks,
    collectives,
    indexing,
    matrices,
    networks,
    pointwise,
    quantized,
    shapes,
    splat,
    windows,
)
from support.jax_ops.peer import Table

__all__ = ["OPS", "WITHOUT"]

FAMILIES = (
    axes,
    blocks,
    collectives,
    indexing,
    matrices,
    networks,
    pointwise,
    quantized,
    shapes,
    splat,
    windows,
)

OPS: Table = {name: f for family in FAMILIES for name, f in family.OPS.items()} | pointwise.FLAT

WITHOUT: dict[str, str] = {
    f"mir.dequant_{name}": "JAX has no weights in packed blocks"
    for name in ("matmul", "grouped_matmul")
}
"""Differentiable ops that JAX has no counterpart of, and why."""

"""Kernels of blocks of threads that share memory, for GPUs: a file a family.

Rows are ``rlx.kernels.rowwise``'s, which serves CPUs too. What these have in common:

tile.py   how a block computes a tile of a matrix product, and how large a tile a target can hold

Blocks are as large as the target allows, and share as much as it has; how many of their threads run
in step is never asked.
"""

__all__ = ["FAMILIES"]

FAMILIES = (
    "contraction", "attention", "rowwise", "elementwise", "copy", "gather", "reduce",
)  # fmt: skip
"""The kernel families that have kernels for GPUs that share memory; the rest goes the common way.
"""

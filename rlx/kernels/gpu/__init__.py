"""Kernels of blocks of threads that share memory, for GPUs.

tile.py                           a tile of a matrix product, through shared memory
contraction.py                    products with an epilogue
matrix.py, matrix_tile.py         matrix units, and a tile by those of a block
attention.py, attention_plan.py   attention, and how its pieces are chosen
reduce.py                         reductions

Rows are ``rlx.kernels.rowwise``'s, which serves CPUs too. Blocks are as large as the target allows,
and share as much as it has; how many of their threads run in step is never asked, but by matrix
units. No loop ends at another place for another thread of the block: PoCL compiles such a loop
wrongly.
"""

__all__ = ["FAMILIES"]

FAMILIES = (
    "contraction", "attention", "rowwise", "elementwise", "copy", "gather", "reduce",
)  # fmt: skip
"""The kernel families that have kernels for GPUs that share memory; the rest goes the common way.
"""

"""Kernels of blocks of threads that share memory, for GPUs.

matmul/gpu.py                 products with an epilogue
matmul/gpu_tile.py            a tile of a product, through shared memory
matmul/gpu_matrix_units.py    matrix units; gpu_matrix_tile.py is a tile by those of a block
attention/gpu.py, gpu_plan.py   attention, and how its pieces are chosen
reduce/gpu.py                 reductions

Rows are those of ``rowwise/``, which serves CPUs too. Blocks are as large as the target
allows, and share as much as it has; how many of their threads run in step is never asked, but by
matrix units. No loop ends at another place for another thread of the block: PoCL compiles such a
loop wrongly.
"""

__all__ = ["FAMILIES"]

FAMILIES = (
    "contraction", "attention", "rowwise", "elementwise", "copy", "gather", "reduce",
)  # fmt: skip
"""The kernel families that have kernels for GPUs that share memory; the rest goes the common way.
"""

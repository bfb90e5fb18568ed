"""Linear algebra: factorizations of matrices, and what is solved by them.

Every op is batched: all axes but the last two are batch axes. Kernels are written on
``rlx.codegen.matrix``: blocked, with register tiles, one matrix a task. ``rlx.linalg`` has the
functions that users call.
"""

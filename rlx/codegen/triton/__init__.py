"""Kernels as programs on blocks of elements, in TTIR: what Triton's compiler takes.

machine.py       what Triton makes use of on a target
text.py          blocks and the lines of TTIR that work on them
pointwise.py     from the scalar code of pointwise ops to code on blocks

The kernels are ``triton.py`` of their families in ``rlx/kernels/``. They compute what ``gpu.py``
beside them computes, from the same arguments, by the matrix units of a target: the layouts, the
staging through shared memory and the pipelining are Triton's. What they do not take goes to
``gpu.py``. Nothing here imports Triton; ``rlx.targets.triton`` does.

The text is MLIR's generic form, which any MLIR reads: so the tests run it without Triton.
"""

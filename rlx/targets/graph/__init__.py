"""Targets that take whole graphs: TPUs, MLX and Apple's neural engine have compilers of their own.

What such a system is told is a program of tensor ops. Of RLX's ops the pointwise ones have a
formula over registers, ``scalar(k, *registers)``: here a register is a whole tensor, and ``k`` (a
``Whole``) writes ops of the other system. The others have a row each in a table: a function of
``k``, the node and the tensors. The rows in ``rows/`` are written in ``k``'s own words and hold for
every system; a system has a few dozen words, and rows of its own for what it does better whole.

To add one: a ``System`` (``system.py``), which ``whole_target`` makes a target of. It has a
``Whole`` with the system's words, such as ``make`` (a pointwise op of tensors), ``folded``,
``product`` and ``taken``, and writes the files of its stages. A word that is lacking raises
``Refused``, and all such ops are listed at once. What the system does better whole, such as
attention, is a row of its own by the op's name: then that composite is not expanded.
``test/support/whole.py`` has what stands for devices, and ``python -m support.graph_conformance
tpu interpreter`` runs every op.

``rlx.lowering.passes.whole_program`` walks over mir with these.
"""

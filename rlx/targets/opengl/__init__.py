"""GPUs with OpenGL: GLSL compute shaders, which the driver compiles to the GPU's code.

    rlx-opt model.mlir --dispatch=common --emit=source --target=opengl -o model.comp

A file has all kernels: ``KERNEL_<name>`` is to be defined for the one that is wanted. How kernels
are called is in ``rlx.targets.gpu.emit``.
"""

from __future__ import annotations

from functools import partial

from rlx.targets.gpu import source_target

__all__ = ["make_target"]

make_target = partial(source_target, "opengl", "glsl:GLSL")

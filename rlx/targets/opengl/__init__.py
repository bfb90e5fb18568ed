"""GPUs with OpenGL: GLSL compute shaders, which the driver compiles to the GPU's code.

    rlx-opt model.mlir --dispatch=common --emit=source --target=opengl -o model.comp

A file has all kernels: ``KERNEL_<name>`` is to be defined for the one that is wanted. How kernels
are called is in ``rlx.targets.gpu.emit``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx.targets.base import Target

__all__ = ["make_target"]


@cache
def make_target(features: str | None = None) -> Target:
    """The OpenGL target for a profile by name; by default opengl4.3.

    Raises DeviceError for an unknown profile.
    """
    # Imported here: the driver needs nothing that compiles.
    from rlx.targets.gpu.emit import text_target
    from rlx.targets.gpu.languages.glsl import GLSL
    from rlx.targets.opengl.features import DEFAULT, SHARED_BYTES, preset

    return text_target("opengl", preset(features or DEFAULT), GLSL, shared_bytes=SHARED_BYTES)

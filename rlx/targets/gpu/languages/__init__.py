"""The shading languages, a table each."""

from __future__ import annotations

from rlx.targets.gpu.languages.cuda import CUDA, HIP
from rlx.targets.gpu.languages.glsl import GLSL
from rlx.targets.gpu.languages.hlsl import HLSL
from rlx.targets.gpu.languages.metal import METAL
from rlx.targets.gpu.languages.opencl import OPENCL
from rlx.targets.gpu.languages.wgsl import WGSL

__all__ = ["LANGUAGES"]

LANGUAGES = {
    "opencl": OPENCL, "wgsl": WGSL, "metal": METAL, "glsl": GLSL, "hlsl": HLSL, "cuda": CUDA,
    "hip": HIP,
}  # fmt: skip
"""The tables by name."""

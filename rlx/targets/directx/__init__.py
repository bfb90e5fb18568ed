"""Windows' GPUs with Direct3D: HLSL, which Microsoft's compilers turn into the driver's bytecode.

    rlx-opt model.mlir --dispatch=common --emit=source --target=directx -o model.hlsl

A file has all kernels, each an entry point of its name. How kernels are called is in
``rlx.targets.gpu.emit``: what a kernel reads is in registers ``t``, and what it writes in ``u``,
with the numbers of its bindings.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx.targets.base import Target

__all__ = ["make_target"]


@cache
def make_target(features: str | None = None) -> Target:
    """The Direct3D target for a profile by name; by default sm5.0.

    Raises DeviceError for an unknown profile.
    """
    from rlx.targets.directx.features import DEFAULT, SHARED_BYTES, preset
    from rlx.targets.gpu.emit import text_target
    from rlx.targets.gpu.languages.hlsl import HLSL

    return text_target("directx", preset(features or DEFAULT), HLSL, shared_bytes=SHARED_BYTES)

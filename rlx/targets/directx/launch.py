"""Direct3D: what is missing to run kernels, since RLX has no driver of its own for it.

HLSL is compiled by Microsoft's compilers (dxc, fxc) to what Direct3D takes. Programs of one's own
can do so with the source that the target gives, or with the SPIR-V that glslang makes of it.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from rlx.errors import DeviceError

__all__ = ["open_directx"]


def open_directx() -> NoReturn:
    """DeviceError, which says what to use instead."""
    instead = (
        "device 'gpu' runs the same graphs on Direct3D 12, by the wgpu package"
        " (pip install 'rlx[directx]')"
        if sys.platform == "win32"
        else "Direct3D is of Windows alone; there 'gpu' runs the same graphs on it"
    )
    raise DeviceError(
        f"RLX makes HLSL for directx (rlx-opt --emit=source --target=directx), and launches none:"
        f" {instead}"
    )

"""Devices with OpenCL: OpenCL C, which the driver compiles to the machine's code.

    rlx-opt model.mlir --dispatch=common --emit=source --target=opencl

How kernels are called is in ``rlx.targets.gpu.emit``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx.targets.base import Target

__all__ = ["make_target"]


@cache
def make_target(features: str | None = None) -> Target:
    """The OpenCL target for a profile by name ("opencl1.2-fp64"); by default opencl1.2.

    Raises DeviceError for an unknown profile.
    """
    # Imported here: the driver needs nothing that compiles.
    from rlx.targets.gpu.emit import text_target
    from rlx.targets.gpu.languages.opencl import OPENCL
    from rlx.targets.opencl.features import DEFAULT, SHARED_BYTES, preset

    return text_target("opencl", preset(features or DEFAULT), OPENCL, shared_bytes=SHARED_BYTES)

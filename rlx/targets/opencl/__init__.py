"""Devices with OpenCL: OpenCL C, which the driver compiles to the machine's code.

    rlx-opt model.mlir --dispatch=common --emit=source --target=opencl

Kernels run one work item a point of their parallel range. How they are called is in
``rlx.targets.gpu.emit``.
"""

from __future__ import annotations

from functools import cache

from rlx.kernels.builder import KernelTarget
from rlx.kernels.math import CPU_MATH
from rlx.targets.base import Target
from rlx.targets.gpu.emit import TextEmitter
from rlx.targets.gpu.languages.opencl import OPENCL
from rlx.targets.opencl.features import DEFAULT, preset

__all__ = ["FAMILIES", "STAGES", "make_target"]

FAMILIES = ("rowwise", "elementwise", "copy")
"""The kernel families that run as they are with a work item a task; the rest goes the common way."""

STAGES = ("source",)


@cache
def make_target(features: str | None = None) -> Target:
    """The OpenCL target for a profile by name ("opencl1.2-fp64"); by default opencl1.2.

    Raises DeviceError for an unknown profile.
    """
    found = preset(features or DEFAULT)
    return Target(
        name="opencl",
        features=found,
        kernels=KernelTarget(
            name=found.name, vector_bytes=0, registers=0, math=CPU_MATH, frame="gpu",
            logical=True, index_bits=32, lacks=found.lacks,
        ),
        families=FAMILIES,
        stages=STAGES,
        emitter=TextEmitter("opencl", OPENCL),
    )  # fmt: skip

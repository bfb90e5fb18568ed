"""Devices with OpenCL: OpenCL C, which the driver compiles to the machine's code.

    rlx-opt model.mlir --dispatch=common --emit=source --target=opencl

How kernels are called is in ``rlx.targets.gpu.emit``.
"""

from __future__ import annotations

from functools import partial

from rlx.targets.gpu import source_target

__all__ = ["make_target"]

make_target = partial(source_target, "opencl", "opencl:OPENCL")

"""Apple's GPUs: the Metal Shading Language, which the system compiles to the GPU's code.

    rlx-opt model.mlir --dispatch=common --emit=source --target=metal -o model.metal

How kernels are called is in ``rlx.targets.gpu.emit``. The target is the same on every machine; the
driver of ``launch`` needs a Mac.
"""

from __future__ import annotations

from functools import partial

from rlx.targets.gpu import source_target

__all__ = ["make_target"]

make_target = partial(source_target, "metal", "metal:METAL")

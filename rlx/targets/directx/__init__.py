"""Windows' GPUs with Direct3D: HLSL, which Microsoft's compilers turn into the driver's bytecode.

    rlx-opt model.mlir --dispatch=common --emit=source --target=directx -o model.hlsl

A file has all kernels, each an entry point of its name. How kernels are called is in
``rlx.targets.gpu.emit``: what a kernel reads is in registers ``t``, and what it writes in ``u``,
with the numbers of its bindings.
"""

from __future__ import annotations

from functools import partial

from rlx.targets.gpu import source_target

__all__ = ["make_target"]

make_target = partial(source_target, "directx", "hlsl:HLSL")

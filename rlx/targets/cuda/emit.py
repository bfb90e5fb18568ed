"""From kernel text to PTX.

Each kernel becomes a ``.visible .entry`` of its own name, whose parameters are 64-bit pointers to
global memory: those of ``rlx.targets.gpu.emit``, the one to the numbers last. ``.maxntid`` is the
size of a block; there is no dynamic shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.codegen.builder import KernelText
from rlx.targets.cuda.features import Features
from rlx.targets.llvm import machine
from rlx.targets.llvm.kernels import kernels_to_llvm

__all__ = ["to_llvm", "to_ptx"]

# By LLVM's own default an i64 is aligned to 4 bytes, and each access would become two.
_DATA_LAYOUT = "e-i64:64"

# Indices have 64 bits, as buffers may be larger than 4 GB.
PIPELINE = (
    "builtin.module(gpu.module(cse,convert-scf-to-cf,"
    "convert-gpu-to-nvvm{use-bare-ptr-memref-call-conv=true index-bitwidth=64},"
    "canonicalize{region-simplify=disabled},reconcile-unrealized-casts))"
)


def to_ptx(kernels: Sequence[KernelText], features: Features, *, opt: int = 2) -> str:
    """PTX of the kernels, as the module docstring says.

    Raises IRError or PassError for text that MLIR refuses, and ToolchainError for what the
    allow-list or LLVM refuses.
    """
    return machine.emit_assembly(to_llvm(kernels), features.machine, opt=opt)


def to_llvm(kernels: Sequence[KernelText]) -> str:
    """LLVM 22 text of the kernels; it holds what the allow-list has still to see."""
    attributes = f'attributes {{llvm.data_layout = "{_DATA_LAYOUT}"}} {{'
    return kernels_to_llvm(kernels, PIPELINE, attributes)

"""From kernel text to PTX.

Each kernel becomes a ``.visible .entry`` of its own name. Its parameters are, in this order, a
64-bit pointer to global memory for each of ``KernelText.buffers`` and a 32-bit signed integer for
each of ``KernelText.sizes``. One of the sizes is ``range``, the length of the launch's parallel
range, wherever it was declared; the others are ``Launch.sizes`` in order. A block has
``KernelTarget.block`` threads in x (``.maxntid`` says so), and the grid is
``(ceil(range / block), 1, 1)``; there is no dynamic shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.kernels.builder import KernelText
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

"""From the text of GPU kernels to LLVM IR, for the targets whose machine code LLVM makes."""

from __future__ import annotations

from collections.abc import Sequence

from rlx import _mlir
from rlx.codegen.builder import KernelText
from rlx.errors import ToolchainError
from rlx.targets.base import check_kernels
from rlx.targets.llvm.bridge import to_llvm22
from rlx.targets.llvm.intrinsics import with_intrinsics

__all__ = ["kernels_to_llvm"]


def kernels_to_llvm(kernels: Sequence[KernelText], pipeline: str, head: str = "") -> str:
    """LLVM 22 text of kernels by a pass pipeline that makes their gpu.module one of the LLVM
    dialect. ``head`` is what comes between ``gpu.module @kernels`` and the kernels: attributes, the
    brace, ops of its own. The text holds what the allow-list has still to see.

    Raises IRError or PassError for text that MLIR refuses.
    """
    check_kernels(kernels, "gpu")
    bodies = "\n".join(k.text for k in kernels)
    text = (
        "module attributes {gpu.container_module} {\n"
        f"gpu.module @kernels {head or '{'}\n{bodies}\n}}\n}}"
    )
    module = _mlir.parse_module(text, _mlir.context())
    _mlir.run_pipeline(module, pipeline)
    found = [op.operation for op in module.body.operations if op.operation.name == "gpu.module"]
    if not found:
        raise ToolchainError("MLIR's conversion of kernels lost their gpu.module")
    return with_intrinsics(to_llvm22(_mlir.translate_to_llvm_ir(found[0])))

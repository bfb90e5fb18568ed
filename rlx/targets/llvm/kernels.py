"""From the text of GPU kernels to LLVM IR, for the targets whose machine code LLVM makes.

Elementary functions are the polynomials that every target has. What is left for MLIR's
conversions are operations that the hardware has, but they write them as calls of the makers'
libraries, NVIDIA's libdevice (``__nv_sqrtf``) and AMD's ocml (``__ocml_sqrt_f32``), whose
signatures are those of LLVM's intrinsics. So the intrinsic takes the call's place, and nothing is
linked. All of them round as IEEE 754 says; none is an approximation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlx import _mlir
from rlx.codegen.builder import KernelText
from rlx.errors import ToolchainError
from rlx.targets.base import check_kernels
from rlx.targets.llvm.bridge import to_llvm22

__all__ = ["INTRINSICS", "kernels_to_llvm", "with_intrinsics"]

INTRINSICS: dict[str, str] = {
    "ceil": "ceil",
    "copysign": "copysign",
    "fabs": "fabs",
    "floor": "floor",
    "fma": "fma",
    "rint": "roundeven",
    "sqrt": "sqrt",
    "trunc": "trunc",
}
"""By the libraries' names without prefix and suffix: the intrinsic that has instructions."""

_CALL = re.compile(r"@__(?:nv_(\w+?)(f?)|ocml_(\w+)_f(32|64))\(")


def with_intrinsics(text: str) -> str:
    """LLVM IR with the calls of listed library functions as intrinsics. Others stay as they are, to
    be refused by name."""

    def intrinsic(found: re.Match[str]) -> str:
        name = found[1] or found[3]
        if name not in INTRINSICS:
            return found[0]
        single = found[2] == "f" if found[1] else found[4] == "32"
        return f"@llvm.{INTRINSICS[name]}.{'f32' if single else 'f64'}("

    return _CALL.sub(intrinsic, text)


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

"""From kernel text to HSACO.

Each kernel becomes a function of its own name with a descriptor ``<name>.kd``. Its parameters are
64-bit pointers to global memory: those of ``rlx.targets.gpu.emit``, the one to the numbers last.
The descriptor requires the size of a work group that the kernel was built for; there is no dynamic
LDS, and no hidden argument.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlx.codegen.builder import KernelText
from rlx.targets.llvm import machine
from rlx.targets.llvm.kernels import kernels_to_llvm
from rlx.targets.rocm.features import Features
from rlx.targets.rocm.link import link

__all__ = ["to_assembly", "to_hsaco", "to_llvm"]

# Indices have 64 bits, as buffers may be larger than 4 GB.
PIPELINE = (
    "builtin.module(gpu.module(cse,convert-scf-to-cf,convert-amdgpu-to-rocdl{{chipset={chip}}},"
    "convert-gpu-to-rocdl{{chipset={chip} use-bare-ptr-memref-call-conv=true index-bitwidth=64}},"
    "canonicalize{{region-simplify=disabled}},reconcile-unrealized-casts))"
)

# Version 5 of the format is what every ROCm since 5.0 loads.
_VERSION = '#llvm.mlir.module_flag<error, "amdhsa_code_object_version", 500 : i32>'
_HEAD = f"{{\nllvm.module_flags [{_VERSION}]"

_UNUSED = ("dispatch-ptr", "queue-ptr", "dispatch-id", "implicitarg-ptr")
"""What the driver prepares for a kernel, but where it has the attribute ``amdgpu-no-<name>``."""

_KERNEL_ATTRIBUTES = re.compile(r'(attributes #\d+ = \{ )("amdgpu-flat-work-group-size")')


def to_hsaco(kernels: Sequence[KernelText], features: Features, *, opt: int = 2) -> bytes:
    """The HSACO of the kernels, as the module docstring says.

    Raises IRError or PassError for text that MLIR refuses, and ToolchainError for what the
    allow-list or LLVM refuses.
    """
    return link(machine.emit_object(to_llvm(kernels, features), features.machine, opt=opt))


def to_assembly(kernels: Sequence[KernelText], features: Features, *, opt: int = 2) -> str:
    """The assembly of the kernels."""
    return machine.emit_assembly(to_llvm(kernels, features), features.machine, opt=opt)


def to_llvm(kernels: Sequence[KernelText], features: Features) -> str:
    """LLVM 22 text of the kernels; it holds what the allow-list has still to see."""
    text = kernels_to_llvm(kernels, PIPELINE.format(chip=features.isa), _HEAD)
    return _without_unused(text)


def _without_unused(text: str) -> str:
    """Say of all kernels what none of them reads."""
    unused = [n for n in _UNUSED if f"@llvm.amdgcn.{n.replace('-', '.')}(" not in text]
    said = "".join(f'"amdgpu-no-{n}" ' for n in unused)
    return _KERNEL_ATTRIBUTES.sub(rf"\1{said}\2", text)

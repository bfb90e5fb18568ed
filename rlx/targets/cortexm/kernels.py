"""Kernels of floats for Cortex-M: those of CPUs, as an object that a project's linker takes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from rlx.codegen.builder import KernelTarget, KernelText
from rlx.codegen.math import CPU_MATH
from rlx.kernels.registry import families_on
from rlx.targets.base import Target
from rlx.targets.cortexm.features import PRESETS, Core
from rlx.targets.cpu.emit import framed
from rlx.targets.llvm import machine
from rlx.targets.llvm.half import with_conversions

__all__ = ["PROVIDED", "make_target", "objects"]


class CoreEmitter:
    """LLVM IR, assembly and objects of kernels."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def emit(self, kernels: list[KernelText], stage: str) -> bytes:
        if stage == "llvm":
            return _to_llvm(kernels, self.core).encode()
        if stage == "asm":
            return machine.emit_assembly(_to_llvm(kernels, self.core), self.core.machine).encode()
        return objects(kernels, self.core)

    def lines(self, kernel: KernelText) -> dict[str, list[int]]:
        return {}


@cache
def make_target(name: str) -> Target:
    """The target for the floats of a core."""
    core = PRESETS[name]
    kernels = KernelTarget(
        name=f"cortexm {name}", vector_bytes=core.vector_bytes,
        registers=8 if core.vector_bytes == 16 else 16, math=CPU_MATH, index_bits=32,
        fused=core.floats,
    )  # fmt: skip
    # Kernels in C are of the system's compiler.
    families = tuple(f for f in families_on("cpu") if f not in ("custom", "integer_conv"))
    return Target("cortexm", core, kernels, families, ("llvm", "asm", "object"), CoreEmitter(core))


def _to_llvm(kernels: Sequence[KernelText], core: Core) -> str:
    text = framed(kernels, 32)
    if not core.floats:  # LLVM would call fmaf
        text = text.replace("@llvm.fma.", "@llvm.fmuladd.")
    return with_conversions(text, boxed=False, group="1000")


def objects(kernels: Sequence[KernelText], core: Core) -> bytes:
    """An object with the kernels as functions ``(int32_t begin, int32_t end, void *const *buffers,
    const int32_t *sizes, void *scratch)``. It needs libgcc's arithmetic (``__aeabi_*``) and what
    ``floats.c`` has; ToolchainError names what else LLVM would call.
    """
    return machine.emit_object(_to_llvm(kernels, core), core.machine, linked=_linked)


def _linked(name: str) -> bool:
    return name.startswith("__aeabi_") or name in PROVIDED


PROVIDED = frozenset(
    ["truncf", "floorf", "ceilf", "roundevenf", "rintf", "nearbyintf", "sqrtf", "fmaximumf",
     "fminimumf"]
)  # fmt: skip
"""What ``floats.c`` defines."""

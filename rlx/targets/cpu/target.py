"""The kernel families' view of a CPU."""

from __future__ import annotations

from functools import cache

from rlx.codegen.builder import KernelTarget
from rlx.codegen.math import CPU_MATH
from rlx.targets.cpu.features import Features

__all__ = ["kernel_target"]


@cache
def kernel_target(features: Features) -> KernelTarget:
    """The target to build kernels for: register width and count, and the math functions."""
    return KernelTarget(
        name=features.name,
        vector_bytes=features.vector_bits // 8,
        registers=features.registers,
        math=CPU_MATH,
        has=features.has,
    )

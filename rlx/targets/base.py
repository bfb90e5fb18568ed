"""What a target is: features, the kernels' view of the machine, and the stages after LIR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rlx.kernels.builder import KernelTarget, KernelText

__all__ = ["Emitter", "Target"]


class Emitter(Protocol):
    """The last stages of a target: kernel text to something that its loader takes."""

    def emit(self, kernels: list[KernelText], stage: str) -> bytes:
        """The file of ``stage`` ("llvm", "asm", "object", "ptx", "spirv") for kernels."""
        ...


@dataclass(frozen=True)
class Target:
    """A target for which graphs are compiled.

    ``families`` are the kernel families that have an emitter here; what none of them claims goes
    the common way.
    """

    name: str
    features: Any
    kernels: KernelTarget
    families: tuple[str, ...]
    stages: tuple[str, ...]
    emitter: Emitter

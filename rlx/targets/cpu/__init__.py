"""CPUs: x86-64 with AVX2 or AVX-512, aarch64 with NEON or SVE, and riscv64 with V."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rlx.targets.cpu.features import Features, preset, selected

if TYPE_CHECKING:
    from rlx.codegen.builder import KernelTarget, KernelText
    from rlx.targets.base import Target

__all__ = ["make_target"]


class CpuEmitter:
    """LLVM IR, assembly and objects of kernels."""

    def __init__(self, features: Features) -> None:
        self.features = features

    def emit(self, kernels: list[KernelText], stage: str) -> bytes:
        from rlx.targets.cpu.emit import compile_kernels, to_assembly, to_llvm

        if len(kernels) == 1 and kernels[0].frame == "c":
            from rlx.targets.cpu.c_compiler import compile_c

            return compile_c(kernels[0], self.features, stage)
        if stage == "llvm":
            return to_llvm(kernels, self.features).encode()
        if stage == "asm":
            return to_assembly(kernels, self.features).encode()
        return compile_kernels(kernels, self.features)

    def lines(self, kernel: KernelText) -> dict[str, list[int]]:
        from rlx.targets.cpu.listing import kernel_lines

        return kernel_lines(kernel, self.features)


def make_target(features: str | None = None) -> Target:
    """The CPU target for features by name ("x86-64-v4"); by default RLX_CPU's or this machine's."""
    return _target(selected() if features is None else preset(features))


@cache
def _target(found: Features) -> Target:
    # Imported here: a hit of the compile cache asks for the features alone.
    from rlx.kernels.registry import families_on
    from rlx.targets.base import Target
    from rlx.targets.cpu.target import kernel_target

    kernels = kernel_target(found)
    return Target(
        name="cpu",
        features=found,
        kernels=kernels,
        families=tuple(
            f for f in families_on("cpu") if f != "integer_conv" or _multiplies_words(kernels)
        ),
        stages=("llvm", "asm", "object"),
        emitter=CpuEmitter(found),
    )


def _multiplies_words(kernels: KernelTarget) -> bool:
    """Whether a CPU convolves integers by words, fours of bytes (``rlx.kernels.conv.words``); where
    it has AMX, a product of the windows is faster."""
    from rlx.kernels.matmul import amx
    from rlx.kernels.matmul.dot import group_of
    from rlx.types import i8, u8

    return kernels.masks and group_of(kernels, u8, i8) == 4 and not amx.has_integers(kernels)

"""WebAssembly with vectors of 128 bits: the kernels of CPUs as one module, for pages without WebGPU
and for what else runs WebAssembly. ``rlx.runtime.web`` writes programs of it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rlx.targets.wasm.features import DEFAULT, Features, preset

if TYPE_CHECKING:
    from rlx.codegen.builder import KernelText
    from rlx.targets.base import Target

__all__ = ["make_target"]


class WasmEmitter:
    """LLVM IR, assembly and modules of kernels."""

    def __init__(self, features: Features) -> None:
        self.features = features

    def emit(self, kernels: list[KernelText], stage: str) -> bytes:
        from rlx.targets.wasm import emit

        if stage == "llvm":
            return emit.to_llvm(kernels).encode()
        if stage == "asm":
            return emit.to_assembly(kernels, self.features).encode()
        return emit.compile_module(kernels, self.features)

    def lines(self, kernel: KernelText) -> dict[str, list[int]]:
        return {}


@cache
def make_target(features: str | None = None) -> Target:
    """The target for a profile by name; by default the one that there is. DeviceError for an
    unknown profile."""
    from rlx.codegen.builder import KernelTarget
    from rlx.codegen.math import CPU_MATH
    from rlx.kernels.registry import families_on
    from rlx.targets.base import Target

    found = preset(features or DEFAULT)
    kernels = KernelTarget(
        name=f"wasm {found.name}", vector_bytes=16, registers=16, math=CPU_MATH, index_bits=32,
        fused=False,
    )  # fmt: skip
    # Kernels in C are of the system's compiler, which makes no WebAssembly.
    families = tuple(f for f in families_on("cpu") if f not in ("custom", "integer_conv"))
    return Target("wasm", found, kernels, families, ("llvm", "asm", "wasm"), WasmEmitter(found))

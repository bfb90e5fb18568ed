"""AMD GPUs: HSACO, an ELF file with the machine's code.

    rlx-opt model.mlir --dispatch=common --emit=asm --target=rocm:gfx90a

How a launcher calls kernels is in ``rlx.targets.rocm.emit``.
"""

from __future__ import annotations

from functools import cache

from rlx.errors import UnsupportedError
from rlx.kernels.builder import KernelTarget, KernelText
from rlx.kernels.gpu import FAMILIES
from rlx.kernels.math import CPU_MATH
from rlx.kernels.triton.machine import TritonMachine
from rlx.targets import triton
from rlx.targets.base import Target
from rlx.targets.rocm.features import DEFAULT, SHARED_BYTES, Features, preset
from rlx.targets.triton.compile import emit_with

__all__ = ["STAGES", "make_target"]

STAGES = ("llvm", "asm", "hsaco")


class RocmEmitter:
    """LLVM IR, assembly and HSACO of kernels."""

    def __init__(self, features: Features, machine: TritonMachine | None) -> None:
        self.features, self.machine = features, machine

    def emit(self, kernels: list[KernelText], stage: str) -> bytes:
        return emit_with(kernels, stage, self.machine, lambda own: self._emit(own, stage))

    def _emit(self, kernels: list[KernelText], stage: str) -> bytes:
        from rlx.targets.rocm.emit import to_assembly, to_hsaco, to_llvm

        if stage == "hsaco":
            return to_hsaco(kernels, self.features)
        if stage == "asm":
            return to_assembly(kernels, self.features).encode()
        if stage == "llvm":
            return to_llvm(kernels, self.features).encode()
        raise UnsupportedError(f"target rocm has no stage {stage!r}; it has {', '.join(STAGES)}")

    def lines(self, kernel: KernelText) -> dict[str, list[int]]:
        return {}


def make_target(features: str | None = None) -> Target:
    """The ROCm target for an architecture by name ("gfx90a"); by default gfx942.

    Raises DeviceError for an unknown architecture, and ToolchainError where RLX_TRITON wants a
    Triton that is not here.
    """
    found = preset(features or DEFAULT)
    return _make(found, triton.chosen(found.triton))


@cache
def _make(found: Features, machine: TritonMachine | None) -> Target:
    return Target(
        name="rocm",
        features=found,
        kernels=KernelTarget(
            name=found.name,
            vector_bytes=0,
            registers=0,
            math=CPU_MATH,
            frame="gpu",
            # The numbers of LLVM's address spaces for AMD GPUs: global, private.
            buffer_space="1",
            stack_space="5",
            shared_space="#gpu.address_space<workgroup>",
            most_threads=1024,
            shared_bytes=SHARED_BYTES,
            has=frozenset([found.unit]),
            triton=machine,
        ),
        families=FAMILIES,
        stages=STAGES,
        emitter=RocmEmitter(found, machine),
    )

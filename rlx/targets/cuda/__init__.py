"""NVIDIA GPUs: PTX, which the driver compiles to the machine's code.

    rlx-opt model.mlir --dispatch=common --emit=ptx --target=cuda:sm_90

Kernels run one thread a point of their parallel range. How a launcher calls them is in
``rlx.targets.cuda.emit``.
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
from rlx.targets.cuda.features import DEFAULT, SHARED_BYTES, Features, preset
from rlx.targets.triton.compile import emit_with

__all__ = ["STAGES", "make_target"]

STAGES = ("llvm", "ptx")


class CudaEmitter:
    """LLVM IR and PTX of kernels."""

    def __init__(self, features: Features, machine: TritonMachine | None) -> None:
        self.features, self.machine = features, machine

    def emit(self, kernels: list[KernelText], stage: str) -> bytes:
        return emit_with(kernels, stage, self.machine, lambda own: self._emit(own, stage))

    def _emit(self, kernels: list[KernelText], stage: str) -> bytes:
        from rlx.targets.cuda.emit import to_llvm, to_ptx

        if stage == "llvm":
            return to_llvm(kernels).encode()
        if stage == "ptx":
            return to_ptx(kernels, self.features).encode()
        raise UnsupportedError(f"target cuda has no stage {stage!r}; it has {', '.join(STAGES)}")

    def lines(self, kernel: KernelText) -> dict[str, list[int]]:
        return {}


def make_target(features: str | None = None) -> Target:
    """The CUDA target for a compute capability by name ("sm_90"); by default the oldest one.

    Raises DeviceError for an unknown capability, and ToolchainError where RLX_TRITON wants a Triton
    that is not here.
    """
    found = preset(features or DEFAULT)
    return _make(found, triton.chosen(found.triton))


@cache
def _make(found: Features, machine: TritonMachine | None) -> Target:
    return Target(
        name="cuda",
        features=found,
        kernels=KernelTarget(
            name=found.name,
            vector_bytes=0,
            registers=0,
            math=CPU_MATH,
            frame="gpu",
            shared_space="#gpu.address_space<workgroup>",
            most_threads=1024,
            shared_bytes=SHARED_BYTES,
            has=found.instructions,
            triton=machine,
        ),
        families=FAMILIES,
        stages=STAGES,
        emitter=CudaEmitter(found, machine),
    )

"""GPUs with Vulkan: SPIR-V, which the driver compiles to the machine's code.

    rlx-opt model.mlir --dispatch=common --emit=spirv --target=vulkan -o model.spv

Kernels run one invocation a point of their parallel range. How a launcher calls them is in
``rlx.targets.vulkan.emit``.
"""

from __future__ import annotations

from functools import cache

from rlx.errors import UnsupportedError
from rlx.kernels.builder import KernelTarget, KernelText
from rlx.kernels.gpu import FAMILIES
from rlx.kernels.math import CPU_MATH
from rlx.targets.base import Target
from rlx.targets.vulkan.features import DEFAULT, Features, preset

__all__ = ["STAGES", "make_target"]

STAGES = ("spirv",)


class VulkanEmitter:
    """SPIR-V of kernels."""

    def __init__(self, features: Features) -> None:
        self.features = features

    def emit(self, kernels: list[KernelText], stage: str) -> bytes:
        from rlx.targets.vulkan.emit import to_spirv

        if stage == "spirv":
            return to_spirv(kernels, self.features)
        raise UnsupportedError(f"target vulkan has no stage {stage!r}; it has {', '.join(STAGES)}")

    def lines(self, kernel: KernelText) -> dict[str, list[int]]:
        return {}


@cache
def make_target(features: str | None = None) -> Target:
    """The Vulkan target for a device profile by name ("vulkan1.1+int64"); by default vulkan1.2.

    Raises DeviceError for an unknown profile.
    """
    found = preset(features or DEFAULT)
    return Target(
        name="vulkan",
        features=found,
        kernels=KernelTarget(
            name=found.name,
            vector_bytes=0,
            registers=0,
            math=CPU_MATH,
            frame="gpu",
            buffer_space="#spirv.storage_class<StorageBuffer>",
            stack_space="#spirv.storage_class<Function>",
            shared_space="#spirv.storage_class<Workgroup>",
            logical=True,
            index_bits=32,
            most_threads=found.most_threads,
            lacks=found.lacks,
            fused=False,
        ),
        families=FAMILIES,
        stages=STAGES,
        emitter=VulkanEmitter(found),
    )

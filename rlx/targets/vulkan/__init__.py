"""GPUs with Vulkan: SPIR-V, which the driver compiles to the machine's code.

    rlx-opt model.mlir --dispatch=common --emit=spirv --target=vulkan -o model.spv

Kernels run one invocation a point of their parallel range. How a launcher calls them is in
``rlx.targets.vulkan.emit``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rlx.targets.vulkan.features import DEFAULT, preset

if TYPE_CHECKING:
    from rlx.targets.base import Target

__all__ = ["make_target"]


@cache
def make_target(features: str | None = None) -> Target:
    """The Vulkan target for a device profile by name ("vulkan1.1+int64"); by default vulkan1.2.

    Raises DeviceError for an unknown profile.
    """
    # Imported here: drivers need nothing that compiles.
    from rlx.targets.gpu.target import gpu_target
    from rlx.targets.vulkan import emit

    found = preset(features or DEFAULT)
    return gpu_target(
        "vulkan",
        found,
        {
            "spirv": lambda kernels: emit.to_spirv(kernels, found),
        },
        buffer_space="#spirv.storage_class<StorageBuffer>",
        stack_space="#spirv.storage_class<Function>",
        shared_space="#spirv.storage_class<Workgroup>",
        logical=True,
        index_bits=32,
        most_threads=found.most_threads,
        most_buffers=found.most_buffers,
        lacks=found.lacks,
        fused=False,
        rounded_quotients=False,
    )

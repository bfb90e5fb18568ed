"""AMD GPUs: HSACO, an ELF file with the machine's code.

    rlx-opt model.mlir --dispatch=common --emit=asm --target=rocm:gfx90a

How a launcher calls kernels is in ``rlx.targets.rocm.emit``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx.targets.rocm import features
from rlx.targets.triton import maker

if TYPE_CHECKING:
    from rlx.codegen.triton.machine import TritonMachine
    from rlx.targets.base import Target

__all__ = ["make_target"]


def _made(found: features.Features, machine: TritonMachine | None) -> Target:
    # Imported here: drivers need nothing that compiles.
    from rlx.targets.gpu.target import gpu_target
    from rlx.targets.rocm import emit

    return gpu_target(
        "rocm",
        found,
        {
            "llvm": lambda kernels: emit.to_llvm(kernels, found).encode(),
            "asm": lambda kernels: emit.to_assembly(kernels, found).encode(),
            "hsaco": lambda kernels: emit.to_hsaco(kernels, found),
        },
        # The numbers of LLVM's address spaces for AMD GPUs: global, private.
        buffer_space="1",
        stack_space="5",
        shared_space="#gpu.address_space<workgroup>",
        most_threads=1024,
        shared_bytes=features.SHARED_BYTES,
        most_buffers=features.MOST_BUFFERS,
        has=frozenset([found.unit]),
        triton=machine,
    )


make_target = maker(features, _made)

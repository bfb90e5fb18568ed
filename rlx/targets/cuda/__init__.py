"""NVIDIA GPUs: PTX, which the driver compiles to the machine's code.

    rlx-opt model.mlir --dispatch=common --emit=ptx --target=cuda:sm_90

Kernels run one thread a point of their parallel range. How a launcher calls them is in
``rlx.targets.cuda.emit``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx.targets.cuda import features
from rlx.targets.triton import maker

if TYPE_CHECKING:
    from rlx.codegen.triton.machine import TritonMachine
    from rlx.targets.base import Target

__all__ = ["make_target"]


def _made(found: features.Features, machine: TritonMachine | None) -> Target:
    # Imported here: drivers need nothing that compiles.
    from rlx.targets.cuda import emit
    from rlx.targets.gpu.target import gpu_target

    return gpu_target(
        "cuda",
        found,
        {
            "llvm": lambda kernels: emit.to_llvm(kernels).encode(),
            "ptx": lambda kernels: emit.to_ptx(kernels, found).encode(),
        },
        shared_space="#gpu.address_space<workgroup>",
        most_threads=1024,
        shared_bytes=features.SHARED_BYTES,
        most_buffers=features.MOST_BUFFERS,
        has=found.instructions,
        triton=machine,
    )


make_target = maker(features, _made)

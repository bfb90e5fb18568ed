"""Fourier transforms on GPUs, whose rows fit the memory that a block shares."""

from __future__ import annotations

from rlx.kernels.fft import gpu
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.fft import kind_of, places_of, refused
from rlx.lowering.select.selector import Selector
from rlx.ops.fft.fft import Transform
from rlx.ops.fft.plan import scale_of

__all__ = ["SELECTOR"]


class GpuFft:
    """A single transform along the last axis, whose rows fit what any GPU's block may share."""

    def claim(self, region: Region) -> str | None:
        why = refused(region)
        if why is not None:
            return why
        node = region.nodes[0]
        assert isinstance(node, Transform)
        points = node.length if kind_of(node) == "complex" else node.length // 2
        if 2 * points * node.x.dtype.part.bytes > gpu.SHARED:
            return f"a row of {node.length} elements does not fit the memory that a block shares"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node, flat, result, rows = places_of(region, lowering)
        scale = scale_of(node.length, node.norm, inverse=node.inverse)
        kind, part = kind_of(node), node.x.dtype.part
        kernels = lowering.target.kernels
        config = gpu.choose(kernels, kind, part, node.length, node.inverse, scale)
        table = lowering.constant(("gpu_fft", config), lambda: gpu.table(config))
        launch = gpu.launch(config, rows, flat.strides[0])
        lowering.launch("gpu_fft", config, [flat, table, result], launch, region.flops)


SELECTOR: Selector = GpuFft()

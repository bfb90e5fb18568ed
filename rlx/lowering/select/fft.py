"""Fourier transforms whose length has small factors alone; others expand to such ones."""

from __future__ import annotations

import math

from rlx.kernels.fft import emit as fft
from rlx.kernels.fft.emit import FftConfig
from rlx.kernels.fft.plan import LARGEST_RADIX
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.fft.fft import Irfft, Rfft, Transform
from rlx.ops.fft.plan import prime_factors, scale_of

__all__ = ["SELECTOR", "kind_of", "places_of", "refused"]


def refused(region: Region) -> str | None:
    """Why it is no transform that a family runs; None if it is one."""
    node = region.nodes[0]
    if len(region.nodes) != 1 or not isinstance(node, Transform):
        return "it is no single transform"
    n = node.length
    if isinstance(node, Rfft | Irfft):
        if n % 2:
            return f"the length {n} of a real transform is odd"
        n //= 2
    if n < 2 or prime_factors(n)[-1] > LARGEST_RADIX:
        return f"the length {node.length} has no factors of which each is at most {LARGEST_RADIX}"
    return None


def kind_of(node: Transform) -> fft.Kind:
    """Which side of a transform is real."""
    if isinstance(node, Irfft):
        return "to_real"
    return "from_real" if isinstance(node, Rfft) else "complex"


def places_of(region: Region, lowering: Lowering) -> tuple[Transform, View, View, int]:
    """The node, its rows and its result, and the number of rows."""
    node = region.nodes[0]
    assert isinstance(node, Transform)
    source = lowering.view(region.leaves[node.x])
    rows, width = math.prod(source.shape[:-1]), source.shape[-1]
    flat = source.reshape((rows, width))
    # Reals are read in pairs, so that rows begin at even places.
    if flat is None or flat.strides[1] != 1 or (isinstance(node, Rfft) and flat.strides[0] % 2):
        flat = lowering.copied(source).reshape((rows, width))
    assert flat is not None, "a dense view takes any shape"
    return node, flat, lowering.result(region.op.results[0]), rows


class Fft:
    """A single transform along the last axis."""

    def claim(self, region: Region) -> str | None:
        return refused(region)

    def lower(self, region: Region, lowering: Lowering) -> None:
        node, flat, result, rows = places_of(region, lowering)
        scale = scale_of(node.length, node.norm, inverse=node.inverse)
        config = FftConfig(kind_of(node), node.x.dtype.part, node.length, node.inverse, scale)
        kernels = lowering.target.kernels
        table = lowering.constant(("fft", config), lambda: fft.table(config, kernels))
        launch = fft.launch(config, rows, flat.strides[0])
        lowering.launch("fft", config, [flat, table, result], launch, region.flops)


SELECTOR: Selector = Fft()

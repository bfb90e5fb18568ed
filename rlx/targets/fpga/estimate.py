"""What a design takes, before any tool has seen it, and how many elements an engine reads a cycle.

Cycles are exact: they are those of the loops. The rest is coarse: products and requantizations in
multipliers of the part where it has any, weights in its block memories, and a count of LUTs that is
a sum over adders, registers' inputs and small memories.
"""

from __future__ import annotations

from math import prod

from rlx.base.frozen import frozen
from rlx.errors import GraphError
from rlx.ir.builders import located
from rlx.targets.fpga.features import Fpga
from rlx.targets.fpga.verilog import Lanes, cycles_of, steps
from rlx.targets.integer.network import Network, Product

__all__ = ["PRESETS", "Estimate", "estimate", "fold"]

PRESETS = ("latency", "size")

MOST_LANES = 32
SHARE = 0.7
"""Of a part's LUTs that folding fills; place and route needs the rest."""

SMALL = 2048
"""Bits up to which a memory is made of LUTs."""


@frozen
class Estimate:
    """``cycles`` an image from start to done, exact; ``dsps``, ``luts`` and ``brams``, coarse;
    ``macs`` an image and ``weight_bits`` in all."""

    cycles: int
    macs: int
    weight_bits: int
    dsps: int
    luts: int
    brams: int


@located
def estimate(network: Network, part: Fpga, lanes: Lanes) -> Estimate:
    """Of a network on a part, with so many lanes a layer (1 unless given)."""
    dsps, luts, brams, weight_bits, macs = 0, 60, 0, 0, 0
    for layer in network.layers:
        own = lanes.get(layer.name, 1)
        stored = prod(layer.source) * 8
        luts += 40 + (stored // 16 if stored <= SMALL else 0)
        brams += 0 if stored <= SMALL else -(-stored // part.bram_bits)
        if isinstance(layer, Product):
            cost = _product(layer, part, own)
            dsps, luts, brams = dsps + cost[0], luts + cost[1], brams + cost[2]
            weight_bits += layer.weights.size * layer.weight_bits
            macs += prod(layer.size[:2]) * layer.weights.size
    return Estimate(cycles_of(network, lanes), macs, weight_bits, dsps, luts, brams)


def _product(layer: Product, part: Fpga, lanes: int) -> tuple[int, int, int]:
    bits, total, k = layer.weight_bits, layer.sum_bits, layer.multiplier_bits
    luts = 80 + lanes * (bits + 9) + 6 * total + 2 * (total + k)
    word = bits * lanes
    stored = layer.weights.size * bits
    brams = max(-(-stored // part.bram_bits), -(-word // (part.bram_bits // 512)))
    if stored <= SMALL:
        luts, brams = luts + stored // 16, 0
    if part.dsps:
        halves = -(-total // part.dsp_bits) * -(-(k + 1) // part.dsp_bits)
        return lanes + halves, luts, brams
    return 0, luts + lanes * (8 * bits + 8) + total * (k + 1), brams


def fold(network: Network, part: Fpga, preset: str) -> dict[str, int]:
    """The lanes of each product: for "size" one, for "latency" twice as many for the layer that
    takes longest, again and again, while the part has room. Lanes divide a layer's channels.
    GraphError for another preset."""
    if preset not in PRESETS:
        raise GraphError(f'fpga: the preset is "latency" or "size", found {preset!r}')
    lanes = {x.name: 1 for x in network.layers if isinstance(x, Product)}
    if preset == "size":
        return lanes
    growing = {x.name: x for x in network.layers if isinstance(x, Product)}
    while growing:
        name = max(growing, key=lambda n: steps(growing[n], lanes[n]))
        more = {**lanes, name: 2 * lanes[name]}
        channels = growing[name].weights.shape[3]
        found = estimate(network, part, more)
        fits = found.dsps <= part.dsps or not part.dsps
        if channels % more[name] or more[name] > MOST_LANES or not fits or (
            found.luts > SHARE * part.luts
        ):  # fmt: skip
            del growing[name]
        else:
            lanes = more
    return lanes

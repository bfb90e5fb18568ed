"""A network laid out for a part, in a folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlx.base.frozen import frozen
from rlx.errors import GraphError
from rlx.ir.builders import located, public
from rlx.ir.graph import Graph
from rlx.targets.fpga.estimate import Estimate, estimate, fold
from rlx.targets.fpga.features import Fpga, part_named
from rlx.targets.fpga.place import Placed, place
from rlx.targets.fpga.simulate import Simulated, simulate
from rlx.targets.fpga.verilog import memory_files, verilog
from rlx.targets.integer.network import Network, Product
from rlx.targets.integer.read import read_network

__all__ = ["Design", "export_fpga", "network"]


@public
@frozen
class Design:
    """What ``export_fpga`` has written: the network, the part, the lanes of each product, the
    folder and its estimate."""

    network: Network
    part: Fpga
    lanes: dict[str, int]
    folder: Path
    estimate: Estimate

    def simulate(self, codes: Any) -> Simulated:
        """Run i8 codes (``network.codes(images)``) through the design, cycle by cycle. It takes
        the extra fpga and a C++ compiler: ToolchainError without them."""
        return simulate(self.network, self.folder, codes, 2 * self.estimate.cycles)

    def place(self, frequency: float = 50.0, seed: int = 1) -> Placed:
        """Synthesise, place and route it, for a clock to aim at in MHz. It takes the extra
        fpga: ToolchainError without it, or if the design does not fit the part."""
        return place(self.folder, self.part, frequency, seed)


@located
def network(
    graph: Graph,
    params: Mapping[str, Any] | None = None,
    *,
    weight_bits: int = 8,
    multiplier_bits: int = 15,
) -> Network:
    """The integers of a graph that ``rlx.quant.quantize_graph(graph, params, "int8", calibration)``
    gave: dense layers, convolutions, their biases and relus, max pools, flattenings, and an argmax
    at the end.

    Weights of 4 or 2 ``weight_bits`` are rounded once more, each output by its own scale.
    Requantization is by multipliers of 15 bits, or of 31 (TensorFlow Lite's). Results are of 16
    bits, or the class. UnsupportedError names an op that has no hardware here, and says how to
    quantise a product of floats; GraphError for other bits, and for scales or biases that do not
    fit; ShapeError for images of unknown sizes.
    """
    return read_network(graph, params or {}, weight_bits, multiplier_bits, "fpga")


@located
def export_fpga(
    graph: Graph | Network,
    folder: str | os.PathLike[str],
    params: Mapping[str, Any] | None = None,
    *,
    target: str = "fpga:ecp5",
    preset: str = "latency",
    lanes: Mapping[str, int] | None = None,
    weight_bits: int = 8,
    multiplier_bits: int = 15,
) -> Design:
    """Write the SystemVerilog and the memories of a network, or of a graph that ``network`` takes,
    into a folder, which is made: ``model.sv`` and a ``.mem`` file a memory.

    ``target`` is a part ("fpga:ecp5-25k", "fpga:ecp5-85k", "fpga:ice40-up5k", "fpga:ice40-hx8k"),
    or a family's smallest ("fpga:ecp5", "fpga:ice40"). The preset "latency" has each product read
    as many elements a cycle as the part has room for, "size" one; ``lanes`` says it by layer
    ("layer0": 8). DeviceError for another target, GraphError for another preset, or lanes that are
    no power of two that divides a layer's channels, and what ``network`` raises.
    """
    part = part_named(target)
    if isinstance(graph, Network):
        found = graph
    else:
        found = network(graph, params, weight_bits=weight_bits, multiplier_bits=multiplier_bits)
    own = fold(found, part, preset)
    for name, n in (lanes or {}).items():
        layer = next((x for x in found.layers if x.name == name), None)
        channels = layer.weights.shape[3] if isinstance(layer, Product) else 0
        if not channels or n < 1 or channels % n or n & (n - 1):
            raise GraphError(
                f"fpga: {n} lanes of {name!r}: expected a product ({', '.join(own)}) and a power of"
                f" two that divides its channels ({channels})"
            )
        own[name] = n
    at = Path(folder)
    at.mkdir(parents=True, exist_ok=True)
    (at / "model.sv").write_text(verilog(found, own))
    for name, text in memory_files(found, own).items():
        (at / name).write_text(text)
    return Design(found, part, own, at, estimate(found, part, own))

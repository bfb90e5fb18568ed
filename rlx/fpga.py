"""Networks of integers for FPGAs: SystemVerilog, its simulation, and what it takes.

    found = rlx.quant.quantize_graph(graph, params, "int8", calibration)
    design = rlx.fpga.export_fpga(found.graph, "project", found.params, target="fpga:ecp5")
    results = design.simulate(design.network.codes(images))

``quantize_multiplier``, ``srdhm``, ``rdpot`` and ``requantize_q31`` are the arithmetic, exact.
"""

from __future__ import annotations

from rlx.targets.fpga.design import Design, export_fpga, network
from rlx.targets.fpga.estimate import Estimate, estimate
from rlx.targets.fpga.features import Fpga, part_named
from rlx.targets.fpga.place import Placed
from rlx.targets.fpga.simulate import Simulated
from rlx.targets.integer.arithmetic import quantize_multiplier, rdpot, requantize_q31, srdhm
from rlx.targets.integer.network import Network

__all__ = [
    "Design",
    "Estimate",
    "Fpga",
    "Network",
    "Placed",
    "Simulated",
    "estimate",
    "export_fpga",
    "network",
    "part_named",
    "quantize_multiplier",
    "rdpot",
    "requantize_q31",
    "srdhm",
]

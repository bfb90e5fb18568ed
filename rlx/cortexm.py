"""Networks of integers, and graphs of floats, for microcontrollers: programs without a heap for
Cortex-M.

found = rlx.quant.quantize_graph(graph, params, "int8", calibration)
firmware = rlx.cortexm.export_cortexm(found.graph, "project", found.params, target="cortexm:m4")
results = firmware.run(firmware.network.codes(images)).results
"""

from __future__ import annotations

from rlx.compiler.microcontroller import export_cortexm
from rlx.targets.cortexm.features import Core
from rlx.targets.cortexm.firmware import (
    Built,
    Firmware,
    FloatFirmware,
    FloatRan,
    Ran,
    network,
)
from rlx.targets.integer.network import Network

__all__ = [
    "Built", "Core", "Firmware", "FloatFirmware", "FloatRan", "Network", "Ran", "export_cortexm",
    "network",
]  # fmt: skip

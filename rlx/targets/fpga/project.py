"""The files of a network for a part, as ``rlx compile`` and artifacts have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx.ir.graph import Graph
from rlx.targets.fpga.estimate import estimate, fold
from rlx.targets.fpga.features import Fpga
from rlx.targets.fpga.verilog import memory_files, verilog
from rlx.targets.integer.network import Network
from rlx.targets.integer.read import read_network

__all__ = ["STAGES", "files"]

STAGES = {"verilog": "model.sv"}


def files(
    graph: Graph, params: Mapping[str, Any], features: Fpga
) -> tuple[Network, dict[str, str], str]:
    """The network of a graph of integers, its files by name, and what the part gives for it."""
    network = read_network(graph, params, 8, 15, "fpga")
    lanes = fold(network, features, "latency")
    found = estimate(network, features, lanes)
    report = (
        f"{features.name}: {found.cycles} cycles an image; about {found.luts} LUTs, {found.dsps}"
        f" multipliers and {found.brams} block memories"
    )
    return network, {"model.sv": verilog(network, lanes), **memory_files(network, lanes)}, report

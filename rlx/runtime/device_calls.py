"""What is asked of one graph and the devices, as functions: the methods of ``GraphDevices``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx.graph import Graph
from rlx.ops.builders import located
from rlx.runtime.graph_devices import DeviceBenchResult, GraphDevices
from rlx.runtime.policy import DevicePolicy

__all__ = [
    "benchmark_devices", "fastest_device_for", "fastest_device_for_with_policy",
    "graph_param_names", "warm_all",
]  # fmt: skip

Inputs = Mapping[str, Any]


@located
def graph_param_names(graph: Graph) -> list[str]:
    """The names of a graph's params, in order."""
    return [str(v.name) for v in graph.params]


@located
def benchmark_devices(runner: GraphDevices, inputs: Inputs, runs: int) -> list[DeviceBenchResult]:
    """``runner.benchmark``."""
    return runner.benchmark(inputs, runs)


@located
def warm_all(runner: GraphDevices) -> dict[str, str]:
    """``runner.warm_all``."""
    return runner.warm_all()


@located
def fastest_device_for(graph: Graph) -> str:
    """The device on which a graph is expected to be fastest; DeviceError if none can run it."""
    return GraphDevices(graph).fastest()


@located
def fastest_device_for_with_policy(graph: Graph, policy: DevicePolicy) -> str:
    """As ``fastest_device_for``, under a policy."""
    return GraphDevices(graph, policy).fastest()

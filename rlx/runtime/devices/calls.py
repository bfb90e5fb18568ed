"""Queries of one graph and the devices, as functions: the methods of ``GraphDevices``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx import knobs
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.runtime.backend import device_name, named_by
from rlx.runtime.devices.candidates import DeviceBenchResult, DeviceCandidate
from rlx.runtime.devices.graph_devices import Chain, GraphDevices
from rlx.runtime.devices.policy import DevicePolicy

__all__ = [
    "benchmark_devices", "device_chain_from_env", "device_report", "devices_for_with_policy",
    "fastest_device_for", "fastest_device_for_with_policy", "graph_param_names", "parse_device",
    "resolve_device", "resolve_device_chain", "warm_all",
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
def warm_all(runner: GraphDevices) -> tuple[str, ...]:
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


@located
def devices_for_with_policy(graph: Graph, policy: DevicePolicy | None = None) -> tuple[str, ...]:
    """The devices that can run a graph under a policy, in its order."""
    return GraphDevices(graph, policy).devices()


@located
def device_report(graph: Graph, policy: DevicePolicy | None = None) -> list[DeviceCandidate]:
    """A row for each device that a policy speaks of: whether it can run a graph, and why not."""
    return GraphDevices(graph, policy).report()


@located
def resolve_device(
    graph: Graph, hint: str | None = None, policy: DevicePolicy | None = None
) -> str:
    """The device of a graph: ``hint``, which must be able to run it (else DeviceError or
    UnsupportedError), or that of ``RLX_DEVICE`` if it is, or what the policy picks."""
    return GraphDevices(graph, policy).resolve(hint)


@located
def resolve_device_chain(
    graph: Graph, hint: Chain | None = None, policy: DevicePolicy | None = None
) -> str:
    """The first device of a chain that can run a graph: of ``hint``, else of ``RLX_DEVICE_CHAIN``,
    else as ``resolve_device``. DeviceFallbackError if none can."""
    return GraphDevices(graph, policy).resolve_chain(hint)


@located
def device_chain_from_env() -> tuple[str, ...]:
    """The devices of ``RLX_DEVICE_CHAIN``, in order; none if it is not set."""
    return named_by(knobs.device_chain)


@located
def parse_device(text: str) -> str:
    """The device of a name or an alias, in any case ("NVIDIA" is "cuda"); DeviceError for none."""
    return device_name(text)

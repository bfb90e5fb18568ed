"""What is asked of one graph and the devices, as functions: the methods of ``GraphDevices``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from rlx import knobs
from rlx.base.device_names import label
from rlx.errors import FaultError, GraphError, RlxError
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.runtime.backend import device_name, named_by
from rlx.runtime.devices.graph_devices import (
    DeviceBenchResult,
    DeviceCandidate,
    DeviceFallbackError,
    GraphDevices,
)
from rlx.runtime.devices.policy import DevicePolicy

__all__ = [
    "benchmark_devices", "device_chain_from_env", "device_chain_from_env_key", "device_from_env",
    "device_from_env_key", "device_label", "device_report", "devices_for_with_policy",
    "fastest_device_for", "fastest_device_for_with_policy", "graph_param_names", "parse_device",
    "parse_device_list", "resolve_device", "resolve_device_chain", "run_with_fallback", "warm_all",
]  # fmt: skip

Inputs = Mapping[str, Any]
R = TypeVar("R")


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


# -- under a policy ------------------------------------------------------------------------


@located
def devices_for_with_policy(graph: Graph, policy: DevicePolicy | None = None) -> tuple[str, ...]:
    """The available devices that run a graph and that a policy allows, in its order."""
    return GraphDevices(graph, policy).devices()


@located
def device_report(graph: Graph, policy: DevicePolicy | None = None) -> list[DeviceCandidate]:
    """Every device that a policy looks at, with what keeps it from running a graph; one is
    recommended, if any can."""
    return GraphDevices(graph, policy).report()


@located
def resolve_device(
    graph: Graph, hint: str | None = None, policy: DevicePolicy | None = None
) -> str:
    """The device that is asked for, else that of RLX_DEVICE if it can run the graph, else the one
    that is expected to be fastest; DeviceError or UnsupportedError if the hint cannot run it, or
    nothing can."""
    return GraphDevices(graph, policy).resolve(hint)


@located
def resolve_device_chain(
    graph: Graph, chain: str | Iterable[str], policy: DevicePolicy | None = None
) -> str:
    """The first device of a chain that can run a graph under a policy; DeviceFallbackError, which
    says of each why not, if none can."""
    asked = (chain,) if isinstance(chain, str) else tuple(chain)
    return GraphDevices(graph, policy).resolve_chain(asked)


@located
def run_with_fallback(
    graph: Graph, policy: DevicePolicy | None, chain: Iterable[str], run: Callable[[str], R]
) -> tuple[str, R]:
    """What ``run`` gives of the first device of a chain that can run a graph and does not fail, and
    which one that was. A GraphError or FaultError of ``run`` is raised at once: another device
    would fail alike. DeviceFallbackError if all failed."""
    viable = GraphDevices(graph, policy).devices()
    attempts: list[tuple[str, str]] = []
    for device in map(device_name, chain):
        if device not in viable:
            attempts.append((device, "not viable for this graph under policy"))
            continue
        try:
            return device, run(device)
        except (GraphError, FaultError):
            raise
        except RlxError as e:
            attempts.append((device, f"{type(e).__name__}: {e.message}"))
    raise DeviceFallbackError(attempts or [("", "empty fallback chain")])


# -- names and the environment -------------------------------------------------------------


@located
def parse_device(text: str) -> str:
    """The device of any name of it; DeviceError, which lists the names, for what is no device."""
    return device_name(text)


@located
def parse_device_list(text: str) -> tuple[str, ...]:
    """The devices of names between commas, semicolons or spaces, each once."""
    names = text.replace(",", " ").replace(";", " ").split()
    return tuple(dict.fromkeys(map(device_name, names)))


@located
def device_label(device: str) -> str:
    """A device's name for people: "GPU (wgpu)"."""
    return label(device_name(device))


@located
def device_from_env() -> str | None:
    """The device that RLX_DEVICE names; None where it is not set."""
    return device_from_env_key("RLX")


@located
def device_from_env_key(prefix: str) -> str | None:
    """As ``device_from_env``, by a variable that begins with another prefix."""
    return next(iter(named_by(knobs.device.under(prefix))), None)


@located
def device_chain_from_env() -> tuple[str, ...]:
    """The devices of RLX_DEVICE_CHAIN, in order; none where it is not set."""
    return device_chain_from_env_key("RLX")


@located
def device_chain_from_env_key(prefix: str) -> tuple[str, ...]:
    """As ``device_chain_from_env``, by a variable that begins with another prefix."""
    return named_by(knobs.device_chain.under(prefix))

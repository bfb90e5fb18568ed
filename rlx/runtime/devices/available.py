"""Devices that are here, the default among them, and what each can run."""

from __future__ import annotations

from collections.abc import Iterable

from rlx.base.device_names import DEVICE_PRIORITY, Device, label
from rlx.errors import DeviceError
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.ir.op import Op, op_class
from rlx.ops import BUILDERS
from rlx.runtime.backend import backend_for, device_name, devices, registered, why_not
from rlx.runtime.claims import claim_of, legal_graph
from rlx.runtime.devices.hardware import found_by_driver, is_software
from rlx.runtime.devices.refusals import refusal, refuses_all, runs_some
from rlx.targets import best_features
from rlx.targets.gpu.drivers import DRIVERS, opened
from rlx.targets.graph.devices import DEVICES

__all__ = [
    "DEVICE_PRIORITY",
    "Device",
    "available_apple_devices",
    "available_devices",
    "by_priority",
    "devices_for",
    "drain_device",
    "fastest_among",
    "fastest_device",
    "first_refused",
    "first_unsupported_op",
    "full_name",
    "is_available",
    "supports",
    "supports_graph",
    "supports_run_slots",
    "target_here",
    "why_unsupported",
]


def by_priority(names: Iterable[str]) -> tuple[str, ...]:
    """Devices, from the one that is expected to be fastest on."""

    def rank(device: str) -> tuple[bool, bool, int]:
        known = device in DEVICE_PRIORITY
        place = DEVICE_PRIORITY.index(device) if known else 0
        return is_software(device), not known, place

    return tuple(sorted(dict.fromkeys(names), key=rank))


@located
def available_devices() -> tuple[str, ...]:
    """The devices that a Session can be made for, by priority."""
    return by_priority(devices())


@located
def available_apple_devices() -> tuple[str, ...]:
    """Of them, those that only Apple makes."""
    return tuple(d for d in available_devices() if d in (Device.MLX, Device.METAL, Device.ANE))


@located
def is_available(device: str) -> bool:
    """Whether a Session can be made for a device; DeviceError for a name that is no device."""
    return not why_not(device)


@located
def full_name(device: str) -> str:
    """A device for people: ``"CPU (x86-64-v4)"`` says which code this machine's gets, and a GPU
    has the name that its driver gives it."""
    backend_for(device)
    device = device_name(device)
    if device == "cpu":
        from rlx.targets.cpu.features import selected

        return f"{label(device)} ({selected().name})"
    found = found_by_driver(device)
    return f"{label(device)} ({found.name})" if found is not None and found.name else label(device)


@located
def fastest_device() -> str:
    """The first of the available devices by priority."""
    return available_devices()[0]


@located
def fastest_among(candidates: Iterable[str]) -> str:
    """The first of ``candidates`` by priority, whether it is available or not, and the processor
    where there are none; DeviceError for what is no device. Of those that are available,
    ``fastest_among(filter(is_available, candidates))`` is the first."""
    return next(iter(by_priority(map(device_name, candidates))), "cpu")


@located
def supports(device: str, op: str | type[Op]) -> bool:
    """Whether a device runs an op on some of its element types; False if the device is not
    available. The op is given by class, by full name ("mir.gelu"), or by the name of its builder
    ("gelu"), of which the members of ``Activation``, ``BinaryOp`` and ``CmpOp`` are some.

    The interpreter runs every op, and a GPU those that come with no kernel of their own. A backend
    from outside runs what its ``supported_ops`` have, and what is defined by them; where it has
    none, it says what it runs as it compiles. GraphError for an unknown op.
    """
    cls = op_class(BUILDERS.get(op, op)) if isinstance(op, str) else op
    if not _has_way(device, cls):
        return False
    try:
        target = target_here(device)
    except DeviceError:  # a GPU that is here, and that RLX has no code for
        return False
    return target is None or not refuses_all(cls, target)


@located
def first_unsupported_op(device: str, graph: Graph) -> tuple[int, Op] | None:
    """The first node that a device does not run, or not on elements of its types or of those that
    it computes with inside, with its number; None if it runs them all."""
    found = first_refused(device, graph)
    return found and found[:2]


def first_refused(device: str, graph: Graph) -> tuple[int, Op, str] | None:
    """``first_unsupported_op``, and why."""
    nodes = graph.nodes()
    claim = _claim(device)
    if claim is not None:
        for number, node, op in legal_graph(graph, claim).offences:
            inside = "" if op == node.name else f" {op}, by which it is defined"
            return number, node, f"the backend's supported_ops have not{inside or ' it'}"
        return None
    try:
        target = target_here(device)
    except DeviceError as e:  # a GPU that is here, and that RLX has no code for
        return 0, nodes[0], e.message
    for number, node in enumerate(nodes):
        if not _has_way(device, type(node)):
            return number, node, "there is no kernel of it for this device"
        if target is not None and (why := refusal(node, target)):
            return number, node, why
    return None


def _has_way(device: str, cls: type[Op]) -> bool:
    """Whether a device runs an op on elements of some types."""
    from rlx.ops.control.control import Control

    device = device_name(device)
    if device == "cpu":
        return issubclass(cls, Control) or cls.runnable()
    claim = _claim(device)
    if claim is not None:
        return runs_some(cls, claim)
    return is_available(device) and not (device in {*DRIVERS, *DEVICES} and hasattr(cls, "kernel"))


def _claim(device: str) -> frozenset[str] | None:
    """What the backend of an available device says that it runs, if it says so."""
    return None if why_not(device) else claim_of(backend_for(device))


def target_here(device: str) -> str | None:
    """What graphs are compiled for on a GPU that is here, such as "gpu:webgpu+buffers16": the
    target with the features that its driver finds. None for another device, and one that is not
    available."""
    device = device_name(device)
    if device in DEVICES:
        return f"{device}:{best_features(device, ()).name}" if is_available(device) else None
    found = found_by_driver(device) if is_available(device) else None
    return found and f"{device}:{best_features(device, found.features).name}"


def why_unsupported(device: str, graph: Graph) -> str:
    """What of a graph an available device does not run, where, and why; "" if it runs all."""
    found = first_refused(device, graph)
    if found is None:
        return ""
    _, op, why = found
    types = dict.fromkeys(v.dtype.name for v in (*op.present, *op.results))
    file, line = op.location
    return f"it does not run {op.name} of {', '.join(types)} ({file}:{line}): {why}"


@located
def supports_graph(device: str, graph: Graph) -> bool:
    """Whether a device is available and runs every node of a graph."""
    return is_available(device) and first_unsupported_op(device, graph) is None


@located
def devices_for(graph: Graph) -> tuple[str, ...]:
    """The available devices that run a graph, by priority."""
    return tuple(d for d in available_devices() if supports_graph(d, graph))


@located
def supports_run_slots(device: str) -> bool:
    """Whether compiled graphs of a device have ``run_slots``: those of every device that there is a
    backend for have, whether it is here or not."""
    return registered(device_name(device))


@located
def drain_device(device: str) -> None:
    """Wait for what a device still does; DeviceError for what is no device. On the CPU a run
    returns when it is done, and a device that is not here does nothing: there is nothing to wait
    for."""
    driver = opened(device_name(device))
    if driver is not None:
        driver.sync()

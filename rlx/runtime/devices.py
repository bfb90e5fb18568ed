"""What devices there are, which one to take, and what each can run."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from rlx.errors import DeviceError
from rlx.graph import Graph
from rlx.ops.base import Op, op_class
from rlx.runtime.backend import PLANNED, backend_for, devices

__all__ = [
    "DEVICE_PRIORITY",
    "Device",
    "available_devices",
    "devices_for",
    "drain_device",
    "fastest_among",
    "fastest_device",
    "first_unsupported_op",
    "full_name",
    "is_available",
    "supports",
    "supports_graph",
    "supports_run_slots",
]

DEVICE_PRIORITY = (*PLANNED, "cpu", "interpret")
"""Devices from the one that is expected to be fastest on. Others that are registered come last."""

Device = StrEnum("Device", {name.upper(): name for name in DEVICE_PRIORITY})
"""The devices that RLX knows by name; those registered from outside are strings."""


def available_devices() -> tuple[str, ...]:
    """The devices that a Session can be made for, by priority."""
    known = [d for d in DEVICE_PRIORITY if d in devices()]
    return (*known, *(d for d in devices() if d not in known))


def is_available(device: str) -> bool:
    """Whether a Session can be made for a device; DeviceError for a name that is no device."""
    if device in devices():
        return True
    if device in DEVICE_PRIORITY:
        return False
    backend_for(device)  # raises: it lists what there is
    return True


def full_name(device: str) -> str:
    """A device for people: ``"CPU (x86-64-v4)"`` says which code this machine's gets."""
    backend_for(device)
    if device == "cpu":
        from rlx.targets.cpu.features import selected

        return f"CPU ({selected().name})"
    return "interpreter" if device == "interpret" else device


def fastest_device() -> str:
    """The first of the available devices by priority."""
    return available_devices()[0]


def fastest_among(candidates: Iterable[str]) -> str:
    """The first of ``candidates`` by priority that is available; DeviceError if none is."""
    given = tuple(candidates)
    for device in available_devices():
        if device in given:
            return device
    raise DeviceError(
        f"none of {', '.join(given) or 'no devices'} is available; "
        f"there are {', '.join(available_devices())}"
    )


def supports(device: str, op: str | type[Op]) -> bool:
    """Whether a device runs an op, given by class or full name ("mir.gelu"); False if the device is
    not available. The interpreter runs every op; what a backend from outside runs it says as it
    compiles. GraphError for an unknown op."""
    from rlx.ops.control import Control
    from rlx.ops.kinds import runnable

    cls = op_class(op) if isinstance(op, str) else op
    if device != "cpu":
        return is_available(device)
    return issubclass(cls, Control) or runnable(cls)


def first_unsupported_op(device: str, graph: Graph) -> tuple[int, Op] | None:
    """The first node that a device does not run, with its number; None if it runs them all."""
    for number, node in enumerate(graph.nodes()):
        if not supports(device, type(node)):
            return number, node
    return None


def supports_graph(device: str, graph: Graph) -> bool:
    """Whether a device is available and runs every node of a graph."""
    return is_available(device) and first_unsupported_op(device, graph) is None


def devices_for(graph: Graph) -> tuple[str, ...]:
    """The available devices that run a graph, by priority."""
    return tuple(d for d in available_devices() if supports_graph(d, graph))


def supports_run_slots(device: str) -> bool:
    """Whether compiled graphs of a device have ``run_slots``; all that are available do."""
    return is_available(device)


def drain_device(device: str) -> None:
    """Wait for what a device still does. A run returns when it is done, so that there is nothing
    to wait for; DeviceError for a device that is not available."""
    backend_for(device)

"""Hardware discovery: what drivers find of a device, or why it cannot be used."""

from __future__ import annotations

from rlx.base.device_names import KNOWN
from rlx.targets.gpu.drivers import DRIVERS, Probe, probe
from rlx.targets.graph import devices as whole

__all__ = ["found_by_driver", "is_software", "why_missing"]


def found_by_driver(device: str) -> Probe | None:
    """What a driver of RLX's finds for a device; None if it has no driver for it."""
    return probe(device) if device in DRIVERS else None


def is_software(device: str) -> bool:
    """Whether a device is this machine's processor by way of a GPU's API."""
    if device in whole.DEVICES:
        return whole.is_software(device)
    found = found_by_driver(device)
    return found is not None and found.software


def why_missing(device: str) -> str:
    """Why a device that RLX knows cannot be used, where no backend is registered for it."""
    found = found_by_driver(device)
    if found is None:
        known = KNOWN.get(device)
        return known.needs if known else "no driver here runs what is compiled for it"
    if not found.found:
        return found.why
    return f"its driver finds {found.name}, but this build generates no code for it"

"""Candidate devices for a graph."""

from __future__ import annotations

from rlx.base.frozen import frozen

__all__ = ["DeviceBenchResult", "DeviceCandidate"]


@frozen
class DeviceCandidate:
    """What is known of a device for a graph; ``blocker`` says why it cannot run it, if it cannot.
    One of the candidates is ``recommended``."""

    device: str
    label: str
    available: bool
    registered: bool
    supports_graph: bool
    recommended: bool
    blocker: str = ""


@frozen
class DeviceBenchResult:
    """What a graph took on a device, in nanoseconds: its compile, and the median of its runs."""

    device: str
    label: str
    compile_ns: int
    median_exec_ns: int

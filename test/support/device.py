"""Graphs on the software devices of GPU APIs, and on stand-ins for devices that need a system or
hardware."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import rlx
from rlx.runtime import backend
from rlx.runtime.devices.gpu_executable import DeviceBackend
from rlx.targets.gpu import drivers
from support import cuda_emulator, web
from support.drivers import STAND_INS, stand_in

__all__ = ["APIS", "compiled", "device_of", "session"]

APIS = ("opencl", "gpu", "vulkan", "opengl", "cuda", *STAND_INS)
"""The targets whose graphs run here, on a software device or a stand-in."""


def session(api: str) -> rlx.Session:
    """A session on the device of an API; without one the test is skipped."""
    if api == "cuda":
        return cuda_emulator.session()
    if api in drivers.DRIVERS and api not in STAND_INS:
        found = drivers.probe(api)
        if not found.found:
            pytest.skip(f"{api}: {found.why} (or run `make drivers`)")
    return rlx.Session(device_of(api))


def compiled(api: str, graph: rlx.Graph, **options: Any) -> rlx.CompiledGraph:
    """A graph compiled for an API and loaded on its device, as ``session`` says."""
    if api == "cuda":
        return cuda_emulator.compiled(graph, **options)
    return session(api).compile(graph, **options)


def device_of(api: str) -> str:
    """The device that runs what is compiled for a target: its own, or its stand-in under the name
    that it is registered as, for tests alone."""
    if api == web.NAME:
        return _registered(api, web.WebBackend)
    if api not in STAND_INS:
        return api
    stand_in(api)  # skips where there is none
    return _registered(api, lambda: DeviceBackend(api, _open(api)))


def _registered(api: str, factory: Callable[[], Any]) -> str:
    name = f"stand-in for {api}"
    if not backend.registered(name):
        backend.register_backend(name, factory)
    return name


@cache
def _open(api: str) -> Any:
    return stand_in(api)()

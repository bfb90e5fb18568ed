"""Graphs on the software devices of GPU APIs, and on stand-ins for devices that need a system or
hardware."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import pytest

import rlx
from rlx.runtime import backend
from rlx.runtime.device import DeviceBackend
from rlx.targets.gpu import drivers
from support import cuda_emulator
from support.drivers import STAND_INS, stand_in

__all__ = ["APIS", "compiled", "session", "standing_in"]

APIS = ("opencl", "gpu", "vulkan", "opengl", "cuda", *STAND_INS)
"""The targets whose graphs run here, on a software device or a stand-in."""


def session(api: str) -> rlx.Session:
    """A session on the device of an API; without one the test is skipped."""
    if api == "cuda":
        return cuda_emulator.session()
    if api not in STAND_INS:
        found = drivers.probe(api)
        if not found.found:
            pytest.skip(f"{api}: {found.why} (or run `make drivers`)")
    with standing_in(api):
        return rlx.Session(api)


def compiled(api: str, graph: rlx.Graph, **options: Any) -> rlx.CompiledGraph:
    """A graph compiled for an API and loaded on its device, as ``session`` says."""
    if api == "cuda":
        return cuda_emulator.compiled(graph, **options)
    return session(api).compile(graph, **options)


@contextmanager
def standing_in(api: str) -> Generator[None]:
    """Meanwhile what stands for the device of a target is that device, if something does."""
    found: dict[str, Any] = {}
    if api in STAND_INS:
        driver = _open(api)
        found[api] = backend.Registered(lambda: DeviceBackend(api, driver), lambda: "")
    with mock.patch.dict(backend._registry, found):
        yield


@cache
def _open(api: str) -> Any:
    return stand_in(api)()  # skips where there is none

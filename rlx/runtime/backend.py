"""Backends: what a device must offer, and the registry in which they are found by name.

A backend can be registered from outside:

    rlx.register_backend("mydevice", lambda: MyBackend())
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from rlx.errors import DeviceError, GraphError, did_you_mean
from rlx.graph import Graph
from rlx.ops.location import caller
from rlx.runtime.artifact import Artifact
from rlx.runtime.executable import Executable

__all__ = ["Backend", "Loaded", "Weights", "backend_for", "devices", "register_backend"]


class Weights(Protocol):
    """What executables hold their params in; those of one graph may share it."""

    def set_param(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Use an array of the param's type and shape as its value from the next call on."""
        ...


class Backend(Protocol):
    """Compiles and loads graphs for one device."""

    name: str

    def load(self, graph: Graph, options: Mapping[str, Any], shared: Sequence[Any]) -> Executable:
        """A graph with all dims bound, compiled and loaded. ``shared`` are the weights of its
        executables at other bindings, for the new one to use if they fit it."""
        ...

    def set_threads(self, n: int) -> None:
        """Set the number of threads that runs may use."""
        ...


class CpuBackend:
    """The host's processor."""

    name = "cpu"

    def load(self, graph: Graph, options: Mapping[str, Any], shared: Sequence[Any]) -> Executable:
        with _no_collections():
            from rlx.lowering.compilation import Options
            from rlx.runtime.cache.artifacts import find_or_compile
            from rlx.targets.cpu import make_target
            from rlx.targets.cpu.features import require, selected

            # RLX_CPU may name another machine, whose code would not run here.
            features, chosen = require(selected()).name, Options.of(options)
            artifact, report = find_or_compile(
                graph, ("cpu", features), chosen, lambda: make_target(features)
            )
        return Executable(artifact, report, shared, chosen.donate)

    def set_threads(self, n: int) -> None:
        from rlx.runtime import _native

        try:
            _native.set_threads(n)
        except _native.Error as e:
            raise GraphError(f"threads: found {e.found}, expected {e.expected}", caller()) from None


@contextmanager
def _no_collections() -> Generator[None]:
    """Keep Python's cyclic garbage collector from running. A compile makes many objects and drops
    few before its end; walking over them again and again takes a tenth of a cold start."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Loaded(CpuBackend):
    """The host's processor, with what is to be run compiled already."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact

    def load(self, graph: Graph, options: Mapping[str, Any], shared: Sequence[Any]) -> Executable:
        return Executable(self.artifact, None, shared)


class InterpreterBackend:
    """The reference interpreter as a device: slow, plain, and right."""

    name = "interpret"

    def load(self, graph: Graph, options: Mapping[str, Any], shared: Sequence[Any]) -> Any:
        from rlx.runtime.interpreted import Interpreted

        return Interpreted(graph, shared, options.get("donate", ()))

    def set_threads(self, n: int) -> None:
        """The interpreter is single-threaded; any number is accepted."""


_registry: dict[str, Callable[[], Backend]] = {"cpu": CpuBackend, "interpret": InterpreterBackend}

PLANNED = ("cuda", "rocm", "metal", "gpu", "vulkan", "directx", "opengl", "webgpu")
"""Devices of the design that have no backend yet, by the speed that is expected of them."""


def register_backend(device: str, factory: Callable[[], Backend]) -> None:
    """Make a device available under a name; a name that is taken is a DeviceError."""
    if device in _registry:
        raise DeviceError(f"a backend for {device!r} is already registered")
    _registry[device] = factory


def devices() -> tuple[str, ...]:
    """The names of the registered devices."""
    return tuple(_registry)


def backend_for(device: str) -> Backend:
    """The backend of a device; DeviceError if it is unknown or unavailable."""
    if isinstance(device, str) and device in _registry:
        return _registry[device]()
    listed = ", ".join(_registry)
    if device in PLANNED:
        raise DeviceError(
            f"device {device!r} is not available: no backend is registered; use one of {listed}"
        )
    raise DeviceError(
        f"unknown device {device!r}{did_you_mean(device, [*_registry, *PLANNED])}; "
        f"available: {listed}"
    )

"""The drivers by name: which of them find a device here, and those that are open."""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import threading
from functools import cache
from typing import TYPE_CHECKING

from rlx import knobs
from rlx.base.frozen import frozen
from rlx.errors import DeviceError, did_you_mean

if TYPE_CHECKING:
    from rlx.targets.gpu.driver import Driver

__all__ = [
    "DRIVERS", "DriverRow", "Probe", "close_drivers", "open_driver", "opened", "probe",
    "shared_driver",
]  # fmt: skip


@frozen
class DriverRow:
    """What makes the driver of an API, as "module:name". ``launches`` False says that RLX makes
    kernels for the API and has no driver to launch them: then that name raises DeviceError, and
    the API is no device of sessions."""

    opener: str
    launches: bool = True


DRIVERS = {
    "vulkan": DriverRow("rlx.targets.vulkan.launch:VulkanDriver"),
    "gpu": DriverRow("rlx.targets.gpu.launch:WebGpuDriver"),
    "opencl": DriverRow("rlx.targets.opencl.launch:OpenCLDriver"),
    "metal": DriverRow("rlx.targets.metal.launch:MetalDriver"),
    "opengl": DriverRow("rlx.targets.opengl.launch:OpenGLDriver"),
    "cuda": DriverRow("rlx.targets.cuda.launch:CudaDriver"),
    "rocm": DriverRow("rlx.targets.rocm.launch:RocmDriver"),
    "directx": DriverRow("rlx.targets.directx.launch:open_directx", launches=False),
}
"""The drivers by API, in the order in which devices are listed."""


@frozen
class Probe:
    """What a driver finds here: a device by its name, or ``why`` there is none. ``software`` says
    that the device is this machine's processor, ``features`` what it has, as its driver does."""

    api: str
    name: str = ""
    software: bool = False
    why: str = ""
    features: frozenset[str] = frozenset()

    @property
    def found(self) -> bool:
        """Whether there is a device."""
        return not self.why


_shared: dict[str, Driver] = {}
_lock = threading.RLock()
_user = 0
"""The process that was the first to call the library of any API: this one, or what it was forked
off. Such libraries have threads and connections that a child has not, and several APIs can lie
on one: then a child's own device hangs as the process ends, by lavapipe's exit handler."""


def _leave_to_the_parent() -> None:
    """In a new child: what the drivers hold is never let go of, since libraries that free it would
    wait for threads that are not here."""
    global _lock  # noqa: PLW0603 -- a thread that held it is not here either
    _lock = threading.RLock()
    for driver in _shared.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(driver))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _forked(what: str) -> DeviceError:
    from rlx.targets.gpu.driver import FORKED  # here: the table alone needs no driver

    return DeviceError(FORKED.format(what))


def open_driver(api: str) -> Driver:
    """A new driver of an API, for its device here; DeviceError says why if there is none."""
    if api not in DRIVERS:
        raise DeviceError(
            f"no driver is called {api!r}{did_you_mean(api, DRIVERS)}; there are"
            f" {', '.join(DRIVERS)}"
        )
    global _user  # noqa: PLW0603
    _user = _user or os.getpid()
    if _user != os.getpid():
        raise _forked(f"{api}: libraries of GPUs were called")
    module, _, name = DRIVERS[api].opener.partition(":")
    with _lock:  # PoCL ends a process in which two threads begin to use it at once
        return getattr(importlib.import_module(module), name)()


def shared_driver(api: str) -> Driver:
    """The driver that this process has open for an API; a new one if the last lost its device."""
    with _lock:
        found = _shared.get(api)
        if found is not None:
            found.check_process()
        if found is None or found.lost or found.closed:
            if found is not None:
                found.close()
            found = _shared[api] = open_driver(api)
        return found


def opened(api: str) -> Driver | None:
    """The driver that this process has open for an API, if it has one."""
    return _shared.get(api)


def probe(api: str) -> Probe:
    """Whether an API has a device here. A process asks once for each value of RLX_GPU."""
    found = _probe(api, knobs.gpu.get())
    if found.found and _user != os.getpid():
        return Probe(api, why=_forked(f"{api} ({found.name}): it was opened").message)
    return found


@cache
def _probe(api: str, wanted: str) -> Probe:
    try:
        driver = open_driver(api)
    except DeviceError as e:
        return Probe(api, why=e.message)
    try:
        return Probe(api, driver.name, driver.software, features=driver.features)
    finally:
        driver.close()


@atexit.register
def close_drivers() -> None:
    """Close the drivers that are open: their libraries may not outlive the process's end."""
    with _lock:
        for driver in _shared.values():
            driver.close()
        _shared.clear()

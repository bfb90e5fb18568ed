"""The driver interface: buffers, kernels and launches of a device, and the driver that owns them.

    driver = open_driver("vulkan")
    x, y = driver.allocate(4096), driver.allocate(4096)
    driver.write(x, 0, data)
    double = driver.load(Kernel("double", spirv, (64, 1, 1), (Binding("f32"), Binding("f32"))))
    launch = DeviceLaunch(double, (16, 1, 1), ((x, 0, 4096), (y, 0, 4096)))
    work = driver.record([launch])   # once
    driver.run(work)                 # as often as wanted
    data = driver.read(y, 0, 4096)

``rlx.targets.<name>.launch`` has the driver of an API. It says how to do each thing; what is the
same for all is here: checks, locks, lifetimes, and what happens after a failure.

The work of a driver is in order: a launch sees what earlier launches, writes and runs wrote.
``run`` need not wait for the device; ``read`` and ``sync`` do. Every method may be called from any
thread; calls take turns. A driver is its process's own: what was forked off cannot use it.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rlx.errors import DeviceError, DeviceLostError, OutOfMemoryError, ToolchainError
from rlx.targets.gpu.work import (
    Binding,
    Borrowed,
    Buffer,
    DeviceLaunch,
    Handle,
    Kernel,
    Limits,
    Recording,
    Resource,
)
from rlx.types import DTYPES

__all__ = [
    "FORKED",
    "Binding",
    "Buffer",
    "DeviceLaunch",
    "Driver",
    "Handle",
    "Kernel",
    "Limits",
    "Recording",
    "Resource",
]  # fmt: skip


FORKED = (
    "{} before this process was forked off, and a device does not go along; start"
    ' processes by multiprocessing\'s "spawn", or fork before a device is looked for'
)
"""Why a driver is of no use, to be formatted with what happened."""


class Driver(ABC):
    """One device through one API. Subclasses implement the methods with a leading underscore.

    ``name`` is the device's own name, ``limits`` what launches may ask, ``features`` what it can do
    beyond every device of its kind, in the words of ``rlx.targets.<api>.features``; ``software``
    says that the device is this machine's processor.
    """

    api: str
    name: str
    limits: Limits
    features: frozenset[str] = frozenset()
    software = False

    def __init__(self) -> None:
        self.lock, self.process = threading.RLock(), os.getpid()
        self.lost: str = ""
        self.closed = False
        self.allocated = 0
        self._live: weakref.WeakSet[Resource] = weakref.WeakSet()
        self._dropped: deque[tuple[str, Any]] = deque()
        self._modules: dict[bytes, list[Any]] = {}

    # -- memory ----------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Buffer:
        """New memory of the device. OutOfMemoryError if it has not got as much."""
        if nbytes < 0 or nbytes > self.limits.buffer:
            raise OutOfMemoryError(
                f"{self}: a buffer of {nbytes} bytes was asked for;"
                f" the device's largest has {self.limits.buffer}"
            )
        size = max(16, -(-nbytes // 16) * 16)  # an empty binding has bytes too
        with self._call():
            try:
                raw = self._allocate(size)
            except OutOfMemoryError as e:
                raise OutOfMemoryError(
                    f"{self}: no memory for a buffer of {nbytes} bytes beside the"
                    f" {self.allocated} bytes that this process has there ({e.message});"
                    " free buffers, or take smaller batches"
                ) from None
            self.allocated += size
            return self._keep(Buffer(self, (raw, size), nbytes))

    def borrow(self, address: int, nbytes: int, release: Callable[[], None]) -> Buffer:
        """Memory of the device that somebody else owns, for APIs whose memory has addresses, as a
        buffer. ``release`` is called once the device is done with it."""
        with self._call():
            return self._keep(Borrowed(self, (address, release), nbytes))

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Copy the bytes of ``data`` (bytes, or a contiguous array) into a buffer."""
        source = memoryview(data).cast("B")
        with self._call():
            self._check_range(buffer, offset, len(source), "write")
            if len(source):
                self._write(buffer.raw[0], offset, source)

    def read(self, buffer: Buffer, offset: int, nbytes: int) -> bytes:
        """Bytes of a buffer, once all that was run before is done."""
        found = bytearray(nbytes)
        self.read_into(buffer, offset, found)
        return bytes(found)

    def read_into(self, buffer: Buffer, offset: int, target: Any) -> None:
        """As ``read``, into the memory of a contiguous writable array."""
        out = memoryview(target).cast("B")
        with self._call():
            self._check_range(buffer, offset, len(out), "read")
            if len(out):
                self._read(buffer.raw[0], offset, out)

    # -- kernels and runs ------------------------------------------------------------------

    def load(self, kernel: Kernel) -> Handle:
        """A kernel ready to be launched. ToolchainError, with what the driver's compiler said, if
        it refuses the code; DeviceError if the kernel asks for more than ``limits``."""
        with self._call():
            self._check_kernel(kernel)
            module = self._modules.get(kernel.code)
            if module is None:
                module = self._modules[kernel.code] = [self._load_module(kernel), 0]
            module[1] += 1
            try:
                raw = self._load(module[0], kernel)
            except BaseException:
                self._leave_module(kernel.code)
                raise
            return self._keep(Handle(self, (raw, kernel.code), kernel))

    def record(self, launches: Sequence[DeviceLaunch]) -> Recording:
        """Launches to be run in order, each seeing what those before wrote; DeviceError if one does
        not fit its kernel or the device."""
        with self._call():
            for launch in launches:
                self._check_launch(launch)
            kept = tuple(x for x in launches if 0 not in x.groups)
            return self._keep(Recording(self, self._record(kept), tuple(launches)))

    def run(self, work: Recording | Sequence[DeviceLaunch]) -> None:
        """Run launches in order. What is to be run often is recorded once."""
        if not isinstance(work, Recording):
            with self.record(work) as recording:
                return self.run(recording)
        with self._call():
            self._check_own(work, "run")
            self._run(work.raw)
        return None

    def sync(self) -> None:
        """Wait until all that was run is done."""
        with self._call():
            self._sync()

    def close(self) -> None:
        """Free all that the driver holds, and the driver. Later calls of it are DeviceErrors."""
        if self.process != os.getpid():
            return  # the device is the parent's, and so is what another thread of it may hold
        with self.lock:
            if self.closed:
                return
            for resource in list(self._live):
                self.drop(resource)
            if not self.lost:
                self._reap()
            self.closed = True
            self._close()

    def __str__(self) -> str:
        return f"{self.api} ({self.name})"

    # -- what an API implements ------------------------------------------------------------

    def _enter(self) -> None:  # noqa: B027 (most have nothing to do)
        """Make the device that of this thread, where an API has one for each."""

    def _exit(self) -> None:  # noqa: B027
        """Let other threads have the device, where one thread at a time can."""

    @abstractmethod
    def _allocate(self, nbytes: int) -> Any: ...

    @abstractmethod
    def _free(self, raw: Any) -> None: ...

    @abstractmethod
    def _write(self, raw: Any, offset: int, data: memoryview) -> None: ...

    @abstractmethod
    def _read(self, raw: Any, offset: int, out: memoryview) -> None: ...

    @abstractmethod
    def _load_module(self, kernel: Kernel) -> Any: ...

    @abstractmethod
    def _free_module(self, module: Any) -> None: ...

    @abstractmethod
    def _load(self, module: Any, kernel: Kernel) -> Any: ...

    @abstractmethod
    def _unload(self, raw: Any) -> None: ...

    @abstractmethod
    def _record(self, launches: tuple[DeviceLaunch, ...]) -> Any: ...

    @abstractmethod
    def _forget(self, raw: Any) -> None: ...

    @abstractmethod
    def _run(self, raw: Any) -> None: ...

    @abstractmethod
    def _sync(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...

    # -- lifetimes -------------------------------------------------------------------------

    @contextmanager
    def _call(self) -> Generator[None]:
        """One call: alone, on a driver that is open and has its device."""
        self.check_process()
        with self.lock:
            if self.closed and not self.lost:
                raise DeviceError(f"{self}: the driver was closed; open another")
            try:
                if not self.lost:
                    self._enter()
                    self._reap()
                if self.lost:
                    raise DeviceLostError(
                        f"{self}: the device was lost ({self.lost}); open it again by a new"
                        " Session, and compile again"
                    )
                yield
            except DeviceLostError as e:
                self.lost = self.lost or e.message
                raise
            finally:
                if not self.closed:
                    self._exit()

    def check_process(self) -> None:
        """DeviceError in a process that was forked off the one that opened the driver."""
        if self.process != os.getpid():
            raise DeviceError(FORKED.format(f"{self}: it was opened"))

    def _keep(self, resource: Any) -> Any:
        self._live.add(resource)
        return resource

    def drop(self, resource: Resource) -> None:
        """Take what a resource stands for, to be freed by a later call. This never waits."""
        raw, resource.raw = resource.raw, None
        if raw is not None and not self.closed:
            self._dropped.append((resource.what, raw))

    def free(self, resource: Resource) -> None:
        """Free a resource, and the recordings that need it, once the device is done with it."""
        if self.process != os.getpid():
            return
        with self.lock:
            for other in list(self._live):
                if isinstance(other, Recording) and other.needs(resource):
                    self.drop(other)
            self.drop(resource)
            if not self.closed and not self.lost:
                try:
                    self._reap()
                finally:
                    self._exit()

    def _reap(self) -> None:
        """Free what was dropped, after the device is done with it."""
        if not self._dropped:
            return
        try:
            self._enter()
            self._sync()
        except DeviceLostError as e:
            self.lost = e.message
            return
        # Others may drop more meanwhile: that is for the next time.
        found = [self._dropped.popleft() for _ in range(len(self._dropped))]
        frees: dict[str, Callable[[Any], None]] = {
            "recording": self._forget,
            "kernel": self._free_kernel,
            "buffer": self._free_buffer,
            "borrowed buffer": lambda raw: raw[1](),
        }
        for what, raw in sorted(found, key=lambda x: list(frees).index(x[0])):
            frees[what](raw)

    def _free_buffer(self, raw: tuple[Any, int]) -> None:
        self._free(raw[0])
        self.allocated -= raw[1]

    def _free_kernel(self, raw: tuple[Any, bytes]) -> None:
        self._unload(raw[0])
        self._leave_module(raw[1])

    def _leave_module(self, code: bytes) -> None:
        module = self._modules[code]
        module[1] -= 1
        if module[1] == 0:
            del self._modules[code]
            self._free_module(module[0])

    # -- checks ----------------------------------------------------------------------------

    def _check_own(self, resource: Resource, what: str) -> None:
        if resource.driver is not self:
            raise DeviceError(
                f"{self}: cannot {what} a {resource.what} of another driver, {resource.driver}"
            )
        if resource.closed:
            raise DeviceError(
                f"{self}: cannot {what} a {resource.what} that was freed, or needs what was"
            )

    def _check_range(self, buffer: Buffer, offset: int, nbytes: int, what: str) -> None:
        self._check_own(buffer, what)
        if offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
            raise DeviceError(
                f"{self}: cannot {what} bytes {offset} to {offset + nbytes} of a buffer of"
                f" {buffer.nbytes} bytes"
            )

    def _check_kernel(self, kernel: Kernel) -> None:
        limits, size = self.limits, kernel.workgroup
        for binding in kernel.bindings:
            if binding.dtype not in DTYPES:
                raise ToolchainError(f"kernel {kernel.name}: no dtype is called {binding.dtype!r}")
        total = size[0] * size[1] * size[2]
        large = any(n < 1 or n > most for n, most in zip(size, limits.workgroup, strict=True))
        if large or total > limits.invocations:
            raise DeviceError(
                f"{self}: kernel {kernel.name} has groups of {size} invocations; at most"
                f" {limits.workgroup} and {limits.invocations} in all are possible"
            )
        if kernel.shared > limits.shared:
            raise DeviceError(
                f"{self}: kernel {kernel.name} has groups that share {kernel.shared} bytes; at most"
                f" {limits.shared} are possible"
            )
        count = len(kernel.bindings) + (kernel.params > 0) + kernel.spare
        if count > limits.bindings:
            raise DeviceError(
                f"{self}: kernel {kernel.name} binds {count} buffers; at most"
                f" {limits.bindings} are possible"
            )

    def _check_launch(self, launch: DeviceLaunch) -> None:
        self._check_own(launch.handle, "launch")
        kernel, limits = launch.handle.kernel, self.limits
        who = f"{self}: kernel {kernel.name}"
        if any(n < 0 or n > most for n, most in zip(launch.groups, limits.groups, strict=True)):
            raise DeviceError(
                f"{who} is launched on {launch.groups} groups; at most {limits.groups} are possible"
            )
        if len(launch.buffers) != len(kernel.bindings):
            raise DeviceError(
                f"{who} has {len(kernel.bindings)} bindings, found {len(launch.buffers)} buffers"
            )
        if len(launch.params) != 4 * kernel.params:
            raise DeviceError(
                f"{who} has {kernel.params} params of 4 bytes, found {len(launch.params)} bytes"
            )
        for i, (buffer, offset, nbytes) in enumerate(launch.buffers):
            self._check_range(buffer, offset, nbytes, "bind")
            if offset % limits.alignment:
                raise DeviceError(
                    f"{who}, binding {i}: offset {offset} is no multiple of {limits.alignment}"
                )
            if nbytes > limits.binding:
                raise DeviceError(
                    f"{who}, binding {i}: {nbytes} bytes; at most {limits.binding} can be bound"
                )

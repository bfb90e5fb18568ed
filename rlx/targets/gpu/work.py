"""Work for a driver: kernels and launches; and the handles that it gives back and owns."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from rlx.base.frozen import frozen

if TYPE_CHECKING:
    from rlx.targets.gpu.driver import Driver

__all__ = [
    "Access",
    "Binding",
    "Borrowed",
    "Buffer",
    "DeviceLaunch",
    "Handle",
    "Kernel",
    "Limits",
    "Recording",
    "Resource",
    "Triple",
]

Access = Literal["read", "read_write"]
Triple = tuple[int, int, int]
Range = tuple["Buffer", int, int]
"""A buffer, the first byte, and the number of bytes."""


@frozen
class Limits:
    """What one launch may ask of a device. Sizes are in bytes.

    ``groups`` is the most work groups in x, y and z, ``workgroup`` the most invocations of a group
    in each, and ``invocations`` in all three together. ``binding`` is the largest range that a
    launch may bind, ``bindings`` how many (the params count as one), ``alignment`` what their
    offsets are multiples of, ``shared`` the memory that a group may share, ``buffer`` the largest
    allocation.
    """

    groups: Triple
    workgroup: Triple
    invocations: int
    shared: int
    binding: int
    bindings: int
    alignment: int
    buffer: int


@frozen
class Binding:
    """One buffer of a kernel: the element type by name, and what the kernel does with it.

    WebGPU refuses a launch that binds one buffer for both kinds of access, whatever the ranges: a
    kernel that is run on ranges of one arena declares "read_write" for all.
    """

    dtype: str
    access: Access = "read_write"


@frozen
class Kernel:
    """A kernel as its driver takes it.

    ``code`` is the file that has it under ``name`` (SPIR-V, PTX or a cubin, a HSACO, OpenCL C,
    WGSL; the same bytes for several kernels are loaded once), ``workgroup`` the invocations of a
    group. Binding ``i`` of the code (argument ``i``) is ``bindings[i]``; the one after the last is
    a read-only buffer of ``params`` 32-bit integers, if there are any. ``spare`` null pointers
    follow, and a group is given ``shared`` bytes of dynamic shared memory: what Triton's kernels
    ask for.
    """

    name: str
    code: bytes = field(repr=False)
    workgroup: Triple
    bindings: tuple[Binding, ...]
    params: int = 0
    shared: int = 0
    spare: int = 0


class Resource:
    """Something that a driver holds: freed by ``close``, or when nothing refers to it any more.

    ``raw`` is the driver's own.
    """

    def __init__(self, driver: Driver, raw: Any, what: str) -> None:
        self.driver, self.raw, self.what = driver, raw, what

    @property
    def closed(self) -> bool:
        """Whether it was freed."""
        return self.raw is None

    def close(self) -> None:
        """Free it, once the device is done with it. It may be freed already."""
        self.driver.free(self)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Any thread may be here, in the middle of any call: the next call of the driver frees it.
        self.driver.drop(self)


class Buffer(Resource):
    """Memory of a device, of ``nbytes`` bytes; what is in a new one is not defined."""

    def __init__(self, driver: Driver, raw: Any, nbytes: int) -> None:
        super().__init__(driver, raw, "buffer")
        self.nbytes = nbytes


class Borrowed(Buffer):
    """Memory of a device that somebody else owns."""

    def __init__(self, driver: Driver, raw: Any, nbytes: int) -> None:
        super().__init__(driver, raw, nbytes)
        self.what = "borrowed buffer"


class Handle(Resource):
    """A kernel that is loaded."""

    def __init__(self, driver: Driver, raw: Any, kernel: Kernel) -> None:
        super().__init__(driver, raw, "kernel")
        self.kernel = kernel


@frozen
class DeviceLaunch:
    """A kernel on ``groups`` work groups; with none in some direction, it does nothing.

    ``buffers`` are (buffer, first byte, bytes) for each of the kernel's bindings; ``params`` are
    its 32-bit integers, little-endian.
    """

    handle: Handle
    groups: Triple
    buffers: tuple[Range, ...]
    params: bytes = b""


class Recording(Resource):
    """Launches made ready to be run again and again. It keeps their buffers and kernels."""

    def __init__(self, driver: Driver, raw: Any, launches: tuple[DeviceLaunch, ...]) -> None:
        super().__init__(driver, raw, "recording")
        self.launches = launches

    def needs(self, other: Resource) -> bool:
        """Whether it uses a buffer or a kernel."""
        return any(
            x.handle is other or any(b is other for b, _, _ in x.buffers) for x in self.launches
        )

"""Arrays in the memory of a device, which go from run to run without crossing to the host."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.arrays import as_array
from rlx.ir.attrs import carried_out
from rlx.ir.location import caller
from rlx.runtime.calls import lies_on_a_device
from rlx.runtime.devices import dlpack
from rlx.runtime.encoding import Array
from rlx.schedule.plan import Signature
from rlx.targets.gpu.driver import Driver
from rlx.targets.gpu.work import Buffer
from rlx.types import DTYPES

__all__ = ["DeviceArray", "accepted", "put"]


class DeviceArray:
    """An array in the memory of a device: an input, or what ``run_on_device`` gives.

    ``dtype`` is the element type by name ("f32"), ``device`` the API. ``numpy()`` copies it to the
    host, and so does ``np.asarray``; ``__dlpack__`` hands the memory itself to other libraries, on
    CUDA's and ROCm's devices.
    """

    def __init__(
        self, buffer: Buffer, dtype: str, shape: tuple[int, ...], pool: deque[Buffer] | None = None
    ) -> None:
        self.buffer, self.dtype, self.shape, self._pool = buffer, dtype, tuple(shape), pool

    @property
    def device(self) -> str:
        """The API of the device."""
        return self.buffer.driver.api

    @property
    def extent(self) -> tuple[str, int, int]:
        """The device, and the first byte and the end in its memory; where that has no addresses,
        numbers that no other buffer has."""
        if self.device in dlpack.ADDRESSED:
            begin = self.buffer.raw[0]
            return self.device, begin, begin + self.buffer.nbytes
        return self.device, id(self.buffer), id(self.buffer) + 1

    def numpy(self) -> Array:
        """A copy in the host's memory, once the device has made what is in it."""
        out = np.empty(self.shape, DTYPES[self.dtype].numpy)
        if out.size:
            self.buffer.driver.read_into(self.buffer, 0, out.reshape(-1).view(np.uint8))
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """``numpy()``, of another type if one is asked for; ValueError for what must be no copy."""
        if copy is False:
            raise ValueError(
                f"an array on {self.buffer.driver} becomes one of NumPy's by a copy to the host's"
                " memory, and copy=False asks for none"
            )
        a = self.numpy()
        return a if dtype is None else a.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's number of the kind of device, and which of those it is."""
        return _place(self.buffer.driver)

    def __dlpack__(
        self, *, dl_device: tuple[int, int] | None = None, copy: bool | None = None, **_: Any
    ) -> Any:
        """A capsule with the memory, or with that of a copy on the device if ``copy`` is True, once
        the device has made what is in it: no stream has anything to wait for."""
        driver = self.buffer.driver
        if dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"the array lies on {driver}; call numpy() for a copy in the host's")
        if self.device not in dlpack.ADDRESSED:
            raise BufferError(f"memory of {driver} has no address to hand over; call numpy()")
        if copy:
            return put(driver, self.numpy()).__dlpack__()
        driver.sync()
        # Whoever takes it may have work of its own under way when it lets it go: a run would not
        # wait for that, but to free the memory does.
        self._pool = None
        place = self.__dlpack_device__()
        return dlpack.exported(self.buffer.raw[0], self.dtype, self.shape, place, self)

    def __del__(self) -> None:
        # Runs are in order: who writes it next does so after what still reads it.
        if self._pool is not None and not self.buffer.closed:
            self._pool.append(self.buffer)

    def __repr__(self) -> str:
        return f"DeviceArray({list(self.shape)} {self.dtype} on {self.buffer.driver})"


def _place(driver: Driver) -> tuple[int, int]:
    return dlpack.DEVICES.get(driver.api, dlpack.OTHER), getattr(driver, "ordinal", 0)


def put(driver: Driver, value: Any) -> DeviceArray:
    """A copy of an array in the memory of a device. DTypeError for what is no array of a type that
    RLX has."""
    is_array = isinstance(value, np.ndarray | np.generic)
    name = next((n for n, dt in DTYPES.items() if is_array and dt.numpy == value.dtype), None)
    if name is None:
        found = value.dtype if is_array else type(value).__name__
        raise DTypeError(f"a device takes NumPy arrays of {', '.join(DTYPES)}, found {found}",
                         caller())  # fmt: skip
    a = np.asarray(value)
    buffer = driver.allocate(a.nbytes)
    if a.size:
        driver.write(buffer, 0, np.ascontiguousarray(a).reshape(-1).view(np.uint8))
    return DeviceArray(buffer, name, a.shape)


def accepted(driver: Driver, value: Any, signature: Signature) -> Array | DeviceArray:
    """What was given for an input: an array of the device as it is, or one of the host.

    Raises DTypeError, ShapeError and GraphError that name the input.
    """
    name, dt, shape = signature
    what = f"input {name!r}"
    a = value if isinstance(value, DeviceArray) else _handed_over(driver, value, what)
    if a is None:
        return as_array(value, signature, "input", flat=True)
    if a.buffer.driver is not driver:
        raise GraphError(
            f"{what} lies on {a.buffer.driver}, and this runs on {driver}; give its numpy()",
            caller(),
        )
    if a.dtype != dt:
        raise DTypeError(f"{what} is {dt}, found {a.dtype}", caller())
    if a.shape != tuple(shape):
        raise ShapeError(f"{what} has shape {list(shape)}, found {list(a.shape)}", caller())
    return a


def _handed_over(driver: Driver, value: Any, what: str) -> DeviceArray | None:
    """An array of another library in the memory of the driver's own device."""
    if driver.api not in dlpack.ADDRESSED or not lies_on_a_device(value):
        return None
    value = carried_out(value)
    found, own = tuple(value.__dlpack_device__()), _place(driver)
    if found != own:
        raise GraphError(
            f"{what} lies on device {found[1]} of DLPack's kind {found[0]}, and this runs on"
            f" {driver}, which is {own[1]} of kind {own[0]}",
            caller(),
        )
    # The producer makes the stream wait for what it has still to do.
    t = dlpack.imported(value.__dlpack__(stream=getattr(driver, "stream", None)), what)
    nbytes = int(np.prod(t.shape)) * DTYPES[t.dtype].bytes
    return DeviceArray(driver.borrow(t.address, nbytes, t.release), t.dtype, t.shape)

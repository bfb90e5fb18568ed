"""Drivers of the two APIs that have streams, events and graphs: CUDA's, and HIP's after it."""

from __future__ import annotations

import ctypes as c
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rlx.errors import DeviceError, DeviceLostError, ToolchainError
from rlx.targets.gpu.driver import DeviceLaunch, Driver, Kernel
from rlx.targets.gpu.library import Codes, Library, address, choose

__all__ = ["SIGNATURES", "StreamDriver", "codes"]

SIGNATURES = {
    "init": "u",
    "count": "p",
    "name": "pii",
    "total memory": "pi",
    "allocate": "pz",
    "free": "q",
    "allocate pinned": "pzu",
    "free pinned": "p",
    "copy in": "qpzp",
    "copy out": "pqzp",
    "create stream": "pu",
    "destroy stream": "p",
    "wait for stream": "p",
    "ask stream": "p",
    "create event": "pu",
    "destroy event": "p",
    "record event": "pp",
    "wait for event": "p",
    "unload": "p",
    "function": "pps",
    "launch": "puuuuuuuppp",
    "begin capture": "pu",
    "end capture": "pp",
    "instantiate": "ppq",
    "launch graph": "pp",
    "destroy executable": "p",
    "destroy graph": "p",
}
"""What both APIs do, and the arguments of their functions for it (``Library`` says by what
letters). A driver adds its own."""

_CHUNK = 1 << 20
"""Bytes of each of the two pieces of pinned memory through which copies go: one is filled or
emptied as the other is on its way."""

_NON_BLOCKING, _NO_TIMING, _OF_THIS_THREAD = 1, 2, 1

_MEMORY, _NOT_FOUND = (2,), 500
_IMAGE = (200, 209, 218, 220, 221, 222, 300, 301, 302, 303)


def codes(names: Mapping[int, str]) -> Codes:
    """Error codes: those that HIP took from CUDA, and names of an API's own."""
    common = {
        1: "invalid value",
        2: "out of memory",
        3: "not initialized",
        100: "no device",
        101: "invalid device",
        200: "invalid image",
        201: "invalid context",
        209: "no code for this device",
        214: "uncorrectable memory error",
        218: "invalid PTX or code",
        400: "invalid handle",
        500: "not found",
        700: "illegal address",
        701: "launch out of resources",
        702: "launch timeout",
        709: "context is destroyed",
        710: "assertion on the device",
        719: "launch failed",
        999: "unknown error",
    }
    lost = (46, 214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999)
    return Codes({**common, **names}, _MEMORY, lost)


class StreamDriver(Driver):
    """A device whose work goes through one stream. ``functions`` names what does each thing of
    ``SIGNATURES`` and of ``more``."""

    libraries: Sequence[str]
    functions: Mapping[str, str]
    more: Mapping[str, str]
    codes: Codes
    hint: str

    def __init__(self) -> None:
        super().__init__()
        letters = {**SIGNATURES, **self.more}
        table = {name: letters[what] for what, name in self.functions.items()}
        self.library = Library(self.libraries, table, self.codes, self.hint)
        self.do("init", 0)
        self.ordinal, self.name = self._choose()
        self.stream, self.pinned, self.events = 0, list[int](), list[int]()
        self._open()
        try:
            self.limits, self.features = self._limits(), self._features()
            self.stream = self.made("create stream", _NON_BLOCKING)
            for _ in range(2):
                self.pinned.append(self.made("allocate pinned", _CHUNK, 0))
                self.events.append(self.made("create event", _NO_TIMING))
        except BaseException:
            self._close()
            raise

    # -- what the two do each in its way ---------------------------------------------------

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _limits(self) -> Any: ...

    @abstractmethod
    def _features(self) -> frozenset[str]: ...

    @abstractmethod
    def _module(self, code: Any) -> tuple[int, int, str]:
        """A module, or an error code and what the driver said."""

    @abstractmethod
    def _leave(self) -> None: ...

    # -- calls -----------------------------------------------------------------------------

    def do(self, what: str, *args: Any) -> None:
        """Do something of ``functions``."""
        self.library(self.functions[what], *args)

    def made(self, what: str, *args: Any) -> int:
        """What a function makes, whose first argument says where to put it."""
        found = c.c_uint64()
        self.do(what, c.byref(found), *args)
        return found.value

    def number(self, what: str, *args: Any) -> int:
        """As ``made``, a 32-bit number."""
        found = c.c_int32()
        self.do(what, c.byref(found), *args)
        return found.value

    def _choose(self) -> tuple[int, str]:
        names: list[str] = []
        for ordinal in range(self.number("count")):
            text = c.create_string_buffer(256)
            self.do("name", text, len(text), ordinal)
            names.append(text.value.decode(errors="replace"))
        at = choose(self.api, names, [0] * len(names))
        return at, names[at]

    def _total_memory(self) -> int:
        return self.made("total memory", self.ordinal)

    def addresses(self) -> tuple[int, int, int, int]:
        """What a library needs to work on the stream: the stream, the function that asks whether
        all is done there, and those that copy into memory of the device and out of it. The device
        becomes that of this thread."""
        with self._call():
            asks, into, out = (
                c.cast(getattr(self.library.library, self.functions[what]), c.c_void_p).value or 0
                for what in ("ask stream", "copy in", "copy out")
            )
            return self.stream, asks, into, out

    # -- memory ----------------------------------------------------------------------------

    def _allocate(self, nbytes: int) -> int:
        return self.made("allocate", nbytes)

    def _free(self, raw: int) -> None:
        self.do("free", raw)

    def _write(self, raw: int, offset: int, data: memoryview) -> None:
        start, _held = address(data)
        for i, at in enumerate(range(0, len(data), _CHUNK)):
            n = min(_CHUNK, len(data) - at)
            pinned, event = self.pinned[i % 2], self.events[i % 2]
            if i >= 2:
                self.do("wait for event", event)
            c.memmove(pinned, start + at, n)
            self.do("copy in", raw + offset + at, pinned, n, self.stream)
            self.do("record event", event, self.stream)
        self._sync()

    def _read(self, raw: int, offset: int, out: memoryview) -> None:
        start, _held = address(out)
        pieces = [(at, min(_CHUNK, len(out) - at)) for at in range(0, len(out), _CHUNK)]
        for i in range(len(pieces) + 1):
            if i < len(pieces):
                at, n = pieces[i]
                self.do("copy out", self.pinned[i % 2], raw + offset + at, n, self.stream)
                self.do("record event", self.events[i % 2], self.stream)
            if i:
                at, n = pieces[i - 1]
                self.do("wait for event", self.events[(i - 1) % 2])
                c.memmove(start + at, self.pinned[(i - 1) % 2], n)

    # -- kernels ---------------------------------------------------------------------------

    def _load_module(self, kernel: Kernel) -> int:
        # Text ends with a zero byte, which an image may have after it as well.
        code = c.create_string_buffer(kernel.code)
        module, failed, said = self._module(code)
        if failed:
            error = self.codes.error(f"{self}: loading {kernel.name!r}", failed, said)
            raise ToolchainError(error.message) if failed in _IMAGE else error
        return module

    def _free_module(self, module: int) -> None:
        self.do("unload", module)

    def _load(self, module: int, kernel: Kernel) -> int:
        try:
            return self.made("function", module, kernel.name.encode())
        except DeviceError as e:
            if f"with {_NOT_FOUND} " not in e.message:
                raise
            raise ToolchainError(f"{self}: the code has no kernel {kernel.name!r}") from None

    def _unload(self, raw: int) -> None:
        """Nothing: a function is freed with its module."""

    # -- runs ------------------------------------------------------------------------------

    def _record(self, launches: tuple[DeviceLaunch, ...]) -> tuple[int, int]:
        """A graph with the launches, and the memory of their params."""
        text = b"".join(x.params.ljust(-(-len(x.params) // 16) * 16, b"\0") for x in launches)
        params = self._allocate(len(text)) if text else 0
        try:
            if text:
                self._write(params, 0, memoryview(text))
            return self._captured(launches, params), params
        except BaseException:
            if params:
                self._free(params)
            raise

    def _captured(self, launches: tuple[DeviceLaunch, ...], params: int) -> int:
        graph = 0
        self.do("begin capture", self.stream, _OF_THIS_THREAD)
        try:
            at = params
            for launch in launches:
                self._launch(launch, at)
                at += -(-len(launch.params) // 16) * 16
        finally:  # the stream must come out of it
            found = c.c_uint64()
            failed = self.library.plain(self.functions["end capture"], self.stream, c.byref(found))
            graph = found.value
        if failed:
            raise self.codes.error(self.functions["end capture"], failed)
        try:
            return self.made("instantiate", graph, 0)
        finally:
            self.do("destroy graph", graph)

    def _launch(self, launch: DeviceLaunch, params: int) -> None:
        values = [c.c_uint64(b.raw[0] + first) for b, first, _ in launch.buffers]
        if launch.params:
            values.append(c.c_uint64(params))
        kernel = launch.handle.kernel
        values += [c.c_uint64(0)] * kernel.spare
        arguments = (c.c_void_p * len(values))(*map(c.addressof, values))
        self.do(
            "launch", launch.handle.raw[0], *launch.groups, *kernel.workgroup, kernel.shared,
            self.stream, arguments, None,
        )  # fmt: skip

    def _forget(self, raw: tuple[int, int]) -> None:
        executable, params = raw
        self.do("destroy executable", executable)
        if params:
            self._free(params)

    def _run(self, raw: tuple[int, int]) -> None:
        self.do("launch graph", raw[0], self.stream)

    def _sync(self) -> None:
        self.do("wait for stream", self.stream)

    def _close(self) -> None:
        # A device that is lost refuses all this; what it had is gone with it.
        with suppress(DeviceLostError):
            self._enter()
            for event in self.events:
                self.do("destroy event", event)
            for piece in self.pinned:
                self.do("free pinned", piece)
            if self.stream:
                self.do("destroy stream", self.stream)
        self._leave()

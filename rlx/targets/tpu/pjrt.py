"""A PJRT plugin through its C interface: compiling for a device that need not be here, and running
on one that is."""

from __future__ import annotations

import ctypes as c
import importlib.util
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rlx import knobs
from rlx.errors import DeviceError, ToolchainError
from rlx.targets.tpu.pjrt_abi import (
    ELEMENTS,
    MAJOR,
    POINTER,
    Api,
    ExecuteOptions,
    Program,
    arguments,
)
from rlx.types import dtype

__all__ = ["Plugin", "PluginError", "find_libtpu", "find_plugin", "has_tpu"]

Array = np.ndarray[Any, Any]

_OPTIONS = bytes.fromhex("1a0f08ffffffffffffffffff0120012801")
"""A CompileOptionsProto: executable_build_options (field 3) with device_ordinal (1) -1,
num_replicas (4) 1 and num_partitions (5) 1."""

_QUIET = {
    "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_ACCELERATOR_TYPE": "v5e-4",
}  # fmt: skip
"""Without these libtpu asks a server for what the machine is, where there is no TPU."""

_COPIED_DURING_CALL = 0
"""PJRT_HostBufferSemantics_kImmutableOnlyDuringCall: the array may go when the call is over."""


class PluginError(ToolchainError):
    """What a plugin says of a call that failed."""


def find_plugin() -> tuple[str, str]:
    """The path of the plugin of this machine, and "" or why there is none: RLX_PJRT names it, else
    it is libtpu."""
    given = knobs.pjrt.get()
    return _named(knobs.pjrt.variable, given) if given else find_libtpu()


def find_libtpu() -> tuple[str, str]:
    """The same of libtpu: LIBTPU_PATH names it, else it is in the package libtpu."""
    if given := os.environ.get("LIBTPU_PATH", ""):
        return _named("LIBTPU_PATH", given)
    found = importlib.util.find_spec("libtpu")
    if found is None or not found.submodule_search_locations:
        return "", "it needs libtpu: pip install 'rlx[tpu]', or RLX_PJRT=path for another plugin"
    return str(Path(found.submodule_search_locations[0]) / "libtpu.so"), ""


def _named(variable: str, path: str) -> tuple[str, str]:
    return path, "" if Path(path).is_file() else f"{variable} names no file: {path}"


class Plugin:
    """A plugin that is loaded. It stays so until the process ends: none can be unloaded."""

    def __init__(self, path: str, table: int) -> None:
        """``table`` is the address of the functions of the plugin in a file."""
        self.path, self.api = path, c.cast(table, c.POINTER(Api)).contents
        if self.api.major != MAJOR:
            raise DeviceError(
                f"{path} is of PJRT {self.api.major}.{self.api.minor}, expected {MAJOR}.x; take a"
                " plugin of another version"
            )
        self.call("Plugin_Initialize")

    @staticmethod
    @cache
    def at(path: str) -> Plugin:
        """The plugin in a file, loaded once; DeviceError if it is none."""
        if knobs.pjrt.get() != path and not has_tpu():
            for name, value in _QUIET.items():
                os.environ.setdefault(name, value)
        try:
            get: Any = c.CDLL(path).GetPjrtApi
        except (OSError, AttributeError) as e:
            raise DeviceError(f"{path} is no PJRT plugin: {e}") from None
        get.restype = c.c_void_p
        return Plugin(path, get())

    def call(self, name: str, /, **fields: Any) -> Any:
        """Call a function; its argument, with what the call has filled in. PluginError has the
        plugin's own words."""
        field = getattr(Api, name)
        if self.api.struct_size <= field.offset or not getattr(self.api, name):
            raise PluginError(f"{self.path} has no PJRT_{name}; take a newer plugin")
        given = arguments(name, **fields)
        failed = c.CFUNCTYPE(POINTER, POINTER)(getattr(self.api, name))(c.addressof(given))
        if failed:
            raise PluginError(self._said(failed))
        return given

    def _said(self, error: int) -> str:
        asked = arguments("Error_Message", error=error)
        plain = c.CFUNCTYPE(None, POINTER)
        plain(self.api.Error_Message)(c.addressof(asked))
        text = c.string_at(asked.message, asked.size).decode(errors="replace")
        plain(self.api.Error_Destroy)(c.addressof(arguments("Error_Destroy", error=error)))
        return text

    # -- compiling -------------------------------------------------------------------------

    def topology(self, name: str) -> int:
        """A topology by the plugin's name of it, such as "v5e:2x2"."""
        text = name.encode()
        return self.call("TopologyDescription_Create", name=text, size=len(text)).topology

    def compile_for(self, topology: int, code: bytes) -> int:
        """An executable of StableHLO, for the devices of a topology."""
        program, _kept = _program(code)
        given = {"program": c.addressof(program), "options": _OPTIONS, "size": len(_OPTIONS)}
        return self.call("Compile", topology=topology, **given).executable

    def serialized(self, executable: int) -> bytes:
        """The file of an executable, which this version of the plugin loads."""
        made = self.call("Executable_Serialize", executable=executable)
        data = c.string_at(made.data, made.size)
        c.CFUNCTYPE(None, POINTER)(made.deleter)(made.held)
        return data

    def memory(self, executable: int) -> Mapping[str, int]:
        """Bytes on the device: code, arguments, outputs, aliases and temporaries."""
        found = self.call("Executable_GetCompiledMemoryStats", executable=executable)
        return {n: getattr(found, n) for n in
                ("code", "arguments", "outputs", "aliases", "temporaries")}  # fmt: skip

    def cost(self, executable: int) -> Mapping[str, float]:
        """What the compiler expects of a run, by its own names: "flops", "bytes accessed"."""
        found = self.call("Executable_GetCostAnalysis", executable=executable)
        costs: dict[str, float] = {}
        for i in range(found.count):
            row = found.properties[i]
            name = c.string_at(row.name, row.name_size).decode()
            if row.type == 1:
                costs[name] = row.value
            elif row.type == 3:
                costs[name] = c.c_float.from_buffer_copy(c.c_int64(row.value)).value
        return costs

    # -- running ---------------------------------------------------------------------------

    def client(self) -> int:
        """The connection to the devices."""
        return self.call("Client_Create").client

    def platform(self, client: int) -> str:
        """What the platform is called."""
        found = self.call("Client_PlatformName", client=client)
        return c.string_at(found.name, found.size).decode()

    def devices(self, client: int) -> list[int]:
        """The devices of this process."""
        found = self.call("Client_AddressableDevices", client=client)
        return [found.devices[i] for i in range(found.count)]

    def kind(self, device: int) -> str:
        """What a device is called."""
        told = self.call("Device_GetDescription", device=device)
        found = self.call("DeviceDescription_Kind", device=told.description)
        return c.string_at(found.kind, found.size).decode()

    def loaded(self, client: int, code: bytes) -> int:
        """StableHLO, compiled for the client's device and loaded."""
        program, _kept = _program(code)
        given = {"program": c.addressof(program), "options": _OPTIONS, "size": len(_OPTIONS)}
        return self.call("Client_Compile", client=client, **given).executable

    def put(self, client: int, device: int, a: Array) -> int:
        """A buffer with a copy of a contiguous array."""
        dims = (c.c_int64 * max(a.ndim, 1))(*a.shape)
        made = self.call(
            "Client_BufferFromHostBuffer", client=client, data=a.ctypes.data,
            type=ELEMENTS[dtype(a.dtype).name], dims=c.addressof(dims), rank=a.ndim,
            semantics=_COPIED_DURING_CALL, device=device,
        )  # fmt: skip
        self._wait(made.done)
        return made.buffer

    def get(self, buffer: int, out: Array) -> None:
        """Copy a buffer into a contiguous array."""
        made = self.call(
            "Buffer_ToHostBuffer", buffer=buffer, data=out.ctypes.data, size=out.nbytes
        )
        self._wait(made.event)

    def free(self, buffer: int) -> None:
        """Give a buffer back."""
        self.call("Buffer_Destroy", buffer=buffer)

    def run(self, executable: int, buffers: Sequence[int], outputs: int) -> list[int]:
        """Run on one device: as many buffers as there are outputs."""
        given, made = (c.c_void_p * max(len(buffers), 1))(*buffers), (c.c_void_p * outputs)()
        lists = [(c.c_void_p * 1)(c.addressof(row)) for row in (given, made)]
        events, options = (c.c_void_p * 1)(), ExecuteOptions()
        options.struct_size = c.sizeof(ExecuteOptions)
        self.call(
            "LoadedExecutable_Execute", executable=executable, options=c.addressof(options),
            arguments=c.addressof(lists[0]), devices=1, count=len(buffers),
            outputs=c.addressof(lists[1]), events=c.addressof(events),
        )  # fmt: skip
        self._wait(events[0])
        return [int(b or 0) for b in made]

    def _wait(self, event: int | None) -> None:
        if event:
            try:
                self.call("Event_Await", event=event)
            finally:
                self.call("Event_Destroy", event=event)


def _program(code: bytes) -> tuple[Program, Any]:
    """A program in the format "mlir", and what must live as long as it."""
    kept = c.create_string_buffer(code, len(code))
    made = Program(c.sizeof(Program), None, c.addressof(kept), len(code), b"mlir", 4)
    return made, kept


def has_tpu() -> bool:
    """Whether the system has a device file of a TPU."""
    return any(Path("/dev").glob("accel[0-9]*")) or any(Path("/dev/vfio").glob("[0-9]*"))

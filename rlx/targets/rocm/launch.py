"""Kernels on AMD GPUs, through HIP's library: HSACO files."""

from __future__ import annotations

import ctypes as c
from pathlib import Path
from typing import Any

from rlx.targets.gpu.driver import Limits
from rlx.targets.gpu.streams import StreamDriver, codes

__all__ = ["RocmDriver", "architectures"]

NODES = Path("/sys/class/kfd/kfd/topology/nodes")
"""Where Linux describes the GPUs that its driver has found."""


def architectures(nodes: Path = NODES) -> list[str]:
    """The names of the GPUs' architectures ("gfx942"), in order; none where Linux says nothing."""
    found: list[str] = []
    for path in sorted(nodes.glob("*/properties"), key=lambda p: int(p.parent.name)):
        lines = path.read_text(encoding="utf-8").splitlines()
        values = dict(line.split(" ", 1) for line in lines if " " in line)
        version = int(values.get("gfx_target_version", "0"))
        if version:  # a processor has 0
            major, minor, step = version // 10000, version // 100 % 100, version % 100
            found.append(f"gfx{major}{minor:x}{step:x}")
    return found


_FUNCTIONS = {
    "init": "hipInit",
    "count": "hipGetDeviceCount",
    "name": "hipDeviceGetName",
    "total memory": "hipDeviceTotalMem",
    "use": "hipSetDevice",
    "reset": "hipDeviceReset",
    "allocate": "hipMalloc",
    "free": "hipFree",
    "allocate pinned": "hipHostMalloc",
    "free pinned": "hipHostFree",
    "copy in": "hipMemcpyHtoDAsync",
    "copy out": "hipMemcpyDtoHAsync",
    "create stream": "hipStreamCreateWithFlags",
    "destroy stream": "hipStreamDestroy",
    "wait for stream": "hipStreamSynchronize",
    "ask stream": "hipStreamQuery",
    "create event": "hipEventCreateWithFlags",
    "destroy event": "hipEventDestroy",
    "record event": "hipEventRecord",
    "wait for event": "hipEventSynchronize",
    "load": "hipModuleLoadData",
    "unload": "hipModuleUnload",
    "function": "hipModuleGetFunction",
    "launch": "hipModuleLaunchKernel",
    "begin capture": "hipStreamBeginCapture",
    "end capture": "hipStreamEndCapture",
    "instantiate": "hipGraphInstantiateWithFlags",
    "launch graph": "hipGraphLaunch",
    "destroy executable": "hipGraphExecDestroy",
    "destroy graph": "hipGraphDestroy",
}

_MORE = {"use": "i", "reset": "", "load": "pp"}


class RocmDriver(StreamDriver):
    """A GPU through libamdhip64. DeviceError if there is no driver or no GPU."""

    api = "rocm"
    libraries = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
    functions, more = _FUNCTIONS, _MORE
    codes = codes({98: "invalid kernel", 303: "no such file in the code"})
    hint = "install ROCm"

    def _open(self) -> None:
        self._enter()

    def _enter(self) -> None:
        self.do("use", self.ordinal)  # each thread has its own

    def _limits(self) -> Limits:
        total = self._total_memory()
        # The same for all that ROCm knows; the numbers of HIP's attributes differ by version.
        return Limits(
            groups=((1 << 31) - 1, 65535, 65535),
            workgroup=(1024, 1024, 1024),
            invocations=1024,
            shared=64 << 10,
            binding=total,
            bindings=4096 // 8,
            alignment=16,
            buffer=total,
        )

    def _features(self) -> frozenset[str]:
        return frozenset(architectures()[self.ordinal : self.ordinal + 1])

    def _module(self, code: Any) -> tuple[int, int, str]:
        module = c.c_uint64()
        failed = self.library.plain(self.functions["load"], c.byref(module), code)
        return module.value, failed, ""

    def _leave(self) -> None:
        if self.lost:
            self.library.plain(self.functions["reset"])

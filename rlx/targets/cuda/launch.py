"""Kernels on NVIDIA GPUs, through the driver's own library: PTX or cubins."""

from __future__ import annotations

import ctypes as c
from typing import Any

from rlx.targets.cuda.features import SHARED_BYTES, runs
from rlx.targets.gpu.driver import Kernel, Limits
from rlx.targets.gpu.streams import StreamDriver, codes

__all__ = ["CudaDriver"]

# Of CUdevice_attribute.
_INVOCATIONS, _WORKGROUP, _GROUPS = 1, (2, 3, 4), (5, 6, 7)
_MAJOR, _MINOR = 75, 76
_SHARED = 97  # what a kernel may have that asks for it

_DYNAMIC_SHARED = 8
"""Of CUfunction_attribute: the bytes that launches may give a kernel, beyond 48 KiB."""

_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6
"""Of CUjit_option: where to write what is wrong with code."""
_LOG = 8192


_FUNCTIONS = {
    "init": "cuInit",
    "count": "cuDeviceGetCount",
    "name": "cuDeviceGetName",
    "attribute": "cuDeviceGetAttribute",
    "total memory": "cuDeviceTotalMem_v2",
    "retain": "cuDevicePrimaryCtxRetain",
    "release": "cuDevicePrimaryCtxRelease_v2",
    "reset": "cuDevicePrimaryCtxReset_v2",
    "use": "cuCtxSetCurrent",
    "allocate": "cuMemAlloc_v2",
    "free": "cuMemFree_v2",
    "allocate pinned": "cuMemHostAlloc",
    "free pinned": "cuMemFreeHost",
    "copy in": "cuMemcpyHtoDAsync_v2",
    "copy out": "cuMemcpyDtoHAsync_v2",
    "create stream": "cuStreamCreate",
    "destroy stream": "cuStreamDestroy_v2",
    "wait for stream": "cuStreamSynchronize",
    "ask stream": "cuStreamQuery",
    "create event": "cuEventCreate",
    "destroy event": "cuEventDestroy_v2",
    "record event": "cuEventRecord",
    "wait for event": "cuEventSynchronize",
    "load": "cuModuleLoadDataEx",
    "unload": "cuModuleUnload",
    "function": "cuModuleGetFunction",
    "allow": "cuFuncSetAttribute",
    "launch": "cuLaunchKernel",
    "begin capture": "cuStreamBeginCapture_v2",
    "end capture": "cuStreamEndCapture",
    "instantiate": "cuGraphInstantiateWithFlags",
    "launch graph": "cuGraphLaunch",
    "destroy executable": "cuGraphExecDestroy",
    "destroy graph": "cuGraphDestroy",
}

_MORE = {"attribute": "pii", "retain": "pi", "release": "i", "reset": "i", "use": "p",
        "load": "ppupp", "allow": "pii"}  # fmt: skip


class CudaDriver(StreamDriver):
    """A GPU through libcuda. DeviceError if there is no driver or no GPU."""

    api = "cuda"
    libraries = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")
    functions, more = _FUNCTIONS, _MORE
    codes = codes({
        46: "device unavailable",
        222: "PTX is of a version that this driver does not know",
        715: "illegal instruction",
        716: "misaligned address",
    })  # fmt: skip
    hint = "install NVIDIA's driver"

    def _open(self) -> None:
        self.context = self.made("retain", self.ordinal)
        self._enter()

    def _enter(self) -> None:
        self.do("use", self.context)  # each thread has its own

    def _attribute(self, number: int) -> int:
        return self.number("attribute", number, self.ordinal)

    def _limits(self) -> Limits:
        def three(numbers: tuple[int, int, int]) -> tuple[int, int, int]:
            x, y, z = map(self._attribute, numbers)
            return x, y, z

        total = self._total_memory()
        return Limits(
            groups=three(_GROUPS),
            workgroup=three(_WORKGROUP),
            invocations=self._attribute(_INVOCATIONS),
            shared=self._attribute(_SHARED),
            binding=total,
            bindings=4096 // 8,  # a kernel's parameters have 4096 bytes
            alignment=16,
            buffer=total,
        )

    def _features(self) -> frozenset[str]:
        return runs(10 * self._attribute(_MAJOR) + self._attribute(_MINOR))

    def _module(self, code: Any) -> tuple[int, int, str]:
        module, log = c.c_uint64(), c.create_string_buffer(_LOG)
        options = (c.c_int32 * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (c.c_void_p * 2)(c.addressof(log), _LOG)
        load = self.functions["load"]
        failed = self.library.plain(load, c.byref(module), code, 2, options, values)
        return module.value, failed, log.value.decode(errors="replace").strip()

    def _load(self, module: int, kernel: Kernel) -> int:
        function = super()._load(module, kernel)
        if kernel.shared > SHARED_BYTES:
            self.do("allow", function, _DYNAMIC_SHARED, kernel.shared)
        return function

    def _leave(self) -> None:
        # What a fault left behind goes with the context, so that the next driver gets a new one.
        if self.lost:
            self.library.plain(self.functions["reset"], self.ordinal)
        self.library.plain(self.functions["release"], self.ordinal)

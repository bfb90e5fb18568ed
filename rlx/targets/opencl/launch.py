"""Kernels on OpenCL devices: OpenCL C to programs, recordings to kernels with their arguments."""

from __future__ import annotations

import ctypes as c
import struct
from dataclasses import dataclass
from typing import Any

from rlx.errors import DeviceError, ToolchainError
from rlx.targets.gpu.driver import DeviceLaunch, Driver, Kernel, Limits
from rlx.targets.gpu.library import Codes, Library, address, choose
from rlx.targets.gpu.work import Triple

__all__ = ["FUNCTIONS", "OpenCLDriver"]

FUNCTIONS = {
    "clGetPlatformIDs": "upp",
    "clGetDeviceIDs": "pqupp",
    "clGetDeviceInfo": "puzpp",
    "clCreateContext": "pupppp:p",
    "clReleaseContext": "p",
    "clCreateCommandQueue": "ppqp:p",
    "clReleaseCommandQueue": "p",
    "clCreateBuffer": "pqzpp:p",
    "clCreateSubBuffer": "pqupp:p",
    "clReleaseMemObject": "p",
    "clCreateProgramWithSource": "puppp:p",
    "clBuildProgram": "pupspp",
    "clGetProgramBuildInfo": "ppuzpp",
    "clReleaseProgram": "p",
    "clCreateKernel": "psp:p",
    "clGetKernelInfo": "puzpp",
    "clGetKernelWorkGroupInfo": "ppuzpp",
    "clSetKernelArg": "puzp",
    "clReleaseKernel": "p",
    "clEnqueueWriteBuffer": "ppuzzpupp",
    "clEnqueueReadBuffer": "ppuzzpupp",
    "clEnqueueNDRangeKernel": "ppupppupp",
    "clFlush": "p",
    "clFinish": "p",
}

CODES = Codes(
    {
        -1: "device not found",
        -2: "device not available",
        -4: "no memory for an object",
        -5: "out of resources",
        -6: "out of host memory",
        -11: "the program does not build",
        -14: "a command failed",
        -36: "invalid command queue",
        -46: "invalid kernel name",
        -54: "invalid work group size",
        -61: "invalid buffer size",
        -1001: "no platform",
    },
    memory=(-4, -5, -6, -61),
    lost=(-2, -14, -36),
)

# The specification's values.
_CPU, _GPU, _ACCELERATOR, _ALL = 0x2, 0x4, 0x8, 0xFFFFFFFF
_TYPE, _ITEM_SIZES, _GROUP_SIZE, _LARGEST, _PARAMETERS = 0x1000, 0x1005, 0x1004, 0x1010, 0x1017
_BASE_BITS, _SHARED, _NAME, _EXTENSIONS = 0x1019, 0x1023, 0x102B, 0x1030
_BUILD_LOG, _ARGUMENTS, _COMPILED_GROUP = 0x1183, 0x1191, 0x11B1
_READ_WRITE, _READ_ONLY, _COPY_HOST, _REGION = 0x1, 0x4, 0x20, 0x1220

_RANKS = {_GPU: 0, _ACCELERATOR: 1, _CPU: 2}
_EXTRAS = {"cl_khr_fp64": "float64", "cl_khr_fp16": "float16"}


class _OpenCL(Library):
    """The loader's functions."""

    def __init__(self) -> None:
        framework = "/System/Library/Frameworks/OpenCL.framework/OpenCL"
        super().__init__(
            ("libOpenCL.so.1", "libOpenCL.so", "OpenCL.dll", framework),
            FUNCTIONS,
            CODES,
            "install the device's driver and the OpenCL loader (ocl-icd-libopencl1 on Debian), or"
            " the software driver pocl-opencl-icd",
        )

    def create(self, function: str, *args: Any) -> int:
        """Call a function that makes something, and return it."""
        code = c.c_int32()
        made = getattr(self.library, function)(*args, c.byref(code))
        if code.value:
            raise self.codes.error(function, code.value)
        return made

    def listed(self, function: str, *args: Any) -> list[int]:
        """What a function lists, which says first how many there are."""
        count = c.c_uint32()
        code = self.plain(function, *args, 0, None, c.byref(count))
        if code in (-1, -1001) or (code == 0 and count.value == 0):
            return []
        found = (c.c_void_p * count.value)()
        self(function, *args, count, found, None)
        return [x or 0 for x in found]

    def info(self, function: str, *args: Any) -> bytes:
        """The bytes that a function tells, which says first how many there are."""
        size = c.c_size_t()
        self(function, *args, 0, None, c.byref(size))
        text = c.create_string_buffer(size.value)
        self(function, *args, size.value, text, None)
        return text.raw


@dataclass
class _Step:
    """A kernel with arguments of its own, and what they are."""

    kernel: int
    owned: list[int]
    total: Any
    group: Any


class OpenCLDriver(Driver):
    """A device through the system's OpenCL loader. DeviceError if there is no loader or device."""

    api = "opencl"

    def __init__(self) -> None:
        super().__init__()
        self.cl = _OpenCL()
        self.device, self.name, kind = self._choose()
        self.software = kind & _CPU != 0
        self.limits, self.features = self._limits(), self._extras()
        devices = (c.c_void_p * 1)(self.device)
        self.context = self.cl.create("clCreateContext", None, 1, devices, None, None)
        try:
            self.queue = self.cl.create("clCreateCommandQueue", self.context, self.device, 0)
        except DeviceError:
            self.cl.plain("clReleaseContext", self.context)
            raise

    # -- the device ------------------------------------------------------------------------

    def _choose(self) -> tuple[int, str, int]:
        devices = [
            device
            for platform in self.cl.listed("clGetPlatformIDs")
            for device in self.cl.listed("clGetDeviceIDs", platform, _ALL)
        ]
        names = [_text(self.cl.info("clGetDeviceInfo", d, _NAME)) for d in devices]
        kinds = [self._number(d, _TYPE) for d in devices]
        ranks = [min((r for k, r in _RANKS.items() if kind & k), default=3) for kind in kinds]
        at = choose(self.api, names, ranks)
        return devices[at], names[at], kinds[at]

    def _number(self, device: int, what: int) -> int:
        return int.from_bytes(self.cl.info("clGetDeviceInfo", device, what), "little")

    def _limits(self) -> Limits:
        sizes = struct.unpack_from("@3N", self.cl.info("clGetDeviceInfo", self.device, _ITEM_SIZES))
        largest = self._number(self.device, _LARGEST)
        most = (1 << 31) - 1
        return Limits(
            groups=(most, most, most),
            workgroup=sizes,
            invocations=self._number(self.device, _GROUP_SIZE),
            shared=self._number(self.device, _SHARED),
            binding=largest,
            bindings=self._number(self.device, _PARAMETERS) // struct.calcsize("P"),
            alignment=max(16, self._number(self.device, _BASE_BITS) // 8),
            buffer=largest,
        )

    def _extras(self) -> frozenset[str]:
        known = _text(self.cl.info("clGetDeviceInfo", self.device, _EXTENSIONS)).split()
        return frozenset(name for extension, name in _EXTRAS.items() if extension in known)

    # -- memory ----------------------------------------------------------------------------

    def _allocate(self, nbytes: int) -> int:
        return self.cl.create("clCreateBuffer", self.context, _READ_WRITE, nbytes, None)

    def _free(self, raw: int) -> None:
        self.cl.plain("clReleaseMemObject", raw)

    def _write(self, raw: int, offset: int, data: memoryview) -> None:
        at, _held = address(data)
        self.cl(
            "clEnqueueWriteBuffer", self.queue, raw, 1, offset, len(data), at, 0, None, None
        )  # fmt: skip

    def _read(self, raw: int, offset: int, out: memoryview) -> None:
        at, _held = address(out)
        self.cl("clEnqueueReadBuffer", self.queue, raw, 1, offset, len(out), at, 0, None, None)

    # -- kernels ---------------------------------------------------------------------------

    def _load_module(self, kernel: Kernel) -> int:
        text = (c.c_char_p * 1)(kernel.code)
        sizes = (c.c_size_t * 1)(len(kernel.code))
        program = self.cl.create("clCreateProgramWithSource", self.context, 1, text, sizes)
        code = self.cl.plain("clBuildProgram", program, 0, None, b"", None, None)
        if code:
            log = _text(self.cl.info("clGetProgramBuildInfo", program, self.device, _BUILD_LOG))
            self.cl.plain("clReleaseProgram", program)
            failure = CODES.error("clBuildProgram", code, log)
            raise ToolchainError(f"{self}: {failure.message}") if code == -11 else failure
        return program

    def _free_module(self, module: int) -> None:
        self.cl.plain("clReleaseProgram", module)

    def _load(self, module: int, kernel: Kernel) -> tuple[int, str]:
        """The program and the kernel's name: each launch has a kernel of its own, with its
        arguments."""
        found = self._kernel(module, kernel.name)
        try:
            info = self.cl.info("clGetKernelInfo", found, _ARGUMENTS)
            count = int.from_bytes(info, "little")
            group = struct.unpack(
                "@3N", self.cl.info("clGetKernelWorkGroupInfo", found, self.device, _COMPILED_GROUP)
            )
        finally:
            self.cl.plain("clReleaseKernel", found)
        expected = len(kernel.bindings) + (kernel.params > 0)
        if count != expected:
            raise ToolchainError(
                f"kernel {kernel.name!r} has {count} arguments in OpenCL C, {expected} were said"
            )
        if any(group) and group != kernel.workgroup:
            raise ToolchainError(
                f"kernel {kernel.name!r} has groups of {group} in OpenCL C,"
                f" {kernel.workgroup} was said"
            )
        return module, kernel.name

    def _kernel(self, program: int, name: str) -> int:
        return self.cl.create("clCreateKernel", program, name.encode())

    def _unload(self, raw: tuple[int, str]) -> None:
        """Nothing: the program is freed with its last kernel."""

    # -- runs ------------------------------------------------------------------------------

    def _record(self, launches: tuple[DeviceLaunch, ...]) -> list[_Step]:
        steps: list[_Step] = []
        try:
            for launch in launches:
                steps.append(self._step(launch))
                self._set_arguments(steps[-1], launch)
        except BaseException:
            self._forget(steps)
            raise
        return steps

    def _step(self, launch: DeviceLaunch) -> _Step:
        program, name = launch.handle.raw[0]
        group: Triple = launch.handle.kernel.workgroup
        total = (g * n for g, n in zip(launch.groups, group, strict=True))
        sizes = c.c_size_t * 3
        return _Step(self._kernel(program, name), [], sizes(*total), sizes(*group))

    def _set_arguments(self, step: _Step, launch: DeviceLaunch) -> None:
        arguments = [self._argument(step, b.raw, first, n) for b, first, n in launch.buffers]
        if launch.params:
            arguments.append(
                self.cl.create(
                    "clCreateBuffer", self.context, _READ_ONLY | _COPY_HOST, len(launch.params),
                    launch.params,
                )
            )  # fmt: skip
            step.owned.append(arguments[-1])
        for i, raw in enumerate(arguments):
            value = c.c_void_p(raw)
            self.cl("clSetKernelArg", step.kernel, i, c.sizeof(value), c.byref(value))

    def _argument(self, step: _Step, raw: tuple[int, int], first: int, nbytes: int) -> int:
        """A buffer from some byte on, which is an object of its own."""
        if first == 0 or nbytes == 0:
            return raw[0]
        region = (c.c_size_t * 2)(first, nbytes)
        part = self.cl.create("clCreateSubBuffer", raw[0], _READ_WRITE, _REGION, region)
        step.owned.append(part)
        return part

    def _forget(self, raw: list[_Step]) -> None:
        for step in raw:
            self.cl.plain("clReleaseKernel", step.kernel)
            for part in step.owned:
                self.cl.plain("clReleaseMemObject", part)

    def _run(self, raw: list[_Step]) -> None:
        for step in raw:
            self.cl(
                "clEnqueueNDRangeKernel", self.queue, step.kernel, 3, None, step.total, step.group,
                0, None, None,
            )  # fmt: skip
        self.cl("clFlush", self.queue)

    def _sync(self) -> None:
        self.cl("clFinish", self.queue)

    def _close(self) -> None:
        self.cl.plain("clReleaseCommandQueue", self.queue)
        self.cl.plain("clReleaseContext", self.context)


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode(errors="replace").strip()

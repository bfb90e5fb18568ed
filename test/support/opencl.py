"""A driver for OpenCL devices through pyopencl, to run kernels on this machine's processor.

PoCL runs OpenCL on a CPU: ``pip install pyopencl pocl-binary-distribution``.
"""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest

import rlx
from rlx.errors import ToolchainError
from rlx.runtime.device import DeviceBackend
from rlx.targets.gpu.driver import Driver
from rlx.targets.gpu.work import Kernel, Launch, Limits

__all__ = ["OpenClDriver", "compiled"]


class OpenClDriver(Driver):
    """A device of one of the OpenCL platforms."""

    api = "opencl"
    software = True

    def __init__(self) -> None:
        super().__init__()
        self.cl: Any = importlib.import_module("pyopencl")
        device = self.cl.get_platforms()[0].get_devices()[0]
        self.name = device.name
        self.context = self.cl.Context([device])
        self.queue = self.cl.CommandQueue(self.context)
        sizes = tuple(device.max_work_item_sizes)
        self.limits = Limits(
            groups=(1 << 16, 1 << 16, 1 << 16), workgroup=(sizes[0], sizes[1], sizes[2]),
            invocations=device.max_work_group_size, shared=device.local_mem_size,
            binding=device.max_mem_alloc_size, bindings=64,
            alignment=device.mem_base_addr_align // 8, buffer=device.max_mem_alloc_size,
        )  # fmt: skip

    def _allocate(self, nbytes: int) -> Any:
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, nbytes)

    def _free(self, raw: Any) -> None:
        raw.release()

    def _write(self, raw: Any, offset: int, data: memoryview) -> None:
        source = np.frombuffer(data, np.uint8)
        self.cl.enqueue_copy(self.queue, raw, source, dst_offset=offset)

    def _read(self, raw: Any, offset: int, out: memoryview) -> None:
        target = np.frombuffer(out, np.uint8)
        self.cl.enqueue_copy(self.queue, target, raw, src_offset=offset)

    def _load_module(self, kernel: Kernel) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return self.cl.Program(self.context, kernel.code.decode()).build(options=["-cl-opt-disable"])
            except self.cl.RuntimeError as e:
                raise ToolchainError(f"{self}: kernel {kernel.name}: {e}") from None

    def _free_module(self, module: Any) -> None:
        pass

    def _load(self, module: Any, kernel: Kernel) -> Any:
        return self.cl.Kernel(module, kernel.name)

    def _unload(self, raw: Any) -> None:
        pass

    def _record(self, launches: tuple[Launch, ...]) -> Any:
        return [self._made(launch) for launch in launches]

    def _made(self, launch: Launch) -> tuple[Any, Any, Any, list[Any]]:
        arguments = []
        for buffer, offset, nbytes in launch.buffers:
            raw = buffer.raw[0]
            arguments.append(raw.get_sub_region(offset, max(nbytes, 1)) if offset else raw)
        flags = self.cl.mem_flags.READ_ONLY | self.cl.mem_flags.COPY_HOST_PTR
        params = np.frombuffer(launch.params, np.int32)
        arguments.append(self.cl.Buffer(self.context, flags, hostbuf=params))
        group = launch.handle.kernel.workgroup
        total = tuple(n * size for n, size in zip(launch.groups, group, strict=True))
        return launch.handle.raw[0], total, group, arguments

    def _forget(self, raw: Any) -> None:
        pass

    def _run(self, raw: Any) -> None:
        for kernel, total, group, arguments in raw:
            kernel.set_args(*arguments)
            self.cl.enqueue_nd_range_kernel(self.queue, kernel, total, group)

    def _sync(self) -> None:
        self.queue.finish()

    def _close(self) -> None:
        self.queue.finish()


@cache
def driver() -> OpenClDriver:
    """The driver of the first OpenCL device; without one the test is skipped."""
    cl = pytest.importorskip("pyopencl")
    try:
        return OpenClDriver()
    except cl.LogicError as e:
        pytest.skip(f"no OpenCL device: {e}")


def compiled(
    graph: rlx.Graph, dispatch: Literal["native", "common"] = "native"
) -> rlx.CompiledGraph:
    """A graph compiled for OpenCL, and loaded on its device."""
    backend: Any = DeviceBackend("opencl", "opencl", driver())
    return rlx.CompiledGraph(graph, backend, {"dispatch": dispatch})

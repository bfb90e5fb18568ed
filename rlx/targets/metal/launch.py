"""Kernels on Apple's GPUs: MSL to compute pipelines, by Metal through PyObjC.

PyObjC spells a method with an underscore for each colon: ``setBuffer:offset:atIndex:`` is
``setBuffer_offset_atIndex_``. A method that may fail returns its result with an error.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from rlx.errors import DeviceError, DeviceLostError, OutOfMemoryError, ToolchainError
from rlx.targets.gpu.driver import DeviceLaunch, Driver, Kernel, Limits
from rlx.targets.gpu.library import choose
from rlx.targets.metal.features import BUFFERS

__all__ = ["MetalDriver"]

_ALIGNMENT = 16
"""Offsets of buffers in the device address space are multiples of an element, 16 bytes at most."""

_MOST_GROUPS = (1 << 31) - 1
"""The kernels count work groups with int."""

_FAILED = 5
"""MTLCommandBufferStatusError."""

_OUT_OF_MEMORY = 8
"""MTLCommandBufferErrorOutOfMemory."""


class _Step(NamedTuple):
    """A pipeline, its buffers with the first bytes, its numbers, and its groups and their size."""

    pipeline: Any
    buffers: list[tuple[Any, int]]
    params: bytes
    groups: Any
    group: Any


class MetalDriver(Driver):
    """A GPU of a Mac. DeviceError if there is no Metal here, or no package for it."""

    api = "metal"

    def __init__(self) -> None:
        super().__init__()
        self.objc, self.metal = self._packages()
        devices = list(self.metal.MTLCopyAllDevices())
        names = [str(d.name()) for d in devices]
        self.device = devices[choose(self.api, names, [int(d.isLowPower()) for d in devices])]
        self.name = str(self.device.name())
        self.queue = self.device.newCommandQueue()
        self.limits = self._limits()
        self.submitted: list[Any] = []

    def _packages(self) -> tuple[Any, Any]:
        """PyObjC, and its part for Metal."""
        try:
            return importlib.import_module("objc"), importlib.import_module("Metal")
        except ImportError as e:
            raise DeviceError(
                f"{e}: Metal needs a Mac with the package pyobjc-framework-Metal"
                " (pip install pyobjc-framework-Metal)"
            ) from None

    def _limits(self) -> Limits:
        most, largest = self.device.maxThreadsPerThreadgroup(), self.device.maxBufferLength()
        return Limits(
            groups=(_MOST_GROUPS, _MOST_GROUPS, _MOST_GROUPS),
            workgroup=(most.width, most.height, most.depth),
            invocations=most.width,
            shared=self.device.maxThreadgroupMemoryLength(),
            binding=largest,
            bindings=BUFFERS,
            alignment=_ALIGNMENT,
            buffer=largest,
        )

    # -- memory ----------------------------------------------------------------------------

    def _allocate(self, nbytes: int) -> Any:
        # Shared: the processor sees it too, and copies nothing on a Mac whose memory is one.
        mode = self.metal.MTLResourceStorageModeShared
        made = self.device.newBufferWithLength_options_(nbytes, mode)
        if made is None:
            raise OutOfMemoryError("Metal made no buffer")
        return made

    def _free(self, raw: Any) -> None:
        """Nothing: it is freed with its last reference."""

    def _bytes(self, raw: Any) -> memoryview:
        """A buffer's memory, once the device is done with all that was run."""
        self._sync()
        return memoryview(raw.contents().as_buffer(raw.length())).cast("B")

    def _write(self, raw: Any, offset: int, data: memoryview) -> None:
        self._bytes(raw)[offset : offset + len(data)] = data

    def _read(self, raw: Any, offset: int, out: memoryview) -> None:
        out[:] = self._bytes(raw)[offset : offset + len(out)]

    # -- kernels ---------------------------------------------------------------------------

    def _load_module(self, kernel: Kernel) -> Any:
        options = self.metal.MTLCompileOptions.new()
        # Fast maths assumes that there are neither infinities nor nan.
        options.setFastMathEnabled_(False)
        library, error = self.device.newLibraryWithSource_options_error_(
            kernel.code.decode(), options, None
        )
        if library is None:
            raise ToolchainError(f"{self}: {error.localizedDescription()}")
        return library

    def _free_module(self, module: Any) -> None:
        """Nothing: it is freed with its last reference."""

    def _load(self, module: Any, kernel: Kernel) -> Any:
        function = module.newFunctionWithName_(kernel.name)
        if function is None:
            listed = ", ".join(map(str, module.functionNames()))
            raise ToolchainError(f"{self}: MSL has no kernel {kernel.name!r}; it has {listed}")
        pipeline, error = self.device.newComputePipelineStateWithFunction_error_(function, None)
        if pipeline is None:
            raise ToolchainError(f"{self}: kernel {kernel.name!r}: {error.localizedDescription()}")
        x, y, z = kernel.workgroup
        if (most := pipeline.maxTotalThreadsPerThreadgroup()) < x * y * z:
            raise ToolchainError(
                f"{self}: kernel {kernel.name!r} has groups of {x * y * z}; with the registers that"
                f" it takes {most} are possible"
            )
        return pipeline

    def _unload(self, raw: Any) -> None:
        """Nothing: it is freed with its last reference."""

    # -- runs ------------------------------------------------------------------------------

    def _record(self, launches: tuple[DeviceLaunch, ...]) -> list[_Step]:
        size = self.metal.MTLSizeMake
        return [
            _Step(
                x.handle.raw[0],
                [(b.raw[0], first) for b, first, _ in x.buffers],
                x.params,
                size(*x.groups),
                size(*x.handle.kernel.workgroup),
            )
            for x in launches
        ]

    def _forget(self, raw: Any) -> None:
        """Nothing: all of it is freed with its last reference."""

    def _run(self, raw: list[_Step]) -> None:
        # A command buffer of Metal runs once: the commands are made anew for each run.
        with self.objc.autorelease_pool():
            commands = self.queue.commandBuffer()
            # Launches of one encoder are in order, and see what those before wrote.
            encoder = commands.computeCommandEncoder()
            for step in raw:
                encoder.setComputePipelineState_(step.pipeline)
                for i, (buffer, first) in enumerate(step.buffers):
                    encoder.setBuffer_offset_atIndex_(buffer, first, i)
                if size := len(step.params):
                    encoder.setBytes_length_atIndex_(step.params, size, len(step.buffers))
                encoder.dispatchThreadgroups_threadsPerThreadgroup_(step.groups, step.group)
            encoder.endEncoding()
            commands.commit()
            self.submitted.append(commands)

    def _sync(self) -> None:
        done, self.submitted = self.submitted, []
        for commands in done:  # all of them, though one has failed: what is read next is theirs
            commands.waitUntilCompleted()
        for error in [c.error() for c in done if c.status() == _FAILED][:1]:
            lost = error.code() != _OUT_OF_MEMORY
            kind = DeviceLostError if lost else OutOfMemoryError
            raise kind(f"Metal: {error.localizedDescription()}")

    def _close(self) -> None:
        self.submitted = []

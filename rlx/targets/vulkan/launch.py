"""Kernels on Vulkan devices: SPIR-V to compute pipelines, recordings to command buffers."""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass

from rlx.targets.gpu.driver import DeviceLaunch, Driver, Kernel
from rlx.targets.gpu.library import address
from rlx.targets.gpu.profiles import buffer_words
from rlx.targets.gpu.work import Triple
from rlx.targets.vulkan import api
from rlx.targets.vulkan.api import Vulkan, make
from rlx.targets.vulkan.device import Device
from rlx.targets.vulkan.spirv import check_kernel, entry_points

__all__ = ["VulkanDriver"]

_STAGING = 4 << 20
"""Bytes that are copied to or from a device at once."""


@dataclass
class _Memory:
    """A buffer with memory of its own; ``at`` is where the host sees it, if it does."""

    buffer: int
    memory: int
    size: int
    at: int = 0


@dataclass
class _Module:
    module: int
    entries: dict[str, Triple]


@dataclass
class _Pipeline:
    pipeline: int
    layout: int
    sets: int


@dataclass
class _Commands:
    buffer: int
    pool: int
    params: _Memory | None


class VulkanDriver(Driver):
    """A device through the system's Vulkan loader. DeviceError if there is no loader or device."""

    api = "vulkan"

    def __init__(self) -> None:
        super().__init__()
        self.vk = Vulkan()
        found = self.opened = Device(self.vk)
        self.name, self.software = found.name, found.software
        self.limits = found.limits
        self.features = found.features | buffer_words(self.limits.bindings)
        self.device = found.handle
        self.pool, self.staging = 0, _Memory(0, 0, 0)
        try:
            info = make("CommandPoolCreateInfo", flags=api.POOL_RESETS, family=found.family)
            self.pool = self.vk.create("vkCreateCommandPool", self.device, info)
            self.staging = self._memory(_STAGING, api.HOST_VISIBLE | api.HOST_COHERENT)
            self.copies = self._commands()
        except BaseException:
            self._close()
            raise

    # -- memory ----------------------------------------------------------------------------

    def _memory(self, size: int, flags: int) -> _Memory:
        vk, device = self.vk, self.device
        usage = api.STORAGE | api.COPY_SOURCE | api.COPY_TARGET
        found = _Memory(0, 0, size)
        try:
            info = make("BufferCreateInfo", size=size, usage=usage)
            found.buffer = vk.create("vkCreateBuffer", device, info)
            needs = make("MemoryRequirements")
            vk.plain("vkGetBufferMemoryRequirements", device, found.buffer, c.byref(needs))
            kind = self.opened.memory_type(needs.types, flags)
            info = make("MemoryAllocateInfo", size=needs.size, type=kind)
            found.memory = vk.create("vkAllocateMemory", device, info)
            vk("vkBindBufferMemory", device, found.buffer, found.memory, 0)
            if flags & api.HOST_VISIBLE:
                at = c.c_void_p()
                vk("vkMapMemory", device, found.memory, 0, size, 0, c.byref(at))
                found.at = at.value or 0
        except BaseException:
            self._free(found)
            raise
        return found

    def _allocate(self, nbytes: int) -> _Memory:
        return self._memory(nbytes, api.DEVICE_LOCAL)

    def _free(self, raw: _Memory) -> None:
        self.vk.plain("vkDestroyBuffer", self.device, raw.buffer, None)
        self.vk.plain("vkFreeMemory", self.device, raw.memory, None)

    def _write(self, raw: _Memory, offset: int, data: memoryview) -> None:
        start, _held = address(data)
        for at in range(0, len(data), _STAGING):
            n = min(_STAGING, len(data) - at)
            c.memmove(self.staging.at, start + at, n)
            self._copy(self.staging, 0, raw, offset + at, n)

    def _read(self, raw: _Memory, offset: int, out: memoryview) -> None:
        start, _held = address(out)
        for at in range(0, len(out), _STAGING):
            n = min(_STAGING, len(out) - at)
            self._copy(raw, offset + at, self.staging, 0, n)
            c.memmove(start + at, self.staging.at, n)

    def _copy(self, source: _Memory, first: int, target: _Memory, to: int, size: int) -> None:
        """Copy after all that was run, and wait for it."""
        vk, copies = self.vk, self.copies
        vk("vkBeginCommandBuffer", copies, c.byref(make("CommandBufferBeginInfo")))
        self._barrier(copies)
        region = make("BufferCopy", source=first, target=to, size=size)
        vk.plain("vkCmdCopyBuffer", copies, source.buffer, target.buffer, 1, c.byref(region))
        self._barrier(copies)
        vk("vkEndCommandBuffer", copies)
        self._submit(copies)
        self._sync()

    # -- kernels ---------------------------------------------------------------------------

    def _load_module(self, kernel: Kernel) -> _Module:
        entries = entry_points(kernel.code)
        code = c.create_string_buffer(kernel.code, len(kernel.code))
        info = make("ShaderModuleCreateInfo", size=len(kernel.code), pCode=code)
        return _Module(self.vk.create("vkCreateShaderModule", self.device, info), entries)

    def _free_module(self, module: _Module) -> None:
        self.vk.plain("vkDestroyShaderModule", self.device, module.module, None)

    def _load(self, module: _Module, kernel: Kernel) -> _Pipeline:
        check_kernel(module.entries, kernel.name, kernel.workgroup)
        vk, device, made = self.vk, self.device, _Pipeline(0, 0, 0)
        count = _bindings(kernel)
        try:
            info = make("DescriptorSetLayoutCreateInfo", count=count)
            if count:
                bindings = api.array(
                    make("DescriptorSetLayoutBinding", binding=i, count=1,
                         type=api.DESCRIPTOR_STORAGE_BUFFER, stages=api.SHADER_COMPUTE)
                    for i in range(count)
                )  # fmt: skip
                info.pBindings = c.addressof(bindings)
            made.sets = vk.create("vkCreateDescriptorSetLayout", device, info)
            sets = (c.c_uint64 * 1)(made.sets)
            info = make("PipelineLayoutCreateInfo", sets=1, pSets=sets)
            made.layout = vk.create("vkCreatePipelineLayout", device, info)
            # The stage is a structure inside of the pipeline's.
            info = make(
                "ComputePipelineCreateInfo", stageType=18, stage=api.SHADER_COMPUTE,
                module=module.module, entry=kernel.name.encode(), layout=made.layout, baseIndex=-1,
            )  # fmt: skip
            out = c.c_uint64()
            vk("vkCreateComputePipelines", device, 0, 1, c.byref(info), None, c.byref(out))
            made.pipeline = out.value
        except BaseException:
            self._unload(made)
            raise
        return made

    def _unload(self, raw: _Pipeline) -> None:
        self.vk.plain("vkDestroyPipeline", self.device, raw.pipeline, None)
        self.vk.plain("vkDestroyPipelineLayout", self.device, raw.layout, None)
        self.vk.plain("vkDestroyDescriptorSetLayout", self.device, raw.sets, None)

    # -- runs ------------------------------------------------------------------------------

    def _record(self, launches: tuple[DeviceLaunch, ...]) -> _Commands:
        made = _Commands(0, 0, None)
        try:
            made.params = self._params(launches)
            made.pool = self._descriptor_pool(launches)
            made.buffer = self._commands()
            info = make("CommandBufferBeginInfo", flags=api.SIMULTANEOUS_USE)
            self.vk("vkBeginCommandBuffer", made.buffer, c.byref(info))
            at = 0
            for launch in launches:
                self._barrier(made.buffer)
                self._dispatch(made, launch, at)
                at += self._aligned(len(launch.params))
            self.vk("vkEndCommandBuffer", made.buffer)
        except BaseException:
            self._forget(made)
            raise
        return made

    def _aligned(self, size: int) -> int:
        return -(-size // self.limits.alignment) * self.limits.alignment

    def _params(self, launches: tuple[DeviceLaunch, ...]) -> _Memory | None:
        """One buffer with the params of all launches, which do not change."""
        text = b"".join(x.params.ljust(self._aligned(len(x.params)), b"\0") for x in launches)
        if not text:
            return None
        found = self._memory(len(text), api.HOST_VISIBLE | api.HOST_COHERENT)
        c.memmove(found.at, text, len(text))
        return found

    def _descriptor_pool(self, launches: tuple[DeviceLaunch, ...]) -> int:
        count = sum(_bindings(x.handle.kernel) for x in launches)
        size = make("DescriptorPoolSize", type=api.DESCRIPTOR_STORAGE_BUFFER, count=max(1, count))
        sets = max(1, len(launches))
        info = make("DescriptorPoolCreateInfo", sets=sets, sizes=1, pSizes=size)
        return self.vk.create("vkCreateDescriptorPool", self.device, info)

    def _dispatch(self, made: _Commands, launch: DeviceLaunch, at: int) -> None:
        vk, commands = self.vk, made.buffer
        kernel: _Pipeline = launch.handle.raw[0]
        layouts = (c.c_uint64 * 1)(kernel.sets)
        info = make("DescriptorSetAllocateInfo", pool=made.pool, count=1, pLayouts=layouts)
        sets = (c.c_uint64 * 1)()
        vk("vkAllocateDescriptorSets", self.device, c.byref(info), sets)
        # A range is not empty, and has whole words; so has every buffer.
        ranges = [
            (b.raw[0].buffer, first if n else 0, max(4, -(-n // 4) * 4))
            for b, first, n in launch.buffers
        ]
        if made.params is not None and launch.params:
            ranges.append((made.params.buffer, at, len(launch.params)))
        for i, (buffer, first, n) in enumerate(ranges):
            info = make("DescriptorBufferInfo", buffer=buffer, offset=first, range=n)
            write = make("WriteDescriptorSet", set=sets[0], binding=i, count=1,
                         type=api.DESCRIPTOR_STORAGE_BUFFER, pBuffers=info)  # fmt: skip
            vk.plain("vkUpdateDescriptorSets", self.device, 1, c.byref(write), 0, None)
        vk.plain("vkCmdBindPipeline", commands, api.BIND_COMPUTE, kernel.pipeline)
        vk.plain(
            "vkCmdBindDescriptorSets", commands, api.BIND_COMPUTE, kernel.layout, 0, 1, sets, 0,
            None,
        )  # fmt: skip
        vk.plain("vkCmdDispatch", commands, *launch.groups)

    def _forget(self, raw: _Commands) -> None:
        if raw.buffer:
            buffers = (c.c_void_p * 1)(raw.buffer)
            self.vk.plain("vkFreeCommandBuffers", self.device, self.pool, 1, buffers)
        self.vk.plain("vkDestroyDescriptorPool", self.device, raw.pool, None)
        if raw.params is not None:
            self._free(raw.params)

    def _commands(self) -> int:
        info = make("CommandBufferAllocateInfo", pool=self.pool, count=1)
        out = c.c_void_p()
        self.vk("vkAllocateCommandBuffers", self.device, c.byref(info), c.byref(out))
        return out.value or 0

    def _barrier(self, commands: int) -> None:
        """Let what follows see what was written before."""
        stages = api.STAGE_COMPUTE | api.STAGE_TRANSFER
        reads = api.SHADER_READ | api.TRANSFER_READ
        writes = api.SHADER_WRITE | api.TRANSFER_WRITE
        barrier = make("MemoryBarrier", source=writes,
                       target=reads | writes | api.HOST_READ)  # fmt: skip
        after = stages | api.STAGE_HOST
        self.vk.plain(
            "vkCmdPipelineBarrier", commands, stages, after, 0, 1, c.byref(barrier), 0, None, 0,
            None,
        )  # fmt: skip

    def _run(self, raw: _Commands) -> None:
        self._submit(raw.buffer)

    def _submit(self, commands: int) -> None:
        buffers = (c.c_void_p * 1)(commands)
        info = make("SubmitInfo", buffers=1, pBuffers=buffers)
        self.vk("vkQueueSubmit", self.opened.queue, 1, c.byref(info), 0)

    def _sync(self) -> None:
        self.vk("vkQueueWaitIdle", self.opened.queue)

    def _close(self) -> None:
        self._free(self.staging)
        self.vk.plain("vkDestroyCommandPool", self.device, self.pool, None)
        self.opened.close()


def _bindings(kernel: Kernel) -> int:
    return len(kernel.bindings) + (kernel.params > 0)

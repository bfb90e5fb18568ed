"""As much of Vulkan's C interface as computing needs: its structures, functions and numbers.

Names are the specification's, without the prefixes.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterable
from typing import Any

from rlx.targets.gpu.library import Codes, Library

__all__ = ["CODES", "Structure", "Vulkan", "array", "make", "version"]

u32, u64, P = c.c_uint32, c.c_uint64, c.c_void_p
_LETTERS: dict[str, Any] = {"u": u32, "q": u64, "p": P, "s": c.c_char_p, "i": c.c_int32}


class Structure(c.Structure):
    """A structure that keeps alive what its pointers lead to."""

    kind: int | None = None

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self.kept: list[Any] = []
        if self.kind is not None:
            self.sType = self.kind
        for name, value in fields.items():
            self.kept.append(value)
            leads = isinstance(value, c.Array | c.Structure) and name.startswith("p")
            setattr(self, name, c.addressof(value) if leads else value)  # pyright: ignore


def _structure(name: str, fields: str, kind: int | None = None) -> Any:
    """``fields`` are ``letter:name`` or ``letter*count:name``; with a ``kind`` (sType), those two
    that come first in every such structure are added."""
    listed: list[tuple[str, Any]] = []
    if kind is not None:
        listed = [("sType", u32), ("pNext", P)]
    for field in fields.split():
        form, _, label = field.partition(":")
        letter, _, count = form.partition("*")
        listed.append((label, _LETTERS[letter] * int(count) if count else _LETTERS[letter]))
    return type(name, (Structure,), {"_fields_": listed, "kind": kind})


_STRUCTURES: dict[str, tuple[str, int | None]] = {
    "ApplicationInfo": ("s:pName u:version s:pEngine u:engineVersion u:apiVersion", 0),
    "InstanceCreateInfo": ("u:flags p:pApp u:layers p:pLayers u:extensions p:pExtensions", 1),
    "DeviceQueueCreateInfo": ("u:flags u:family u:count p:pPriorities", 2),
    "DeviceCreateInfo": (
        "u:flags u:queues p:pQueues u:layers p:pLayers u:extensions p:pExtensions p:pFeatures", 3),
    "SubmitInfo": (
        "u:waits p:pWaits p:pStages u:buffers p:pBuffers u:signals p:pSignals", 4),
    "MemoryAllocateInfo": ("q:size u:type", 5),
    "BufferCreateInfo": ("u:flags q:size u:usage u:sharing u:families p:pFamilies", 12),
    "ShaderModuleCreateInfo": ("u:flags q:size p:pCode", 16),
    "ComputePipelineCreateInfo": (
        "u:flags u:_gap u:stageType p:pStageNext u:stageFlags u:stage q:module s:entry"
        " p:pSpecialization q:layout q:base i:baseIndex", 29),
    "PipelineLayoutCreateInfo": ("u:flags u:sets p:pSets u:ranges p:pRanges", 30),
    "DescriptorSetLayoutCreateInfo": ("u:flags u:count p:pBindings", 32),
    "DescriptorPoolCreateInfo": ("u:flags u:sets u:sizes p:pSizes", 33),
    "DescriptorSetAllocateInfo": ("q:pool u:count p:pLayouts", 34),
    "WriteDescriptorSet": (
        "q:set u:binding u:element u:count u:type p:pImages p:pBuffers p:pTexels", 35),
    "CommandPoolCreateInfo": ("u:flags u:family", 39),
    "CommandBufferAllocateInfo": ("q:pool u:level u:count", 40),
    "CommandBufferBeginInfo": ("u:flags p:pInheritance", 42),
    "MemoryBarrier": ("u:source u:target", 46),
    "Features11": ("u*12:on", 49),
    "Features12": ("u*47:on", 51),
    "Features2": ("u*55:on", 1000059000),
    "Properties2": ("u*206:_properties", 1000059001),
    "FloatControls": ("u*17:on", 1000197000),
    "DescriptorSetLayoutBinding": ("u:binding u:type u:count u:stages p:pSamplers", None),
    "DescriptorBufferInfo": ("q:buffer q:offset q:range", None),
    "DescriptorPoolSize": ("u:type u:count", None),
    "BufferCopy": ("q:source q:target q:size", None),
    "MemoryRequirements": ("q:size q:alignment u:types", None),
    "MemoryProperties": ("u:typeCount u*64:types u:heapCount u*64:heaps", None),
    "QueueFamilyProperties": ("u:flags u:count u:bits u*3:granularity", None),
    # The limits of shaders of other kinds stand between those that are named.
    "Properties": (
        "u:apiVersion u:driver u:vendor u:device u:type u*64:name u*4:uuid"
        " u:_gap u*7:_images u:storageRange u*3:_counts q:granularity q:sparse"
        " u*3:_sets u:storageBuffers u*3:_ofStage u:resources u*3:_ofSet u:storageOfSet"
        " u*26:_stages"
        " u:shared u*3:groups u:invocations u*3:workgroup u*13:_draws"
        " q:mapAlignment q:texelAlignment q:uniformAlignment q:storageAlignment u*128:_rest", None),
}  # fmt: skip

_types = {name: _structure(name, *rest) for name, rest in _STRUCTURES.items()}


def make(name: str, **fields: Any) -> Any:
    """A structure with some of its fields set; a field whose name begins with p takes an array or a
    structure, and points to it."""
    return _types[name](**fields)


def array(structures: Iterable[Any]) -> Any:
    """One structure or more as a C array; they must live as long as it is used."""
    listed = list(structures)
    kind: Any = type(listed[0])
    return (kind * len(listed))(*listed)


FUNCTIONS = {
    "vkCreateInstance": "ppp",
    "vkDestroyInstance": "pp",
    "vkEnumeratePhysicalDevices": "ppp",
    "vkGetPhysicalDeviceProperties": "pp",
    "vkGetPhysicalDeviceProperties2": "pp",
    "vkGetPhysicalDeviceFeatures2": "pp",
    "vkGetPhysicalDeviceMemoryProperties": "pp",
    "vkGetPhysicalDeviceQueueFamilyProperties": "ppp",
    "vkCreateDevice": "pppp",
    "vkDestroyDevice": "pp",
    "vkGetDeviceQueue": "puup",
    "vkQueueSubmit": "pupq",
    "vkQueueWaitIdle": "p",
    "vkAllocateMemory": "pppp",
    "vkFreeMemory": "pqp",
    "vkMapMemory": "pqqqup",
    "vkCreateBuffer": "pppp",
    "vkDestroyBuffer": "pqp",
    "vkGetBufferMemoryRequirements": "pqp",
    "vkBindBufferMemory": "pqqq",
    "vkCreateShaderModule": "pppp",
    "vkDestroyShaderModule": "pqp",
    "vkCreateComputePipelines": "pquppp",
    "vkDestroyPipeline": "pqp",
    "vkCreatePipelineLayout": "pppp",
    "vkDestroyPipelineLayout": "pqp",
    "vkCreateDescriptorSetLayout": "pppp",
    "vkDestroyDescriptorSetLayout": "pqp",
    "vkCreateDescriptorPool": "pppp",
    "vkDestroyDescriptorPool": "pqp",
    "vkAllocateDescriptorSets": "ppp",
    "vkUpdateDescriptorSets": "pupup",
    "vkCreateCommandPool": "pppp",
    "vkDestroyCommandPool": "pqp",
    "vkAllocateCommandBuffers": "ppp",
    "vkFreeCommandBuffers": "pqup",
    "vkBeginCommandBuffer": "pp",
    "vkEndCommandBuffer": "p",
    "vkCmdBindPipeline": "puq",
    "vkCmdBindDescriptorSets": "puquupup",
    "vkCmdDispatch": "puuu",
    "vkCmdCopyBuffer": "pqqup",
    "vkCmdPipelineBarrier": "puuuupupup",
}

CODES = Codes(
    {
        -1: "out of host memory",
        -2: "out of device memory",
        -3: "initialization failed",
        -4: "device lost",
        -5: "memory map failed",
        -7: "an extension is not present",
        -8: "a feature is not present",
        -9: "incompatible driver",
        -10: "too many objects",
        -12: "fragmented pool",
        -13: "unknown error",
    },
    memory=(-1, -2, -5, -10, -12),
    lost=(-4,),
)

# The specification's values, as bits.
STORAGE, COPY_SOURCE, COPY_TARGET = 0x20, 0x1, 0x2
DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 0x1, 0x2, 0x4, 0x8
QUEUE_GRAPHICS, QUEUE_COMPUTE = 0x1, 0x2
STAGE_COMPUTE, STAGE_TRANSFER, STAGE_HOST = 0x800, 0x1000, 0x4000
SHADER_READ, SHADER_WRITE, TRANSFER_READ, TRANSFER_WRITE, HOST_READ, HOST_WRITE = (
    0x20, 0x40, 0x800, 0x1000, 0x2000, 0x4000,
)  # fmt: skip
SHADER_COMPUTE = 0x20
DESCRIPTOR_STORAGE_BUFFER = 7
BIND_COMPUTE = 1
POOL_RESETS = 0x2
SIMULTANEOUS_USE = 0x4


def version(major: int, minor: int) -> int:
    """A version of the API as a number."""
    return major << 22 | minor << 12


class Vulkan(Library):
    """The loader's functions."""

    def __init__(self) -> None:
        super().__init__(
            ("libvulkan.so.1", "libvulkan.so", "vulkan-1.dll", "libvulkan.dylib"),
            FUNCTIONS,
            CODES,
            "install the GPU's driver and the Vulkan loader (libvulkan1 on Debian), or the software"
            " driver mesa-vulkan-drivers",
        )

    def create(self, function: str, owner: Any, info: Any) -> int:
        """Call a function that makes something for an owner, and return the new handle."""
        made = u64()
        self(function, owner, c.byref(info), None, c.byref(made))
        return made.value

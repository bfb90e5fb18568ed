"""A Vulkan device, opened for computing: which one, what it can do, and its queue."""

from __future__ import annotations

import ctypes as c
from typing import Any

from rlx.errors import DeviceError
from rlx.targets.gpu.library import choose
from rlx.targets.gpu.work import Limits
from rlx.targets.vulkan import api
from rlx.targets.vulkan.api import Vulkan, make, version

__all__ = ["Device"]

_RANKS = {2: 0, 1: 1, 3: 2, 0: 3, 4: 4}
"""Kinds of devices, from what is expected to be fastest on: discrete, integrated, virtual, other,
software."""
_SOFTWARE = 4

_FEATURES = {
    "float64": (("Features2", 39),),
    "int64": (("Features2", 40),),
    "int16": (("Features2", 41), ("Features11", 0)),
    "int8": (("Features12", 8), ("Features12", 2)),
    "float16": (("Features12", 7), ("Features11", 0)),
}
"""What each extra of ``rlx.targets.vulkan.features`` needs: the places of shaderFloat64,
shaderInt64, shaderInt16 and storageBuffer16BitAccess, shaderInt8 and storageBuffer8BitAccess,
shaderFloat16 in the specification's structures."""

_KEEPS_NANS = {"float32": 3, "float16": 2, "float64": 4}
"""The places of shaderSignedZeroInfNanPreserveFloat32, 16 and 64 among the float controls."""


class Device:
    """The device that RLX_GPU says, or the one that is expected to be fastest.

    ``handle`` is the VkDevice, ``queue`` its queue of family ``family``, ``memory`` the types of
    memory that it has. DeviceError if there is none, or none that will do.
    """

    def __init__(self, vk: Vulkan) -> None:
        self.vk = vk
        self.instance = self.handle = 0
        try:
            self.instance = self._instance()
            self.physical, self.name, self.properties = self._choose()
            self.software = self.properties.type == _SOFTWARE
            self.memory = make("MemoryProperties")
            vk.plain("vkGetPhysicalDeviceMemoryProperties", self.physical, c.byref(self.memory))
            self.family = self._family()
            self.handle, self.features = self._open()
        except BaseException:
            self.close()
            raise
        queue = c.c_void_p()
        vk.plain("vkGetDeviceQueue", self.handle, self.family, 0, c.byref(queue))
        self.queue = queue.value or 0

    def _instance(self) -> int:
        app = make("ApplicationInfo", pName=b"rlx", pEngine=b"rlx", apiVersion=version(1, 2))
        instance = c.c_void_p()
        info = make("InstanceCreateInfo", pApp=app)
        self.vk("vkCreateInstance", c.byref(info), None, c.byref(instance))
        return instance.value or 0

    def _choose(self) -> tuple[int, str, Any]:
        count = c.c_uint32()
        self.vk("vkEnumeratePhysicalDevices", self.instance, c.byref(count), None)
        found = (c.c_void_p * count.value)()
        self.vk("vkEnumeratePhysicalDevices", self.instance, c.byref(count), found)
        known: list[Any] = []
        for physical in found:
            known.append(make("Properties"))
            self.vk.plain("vkGetPhysicalDeviceProperties", physical, c.byref(known[-1]))
        names = [bytes(p.name).split(b"\0")[0].decode(errors="replace") for p in known]
        at = choose("vulkan", names, [_RANKS.get(p.type, 3) for p in known])
        if known[at].apiVersion < version(1, 1):
            raise DeviceError(f"vulkan ({names[at]}): it has version 1.0; RLX needs 1.1")
        return found[at] or 0, names[at], known[at]

    def _family(self) -> int:
        """A family of queues that compute, one that does not draw if there is one."""
        count = c.c_uint32()
        name = "vkGetPhysicalDeviceQueueFamilyProperties"
        self.vk.plain(name, self.physical, c.byref(count), None)
        table = api.array(make("QueueFamilyProperties") for _ in range(count.value))
        self.vk.plain(name, self.physical, c.byref(count), table)
        computing = [i for i, f in enumerate(table) if f.flags & api.QUEUE_COMPUTE]
        if not computing:
            raise DeviceError(f"vulkan ({self.name}): the device does not compute")
        return min(computing, key=lambda i: table[i].flags & api.QUEUE_GRAPHICS)

    def _open(self) -> tuple[int, frozenset[str]]:
        """The device with all the extras that it has, and their names."""
        newer = self.properties.apiVersion >= version(1, 2)
        known, wanted = _features(newer), _features(newer)
        self.vk.plain("vkGetPhysicalDeviceFeatures2", self.physical, c.byref(known["Features2"]))
        found: set[str] = set()
        for name, places in _FEATURES.items():
            if all(part in known and known[part].on[i] for part, i in places):
                found.add(name)
                for part, i in places:
                    wanted[part].on[i] = 1
        if newer and self._keeps_nans(found):
            found.add("nans")
        priority = (c.c_float * 1)(1.0)
        queue = make("DeviceQueueCreateInfo", family=self.family, count=1, pPriorities=priority)
        info = make("DeviceCreateInfo", queues=1, pQueues=queue, pNext=wanted["Features2"])
        device = c.c_void_p()
        self.vk("vkCreateDevice", self.physical, c.byref(info), None, c.byref(device))
        return device.value or 0, frozenset(found)

    def _keeps_nans(self, found: set[str]) -> bool:
        """Whether the device can be told, of all floats that it has, that nan, infinities and the
        signs of zeros count."""
        floats = make("FloatControls")
        info = make("Properties2", pNext=floats)
        self.vk.plain("vkGetPhysicalDeviceProperties2", self.physical, c.byref(info))
        return all(floats.on[i] for t, i in _KEEPS_NANS.items() if t in {"float32", *found})

    @property
    def limits(self) -> Limits:
        """What launches may ask of it."""
        p = self.properties
        # A heap has four words: the two of its size, flags, and a gap.
        words = [self.memory.heaps[4 * i : 4 * i + 3] for i in range(self.memory.heapCount)]
        largest = max(low | high << 32 for low, high, flags in words if flags & api.DEVICE_LOCAL)
        return Limits(
            groups=tuple(p.groups),
            workgroup=tuple(p.workgroup),
            invocations=p.invocations,
            shared=p.shared,
            binding=min(p.storageRange, largest),
            bindings=min(p.storageBuffers, p.resources, p.storageOfSet),
            alignment=max(16, p.storageAlignment),
            buffer=largest,
        )

    def memory_type(self, allowed: int, flags: int) -> int:
        """The type of memory, of those whose bits are allowed, that has all the flags. Of what the
        host sees, it reads fastest what it caches."""
        types = [self.memory.types[2 * i] for i in range(self.memory.typeCount)]
        for extra in (api.HOST_CACHED, 0) if flags & api.HOST_VISIBLE else (0,):
            wanted = flags | extra
            for i, has in enumerate(types):
                if allowed >> i & 1 and has & wanted == wanted:
                    return i
        # The specification promises both kinds that are asked for.
        raise AssertionError(f"vulkan ({self.name}): no memory of kind {flags:#x}")

    def close(self) -> None:
        """Give the device back."""
        if self.handle:
            self.vk.plain("vkDestroyDevice", self.handle, None)
        if self.instance:
            self.vk.plain("vkDestroyInstance", self.instance, None)
        self.instance = self.handle = 0


def _features(newer: bool) -> dict[str, Any]:
    """The structures that ask for features, each leading to the next."""
    if not newer:
        return {"Features2": make("Features2")}
    last = make("Features12")
    middle = make("Features11", pNext=last)
    return {"Features2": make("Features2", pNext=middle), "Features11": middle, "Features12": last}

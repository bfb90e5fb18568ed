"""The devices that RLX knows by name, and why one is not there: what it needs, and what is here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rlx.errors import DeviceError, did_you_mean
from rlx.targets.gpu.drivers import DRIVERS, Probe, probe

__all__ = [
    "DEVICE_PRIORITY",
    "NAMES",
    "REFERENCE",
    "Device",
    "found_by_driver",
    "is_software",
    "label",
    "why_missing",
]


@dataclass(frozen=True)
class _Known:
    """A device's name for people, other names of it, and what it needs where no driver of RLX's
    finds it."""

    label: str
    aliases: tuple[str, ...] = ()
    needs: str = ""


_KNOWN = {
    "tpu": _Known("TPU", needs="this build has no driver for it"),
    "cuda": _Known("CUDA", ("nvidia",)),
    "rocm": _Known("ROCm", ("hip", "amd")),
    "mlx": _Known("MLX", needs="it needs a Mac, and this build has no driver for it"),
    "metal": _Known("Metal", ("mtl",)),
    "ane": _Known("ANE", ("neural-engine",), "this build has no driver for it"),
    "gpu": _Known("GPU (wgpu)", ("wgpu",)),
    "vulkan": _Known("Vulkan", ("vk",)),
    "opencl": _Known("OpenCL", ("cl",)),
    "directx": _Known("DirectX 12", ("dx12", "d3d12")),
    "opengl": _Known("OpenGL", ("gl",)),
    "webgpu": _Known(
        "WebGPU", (),
        "browsers have it (rlx export-web writes for them); here 'gpu' is the same, with rlx[gpu]",
    ),
    "cpu": _Known("CPU"),
    "interpret": _Known("interpreter"),
}  # fmt: skip

DEVICE_PRIORITY = tuple(_KNOWN)
"""Devices from the one that is expected to be fastest on. Others that are registered come last, and
a device that is the processor by way of a GPU's API comes after the processor itself."""

REFERENCE = "interpret"
"""The interpreter: it says what is right, and is no device to compute on."""

NAMES = {n: device for device, known in _KNOWN.items() for n in (device, *known.aliases)}
"""The device that each name means, other names of devices among them, in lower case."""


class Device(StrEnum):
    """The twelve devices of RLX's interface. A device is a string: those beside them ("opencl",
    "interpret", and what is registered from outside) go by their names."""

    CPU = "cpu"
    METAL = "metal"
    MLX = "mlx"
    ANE = "ane"
    CUDA = "cuda"
    ROCM = "rocm"
    TPU = "tpu"
    GPU = "gpu"
    VULKAN = "vulkan"
    OPENGL = "opengl"
    DIRECTX = "directx"
    WEBGPU = "webgpu"

    @property
    def label(self) -> str:
        """The device's name for people: "GPU (wgpu)"."""
        return label(self)

    @staticmethod
    def all() -> tuple[Device, ...]:
        """All twelve."""
        return tuple(Device)

    @staticmethod
    def parse(text: str) -> Device:
        """The device of a name or another name of it ("nvidia", "vk"), upper and lower case being
        the same; DeviceError for what is none."""
        found = NAMES.get(text.strip().lower())
        if found in set(Device):
            return Device(found)
        known = [n for n, device in NAMES.items() if device in set(Device)]
        raise DeviceError(f"no device is called {text!r}{did_you_mean(text, known)}")


def label(device: str) -> str:
    """The name of a device for people; a device from outside has the one that it goes by."""
    return _KNOWN[device].label if device in _KNOWN else device


def found_by_driver(device: str) -> Probe | None:
    """What a driver of RLX's finds for a device; None if it has no driver for it."""
    return probe(device) if device in DRIVERS else None


def is_software(device: str) -> bool:
    """Whether a device is this machine's processor by way of a GPU's API."""
    found = found_by_driver(device)
    return found is not None and found.software


def why_missing(device: str) -> str:
    """Why a device that RLX knows cannot be used, where no backend is registered for it."""
    found = found_by_driver(device)
    if found is None:
        return _KNOWN[device].needs
    if not found.found:
        return found.why
    return f"its driver finds {found.name}, but this build generates no code for it"

"""The devices that RLX knows, by all of their names."""

from __future__ import annotations

from enum import StrEnum

from rlx.base.frozen import frozen
from rlx.errors import DeviceError, did_you_mean

__all__ = ["DEVICE_PRIORITY", "KNOWN", "NAMES", "REFERENCE", "Device", "label"]


@frozen
class Known:
    """A device's name for people, other names of it, and what it needs where no driver of RLX's
    finds it."""

    label: str
    aliases: tuple[str, ...] = ()
    needs: str = ""


KNOWN = {
    "tpu": Known("TPU", needs="it needs a TPU and rlx[tpu], or a PJRT plugin (RLX_PJRT)"),
    "cuda": Known("CUDA", ("nvidia",)),
    "rocm": Known("ROCm", ("hip", "amd")),
    "mlx": Known("MLX", needs="it needs MLX (rlx[mlx])"),
    "metal": Known("Metal", ("mtl",)),
    "ane": Known("ANE", ("neural-engine",), "it needs a Mac and coremltools (rlx[ane])"),
    "gpu": Known("GPU (wgpu)", ("wgpu",)),
    "vulkan": Known("Vulkan", ("vk",)),
    "opencl": Known("OpenCL", ("cl",)),
    "directx": Known("DirectX 12", ("dx12", "d3d12")),
    "opengl": Known("OpenGL", ("gl",)),
    "webgpu": Known(
        "WebGPU", (),
        "browsers have it (rlx export-web writes for them); here 'gpu' is the same: rlx[webgpu]",
    ),
    "cpu": Known("CPU"),
    "wasm": Known(
        "WebAssembly", (),
        "there is no driver for it here: browsers and node run what rlx export-web writes for it",
    ),
    "interpret": Known("interpreter"),
}  # fmt: skip

DEVICE_PRIORITY = tuple(KNOWN)
"""Devices from the one that is expected to be fastest on. Others that are registered come last, and
a device that is the processor by way of a GPU's API comes after the processor itself."""

REFERENCE = "interpret"
"""The interpreter: it says what is right, and is no device to compute on."""

NAMES = {n: device for device, known in KNOWN.items() for n in (device, *known.aliases)}
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
    return KNOWN[device].label if device in KNOWN else device

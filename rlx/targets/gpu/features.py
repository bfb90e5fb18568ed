"""What a WebGPU device can do, as far as the WGSL that RLX emits depends on it."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.errors import DeviceError, did_you_mean
from rlx.types import DType, f64, i64, u64

__all__ = ["DEFAULT", "PRESETS", "Features", "preset"]


@dataclass(frozen=True)
class Features:
    """A profile: WebGPU without extensions."""

    isa: str

    @property
    def name(self) -> str:
        """The profile's name."""
        return self.isa

    @property
    def has(self) -> frozenset[str]:
        """What code for it needs of a device: nothing that some have not."""
        return frozenset()

    @property
    def lacks(self) -> dict[DType, str]:
        """The element types that kernels must do without, and what would provide them."""
        return {
            dt: "WGSL has none; use a narrower type, or a device such as vulkan, opencl or cpu"
            for dt in (f64, i64, u64)
        }


PRESETS: dict[str, Features] = {"webgpu": Features("webgpu")}

DEFAULT = "webgpu"


def preset(name: str) -> Features:
    """The features called ``name``; DeviceError if there are none."""
    if name not in PRESETS:
        hint = did_you_mean(name, PRESETS)
        raise DeviceError(
            f"unknown WebGPU profile {name!r}{hint}; RLX emits WGSL for {', '.join(PRESETS)}"
        )
    return PRESETS[name]

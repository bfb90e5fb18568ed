"""The OpenCL devices that RLX emits code for."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.errors import DeviceError, did_you_mean
from rlx.types import DType, f64

__all__ = ["DEFAULT", "PRESETS", "Features", "preset"]


@dataclass(frozen=True)
class Features:
    """A version of OpenCL C, and whether the device has doubles."""

    isa: str
    doubles: bool

    @property
    def name(self) -> str:
        """``opencl1.2``, or ``opencl1.2-fp64`` for a device without doubles."""
        return self.isa

    @property
    def has(self) -> frozenset[str]:
        """What code for it may need of a device."""
        return frozenset(["float64"]) if self.doubles else frozenset()

    @property
    def lacks(self) -> dict[DType, str]:
        """The element types that kernels must do without, and what would provide them."""
        return {} if self.doubles else {f64: "compile for a device with cl_khr_fp64"}


PRESETS: dict[str, Features] = {
    f.isa: f for f in (Features("opencl1.2-fp64", False), Features("opencl1.2", True))
}

DEFAULT = "opencl1.2"


def preset(name: str) -> Features:
    """The features called ``name``; DeviceError if there are none."""
    if name not in PRESETS:
        hint = did_you_mean(name, PRESETS)
        raise DeviceError(
            f"unknown OpenCL profile {name!r}{hint}; RLX emits OpenCL C for {', '.join(PRESETS)}"
        )
    return PRESETS[name]

"""The OpenCL devices that RLX emits code for."""

from __future__ import annotations

from rlx.targets.gpu.profiles import Profile, best_profile, find_profile
from rlx.types import f64

__all__ = ["DEFAULT", "PRESETS", "SHARED_BYTES", "best", "preset"]

SHARED_BYTES = 32 << 10
"""Local memory that every device of the full profile has."""

DEFAULT = "opencl1.2"

PRESETS = {
    "opencl1.2-fp64": Profile("opencl1.2-fp64", {f64: "compile for a device with cl_khr_fp64"}),
    DEFAULT: Profile(DEFAULT, has=frozenset(["float64"])),
}
"""``opencl1.2``, or ``opencl1.2-fp64`` for a device without doubles."""


def preset(name: str) -> Profile:
    """The profile called ``name``; DeviceError if there is none."""
    return find_profile(PRESETS, name, "OpenCL", "OpenCL C")


def best(found: frozenset[str]) -> Profile:
    """The profile for a device that has what ``found`` names."""
    return best_profile(PRESETS, found)

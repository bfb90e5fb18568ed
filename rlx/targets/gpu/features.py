"""What a WebGPU device can do, as far as the WGSL that RLX emits depends on it."""

from __future__ import annotations

from rlx.targets.gpu.profiles import Profile, best_profile, find_profile
from rlx.types import f64, i64, u64

__all__ = ["DEFAULT", "PRESETS", "best", "preset"]

_ELSEWHERE = "WGSL has none; use a narrower type, or a device such as vulkan, opencl or cpu"

DEFAULT = "webgpu"

PRESETS = {DEFAULT: Profile(DEFAULT, dict.fromkeys((f64, i64, u64), _ELSEWHERE))}
"""WebGPU without extensions."""


def preset(name: str) -> Profile:
    """The profile called ``name``; DeviceError if there is none."""
    return find_profile(PRESETS, name, "WebGPU", "WGSL")


def best(found: frozenset[str]) -> Profile:
    """The profile for a device that has what ``found`` names."""
    return best_profile(PRESETS, found)

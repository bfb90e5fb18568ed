"""What a device with Direct3D can do, as far as the HLSL that RLX emits depends on it."""

from __future__ import annotations

from rlx.targets.gpu.profiles import Profile, best_profile, find_profile
from rlx.types import f64, i64, u64

__all__ = ["DEFAULT", "PRESETS", "SHARED_BYTES", "best", "preset"]

_ELSEWHERE = "RLX's HLSL has numbers of 32 bits; use a narrower type, or a device such as vulkan"

SHARED_BYTES = 32 << 10
"""Memory that the threads of a group share on every device of the shader model."""

DEFAULT = "sm5.0"

PRESETS = {DEFAULT: Profile(DEFAULT, dict.fromkeys((f64, i64, u64), _ELSEWHERE))}
"""By shader models: 5.0 is the first with compute shaders that write buffers at any place."""


def preset(name: str) -> Profile:
    """The profile called ``name``; DeviceError if there is none."""
    return find_profile(PRESETS, name, "Direct3D", "HLSL")


def best(found: frozenset[str]) -> Profile:
    """The profile for a device that has what ``found`` names."""
    return best_profile(PRESETS, found)

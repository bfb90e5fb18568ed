"""What an OpenGL device can do, as far as the GLSL that RLX emits depends on it."""

from __future__ import annotations

from rlx.targets.gpu.profiles import Profile, best_profile, find_profile
from rlx.types import f64, i64, u64

__all__ = ["DEFAULT", "PRESETS", "SHARED_BYTES", "best", "preset"]

_ELSEWHERE = "RLX's GLSL has numbers of 32 bits; use a narrower type, or a device such as vulkan"

SHARED_BYTES = 32 << 10
"""Shared memory that OpenGL 4.3 asks of every device."""

DEFAULT = "opengl4.3"

PRESETS = {DEFAULT: Profile(DEFAULT, dict.fromkeys((f64, i64, u64), _ELSEWHERE))}
"""By versions of OpenGL: 4.3 is the first with compute shaders."""


def preset(name: str) -> Profile:
    """The profile called ``name``; DeviceError if there is none."""
    return find_profile(PRESETS, name, "OpenGL", "GLSL")


def best(found: frozenset[str]) -> Profile:
    """The profile for a device that has what ``found`` names."""
    return best_profile(PRESETS, found)

"""The Metal devices that RLX emits code for: all of them, since Metal leaves little optional."""

from __future__ import annotations

from rlx.targets.gpu.profiles import Profile, best_profile, find_profile
from rlx.types import f64

__all__ = ["DEFAULT", "PRESETS", "SHARED_BYTES", "best", "preset"]

SHARED_BYTES = 32 << 10
"""Threadgroup memory that every GPU has since that of macOS 11."""

DEFAULT = "metal2.4"

PRESETS = {
    DEFAULT: Profile(DEFAULT, {f64: "Metal has no doubles; use f32, or a device such as cpu"})
}
"""By versions of the language: 2.4 is that of macOS 12."""


def preset(name: str) -> Profile:
    """The profile called ``name``; DeviceError if there is none."""
    return find_profile(PRESETS, name, "Metal", "MSL")


def best(found: frozenset[str]) -> Profile:
    """The profile for a device that has what ``found`` names."""
    return best_profile(PRESETS, found)

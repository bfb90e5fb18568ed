"""Profiles of the targets whose drivers take source: what a device of each can compute with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlx.errors import DeviceError, did_you_mean
from rlx.types import DType

__all__ = ["Profile", "best_profile", "find_profile"]


@dataclass(frozen=True)
class Profile:
    """A version of a shading language by its name."""

    name: str
    lacks: Mapping[DType, str] = field(default_factory=dict[DType, str])
    """The element types that kernels must do without, and what would provide each."""
    has: frozenset[str] = frozenset()
    """What kernels may need of a device, in the words of its driver's features."""

    @property
    def isa(self) -> str:
        """The preset, which is the profile itself."""
        return self.name


def find_profile(profiles: Mapping[str, Profile], name: str, kind: str, language: str) -> Profile:
    """The profile called ``name``; DeviceError, which says what ``kind`` of profile it is and that
    RLX emits ``language`` for the others, if there is none."""
    if name not in profiles:
        hint = did_you_mean(name, profiles)
        raise DeviceError(
            f"unknown {kind} profile {name!r}{hint}; RLX emits {language} for {', '.join(profiles)}"
        )
    return profiles[name]


def best_profile(profiles: Mapping[str, Profile], found: frozenset[str]) -> Profile:
    """The last of the profiles, from the least to the best, that needs no more than ``found``."""
    return [p for p in profiles.values() if p.has <= found][-1]

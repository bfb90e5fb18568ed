"""What a device can do, for the targets where a name says all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlx.types import DType

__all__ = ["Chip", "Profile", "best_profile"]


@dataclass(frozen=True)
class Chip:
    """A kind of GPU by its name. Code for it needs a GPU that runs it."""

    isa: str

    @property
    def name(self) -> str:
        """The preset, such as ``sm_80``."""
        return self.isa

    @property
    def has(self) -> frozenset[str]:
        """What code for it needs of a device."""
        return frozenset([self.isa])


@dataclass(frozen=True)
class Profile:
    """A version of a shading language by its name: what a device of it can compute with."""

    name: str
    lacks: Mapping[DType, str] = field(default_factory=dict[DType, str])
    """The element types that kernels must do without, and what would provide each."""
    has: frozenset[str] = frozenset()
    """What kernels may need of a device, in the words of its driver's features."""
    shared_bytes: int = 16 << 10
    """Memory that the threads of a group share on every device; by default on every one of
    WebGPU."""

    @property
    def isa(self) -> str:
        """The preset, which is the profile itself."""
        return self.name


def best_profile(profiles: Mapping[str, Profile], found: frozenset[str]) -> Profile:
    """The last of the profiles, from the least to the best, that needs no more than ``found``."""
    return [p for p in profiles.values() if p.has <= found][-1]

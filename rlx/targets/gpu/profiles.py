"""Device profiles, for the targets where a name says all features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from rlx.base.frozen import frozen
from rlx.targets.preset import check_extras, find_preset
from rlx.types import DType

__all__ = ["BUFFERS", "Chip", "Profile", "best_profile", "buffer_words", "find_profile", "most_of"]

BUFFERS = {f"buffers{n}": n for n in (10, 16, 32, 64, 512)}
"""How many buffers a kernel may bind where that is for the device to say, by the words of drivers:
a device has every word up to what it allows. No kernel binds more than the last."""


def buffer_words(count: int) -> frozenset[str]:
    """The words of ``BUFFERS`` for a device whose kernels may bind so many."""
    return frozenset(word for word, n in BUFFERS.items() if n <= count)


def most_of(words: frozenset[str], least: int) -> int:
    """The buffers that words of ``BUFFERS`` allow, where every device allows ``least``."""
    return max(least, *(BUFFERS.get(word, 0) for word in words), 0)


@frozen
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


@frozen
class Profile:
    """A version of a shading language: what a device of it can compute with."""

    isa: str
    """The preset."""
    lacks: Mapping[DType, str] = field(default_factory=dict[DType, str])
    """The element types that kernels must do without, and what would provide each."""
    has: frozenset[str] = frozenset()
    """What kernels may need of a device, in the words of its driver's features."""
    shared_bytes: int = 16 << 10
    """Memory that the threads of a group share on every device; by default on every one of
    WebGPU."""
    least_buffers: int = 8
    """Buffers that a kernel may bind on every device; by default on every one of WebGPU."""
    extras: frozenset[str] = frozenset()
    """What a device may have beyond: words of ``BUFFERS``, if it says how many it takes."""

    @property
    def name(self) -> str:
        """``webgpu+buffers16``: the preset, and how many buffers a kernel may bind beyond it."""
        most = f"buffers{self.most_buffers}"
        return f"{self.isa}+{most}" if most in self.has else self.isa

    @property
    def most_buffers(self) -> int:
        """Buffers that a kernel may bind."""
        return most_of(self.has, self.least_buffers)

    def with_buffers(self, count: int) -> Profile:
        """The same on devices whose kernels may bind so many buffers."""
        return replace(self, has=self.has | buffer_words(max(count, self.most_buffers)))


def find_profile(profiles: Mapping[str, Profile], name: str, kind: str, emitted: str) -> Profile:
    """The profile called ``name``, such as ``webgpu`` or ``webgpu+buffers16``; DeviceError, which
    lists those that there are, for any other name."""
    isa, *extras = name.split("+")
    base = find_preset(profiles, isa, kind, emitted)
    check_extras(isa, extras, [word for word in BUFFERS if word in base.extras])
    return base.with_buffers(max(BUFFERS[word] for word in extras)) if extras else base


def best_profile(profiles: Mapping[str, Profile], found: frozenset[str]) -> Profile:
    """The last of the profiles, from the least to the best, that needs no more than ``found``, with
    as many buffers."""
    base = [p for p in profiles.values() if p.has <= found][-1]
    most = most_of(found & base.extras, base.least_buffers)
    return base if most == base.least_buffers else base.with_buffers(most)

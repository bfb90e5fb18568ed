"""Features by name: those of a target's presets, or an error that lists them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from rlx.base.frozen import frozen
from rlx.errors import DeviceError, did_you_mean

__all__ = ["Named", "check_extras", "find_preset"]

F = TypeVar("F")


@frozen
class Named:
    """Features of which the name says all."""

    name: str

    @property
    def isa(self) -> str:
        """The preset."""
        return self.name

    @property
    def has(self) -> frozenset[str]:
        """What code for it needs of a device: nothing beyond its name."""
        return frozenset()


def find_preset(presets: Mapping[str, F], name: str, kind: str, emitted: str) -> F:
    """The preset called ``name``; DeviceError, which says what ``kind`` of name it is and for which
    ones RLX has ``emitted``, if there is none."""
    if name not in presets:
        raise DeviceError(
            f"unknown {kind} {name!r}{did_you_mean(name, presets)}; "
            f"RLX emits {emitted} for {', '.join(presets)}"
        )
    return presets[name]


def check_extras(isa: str, extras: Iterable[str], known: Collection[str]) -> None:
    """DeviceError, which lists what is ``known``, for an extra of ``isa`` that is not among it."""
    for extra in extras:
        if extra not in known:
            raise DeviceError(
                f"unknown extra {extra!r} of {isa}{did_you_mean(extra, known)}; "
                f"known are {', '.join(known) or 'none'}"
            )

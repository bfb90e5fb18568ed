"""The target that a kernel is made for: without what its element types have no use for.

What a CPU has beyond its level multiplies and converts elements of 8 and 16 bits. The kernels of
other types are the same code on all CPUs of a level, and made for the level alone they have one
object, which a wheel can bring (``rlx/runtime/cache/shipped.py``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rlx.kernels.registry import FAMILIES
from rlx.targets.cpu import make_target

if TYPE_CHECKING:
    from rlx.targets.base import Target

__all__ = ["target_of"]

_NARROW = re.compile(r"rlx\.(?!(?:bool|[fiu](?:32|64))\b)|\bWords\(")
"""In a config: an element type of other than 32 and 64 bits, or words of several elements."""


def target_of(family: str, config: str, target: Target) -> Target:
    """The target that a kernel is made for whose graph is compiled for ``target``; ``config`` is
    the text of its config."""
    if target.name != "cpu" or not FAMILIES[family].plain or _NARROW.search(config):
        return target
    isa = target.features.isa
    return target if target.features.name == isa else make_target(isa)

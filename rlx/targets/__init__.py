"""Targets by name: a directory each, with the same files (features, emit, target)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from rlx.errors import DeviceError, did_you_mean

if TYPE_CHECKING:
    from rlx.targets.base import Target

__all__ = ["TARGETS", "find_target"]

TARGETS = {
    "cpu": "rlx.targets.cpu",
    "cuda": "rlx.targets.cuda",
    "vulkan": "rlx.targets.vulkan",
    "gpu": "rlx.targets.gpu",
    "opencl": "rlx.targets.opencl",
    "metal": "rlx.targets.metal",
    "opengl": "rlx.targets.opengl",
    "directx": "rlx.targets.directx",
}
"""The module of each target; it has ``make_target(features)``."""


def find_target(text: str) -> Target:
    """The target that ``"cpu"`` or ``"cpu:x86-64-v4"`` names; DeviceError if there is none."""
    name, _, features = text.partition(":")
    if name not in TARGETS:
        raise DeviceError(
            f"no target is called {name!r}{did_you_mean(name, TARGETS)}; "
            f"there are {', '.join(TARGETS)}"
        )
    return importlib.import_module(TARGETS[name]).make_target(features or None)

"""Browsers: the WGSL of the target ``gpu``, for programs that ``rlx.runtime.web`` writes.

rlx export-web model.rlx.mlir -o site
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx.targets.base import Target

__all__ = ["make_target"]


@cache
def make_target(features: str | None = None) -> Target:
    """The target of browsers for a profile by name; by default ``webgpu``, which every one has.

    Raises DeviceError for an unknown profile.
    """
    from rlx.targets.gpu.emit import text_target
    from rlx.targets.gpu.languages.wgsl import WGSL
    from rlx.targets.webgpu.features import DEFAULT, preset

    return text_target("webgpu", preset(features or DEFAULT), WGSL)

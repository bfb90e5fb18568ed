"""What the targets that run kernels on a GPU have in common, and the WebGPU target itself.

language.py   what a shading language is: a table of templates, and no code
languages/    one table a language
printer.py    the one visitor that prints a kernel by a table
emit.py       from kernel text in MLIR to the source that a driver compiles
program.py    what a compile gives: kernels, buffers, and the steps that launch them
work.py       what a driver is given, and what it gives back
driver.py     what runs kernels on a device
features.py, launch.py   WebGPU: what its devices can do, and the driver of the wgpu package
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx.targets.base import Target

__all__ = ["make_target"]


@cache
def make_target(features: str | None = None) -> Target:
    """The WebGPU target for a profile by name; by default ``webgpu``, which every device has.

    Raises DeviceError for an unknown profile.
    """
    # Imported here: drivers need nothing that compiles.
    from rlx.targets.gpu.emit import text_target
    from rlx.targets.gpu.features import DEFAULT, preset
    from rlx.targets.gpu.languages.wgsl import WGSL

    return text_target("gpu", preset(features or DEFAULT), WGSL)

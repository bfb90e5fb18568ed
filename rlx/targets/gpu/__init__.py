"""Common parts of the GPU targets, and the target of native WebGPU.

language.py   what a shading language is: a table of templates, and no code
languages/    one table a language
printer.py    the one visitor that prints a kernel by a table
target.py     a target, and what emits its stages
emit.py       from kernel text in MLIR to the source that a driver compiles
program.py    what a compile gives: kernels, buffers, and the steps that launch them
work.py       what a driver is given, and what it gives back
driver.py     what runs kernels on a device
drivers.py    the drivers by name, and those that are open
library.py, streams.py   what drivers share: a C library by ctypes; the streams of CUDA and HIP
connections.py   the libraries that connect ranks on GPUs
profiles.py   what devices can do, where a name says all of it
features.py, launch.py   WebGPU: what its devices can do, and the driver of the wgpu package
"""

from __future__ import annotations

import importlib
from functools import cache, partial
from typing import TYPE_CHECKING

from rlx.targets import features_of

if TYPE_CHECKING:
    from rlx.targets.base import Target

__all__ = ["make_target", "source_target"]


@cache
def source_target(name: str, language: str, features: str | None = None) -> Target:
    """The target called ``name``, whose drivers take source in a language, "module:TABLE" of
    ``languages``, for a profile by name; by default that of most devices.

    Raises DeviceError for an unknown profile.
    """
    # Imported here: drivers need nothing that compiles.
    from rlx.targets.gpu.emit import text_target

    features_module = features_of(name)
    profile = features_module.preset(features or features_module.DEFAULT)
    module, _, table = language.partition(":")
    found = importlib.import_module(f"rlx.targets.gpu.languages.{module}")
    return text_target(name, profile, getattr(found, table))


make_target = partial(source_target, "gpu", "wgsl:WGSL")

"""The OpenCL devices that RLX emits code for."""

from __future__ import annotations

from functools import partial

from rlx.targets.gpu.profiles import Profile, best_profile, find_profile
from rlx.types import f64

__all__ = ["DEFAULT", "PRESETS", "best", "preset"]

_SHARED = 32 << 10
"""Local memory that every device of the full profile has."""

_BUFFERS = 1024 // 8
"""Pointers in the bytes of arguments that every device of the full profile takes."""

DEFAULT = "opencl1.2"

PRESETS = {
    "opencl1.2-fp64": Profile(
        "opencl1.2-fp64",
        {f64: "compile for a device with cl_khr_fp64"},
        shared_bytes=_SHARED,
        least_buffers=_BUFFERS,
    ),
    DEFAULT: Profile(
        DEFAULT, has=frozenset(["float64"]), shared_bytes=_SHARED, least_buffers=_BUFFERS
    ),
}
"""``opencl1.2``, or ``opencl1.2-fp64`` for a device without doubles."""

preset = partial(find_profile, PRESETS, kind="OpenCL profile", emitted="OpenCL C")
best = partial(best_profile, PRESETS)

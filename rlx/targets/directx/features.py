"""Features of Direct3D devices that the emitted HLSL depends on."""

from __future__ import annotations

from functools import partial

from rlx.targets.gpu.profiles import Profile, best_profile, find_profile
from rlx.types import f64, i64, u64

__all__ = ["DEFAULT", "PRESETS", "best", "preset"]

_ELSEWHERE = "RLX's HLSL has numbers of 32 bits; use a narrower type, or a device such as vulkan"

_SHARED = 32 << 10
"""Memory that the threads of a group share on every device of the shader model."""

_BUFFERS = 64
"""Registers for what is written, which have the numbers of the bindings: those of Direct3D 12, and
of 11 from feature level 11.1 on."""

DEFAULT = "sm5.0"

PRESETS = {
    DEFAULT: Profile(
        DEFAULT,
        dict.fromkeys((f64, i64, u64), _ELSEWHERE),
        shared_bytes=_SHARED,
        least_buffers=_BUFFERS,
    )
}
"""By shader models: 5.0 is the first with compute shaders that write buffers at any place."""

preset = partial(find_profile, PRESETS, kind="Direct3D profile", emitted="HLSL")
best = partial(best_profile, PRESETS)

"""Features of OpenGL devices that the emitted GLSL depends on."""

from __future__ import annotations

from functools import partial

from rlx.targets.gpu.profiles import BUFFERS, Profile, best_profile, find_profile
from rlx.types import f64, i64, u64

__all__ = ["DEFAULT", "PRESETS", "best", "preset"]

_ELSEWHERE = "RLX's GLSL has numbers of 32 bits; use a narrower type, or a device such as vulkan"

_SHARED = 32 << 10
"""Shared memory that OpenGL 4.3 asks of every device."""

DEFAULT = "opengl4.3"

PRESETS = {
    DEFAULT: Profile(
        DEFAULT,
        dict.fromkeys((f64, i64, u64), _ELSEWHERE),
        shared_bytes=_SHARED,
        extras=frozenset(BUFFERS),
    )
}
"""By versions of OpenGL: 4.3 is the first with compute shaders; every device binds 8 buffers, as
those of WebGPU do, and ``opengl4.3+buffers16`` is for one that binds more."""

preset = partial(find_profile, PRESETS, kind="OpenGL profile", emitted="GLSL")
best = partial(best_profile, PRESETS)

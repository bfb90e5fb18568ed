"""The Metal devices that RLX emits code for: all of them, since Metal leaves little optional."""

from __future__ import annotations

from functools import partial

from rlx.targets.gpu.profiles import Profile, best_profile, find_profile
from rlx.types import f64

__all__ = ["BUFFERS", "DEFAULT", "PRESETS", "best", "preset"]

_SHARED = 32 << 10
"""Threadgroup memory that every GPU has since that of macOS 11."""

BUFFERS = 31
"""Buffers in the table of arguments of a kernel, on every device."""

DEFAULT = "metal2.4"

PRESETS = {
    DEFAULT: Profile(
        DEFAULT,
        {f64: "Metal has no doubles; use f32, or a device such as cpu"},
        shared_bytes=_SHARED,
        least_buffers=BUFFERS,
    )
}
"""By versions of the language: 2.4 is that of macOS 12."""

preset = partial(find_profile, PRESETS, kind="Metal profile", emitted="MSL")
best = partial(best_profile, PRESETS)

"""Features of WebGPU devices that the emitted WGSL depends on."""

from __future__ import annotations

from functools import partial

from rlx.targets.gpu.profiles import BUFFERS, Profile, best_profile, find_profile
from rlx.types import f64, i64, u64

__all__ = ["DEFAULT", "PRESETS", "best", "preset"]

_ELSEWHERE = "WGSL has none; use a narrower type, or a device such as vulkan, opencl or cpu"

DEFAULT = "webgpu"

PRESETS = {
    DEFAULT: Profile(DEFAULT, dict.fromkeys((f64, i64, u64), _ELSEWHERE), extras=frozenset(BUFFERS))
}
"""WebGPU without extensions; ``webgpu+buffers16`` where a device's kernels may bind more buffers
than every one's."""

preset = partial(find_profile, PRESETS, kind="WebGPU profile", emitted="WGSL")
best = partial(best_profile, PRESETS)

"""Features of browsers' WebGPU: those of the wgpu package, with the same names."""

from __future__ import annotations

from rlx.targets.gpu.features import DEFAULT, PRESETS, best, preset

__all__ = ["DEFAULT", "PRESETS", "best", "preset"]

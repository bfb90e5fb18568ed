"""What MLX offers: one preset, and the element types that it lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rlx.base.frozen import frozen
from rlx.targets.preset import Named, find_preset
from rlx.types import FLOAT8, DType, c128, f64

__all__ = ["DEFAULT", "LACKS", "PRESETS", "MlxFeatures", "best", "preset"]


@frozen
class MlxFeatures(Named):
    """A kind of MLX."""


DEFAULT = "mlx"
PRESETS: Mapping[str, MlxFeatures] = {DEFAULT: MlxFeatures(DEFAULT)}

LACKS: Mapping[DType, str] = {
    f64: "MLX has none on GPUs, and functions of it with f32's digits; use f32, or cpu",
    c128: "MLX has none; use c64, or cpu",
    **dict.fromkeys(FLOAT8, "MLX has none; use f16, or cpu"),
}
"""Element types that it has not, and what to do."""


def preset(name: str) -> MlxFeatures:
    """The features of a name; DeviceError if there are none."""
    return find_preset(PRESETS, name, "MLX", "functions of mlx.core")


def best(found: Collection[str]) -> MlxFeatures:
    """The one preset."""
    return PRESETS[DEFAULT]

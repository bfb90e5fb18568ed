"""Systems with Core ML by name, and the element types that its programs lack."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rlx.base.frozen import frozen
from rlx.targets.preset import Named, find_preset
from rlx.types import DTYPES, DType

__all__ = ["DEFAULT", "LACKS", "PRESETS", "AneFeatures", "best", "preset"]


@frozen
class AneFeatures(Named):
    """The least system that a package is for; ``wide`` says that it computes in f32, for which the
    engine has no units, and not in f16."""

    system: str
    wide: bool = False


PRESETS: Mapping[str, AneFeatures] = {
    f.name: f
    for f in (
        *(AneFeatures(f"{s}-f32", s, wide=True) for s in ("iOS16", "iOS17", "iOS18")),
        *(AneFeatures(s, s) for s in ("iOS16", "iOS17", "iOS18")),
    )
}
"""The systems, from the oldest; macOS 13, 14 and 15 have the same."""

DEFAULT = "iOS17"

HELD = ("f16", "f32", "i32", "bool")
LACKS: Mapping[DType, str] = {
    dt: "Core ML's programs compute with f16, f32, i32 and bool; cast it, or use cpu"
    for name, dt in DTYPES.items()
    if name not in HELD
}
"""Element types that it has not, and what to do."""


def preset(name: str) -> AneFeatures:
    """The system of a name; DeviceError if there is none."""
    return find_preset(PRESETS, name, "system", "Core ML programs")


def best(found: Collection[str]) -> AneFeatures:
    """The newest system that a device is."""
    known = [f for f in PRESETS.values() if f.name in found]
    return known[-1] if known else PRESETS[DEFAULT]

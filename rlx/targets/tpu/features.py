"""Generations of TPUs by name: the topology that their compiler is asked for, and their memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rlx.base.frozen import frozen
from rlx.targets.preset import Named, find_preset
from rlx.types import FLOAT8, DType

__all__ = ["DEFAULT", "LACKS", "PRESETS", "TpuFeatures", "best", "preset"]


@frozen
class TpuFeatures(Named):
    """A generation of TPUs.

    ``topology`` is the least one of its kind by the name that libtpu knows, ``hbm_bytes`` the
    memory of a chip (Google Cloud's documentation, "TPU versions").
    """

    topology: str
    hbm_bytes: int


_GIB = 1 << 30

PRESETS: Mapping[str, TpuFeatures] = {
    f.name: f
    for f in (
        TpuFeatures("v4", "v4:2x2x1", 32 * _GIB),
        TpuFeatures("v5e", "v5e:1x1", 16 * _GIB),
        TpuFeatures("v5p", "v5p:2x2x1", 95 * _GIB),
        TpuFeatures("v6e", "v6e:1x1", 32 * _GIB),
        TpuFeatures("tpu7x", "tpu7x:2x2x1", 192 * _GIB),
    )
}
"""The generations, from the oldest."""

DEFAULT = "v5e"
"""The one where none is asked for."""

LACKS: Mapping[DType, str] = dict.fromkeys(FLOAT8, "the words have none; use bf16, or cpu")
"""Element types that are not written for it, and what to do."""


def preset(name: str) -> TpuFeatures:
    """The generation of a name; DeviceError if there is none."""
    return find_preset(PRESETS, name, "TPU", "StableHLO")


def best(found: Collection[str]) -> TpuFeatures:
    """The generation that a device is, of its driver's words; the default where they name none."""
    return next((f for f in PRESETS.values() if f.name in found), PRESETS[DEFAULT])

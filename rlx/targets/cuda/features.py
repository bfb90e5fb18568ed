"""The NVIDIA GPUs that RLX emits PTX for."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.errors import DeviceError, did_you_mean
from rlx.targets.llvm.machine import Machine

__all__ = ["DEFAULT", "PRESETS", "SHARED_BYTES", "Features", "preset"]

SHARED_BYTES = 48 << 10
"""Shared memory that a block may have on every GPU, without asking for more."""


@dataclass(frozen=True)
class Features:
    """A compute capability and the version of PTX that code for it is written in.

    The version is the oldest that knows the capability, so that every driver for such a GPU takes
    it. PTX for one capability runs on that and on every later one.
    """

    isa: str
    ptx: int

    @property
    def name(self) -> str:
        """The compute capability, such as ``sm_80``."""
        return self.isa

    @property
    def machine(self) -> Machine:
        """The machine that LLVM emits code for."""
        return Machine("nvptx64", "nvptx64-nvidia-cuda", self.isa, f"+ptx{self.ptx}")


PRESETS: dict[str, Features] = {
    f.isa: f
    for f in (
        Features("sm_75", 63),
        Features("sm_80", 70),
        Features("sm_90", 80),
        Features("sm_100", 86),
        Features("sm_120", 87),
    )
}

DEFAULT = "sm_75"
"""Without a capability by name, code runs on every GPU that RLX knows."""


def preset(name: str) -> Features:
    """The features called ``name``, such as ``sm_90``; DeviceError if there are none."""
    if name not in PRESETS:
        hint = did_you_mean(name, PRESETS)
        raise DeviceError(
            f"unknown compute capability {name!r}{hint}; RLX emits PTX for {', '.join(PRESETS)}"
        )
    return PRESETS[name]

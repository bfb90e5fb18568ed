"""The AMD GPUs that RLX emits code for."""

from __future__ import annotations

from functools import partial

from rlx.base.frozen import frozen
from rlx.codegen.triton.machine import TritonMachine
from rlx.errors import DeviceError
from rlx.targets.gpu.profiles import Chip
from rlx.targets.llvm.machine import Machine
from rlx.targets.preset import find_preset
from rlx.types import bf16, f16, f32

__all__ = ["DEFAULT", "MOST_BUFFERS", "PRESETS", "SHARED_BYTES", "Features", "best", "preset"]

SHARED_BYTES = 64 << 10
"""LDS that a work group may have on every one of them."""

MOST_BUFFERS = 4096 // 8 - 2
"""Pointers in the bytes of arguments that a launch takes, without the two that Triton's kernels
have besides."""


@frozen
class Features(Chip):
    """An architecture. Code for one runs on no other.

    ``wave`` is the number of threads that go in step, for which LLVM lays out the code: no kernel
    depends on it but those by matrix units. ``unit`` is its matrix unit, as
    ``rlx.kernels.matmul.gpu_matrix_units`` calls it.
    """

    wave: int
    unit: str

    def triton(self, version: str, always: bool) -> TritonMachine:
        """The machine that Triton emits code for."""
        # The units of Instinct also multiply f32 as it is; those of MI200 take subnormal numbers of
        # f16 for 0.
        units = (f16, bf16) if self.wave == 32 else (f16, bf16, f32)
        units = (bf16, f32) if self.isa == "gfx90a" else units
        return TritonMachine(
            version, "hip", self.isa, self.wave, SHARED_BYTES, 2, units, always=always
        )

    @property
    def machine(self) -> Machine:
        """The machine that LLVM emits code for."""
        return Machine("amdgcn", "amdgcn-amd-amdhsa", self.isa, f"+wavefrontsize{self.wave}")


PRESETS: dict[str, Features] = {
    f.isa: f
    for f in (
        Features("gfx90a", 64, "mfma.16x16x16.bf16"),  # Instinct MI200
        Features("gfx942", 64, "mfma.16x16x16"),  # Instinct MI300
        Features("gfx950", 64, "mfma.16x16x32"),  # Instinct MI350
        Features("gfx1100", 32, "wmma.rdna3"),  # Radeon RX 7900
        Features("gfx1201", 32, "wmma.rdna4"),  # Radeon RX 9070
    )
}

DEFAULT = "gfx942"
"""The architecture where none is named."""

preset = partial(find_preset, PRESETS, kind="architecture", emitted="code")


def best(found: frozenset[str]) -> Features:
    """The features of the architecture that ``found`` names; DeviceError if RLX has none."""
    fitting = [f for f in PRESETS.values() if f.isa in found]
    if not fitting:
        what = ", ".join(sorted(found)) or "of an architecture that Linux does not tell"
        raise DeviceError(f"the GPU is {what}, and RLX emits code for {', '.join(PRESETS)}")
    return fitting[-1]

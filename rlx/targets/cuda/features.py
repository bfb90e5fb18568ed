"""The NVIDIA GPUs that RLX emits PTX for."""

from __future__ import annotations

from functools import partial

from rlx.base.frozen import frozen
from rlx.codegen.triton.machine import TritonMachine
from rlx.errors import DeviceError
from rlx.targets.gpu.profiles import Chip
from rlx.targets.llvm.machine import Machine
from rlx.targets.preset import find_preset
from rlx.types import bf16, f16

__all__ = [
    "DEFAULT", "MOST_BUFFERS", "PRESETS", "SHARED_BYTES", "Features", "best", "preset", "runs",
]  # fmt: skip

SHARED_BYTES = 48 << 10
"""Shared memory that a block may have on every GPU, without asking for more."""

MOST_BUFFERS = 4096 // 8 - 2
"""Pointers in the 4096 bytes of a kernel's parameters, without the two that Triton's kernels have
besides."""


@frozen
class Features(Chip):
    """A compute capability and the version of PTX that code for it is written in.

    The version is the oldest that knows the capability, so that every driver for such a GPU takes
    it. PTX for one capability runs on that and on every later one; but where the name ends in "a",
    on that alone, since it may use what no other has.
    """

    ptx: int

    @property
    def instructions(self) -> frozenset[str]:
        """The matrix units that kernels may use (``rlx.kernels.matmul.gpu_matrix_units``)."""
        newer = () if self.isa == "sm_75" else ("mma.m16n8k16",)
        return frozenset(["mma.m16n8k8", *newer])

    def triton(self, version: str, always: bool) -> TritonMachine:
        """The machine that Triton emits PTX for.

        For 9.0 and later, Triton's code is for that capability alone. PTX that is to run on later
        ones too is made for 8.9, with as much shared memory as all of them have.
        """
        capability, ptx = self.capability, self.ptx
        own = self.isa.endswith("a")
        if capability >= 90 and not own:
            capability, ptx = 89, PRESETS["sm_89"].ptx
        shared = (64 if capability < 80 else 227 if own else 99) << 10
        stages, units = (2, ()) if capability < 80 else (4, (f16, bf16))
        return TritonMachine(
            version, "cuda", capability, 32, shared, stages, units, ptx, own, always
        )

    @property
    def capability(self) -> int:
        """The compute capability as a number: 90 for 9.0."""
        return int(self.isa.removeprefix("sm_").rstrip("a"))

    @property
    def machine(self) -> Machine:
        """The machine that LLVM emits code for."""
        return Machine("nvptx64", "nvptx64-nvidia-cuda", self.isa, f"+ptx{self.ptx}")


PRESETS: dict[str, Features] = {
    f.isa: f
    for f in (
        Features("sm_75", 65),  # 6.3 lacks the instructions of its matrix units
        Features("sm_80", 70),
        Features("sm_86", 71),
        Features("sm_89", 78),
        Features("sm_90", 78),
        Features("sm_90a", 80),
        Features("sm_100", 86),
        Features("sm_100a", 86),
        Features("sm_120", 87),
    )
}

DEFAULT = "sm_75"
"""Without a capability by name, code runs on every GPU that RLX knows."""

preset = partial(find_preset, PRESETS, kind="compute capability", emitted="PTX")


def runs(capability: int) -> frozenset[str]:
    """Of the presets, those whose code runs on a GPU of a capability (90 for 9.0)."""
    own = f"sm_{capability}a"
    return frozenset(
        p for p in PRESETS if p == own or (p[3:].isdigit() and int(p[3:]) <= capability)
    )


def best(found: frozenset[str]) -> Features:
    """The last of the presets that are among ``found``; DeviceError if none is."""
    fitting = [f for f in PRESETS.values() if f.isa in found]
    if not fitting:
        raise DeviceError(f"the GPU is older than {DEFAULT}, and RLX emits PTX for none before it")
    return fitting[-1]

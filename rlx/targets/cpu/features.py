"""Features of CPUs that the emitted code depends on."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from rlx import knobs
from rlx.errors import DeviceError
from rlx.targets.preset import check_extras, find_preset

if TYPE_CHECKING:
    from rlx.targets.llvm.machine import Machine

__all__ = [
    "DEFAULT", "PRESETS", "PROCESSORS", "Features", "best", "detect", "preset", "require",
    "selected",
]  # fmt: skip

# By the names of the native CPUID reader; x86-64 psABI, section 3.1.1, for the two levels.
_V3 = frozenset(["avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"])
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_X86_EXTRAS = frozenset(
    ["avx512vnni", "avx512bf16", "avx512fp16", "amx-tile", "amx-int8", "amx-bf16"]
)
_NEON = frozenset(["neon"])
_ARM_EXTRAS = frozenset(["dotprod", "bf16", "i8mm", "fullfp16"])
# Code for SVE is made for one length of its registers, which the native reader names beside it. All
# that have SVE compute with f16.
_SVE = _NEON | {"sve", "fullfp16"}
# The general-purpose extensions G, C and the vectors V, which are 128 bits or more: RVA23's base.
_RVV = frozenset(["m", "a", "f", "d", "c", "v"])


class Features(NamedTuple):
    """A kind of CPU.

    ``isa`` is the preset that it is built on, ``vector_bits`` the width of a vector register and
    ``registers`` their number; ``has`` names every instruction set that emitted code may use,
    ``isa``'s own included. It is part of the key under which code is cached.
    """

    arch: Literal["x86-64", "aarch64", "riscv64"]
    isa: str
    vector_bits: int
    registers: int
    has: frozenset[str]

    @property
    def name(self) -> str:
        """``x86-64-v4+amx-bf16+avx512vnni``: the isa and what goes beyond it."""
        return "+".join([self.isa, *sorted(self.has - PRESETS[self.isa].has)])

    @property
    def machine_name(self) -> str:
        """The machine as the native runtime spells it."""
        return self.arch.replace("-", "_")

    @property
    def function_attributes(self) -> str:
        """What LLVM is told of every function: how many times 128 bits a register of SVE has, by
        which it makes vectors of that width of SVE's instructions."""
        return f"vscale_range({(n := self.vector_bits // 128)},{n})" if "sve" in self.has else ""

    @property
    def machine(self) -> Machine:
        """The machine that LLVM emits code for: ELF on every system, since RLX loads it itself."""
        from rlx.targets.llvm.machine import Machine  # a hit of the compile cache needs no LLVM

        extras = [f"+{name}" for name in sorted(self.has - PRESETS[self.isa].has)]
        if self.arch == "aarch64":
            # Some systems keep x18 for themselves; code without it runs on all.
            extras += ["+neon", *(["+sve"] if "sve" in self.has else []), "+reserve-x18"]
            return Machine("aarch64", "aarch64-unknown-linux-gnu", "generic", ",".join(extras))
        if self.arch == "riscv64":
            # Linker relaxation would leave distances within a function to a linker.
            extras += [*(f"+{letter}" for letter in sorted(_RVV)), "+zvl128b", "-relax"]
            triple, attributes = "riscv64-unknown-linux-gnu", ",".join(extras)
            # What LLVM calls medium there reaches 2 GiB, as small does elsewhere.
            return Machine("riscv64", triple, "generic-rv64", attributes, "lp64d", model="medium")
        extras.append("-prefer-256-bit")
        return Machine("x86-64", "x86_64-unknown-linux-gnu", self.isa, ",".join(extras))


PRESETS: dict[str, Features] = {
    f.isa: f
    for f in (
        Features("aarch64", "aarch64", 128, 32, _NEON),
        Features("aarch64", "aarch64-sve256", 256, 32, _SVE | {"sve256"}),
        Features("aarch64", "aarch64-sve512", 512, 32, _SVE | {"sve512"}),
        Features("riscv64", "riscv64", 128, 32, _RVV),
        Features("x86-64", "x86-64-v3", 256, 16, _V3),
        Features("x86-64", "x86-64-v4", 512, 32, _V4),
    )
}

PROCESSORS = {
    "a64fx": "aarch64-sve512",
    "neoverse-n1": "aarch64+dotprod+fullfp16",
    "neoverse-n2": "aarch64+bf16+dotprod+fullfp16+i8mm",
    "neoverse-v1": "aarch64-sve256+bf16+dotprod+i8mm",
    "neoverse-v2": "aarch64+bf16+dotprod+fullfp16+i8mm",
}
"""What processors have, by their names. Where registers of SVE have 128 bits (N2, V2), NEON's
instructions do as much."""

DEFAULT = "host"
"""What RLX_CPU names, or else this machine."""


_NAMES = {**{name: name for name in PRESETS}, **PROCESSORS}


def preset(name: str) -> Features:
    """The features called ``name``, such as ``x86-64-v3``, ``x86-64-v4+avx512vnni`` or
    ``neoverse-v1``.

    Raises DeviceError for an unknown isa, and for an extra that the isa's family does not have.
    """
    if name == DEFAULT:
        return selected()
    first, *more = name.split("+")
    isa, *extras = find_preset(_NAMES, first, "CPU", "code").split("+") + more
    base = PRESETS[isa]
    check_extras(isa, extras, sorted(_extras(base.arch, isa)))
    return Features(base.arch, isa, base.vector_bits, base.registers, base.has | set(extras))


def _extras(arch: str, isa: str) -> frozenset[str]:
    if arch == "aarch64":
        return _ARM_EXTRAS if isa == "aarch64" else _ARM_EXTRAS | {"sve2"}
    if arch != "x86-64":
        return frozenset()
    return _X86_EXTRAS if isa == "x86-64-v4" else frozenset()


def best(found: Collection[str]) -> Features:
    """The widest preset within the feature names ``found``, with the extras among them.

    Raises DeviceError if no preset fits.
    """
    have = frozenset(found)
    fitting = [f for f in PRESETS.values() if f.has <= have]
    if not fitting:
        raise DeviceError(
            "this CPU has neither AVX2, FMA and F16C (x86-64-v3) nor NEON (aarch64) nor V (riscv64)"
            f", and RLX emits code for no less; it reports: {', '.join(sorted(have)) or 'nothing'}"
        )
    base = max(fitting, key=lambda f: f.vector_bits)
    extras = have & _extras(base.arch, base.isa)
    return Features(base.arch, base.isa, base.vector_bits, base.registers, base.has | extras)


@cache
def detect() -> Features:
    """This machine's features, by CPUID and what the system saves; never by the CPU's name."""
    from rlx.runtime import _native

    return best(_native.cpu_features())


def require(wanted: Features) -> Features:
    """Return ``wanted`` if code for it runs on this machine; DeviceError if not."""
    missing = wanted.has - detect().has
    if wanted.arch != detect().arch or missing:
        lacking = f", which lacks {', '.join(sorted(missing))}" if missing else ""
        raise DeviceError(
            f"code for {wanted.name} does not run on this machine ({detect().name}{lacking}); "
            "choose another CPU by RLX_CPU or the target option, or compile for export only"
        )
    return wanted


def selected() -> Features:
    """The features to compile for: those that RLX_CPU names if it is set, else this machine's."""
    name = knobs.cpu.get()
    return preset(name) if name and name != DEFAULT else detect()

"""The FPGAs that networks are laid out for: what they have of each kind of cell."""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.ir.builders import located
from rlx.targets.preset import find_preset

__all__ = ["DEFAULT", "PRESETS", "Fpga", "part_named", "preset"]


@frozen
class Fpga:
    """A part: ``luts`` of four inputs, ``dsps`` that multiply ``dsp_bits`` by as many with a sign,
    and ``brams`` of ``bram_bits``; ``family``, ``part`` and ``package`` are what Yosys and nextpnr
    call it."""

    name: str
    family: str
    part: str
    package: str
    luts: int
    dsps: int
    dsp_bits: int
    brams: int
    bram_bits: int


_PARTS = (
    Fpga("ecp5-25k", "ecp5", "25k", "CABGA256", 24_288, 28, 18, 56, 18_432),
    Fpga("ecp5-85k", "ecp5", "85k", "CABGA381", 83_640, 156, 18, 208, 18_432),
    Fpga("ice40-up5k", "ice40", "up5k", "sg48", 5_280, 8, 16, 30, 4_096),
    Fpga("ice40-hx8k", "ice40", "hx8k", "ct256", 7_680, 0, 16, 32, 4_096),
)

PRESETS = {p.name: p for p in _PARTS} | {"ecp5": _PARTS[0], "ice40": _PARTS[2]}
"""By name; a family's name is its smallest part here."""

DEFAULT = "ecp5"


def preset(name: str) -> Fpga:
    """The part of a name; DeviceError for none."""
    return find_preset(PRESETS, name, "FPGA", "networks")


@located
def part_named(name: str) -> Fpga:
    """The part of a name, with or without "fpga:"; DeviceError for none."""
    return preset(name.removeprefix("fpga:") if name != "fpga" else DEFAULT)

"""Synthesis by Yosys, and placing and routing by nextpnr, as packages of PyPI bring them."""

from __future__ import annotations

import json
from pathlib import Path

from rlx.base.frozen import frozen
from rlx.targets.fpga.features import Fpga
from rlx.targets.fpga.simulate import run_tool

__all__ = ["Placed", "place"]

CELLS = {
    "ecp5": {"luts": "TRELLIS_COMB", "ffs": "TRELLIS_FF", "dsps": "MULT18X18D", "brams": "DP16KD"},
    "ice40": {"luts": "ICESTORM_LC", "ffs": "", "dsps": "ICESTORM_DSP", "brams": "ICESTORM_RAM"},
}
"""What nextpnr calls the cells; those of iCE40 hold a LUT and a flip-flop each."""


@frozen
class Placed:
    """Cells that a placed design takes, of those that the part has in ``available``, and the
    highest clock in MHz that timing analysis allows."""

    luts: int
    ffs: int
    dsps: int
    brams: int
    fmax: float
    available: dict[str, int]


def place(folder: Path, part: Fpga, frequency: float = 50.0, seed: int = 1) -> Placed:
    """Synthesise, place and route the design in a folder, at a clock to aim at in MHz; pins are
    those that the placer likes. ToolchainError if a tool is missing, or the design does not fit."""
    dsp = " -dsp" if part.family == "ice40" and part.dsps else ""
    script = f"read_verilog -sv model.sv; synth_{part.family}{dsp} -top top -json netlist.json"
    run_tool("yosys", "-q", "-p", script, cwd=folder)
    own = ["--lpf-allow-unconstrained"] if part.family == "ecp5" else ["--pcf-allow-unconstrained"]
    run_tool(
        f"nextpnr-{part.family}", "-q", f"--{part.part}", "--package", part.package, "--json",
        "netlist.json", "--report", "report.json", "--freq", str(frequency), "--timing-allow-fail",
        "--seed", str(seed), *own, cwd=folder,
    )  # fmt: skip
    report = json.loads((folder / "report.json").read_text())
    used = report["utilization"]
    counts = {k: used[name]["used"] if name else 0 for k, name in CELLS[part.family].items()}
    available = {k: used[n]["available"] for k, n in CELLS[part.family].items() if n}
    fmax = min(clock["achieved"] for clock in report["fmax"].values())
    return Placed(**counts, fmax=fmax, available=available)

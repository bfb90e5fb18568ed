"""The files of a network for a core, as ``rlx compile`` and artifacts have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlx.ir.graph import Graph
from rlx.targets.cortexm.features import Core
from rlx.targets.cortexm.source import header, plan, source, weight_bytes
from rlx.targets.integer.network import Network
from rlx.targets.integer.read import read_network

__all__ = ["COMPILER", "EMULATOR", "LINK", "OPTIONS", "QEMU", "STAGES", "files", "project"]

STAGES = {"c": "model.c"}

COMPILER = "arm-none-eabi-gcc"
EMULATOR = "qemu-system-arm"
OPTIONS = ("-O2", "-std=c11", "-ffreestanding", "-fno-tree-loop-distribute-patterns", "-Wall")
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
    own = {f: (Path(__file__).parent / f).read_text("utf-8") for f in
           ("kernels.h", "startup.c", "main.c")}  # fmt: skip
    return {
        "model.h": header(network, core), "model.c": source(network, core), **own,
        "link.ld": _link_script(core), "Makefile": _makefile(core),
    }  # fmt: skip


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


def _makefile(core: Core) -> str:
    return f"""\
CC = {COMPILER}
CFLAGS = {" ".join((*core.flags, *OPTIONS))}

firmware.elf: model.o startup.o main.o link.ld
	$(CC) $(CFLAGS) {" ".join(LINK)} model.o startup.o main.o -lgcc -o $@

model.o: model.h kernels.h

run: firmware.elf
	{EMULATOR} -M {core.board} -kernel firmware.elf {" ".join(QEMU)}

.PHONY: run
"""

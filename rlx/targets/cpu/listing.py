"""Listings: the lines of LLVM IR and assembly that each line of a kernel's text became.

The kernel is emitted once more with line tables, and its code is laid beside that without them.
They may move the instructions that save registers; what is not the same in both has no line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from rlx.codegen.builder import KernelText
from rlx.targets.cpu.emit import to_llvm
from rlx.targets.cpu.features import Features
from rlx.targets.llvm import machine

__all__ = ["kernel_lines"]

Code = tuple[int, str, int]

_DEBUG = re.compile(r",? !dbg !(\d+)")
_PLACE = re.compile(r"^!(\d+) = !DILocation\(line: (\d+)", re.MULTILINE)
_LOC = re.compile(r"\t\.loc\t\d+ (\d+) ")
# What line tables add to assembly, beside the sections that begin with .debug.
_ADDED = re.compile(r"\t\.(?:loc\t|file\t|cfi_)|\.L(?:tmp|func_begin)\d+:")
_LABEL = re.compile(r"\.L(?:tmp|func_end)\d+\b")


def kernel_lines(kernel: KernelText, features: Features) -> dict[str, list[int]]:
    """For "llvm" and "asm" the line of ``kernel.text``, from 1, that each line came from; 0 where
    it came from none, as labels do."""
    plain, traced = to_llvm([kernel], features), to_llvm([kernel], features, lines=True)
    asm = machine.emit_assembly(plain, features.machine)
    with_tables = machine.emit_assembly(traced, features.machine)
    return {
        "llvm": _aligned(plain, _llvm_code(plain), _llvm_code(traced)),
        "asm": _aligned(asm, _assembly_code(asm), _assembly_code(with_tables)),
    }


def _aligned(plain: str, own: list[Code], traced: list[Code]) -> list[int]:
    lines = [0] * len(plain.splitlines())
    for n, other in _pairs([c for _, c, _ in own], [c for _, c, _ in traced]):
        lines[own[n][0]] = traced[other][2]
    return lines


def _pairs(a: list[str], b: list[str]) -> Iterator[tuple[int, int]]:
    """The places of equal lines of two texts that are the same, or nearly."""
    if a == b:  # as nearly always; matching takes long
        yield from ((n, n) for n in range(len(a)))
        return
    for block in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
        yield from ((block.a + n, block.b + n) for n in range(block.size))


def _llvm_code(text: str) -> list[Code]:
    """The lines that are there with and without line tables: index, text and source line."""
    line_of = {place: int(line) for place, line in _PLACE.findall(text)}
    found: list[Code] = []
    for at, line in enumerate(text.splitlines()):
        if line and not line.startswith("!"):
            place = _DEBUG.search(line)
            found.append((at, _DEBUG.sub("", line), line_of.get(place[1], 0) if place else 0))
    return found


def _assembly_code(text: str) -> list[Code]:
    """As ``_llvm_code``."""
    found: list[Code] = []
    current, hidden = 0, False
    for at, line in enumerate(text.splitlines()):
        if line.startswith(("\t.section", "\t.text")):
            hidden = ".debug" in line
        if place := _LOC.match(line):
            current = int(place[1])
        elif line.endswith(":") and not line.startswith(".L"):
            current = 0  # another function
        if not hidden and not _ADDED.match(line):
            instruction = line.startswith("\t") and not line.startswith("\t.")
            found.append((at, _LABEL.sub("", line), current if instruction else 0))
    return found

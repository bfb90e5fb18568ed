"""Which line of a kernel's text became which lines of its LLVM IR and assembly.

The kernel is emitted once more with line tables. They must not change the code, so the lines are
given only where it is the same without them.
"""

from __future__ import annotations

import re

from rlx.kernels.builder import KernelText
from rlx.targets.cpu.emit import to_llvm
from rlx.targets.cpu.features import Features
from rlx.targets.llvm import machine

__all__ = ["kernel_lines"]

_DEBUG = re.compile(r",? !dbg !(\d+)")
_PLACE = re.compile(r"^!(\d+) = !DILocation\(line: (\d+)", re.MULTILINE)
_LOC = re.compile(r"\t\.loc\t\d+ (\d+) ")
# What line tables add to assembly, beside the sections that begin with .debug.
_ADDED = re.compile(r"\t\.(?:loc\t|file\t|cfi_)|\.L(?:tmp|func_begin)\d+:")
_LABEL = re.compile(r"\.L(?:tmp|func_end)\d+\b")


def kernel_lines(kernel: KernelText, features: Features) -> dict[str, list[int]]:
    """For "llvm" and "asm" the line of ``kernel.text``, from 1, that each line came from; 0 where
    it came from none, as labels do. A stage whose code line tables change is left out."""
    plain, traced = to_llvm([kernel], features), to_llvm([kernel], features, lines=True)
    asm = machine.emit_assembly(plain, features.machine)
    found = {
        "llvm": _llvm_lines(plain, traced),
        "asm": _assembly_lines(asm, machine.emit_assembly(traced, features.machine)),
    }
    return {stage: lines for stage, lines in found.items() if lines is not None}


def _llvm_lines(plain: str, traced: str) -> list[int] | None:
    line_of = {place: int(line) for place, line in _PLACE.findall(traced)}
    code = [t for t in traced.splitlines() if _is_code(t)]
    if [_DEBUG.sub("", t) for t in code] != [t for t in plain.splitlines() if _is_code(t)]:
        return None
    lines = iter([line_of.get(m[1], 0) if (m := _DEBUG.search(t)) else 0 for t in code])
    return [next(lines) if _is_code(t) else 0 for t in plain.splitlines()]


def _is_code(text: str) -> bool:
    return bool(text) and not text.startswith("!")


def _assembly_lines(plain: str, traced: str) -> list[int] | None:
    own, other = _assembly_code(plain), _assembly_code(traced)
    if [code for _, code, _ in own] != [code for _, code, _ in other]:
        return None
    lines = [0] * len(plain.splitlines())
    for (at, code, _), (_, _, line) in zip(own, other, strict=True):
        lines[at] = line if code.startswith("\t") and not code.startswith("\t.") else 0
    return lines


def _assembly_code(text: str) -> list[tuple[int, str, int]]:
    """The lines that are there with and without line tables: index, text and source line."""
    found: list[tuple[int, str, int]] = []
    current, hidden = 0, False
    for at, line in enumerate(text.splitlines()):
        if line.startswith(("\t.section", "\t.text")):
            hidden = ".debug" in line
        if place := _LOC.match(line):
            current = int(place[1])
        elif line.endswith(":") and not line.startswith(".L"):
            current = 0  # another function
        if not hidden and not _ADDED.match(line):
            found.append((at, _LABEL.sub("", line), current))
    return found

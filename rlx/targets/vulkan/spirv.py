"""SPIR-V reflection: the kernels of a file, and the sizes of their workgroups."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from rlx.errors import ToolchainError
from rlx.targets.gpu.work import Triple

__all__ = ["MAGIC", "check_kernel", "entry_points"]

MAGIC = 0x07230203
"""The first word of a SPIR-V file."""

_HEADER = 5
_ENTRY_POINT, _EXECUTION_MODE, _LOCAL_SIZE = 15, 16, 17


def entry_points(code: bytes) -> dict[str, Triple]:
    """The entry points by name with their groups' sizes; ToolchainError for what is no SPIR-V."""
    count = len(code) // 4
    if len(code) % 4 or count < _HEADER or int.from_bytes(code[:4], "little") != MAGIC:
        raise ToolchainError(f"{len(code)} bytes that begin with {code[:8]!r} are no SPIR-V")
    words = struct.unpack(f"<{count}I", code)
    names: dict[int, str] = {}
    sizes: dict[int, Triple] = {}
    at = _HEADER
    while at < count:
        length, opcode = words[at] >> 16, words[at] & 0xFFFF
        if length == 0 or at + length > count:
            raise ToolchainError(f"SPIR-V is cut off, or damaged, at its word {at}")
        if opcode == _ENTRY_POINT:
            text = code[4 * (at + 3) : 4 * (at + length)]
            names[words[at + 2]] = text[: text.find(b"\0")].decode(errors="replace")
        elif opcode == _EXECUTION_MODE and words[at + 2] == _LOCAL_SIZE:
            sizes[words[at + 1]] = (words[at + 3], words[at + 4], words[at + 5])
        at += length
    return {name: sizes.get(number, (1, 1, 1)) for number, name in names.items()}


def check_kernel(found: Mapping[str, Triple], name: str, workgroup: Triple) -> None:
    """Refuse a kernel that SPIR-V does not have, or not so: drivers trust what they are told."""
    if name not in found:
        raise ToolchainError(f"SPIR-V has no kernel {name!r}; it has {', '.join(found)}")
    if found[name] != workgroup:
        raise ToolchainError(
            f"kernel {name!r} has groups of {found[name]} in SPIR-V, {workgroup} was said"
        )

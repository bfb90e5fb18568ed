"""What is in a HSACO, read as ROCm's loader does: by the headers of its segments.

Layouts: ELF (gABI), and LLVM's "User Guide for AMDGPU Backend" for notes and kernel descriptors.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rlx.codegen.builder import KernelText

__all__ = ["Descriptor", "Hsaco", "check_hsaco", "unpacked"]

_LOAD, _DYNAMIC, _NOTE = 1, 2, 4
_HASH, _STRINGS, _SYMBOLS = 4, 5, 6
_METADATA = 32


@dataclass
class Descriptor:
    """The 64 bytes by which a kernel is started."""

    group_segment: int
    private_segment: int
    kernarg: int
    entry: int
    """The address of the code."""
    wave: int


@dataclass
class Hsaco:
    """A file as it is in memory: ``memory`` by address, ``symbols`` as (address, size)."""

    memory: bytes
    access: list[tuple[range, int]]
    symbols: dict[str, tuple[int, int]]
    metadata: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: bytes) -> Hsaco:
        """A file; AssertionError for one that no loader would take."""
        assert data[:7] == b"\x7fELF\x02\x01\x01" and data[7] == 64, "ELF64, little-endian, HSA"
        kind, machine, _, _, at, _, _, _, size, count = struct.unpack_from("<HHIQQQIHHH", data, 16)
        assert (kind, machine, size) == (3, 224, 56), "a shared object for AMD GPUs"
        headers = [struct.unpack_from("<IIQQQQQQ", data, at + size * n) for n in range(count)]
        loaded = [h for h in headers if h[0] == _LOAD]
        memory = bytearray(max(h[3] + h[6] for h in loaded))
        access: list[tuple[range, int]] = []
        for _, flags, offset, address, _, length, total, alignment in loaded:
            assert address % alignment == offset % alignment and length <= total
            pages = range(address // 4096, -(-(address + total) // 4096))
            assert not any(set(pages) & set(taken) for taken, _ in access), "two on one page"
            access.append((pages, flags))
            memory[address : address + length] = data[offset : offset + length]
        (dynamic,) = (h for h in headers if h[0] == _DYNAMIC)
        (note,) = (h for h in headers if h[0] == _NOTE)
        whole = bytes(memory)
        metadata = _metadata(whole[note[3] : note[3] + note[6]])
        return cls(whole, access, _symbols(whole, dynamic[3]), metadata)

    def descriptor(self, name: str) -> Descriptor:
        """The descriptor of a kernel."""
        address, size = self.symbols[f"{name}.kd"]
        assert size == 64 and address % 64 == 0
        group, private, kernarg = struct.unpack_from("<III", self.memory, address)
        (entry,) = struct.unpack_from("<q", self.memory, address + 16)
        (properties,) = struct.unpack_from("<H", self.memory, address + 56)
        wave = 32 if properties >> 10 & 1 else 64
        return Descriptor(group, private, kernarg, address + entry, wave)

    def code(self, name: str) -> bytes:
        """The machine code of a kernel."""
        address, size = self.symbols[name]
        assert any(address // 4096 in pages and flags == 5 for pages, flags in self.access)
        return self.memory[address : address + size]


def check_hsaco(data: bytes, isa: str, wave: int, kernels: Sequence[KernelText]) -> Hsaco:
    """That a file has these kernels and no others, as a launch by their text expects them."""
    found = Hsaco.read(data)
    listed = {k[".name"]: k for k in found.metadata["amdhsa.kernels"]}
    assert found.metadata["amdhsa.target"] == f"amdgcn-amd-amdhsa--{isa}"
    assert set(listed) == {k.name for k in kernels}
    assert set(found.symbols) == {f"{k.name}{end}" for k in kernels for end in ("", ".kd")}
    for kernel in kernels:
        said, is_ = listed[kernel.name], found.descriptor(kernel.name)
        assert said[".symbol"] == f"{kernel.name}.kd"
        assert is_.entry == found.symbols[kernel.name][0] and found.code(kernel.name)
        assert said[".wavefront_size"] == is_.wave == wave
        assert said[".reqd_workgroup_size"] == [kernel.block, 1, 1]
        assert said[".group_segment_fixed_size"] == is_.group_segment <= 64 << 10
        assert said[".private_segment_fixed_size"] == is_.private_segment
        assert said[".kernarg_segment_size"] == is_.kernarg
        # A pointer to each buffer, and one to the numbers.
        pointers = [(8 * n, 8) for n in range(len(kernel.buffers) + 1)]
        assert [(a[".offset"], a[".size"]) for a in said[".args"]] == pointers
    return found


def _symbols(memory: bytes, dynamic: int) -> dict[str, tuple[int, int]]:
    tags: dict[int, int] = {}
    while 0 not in tags:
        tag, value = struct.unpack_from("<QQ", memory, dynamic + 16 * len(tags))
        tags[tag] = value
    buckets, count = struct.unpack_from("<II", memory, tags[_HASH])
    found: dict[str, tuple[int, int]] = {}
    for n in range(1, count):
        name, info, _, section, address, size = struct.unpack_from(
            "<IBBHQQ", memory, tags[_SYMBOLS] + 24 * n
        )
        assert info >> 4 == 1 and section, "global, and defined"
        start = tags[_STRINGS] + name
        found[memory[start : memory.index(b"\0", start)].decode()] = address, size
    # All of them are found by the hash table too.
    words = struct.unpack_from(f"<{buckets + count}I", memory, tags[_HASH] + 8)
    reached: set[int] = set()
    for first in words[:buckets]:
        at = first
        while at:
            reached.add(at)
            at = words[buckets + at]
    assert reached == set(range(1, count))
    return found


def _metadata(note: bytes) -> dict[str, Any]:
    name, size, kind = struct.unpack_from("<III", note)
    assert note[12 : 12 + name] == b"AMDGPU\0" and kind == _METADATA
    start = 12 + -(-name // 4) * 4
    value, end = unpacked(note, start)
    assert end == start + size
    return value


def unpacked(data: bytes, at: int = 0) -> tuple[Any, int]:
    """A value of MessagePack, and where it ends."""
    head = data[at]
    if head < 0x80 or head >= 0xE0:
        return head - (256 if head >= 0xE0 else 0), at + 1
    if head in _CONSTANTS:
        return _CONSTANTS[head], at + 1
    if head in _NUMBERS:
        form = _NUMBERS[head]
        return struct.unpack_from(form, data, at + 1)[0], at + 1 + struct.calcsize(form)
    for low, high, kind in ((0x80, 0x8F, "map"), (0x90, 0x9F, "list"), (0xA0, 0xBF, "text")):
        if low <= head <= high:
            return _sized(data, at + 1, kind, head - low)
    kind, form = _SIZED[head]
    return _sized(
        data, at + 1 + struct.calcsize(form), kind, struct.unpack_from(form, data, at + 1)[0]
    )


_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i",
            0xD3: ">q", 0xCA: ">f", 0xCB: ">d"}  # fmt: skip
_SIZED = {0xD9: ("text", ">B"), 0xDA: ("text", ">H"), 0xDB: ("text", ">I"), 0xDC: ("list", ">H"),
          0xDD: ("list", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I")}  # fmt: skip


def _sized(data: bytes, at: int, kind: str, count: int) -> tuple[Any, int]:
    if kind == "text":
        return data[at : at + count].decode(), at + count
    values: list[Any] = []
    for _ in range(2 * count if kind == "map" else count):
        value, at = unpacked(data, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2], strict=True)) if kind == "map" else values), at

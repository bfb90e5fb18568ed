"""Weights in packed blocks as kernels read them: panels of outputs, and the numbers in registers.

A weight is N rows of blocks, each the bytes of a scheme of ``rlx.quant``. A panel has the rows of
as many outputs as a vector has lanes, padded with the last one. It has their blocks side by side,
field by field: unit after unit of a field, and of each unit the bytes of every lane. A unit has 4
bytes where that divides the field, else 2 or 1. So a panel is as large as the rows that it holds,
and a vector of words has the same word of each output.

    panel = [blocks][fields][units][lanes][bytes of a unit]

Memory is fast for what reads it in ascending order alone. Where a scheme's bytes are not in the
order in which kernels use them, the decoder says the units of each chunk (``Decoder.order``), which
then follow the fields that it does not name.

``DECODERS`` says what the numbers of a block are: sub-blocks of ``codes`` times a scale, from which
a least value is taken.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.reg import Buffer, Reg, mlir_type
from rlx.kernels.matmul.dot import words
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named
from rlx.types import f16, f32, i32, u8, u16, u32

__all__ = [
    "DECODERS", "Decoder", "Field", "Record", "fields_of", "lanes_of", "panel_fields", "scheme_of",
]  # fmt: skip


class Field(NamedTuple):
    """Bytes of a block: where they begin, how many, and how many are a unit."""

    offset: int
    size: int
    unit: int


def scheme_of(name: str) -> BlockScheme:
    """A scheme of blocks."""
    found = scheme_named(name)
    assert isinstance(found, BlockScheme), "dequant_matmul has refused it"
    return found


def fields_of(scheme: BlockScheme) -> dict[str, Field]:
    """The fields of a block, in the order of its bytes."""
    out: dict[str, Field] = {}
    for name, (kind, offset, *_) in (scheme.fields.fields or {}).items():
        size = kind.itemsize
        out[str(name)] = Field(offset, size, next(u for u in (4, 2, 1) if size % u == 0))
    return out


def lanes_of(target: KernelTarget) -> int:
    """The outputs of a panel."""
    return max(4, target.lanes(f32))


def panel_fields(name: str) -> dict[str, Field]:
    """Where the fields of a block lie in a panel, but for those whose units are in an order of
    their own; in bytes of an output."""
    at, out = 0, dict[str, Field]()
    ordered = {field for field, _ in DECODERS[name].order(0)}
    for field, f in fields_of(scheme_of(name)).items():
        if field not in ordered:
            out[field] = Field(at, f.size, f.unit)
            at += f.size
    return out


@frozen
class Record:
    """A block of a panel: its fields as vectors with a lane for each output."""

    k: Kernel
    panels: Buffer
    at: Reg
    """Where it begins."""
    fields: Mapping[str, Field]
    lanes: int

    def place(self, field: str, unit: Reg | int, more: int = 0) -> Reg:
        """Where a unit of a field begins, ``more`` units behind one; what is known comes last, so
        that neighbours differ by a number in their addresses alone."""
        f = self.fields[field]
        size = f.unit * self.lanes
        return self.at + unit * size + (f.offset * self.lanes + more * size)

    def words(self, field: str, n: Reg | int, more: int = 0) -> Reg:
        """The word of a number of each output, ``more`` behind one."""
        return words(self.k, self.panels, self.place(field, n, more), self.lanes)

    def ordered(self, decoder: Decoder, chunk: Reg | int, slot: int) -> Reg:
        """The word of each output in a slot of ``Decoder.order``."""
        size = 4 * self.lanes
        head = sum(f.size for f in self.fields.values()) * self.lanes
        at = self.at + chunk * (len(decoder.order(0)) * size) + (head + slot * size)
        return words(self.k, self.panels, at, self.lanes)

    def real(self, field: str) -> Reg:
        """The number of a field of one f16 or f32."""
        if self.fields[field].size == 4:
            return self.k.bitcast(self.words(field, 0), f32)
        return self._half(field)

    def _half(self, field: str) -> Reg:
        k, lanes = self.k, self.lanes
        raw = f"vector<{2 * lanes}xi8>"
        at = self.place(field, 0)
        text = f"vector.load {self.panels.name}[{at.name}] : {self.panels.mlir}, {raw}"
        found = k.op(text, u8, 2 * lanes)
        kinds = f"{raw} to {mlir_type(f16, lanes)}"
        half = k.op(f"vector.bitcast {found.name} : {kinds}", u16, lanes)
        kinds = f"{mlir_type(f16, lanes)} to {mlir_type(f32, lanes)}"
        return k.op(f"arith.extf {half.name} : {kinds}", f32, lanes)


Codes = Iterable[Callable[[], Reg]]
"""The codes of elements in order, as f32: each is made when it is asked for."""


class Decoder(ABC):
    """The numbers of the blocks of a scheme: ``scale * code - least``, each scale and least value
    of a sub-block of ``sub`` elements.

    A round of a kernel's loop reads a chunk, ``parts`` sub-blocks of a block that need not lie side
    by side. A chunk is small, since a kernel's code is as long as the chunks of its panels.
    """

    sub = 32
    parts = 1
    has_least = False
    bits = 4
    """Of the codes of ``words``."""
    zero = 0
    """What they have more than ``codes``."""
    nan: int | None = None
    """The 7 low bits of a code that is nan where ``codes`` makes a number of it. Every result with
    one is nan, so panels have a scale "d" of nan for its block."""
    even = True
    """Whether the words of 16 neighbouring codes are made of as many successive units of fields."""

    def number(self, chunk: Any, part: Any) -> Any:
        """Which sub-block of its block a part of a chunk is, of registers or of ints."""
        return chunk * self.parts + part

    def order(self, chunk: Any) -> list[tuple[str, Any]]:
        """The units of 4 bytes that a chunk reads, as fields and numbers, in the order of use;
        empty if they are in that order among the block's bytes. ``chunk`` is a register or an
        int."""
        return []

    @abstractmethod
    def scales(self, r: Record) -> list[tuple[Reg, Reg | None]]:
        """The scale and the least value of each sub-block of a block."""

    def scale(self, r: Record, number: Reg) -> tuple[Reg, Reg | None]:
        """Those of one sub-block, of a number that is known as the kernel runs."""
        return self.scales(r)[0]

    @abstractmethod
    def codes(self, r: Record, chunk: Reg) -> Codes:
        """The codes of a chunk, part by part."""

    @abstractmethod
    def words(self, r: Record, chunk: Reg | int) -> Codes:
        """The codes as unsigned bytes, four neighbours in each word, the first one lowest."""


def _looked_up(r: Record, table: Sequence[float], index: Reg) -> Reg:
    """The number of 16 that the low 4 bits of each lane name."""
    k, lanes = r.k, r.lanes
    if lanes != 16 or "avx512f" not in k.target.has:
        # Only tables of consecutive numbers come here, whose period may be shorter.
        period = next(p for p in (4, 16) if list(table) == list(table[:p]) * (16 // p))
        step = table[1] - table[0]
        number = k.cast(k.bitcast(index & (period - 1), i32), f32)
        number = number if step == 1 else number * step
        return number + table[0] if table[0] else number
    bits = struct.unpack("16I", struct.pack("16f", *table))
    numbers = k.constants(bits, u32)
    call = 'llvm.call_intrinsic "llvm.x86.avx512.permvar.si.512"'
    kinds = f"({numbers.mlir}, {index.mlir}) -> {numbers.mlir}"
    return k.bitcast(k.op(f"{call}({numbers.name}, {index.name}) : {kinds}", u32, lanes), f32)


def _bytes_of(read: Callable[[], Reg], code: Callable[[Reg, int], Reg]) -> Codes:
    """Codes of the 4 bytes of a word, which is read with the first: earlier it takes a register."""
    word: list[Reg] = []

    def at(byte: int) -> Reg:
        if byte == 0:
            word[:] = [read()]
        return code(word[0], byte)

    for byte in range(4):
        yield lambda byte=byte: at(byte)


def _nibbles(r: Record, table: Sequence[float], first: Reg | int, count: int, high: int) -> Codes:
    """The low or the high nibbles of the bytes of words of "qs", by a table."""
    for n in range(count):
        yield from _bytes_of(
            lambda n=n: r.words("qs", first, n),
            lambda word, byte: _looked_up(r, table, word >> (8 * byte + 4 * high)),
        )


def _halves(r: Record, field: str, first: Reg | int, count: int, high: int) -> Codes:
    """The low or the high nibbles of words as bytes."""
    for n in range(count):
        yield lambda n=n: r.words(field, first, n) >> 4 * high & 0x0F0F0F0F


class _Nibbles(Decoder):
    """A scale, and the two halves of a block in the nibbles of 16 bytes."""

    def __init__(self, first: int, least: bool = False) -> None:
        self.table = [float(first + n) for n in range(16)]
        self.has_least, self.zero = least, -first

    def scales(self, r: Record) -> list[tuple[Reg, Reg | None]]:
        return [(r.real("d"), -r.real("m") if self.has_least else None)]

    def codes(self, r: Record, chunk: Reg) -> Codes:
        for high in (0, 1):
            yield from _nibbles(r, self.table, 0, 4, high)

    def words(self, r: Record, chunk: Reg | int) -> Codes:
        for high in (0, 1):
            yield from _halves(r, "qs", 0, 4, high)


class _Bytes(Decoder):
    """A scale, and signed bytes."""

    bits, zero = 8, 128

    def scales(self, r: Record) -> list[tuple[Reg, Reg | None]]:
        return [(r.real("d"), None)]

    def codes(self, r: Record, chunk: Reg) -> Codes:
        for n in range(8):
            yield from _bytes_of(
                lambda n=n: r.words("qs", n),
                lambda word, byte: r.k.cast(_signed_byte(r.k, word, byte), f32),
            )

    def words(self, r: Record, chunk: Reg | int) -> Codes:
        for n in range(8):
            yield lambda n=n: r.words("qs", n) ^ 0x80808080


def _signed_byte(k: Kernel, word: Reg, byte: int) -> Reg:
    """A byte of each word, with its sign, as i32."""
    top = word << (24 - 8 * byte) if byte < 3 else word
    return k.bitcast(top, i32) >> 24


class _Floats(Decoder):
    """A scale, and floats of 8 bits: f16 without its last byte, or with another exponent, which
    scales of e4m3fn beyond 1e36 overflow."""

    bits = 8

    def __init__(self, *, short: bool) -> None:
        self._short = short
        """Whether the exponent has 4 bits (e4m3fn), and not the 5 of f16 (e5m2)."""
        self.nan = 0x7F if short else None

    def scales(self, r: Record) -> list[tuple[Reg, Reg | None]]:
        d = r.real("d")
        return [(d * 256.0 if self._short else d, None)]  # f16 has a bias of 8 more

    def codes(self, r: Record, chunk: Reg) -> Codes:
        for n in range(8):
            yield from _bytes_of(lambda n=n: r.words("qs", n), lambda w, b: self._number(r.k, w, b))

    def words(self, r: Record, chunk: Reg | int) -> Codes:
        for n in range(8):
            yield lambda n=n: r.words("qs", n)

    def _number(self, k: Kernel, word: Reg, byte: int) -> Reg:
        top = k.bitcast(word << (24 - 8 * byte) if byte < 3 else word, i32)
        # The sign, and the others one bit lower: the highest of 5 bits of an exponent is 0.
        return _half_of(k, top >> 17 & 0xBF80 if self._short else top >> 16 & 0xFF00)


def _half_of(k: Kernel, x: Reg) -> Reg:
    """The f16 in the low half of each word, as f32."""
    lanes, kind, words = x.lanes, mlir_type(f16, x.lanes), mlir_type(u16, x.lanes)
    low = k.op(f"arith.trunci {x.name} : {x.mlir} to {words}", u16, lanes)
    half = k.op(f"arith.bitcast {low.name} : {words} to {kind}", u16, lanes)
    return k.op(f"arith.extf {half.name} : {kind} to {mlir_type(f32, lanes)}", f32, lanes)


class _FourK(Decoder):
    """8 sub-blocks of 32 in nibbles; scales and least values of 6 bits, times f16."""

    parts = 2
    has_least = True

    def scales(self, r: Record) -> list[tuple[Reg, Reg | None]]:
        k = r.k
        d, least = r.real("d"), r.real("dmin")
        first, second, low = (r.words("scales", n) for n in range(3))
        # Four numbers at a time, a byte each.
        scales = first & 0x3F3F3F3F, _late_bytes(first, low)
        leasts = second & 0x3F3F3F3F, _late_bytes(second, low >> 4)
        out: list[tuple[Reg, Reg | None]] = []
        for n in range(8):
            s, m = (_byte(numbers[n // 4], n % 4) for numbers in (scales, leasts))
            out.append((d * _number(k, s), least * _number(k, m)))
        return out

    def scale(self, r: Record, number: Reg) -> tuple[Reg, Reg | None]:
        k, at = r.k, r.k.cast(number % 4 * 8, u32)
        first, second, low = (r.words("scales", n) for n in range(3))

        def of(high: Reg, low: Reg) -> Reg:
            found = k.select(number < 4, _early(high, low, at), _late(high, low, at))
            return _number(k, found)

        return r.real("d") * of(first, low), r.real("dmin") * of(second, low >> 4)

    def codes(self, r: Record, chunk: Reg) -> Codes:
        table = [float(n) for n in range(16)]
        for high in (0, 1):
            yield from _nibbles(r, table, chunk * 8, 8, high)

    def words(self, r: Record, chunk: Reg | int) -> Codes:
        for high in (0, 1):
            yield from _halves(r, "qs", chunk * 8, 8, high)


def _early(high: Reg, low: Reg, at: Reg | int) -> Reg:
    """One of the first four numbers of 6 bits, which are in the bytes of ``high``."""
    return high >> at & 63


def _late(high: Reg, low: Reg, at: Reg | int) -> Reg:
    """One of the last four: the low bits in ``low``, and two above those of the first four."""
    return low >> at & 15 | (high >> (at + 6) & 3) << 4


def _late_bytes(high: Reg, low: Reg) -> Reg:
    """All four of them, each in a byte."""
    return low & 0x0F0F0F0F | high >> 2 & 0x30303030


def _byte(x: Reg, n: int) -> Reg:
    """A byte of each word."""
    return x & 255 if n == 0 else x >> 24 if n == 3 else x >> 8 * n & 255


def _number(k: Kernel, x: Reg) -> Reg:
    """A small unsigned number as f32."""
    return k.cast(k.bitcast(x, i32), f32)


class _SixK(Decoder):
    """16 sub-blocks of 16: 4 low bits in nibbles, 2 high ones apart; scales of 8 bits."""

    sub = 16
    parts = 4
    bits, zero = 6, 32

    def number(self, chunk: Any, part: Any) -> Any:
        return chunk // 2 * 8 + chunk % 2 + part * 2

    def scales(self, r: Record) -> list[tuple[Reg, Reg | None]]:
        d = r.real("d")
        found = [r.words("scales", n) for n in range(4)]
        return [(d * r.k.cast(_signed_byte(r.k, found[n // 4], n % 4), f32), None)
                for n in range(16)]  # fmt: skip

    def scale(self, r: Record, number: Reg) -> tuple[Reg, Reg | None]:
        k = r.k
        word = r.words("scales", number / 4) << k.cast(number % 4 * 8 ^ 24, u32)
        return r.real("d") * k.cast(k.bitcast(word, i32) >> 24, f32), None

    def order(self, chunk: Any) -> list[tuple[str, Any]]:
        low = chunk // 2 * 16 + chunk % 2 * 4
        return [
            unit
            for n in range(4)
            for unit in (("qh", chunk * 4 + n), ("ql", low + n), ("ql", low + (8 + n)))
        ]

    def codes(self, r: Record, chunk: Reg) -> Codes:
        low_part = [float(n) for n in range(16)]
        high_part = [float(16 * (n % 4) - 32) for n in range(16)]
        for part in range(4):
            for n in range(4):
                both: list[Reg] = []

                def read(n: int = n, part: int = part, both: list[Reg] = both) -> Reg:
                    both[:] = [r.ordered(self, chunk, 3 * n)]
                    return r.ordered(self, chunk, 3 * n + 1 + part % 2)

                def code(word: Reg, byte: int, part: int = part, both: list[Reg] = both) -> Reg:
                    a = _looked_up(r, low_part, word >> (8 * byte + 4 * (part // 2)))
                    return a + _looked_up(r, high_part, both[0] >> (8 * byte + 2 * part))

                yield from _bytes_of(read, code)

    def words(self, r: Record, chunk: Reg | int) -> Codes:
        for part in range(4):
            for n in range(4):

                def joined(n: int = n, part: int = part) -> Reg:
                    high = r.ordered(self, chunk, 3 * n)
                    low = r.ordered(self, chunk, 3 * n + 1 + part % 2)
                    low = low >> 4 * (part // 2) & 0x0F0F0F0F
                    high = high << (4 - 2 * part) if part < 2 else high >> (2 * part - 4)
                    return low | high & 0x30303030

                yield joined


def _numbers(r: Record, words: Codes, zero: int = 0) -> Codes:
    """The codes of words, less ``zero``, as f32."""
    for word in words:
        yield from _bytes_of(word, lambda w, byte: _number(r.k, _byte(w, byte)) - zero)


class _Fives(Decoder):
    """A scale, and the two halves of a block in the nibbles of 16 bytes; the fifth bits of all 32
    are a word."""

    bits = 5
    even = False

    def __init__(self, zero: int, least: bool = False) -> None:
        self.has_least, self.zero = least, zero

    def scales(self, r: Record) -> list[tuple[Reg, Reg | None]]:
        return [(r.real("d"), -r.real("m") if self.has_least else None)]

    def codes(self, r: Record, chunk: Reg) -> Codes:
        return _numbers(r, self.words(r, chunk), self.zero)

    def words(self, r: Record, chunk: Reg | int) -> Codes:
        for high in (0, 1):
            for n, low in enumerate(_halves(r, "qs", 0, 4, high)):

                def joined(at: int = 16 * high + 4 * n, low: Callable[[], Reg] = low) -> Reg:
                    # Bit n of four goes to 8 n, among the copies that lie 7 apart.
                    spread = (r.words("qh", 0) >> at & 15) * 0x00204081 & 0x01010101
                    return low() | spread << 4

                yield joined


class _FromLeast(Decoder):
    """A scale, a least value, and codes of 8 bits, or of 2: the quarters of a block in the pairs of
    bits of 8 bytes."""

    has_least = True

    def __init__(self, bits: int) -> None:
        self.bits, self.even = bits, bits == 8

    def scales(self, r: Record) -> list[tuple[Reg, Reg | None]]:
        return [(r.real("d"), -r.real("m"))]

    def codes(self, r: Record, chunk: Reg) -> Codes:
        return _numbers(r, self.words(r, chunk))

    def words(self, r: Record, chunk: Reg | int) -> Codes:
        if self.bits == 8:
            for n in range(8):
                yield lambda n=n: r.words("qs", n)
            return
        for low in range(0, 8, 2):
            for n in range(2):
                yield lambda n=n, low=low: r.words("qs", n) >> low & 0x03030303


class _FiveK(_FourK):
    """As ``_FourK``, with the fifth bits apart: a byte has one of each sub-block."""

    bits = 5

    def codes(self, r: Record, chunk: Reg) -> Codes:
        return _numbers(r, self.words(r, chunk))

    def words(self, r: Record, chunk: Reg | int) -> Codes:
        first = chunk * 2 if isinstance(chunk, int) else r.k.cast(chunk * 2, u32)
        # All of them before what follows in memory.
        bits = [r.words("qh", n) for n in range(8)]
        for high in (0, 1):
            for n, low in enumerate(_halves(r, "qs", chunk * 8, 8, high)):

                def joined(n: int = n, low: Callable[[], Reg] = low, high: int = high) -> Reg:
                    return low() | _to_fourth(bits[n], first + high) & 0x10101010

                yield joined


def _to_fourth(x: Reg, bit: Reg | int) -> Reg:
    """Words with a bit of each byte as the fourth one, and others beside it."""
    if isinstance(bit, int):
        return x >> bit - 4 if bit > 4 else x << 4 - bit if bit < 4 else x
    return x >> bit << 4


DECODERS: Mapping[str, Decoder] = {
    "q4_0": _Nibbles(-8),
    "q4_1": _Nibbles(0, least=True),
    "q5_0": _Fives(16),
    "q5_1": _Fives(0, least=True),
    "q8_0": _Bytes(),
    "q4_0_f32": _Nibbles(-8),
    "q4_1_f32": _Nibbles(0, least=True),
    "q8_0_f32": _Bytes(),
    "q8_1_f32": _FromLeast(8),
    "q2_1_f32": _FromLeast(2),
    "fp8_e4m3_f32": _Floats(short=True),
    "fp8_e5m2_f32": _Floats(short=False),
    "q4_k": _FourK(),
    "q5_k": _FiveK(),
    "q6_k": _SixK(),
}
"""By scheme. A scheme without one is decoded to f32 first."""

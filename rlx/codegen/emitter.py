"""The core of the kernel builder: lines of MLIR, constants, and conversions of registers."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from rlx.base.dim_atoms import Atom, Call, Symbol
from rlx.base.dim_bounds import least
from rlx.base.dims import Dim, SymDim
from rlx.codegen import float8
from rlx.codegen.complex import Complex, pair
from rlx.codegen.function import Function
from rlx.codegen.reg import INDEX, Buffer, Number, Reg, mlir_element, mlir_type
from rlx.errors import UnsupportedError
from rlx.types import DType, bool_, f32, f64, i8, i16, i32, i64, u8, u32, u64

if TYPE_CHECKING:
    from rlx.codegen.builder import Kernel, KernelTarget

__all__ = ["Emitter"]


class Emitter:
    """Appends lines to a function and hands out registers. Constants go to the top, once each."""

    def __init__(self, name: str, target: KernelTarget) -> None:
        self.name, self.target = name, target
        self._head: list[str] = []
        self._lines: list[str] = []
        self._buffers: list[Buffer] = []
        self._shared: list[str] = []
        self._folds: list[Buffer] = []
        self._sizes: list[Reg] = []
        self._constants: dict[str, str] = {}
        self._whole: dict[tuple[int, DType, int], Reg] = {}  # those of integers, by their values
        self._numbers: dict[str, Number] = {}
        # The literals that the launch brings: the names of all their words, those that the function
        # at hand reads, and the registers that it made of them at its top, also for lanes.
        self._words: list[str] = []
        self._read: set[str] = set()
        self._literals: dict[tuple[int, DType], Reg] = {}
        self._spread: dict[tuple[str, int], Reg] = {}
        # The sizes of symbolic dims by the symbols' names, and what was computed of them.
        self._symbols: dict[str, Reg] = {}
        self._dims: dict[SymDim, Reg] = {}
        # What the open regions have computed: names by texts, and the texts in their order.
        self._known: dict[str, str] = {}
        self._texts: list[str] = []
        self._count, self._stem = 0, "%t"
        self._depth = 2
        self._functions: dict[str, Function] = {}
        self._scratch: Buffer | None = None
        self._written: set[str] = set()
        self._rounded: dict[tuple[str, DType], str] = {}
        self._block = self._points = target.block
        self._watch: tuple[Buffer, Reg] | None = None

    @property
    def kernel(self) -> Kernel:
        """The builder as what it is part of."""
        return cast("Kernel", self)

    # -- text ------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Append one line of MLIR."""
        self._lines.append("  " * self._depth + text)

    def fresh(self) -> str:
        """A new SSA name."""
        self._count += 1
        return f"{self._stem}{self._count}"

    def reg(self, name: str, dt: DType, lanes: int = 0) -> Reg:
        """The register of an SSA name that is already defined. UnsupportedError for an element
        type that the target lacks."""
        if self.target.lacks:
            self._require(dt)
        return Reg(self.kernel, name, dt, lanes)

    def op(self, text: str, dt: DType, lanes: int) -> Reg:
        """Append ``%new = text`` and return the register it defines."""
        self._count += 1  # as fresh, line and reg, whose calls are most of a kernel's making
        name = f"{self._stem}{self._count}"
        self._lines.append(f"{'  ' * self._depth}{name} = {text}")
        return self.reg(name, dt, lanes)

    def pure(self, text: str, dt: DType, lanes: int) -> Reg:
        """As ``op``, for an operation without effects that reads no memory: where one of the same
        text has been done in this region or around it, its register."""
        name = self._known.get(text)
        if name is not None:
            return Reg(self.kernel, name, dt, lanes)
        found = self.op(text, dt, lanes)
        self._known[text] = found.name
        self._texts.append(text)
        return found

    def forget(self, count: int) -> None:
        """Leave a region, before which so many texts were known: its values end with it."""
        for text in self._texts[count:]:
            del self._known[text]
        del self._texts[count:]

    def _require(self, dt: DType) -> None:
        lacks = self.target.lacks
        held = u8 if dt.is_float8 else dt
        if held in lacks:
            raise UnsupportedError(
                f"kernel {self.name} computes with {dt}, which {self.target.name} lacks: "
                f"{lacks[held]}"
            )

    def _refuse(self, what: str) -> TypeError:
        return TypeError(f"kernel {self.name}: {what}")

    # -- constants and lanes ---------------------------------------------------------------

    def index(self, value: int) -> Reg:
        """A constant of the index type."""
        return self.const(value, INDEX)

    def const(self, value: Number | SymDim, dt: DType, lanes: int = 0) -> Reg:
        """A constant, splat over ``lanes``; a dim is computed from the sizes of its symbols.
        TypeError for a fraction as an integer."""
        if type(value) is int:
            found = self._whole.get((value, dt, lanes))
            if found is None:
                found = self._whole[value, dt, lanes] = self._const(value, dt, lanes)
            return found
        return self._const(value, dt, lanes)

    def _const(self, value: Number | SymDim, dt: DType, lanes: int) -> Reg:
        if isinstance(value, SymDim):
            x = self.cast(self._dim(value), dt)
            return self.splat(x, lanes) if lanes else x
        if dt.is_complex:
            part = dt.part
            return pair(self.const(value.real, part, lanes), self.const(value.imag, part, lanes))
        assert not isinstance(value, complex)
        kind = mlir_type(dt, lanes)
        lit = self._literal(value, dt)
        # MLIR writes a scalar bool with no type: ``true`` is already an i1.
        typed = "" if dt is bool_ and not lanes else f" : {kind}"
        found = self._constant(f"{f'dense<{lit}>' if lanes else lit}{typed}", dt, lanes)
        self._numbers[found.name] = value
        return found

    def number_of(self, x: Reg) -> Number | None:
        """The value of a constant that ``const`` has made; None for any other register."""
        return self._numbers.get(x.name)

    def lane_numbers(self, dt: DType, lanes: int) -> Reg:
        """The constant vector 0, 1, 2, … of an integer type; it wraps."""
        return self.constants(range(lanes), dt)

    def constants(self, values: Sequence[int], dt: DType) -> Reg:
        """A vector of constants of an integer type, a lane each; they wrap."""
        numbers = ", ".join(str(n % (1 << dt.bits)) for n in values)
        return self._constant(f"dense<[{numbers}]> : {mlir_type(dt, len(values))}", dt, len(values))

    def _constant(self, literal: str, dt: DType, lanes: int) -> Reg:
        text = f"arith.constant {literal}"
        name = self._constants.get(text)
        if name is None:
            name = self._constants[text] = f"%c{len(self._constants)}"
            self._head.append(f"    {name} = {text}")
        return self.reg(name, dt, lanes)

    def _literal(self, value: float | bool, dt: DType) -> str:
        if dt is bool_:
            return "true" if value else "false"
        if dt.is_float8:
            return str(float8.bits_of(value, dt))
        if not dt.is_float:
            if value != int(value):
                raise self._refuse(f"{value} is no {dt}")
            return str(int(value))
        v = float(value)
        if math.isfinite(v):
            return f"{v:.17e}"
        if dt not in (f32, f64):
            raise self._refuse(f"{dt} is a memory format; make the constant an f32")
        infinity, quiet, bits = (
            (0xFF << 23, 1 << 22, 32) if dt is f32 else (0x7FF << 52, 1 << 51, 64)
        )
        word = infinity | (quiet if math.isnan(v) else 0)
        word |= (1 << (bits - 1)) if v < 0 else 0
        return f"0x{word:0{bits // 4}X}"

    def splat(self, x: Reg, lanes: int) -> Reg:
        """Broadcast a scalar to a vector."""
        if x.lanes == lanes:
            return x
        if x.lanes:
            raise self._refuse(f"a register of {x.lanes} lanes where {lanes} are needed")
        if isinstance(x, Complex):
            return pair(self.splat(x.re, lanes), self.splat(x.im, lanes))
        text = f"vector.broadcast {x.name} : {x.mlir} to {mlir_type(x.dtype, lanes)}"
        if x not in self._literals.values():
            return self.op(text, x.dtype, lanes)
        if (x.name, lanes) not in self._spread:
            with self.at_top():
                self._spread[x.name, lanes] = self.op(text, x.dtype, lanes)
        return self._spread[x.name, lanes]

    def from_elements(self, parts: Sequence[Reg]) -> Reg:
        """The vector of these scalars."""
        dt, n = parts[0].dtype, len(parts)
        names = ", ".join(p.name for p in parts)
        return self.op(f"vector.from_elements {names} : {mlir_type(dt, n)}", dt, n)

    def extract(self, x: Reg, lane: int) -> Reg:
        """One lane as a scalar."""
        if isinstance(x, Complex):
            return pair(self.extract(x.re, lane), self.extract(x.im, lane))
        kind = f"{mlir_element(x.dtype)} from {x.mlir}"
        return self.op(f"vector.extract {x.name}[{lane}] : {kind}", x.dtype, 0)

    def _slice(self, x: Reg, offset: int, size: int) -> Reg:
        # A shuffle, since the dialect's own slices do not lower to LLVM by themselves.
        return self.shuffle(x, x, range(offset, offset + size))

    def shuffle(self, a: Reg, b: Reg, lanes: Sequence[int]) -> Reg:
        """A vector of the given lanes of ``a`` followed by ``b``."""
        if isinstance(a, Complex) and isinstance(b, Complex):
            return pair(self.shuffle(a.re, b.re, lanes), self.shuffle(a.im, b.im, lanes))
        kinds = f"{a.mlir}, {a.mlir}"
        text = f"vector.shuffle {a.name}, {b.name} {list(lanes)} : {kinds}"
        return self.op(text, a.dtype, len(lanes))

    # -- literals of the launch ------------------------------------------------------------

    @contextmanager
    def at_top(self) -> Generator[None]:
        """Append to the beginning of the function at hand, where its constants are."""
        outside = self._lines, self._depth, self._known, self._texts
        self._lines, self._depth, self._known, self._texts = self._head, 2, {}, []
        try:
            yield
        finally:
            self._lines, self._depth, self._known, self._texts = outside

    def literal(self, at: int, of: int, dt: DType) -> Reg:
        """A scalar that the launch brings, behind its sizes: in the words from ``at`` on, of ``of``
        in all. A word has 64 bits, or 32 where indices have: then 64 bits are two words, the low
        one first."""
        self._words = [f"%literal{n}" for n in range(of)]
        if (at, dt) not in self._literals:
            with self.at_top():
                self._literals[at, dt] = self._from_words(self._words[at:], dt)
        return self._literals[at, dt]

    def _from_words(self, words: Sequence[str], dt: DType) -> Reg:
        low, *_ = words
        self._read.add(low)
        signed = {8: i8, 16: i16, 32: i32, 64: i64}[dt.bits]
        if not self.target.binds:
            bits = self._index_word(low)
            if dt.bits == 64 and self.target.word_bits == 32:
                self._read.add(words[1])
                bits = (bits & 0xFFFFFFFF) | (self._index_word(words[1]) << 32)
        elif dt.bits <= 32:
            bits = self.reg(f"{low}_i32", i32)
        else:
            high = self.reg(f"{words[1]}_i32", i32)
            bits = self.cast(self.reg(f"{low}_i32", u32), i64) | (self.cast(high, i64) << 32)
        return self.bitcast(self.cast(bits, signed), dt)

    def _index_word(self, name: str) -> Reg:
        return self.op(f"arith.index_cast {name} : index to i64", i64, 0)

    # -- dims ------------------------------------------------------------------------------

    def _dim(self, d: Dim) -> Reg:
        """A dim as an index, which is computed once, at the top of the function."""
        if not isinstance(d, SymDim):
            return self.index(d)
        if d not in self._dims:
            with self.at_top():
                self._dims[d] = self._computed(d)
        return self._dims[d]

    def _computed(self, d: SymDim) -> Reg:
        total: Reg | None = None
        for atoms, factor in d.terms:
            part = None if factor == 1 and atoms else self.index(factor)
            for atom in atoms:
                x = self._atom(atom)
                part = x if part is None else part * x
            assert part is not None
            total = part if total is None else total + part
        assert total is not None, "a dim has terms"
        return total

    def _atom(self, atom: Atom) -> Reg:
        if isinstance(atom, Symbol):
            found = self._symbols[atom.name]
            self._read.add(found.name)
            return found
        assert isinstance(atom, Call), "an atom is a symbol or a call"
        first, *rest = map(self._dim, atom.args)
        if atom.kind != "//":
            for x in rest:
                first = getattr(self.kernel, f"{atom.kind}imum")(first, x)
            return first
        # Divisions of indices are unsigned; of a number below 0 it is ~(~x // n).
        found = first // rest[0]
        if least(atom.args[0]) >= 0:
            return found
        below = ((first ^ -1) // rest[0]) ^ -1
        return self.kernel.select(first < 0, below, found)

    # -- conversions -----------------------------------------------------------------------

    def index_word(self, dt: DType) -> DType:
        """The integer type in which a tensor's index of type ``dt`` is computed, of its sign: of 64
        bits, unless neither an index nor a length of the target has more than 32."""
        narrow, wide = (u32, u64) if dt.kind == "uint" else (i32, i64)
        return narrow if self.target.index_bits == 32 and dt.bits <= 32 else wide

    def bitcast(self, x: Reg, dt: DType) -> Reg:
        """The same bits as another type of the same width."""
        return self._bitcast(x.name, x.dtype, dt, x.lanes)

    def _bitcast(self, name: str, src: DType, dst: DType, lanes: int) -> Reg:
        if mlir_element(src) == mlir_element(dst):
            return self.reg(name, dst, lanes)
        verb = "vector.bitcast" if lanes else "arith.bitcast"
        kinds = f"{mlir_type(src, lanes)} to {mlir_type(dst, lanes)}"
        return self.op(f"{verb} {name} : {kinds}", dst, lanes)

    def cast(self, x: Reg, dt: DType) -> Reg:
        """Convert a value. Float to integer saturates, and nan becomes 0; to bool means ``!= 0``.

        16-bit float types do not exist in registers: cast to f32 and use ``round_to``.
        """
        from rlx.codegen.convert import convert

        return convert(self.kernel, x, dt)

    def _index(self, v: Reg | int) -> Reg:
        return v if isinstance(v, Reg) else self.index(v)

"""Memory of the kernel builder: arguments, scratch, loads and stores."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from rlx.codegen.arithmetic import Arithmetic
from rlx.codegen.bfloat import rounded_to_bf16
from rlx.codegen.complex import Complex, pair, parts
from rlx.codegen.float8 import rounded
from rlx.codegen.reg import INDEX, Buffer, Number, Reg, mlir_element, mlir_type
from rlx.types import DType, bf16, bool_, f16, f32, i32, i64, u8, u16, u32

__all__ = ["Memory", "start_of"]

ERROR = "error"
"""The name of the argument that takes faults."""

FLAT = 1 << 40
"""Declared length of flat buffers: a static shape is what MLIR's bare-pointer convention needs."""

# What the builder itself calls values and arguments.
_TAKEN = re.compile(r"(?:[ct]|literal)\d+|begin|end|scratch|sizes|.*_(?:start|i32|i32_at)")


def start_of(b: Buffer) -> str:
    """The name of the element at which the view of an argument starts in its binding."""
    return f"{b.name}_start"


class Memory(Arithmetic):
    """Flat buffers, addressed by element. 16-bit floats and bools change form on the way."""

    def buffer(self, name: str, dt: DType) -> Buffer:
        """Declare a buffer argument. UnsupportedError for an element type that the target lacks."""
        b = self._buffer(name, dt)
        self._argument(name)
        self._buffers.append(b)
        return b

    def _buffer(self, name: str, dt: DType) -> Buffer:
        self._require(dt)
        length = "?" if self.target.logical else FLAT
        kind = f"memref<{length}x{self._element(dt)}{self._space()}>"
        return Buffer(f"%{name}", dt, kind)

    def _space(self) -> str:
        """The end of the type of an argument: where it lies."""
        return f", {self.target.buffer_space}" if self.target.buffer_space else ""

    def error_record(self) -> Buffer:
        """Declare the argument that takes faults: two words, of 32 bits on GPUs, which may have
        no longer ones."""
        return self.buffer(ERROR, self._error_type)

    @property
    def _error_type(self) -> DType:
        return i32 if self.target.word_bits == 32 else i64

    def size(self, name: str) -> Reg:
        """Declare a run-time index argument: a dim, a stride, an offset."""
        r = self.reg(self._argument(name), INDEX)
        self._sizes.append(r)
        return r

    def symbols(self, names: Iterable[str]) -> None:
        """Declare the sizes of symbols, by which the kernel computes dims."""
        self._symbols.update((name, self.size(name)) for name in names)

    def _form(self, dt: DType) -> DType:
        """What an element is in memory. A bf16 is an integer: of masked ones LLVM makes calls of a
        library, and SPIR-V has no such type without an extension."""
        return u16 if dt is bf16 else dt

    def _element(self, dt: DType) -> str:
        return mlir_element(self._form(dt), memory=True)

    def _argument(self, name: str) -> str:
        full = f"%{name}"
        if _TAKEN.fullmatch(name) or full in {a.name for a in (*self._buffers, *self._sizes)}:
            raise self._refuse(f"the argument name {name!r} is taken; choose another")
        return full

    def scratch(self, dt: DType, offset: Reg | int = 0) -> Buffer:
        """The worker's own scratch as elements of ``dt``, from a byte offset (aligned 64)."""
        at, whole = self._index(offset), self.whole_scratch
        name, elem = self.fresh(), self._element(dt)
        kind = f"memref<{FLAT // dt.part.bytes}x{elem}>"
        self.line(f"{name} = memref.view {whole.name}[{at.name}][] : {whole.mlir} to {kind}")
        return Buffer(name, dt, kind)

    @property
    def whole_scratch(self) -> Buffer:
        """The argument that brings the worker's scratch, in bytes."""
        if not self.target.serial:
            raise self._refuse("a GPU kernel has no scratch")
        if self._scratch is None:
            self._scratch = Buffer("%scratch", u8, f"memref<{FLAT}xi8>")
        return self._scratch

    def stack(self, dt: DType, count: int) -> Buffer:
        """A small array on the stack, 64-byte aligned."""
        space = f", {self.target.stack_space}" if self.target.stack_space else ""
        count = int(count)
        items = 2 * count if dt.is_complex else count
        kind = f"memref<{items}x{self._element(dt)}{space}>"
        name = self.fresh()
        # At the top of the function: inside a loop each round would take new memory.
        self._head.append(f"    {name} = memref.alloca() {{alignment = 64 : i64}} : {kind}")
        return Buffer(name, dt, kind)

    def shared(self, dt: DType, count: int) -> Buffer:
        """An array that the threads of a block share, of a type that registers have."""
        space = self.target.shared_space
        if space is None:
            raise self._refuse("the target shares no memory in a block")
        kind = f"memref<{count}x{self._element(dt)}{f', {space}' if space else ''}>"
        name = self.fresh()
        if self.target.logical:
            self._head.append(f"    {name} = memref.alloc() : {kind}")
        else:
            self._shared.append(f"{name}: {kind} {{llvm.align = 16 : i64}}")
        return Buffer(name, dt, kind)

    def _workgroup(self) -> str:
        """What a kernel's head says of shared memory: the conversions to machine code take it from
        there, those to languages of typed arrays from where it is allocated."""
        return f" workgroup({', '.join(self._shared)})" if self._shared else ""

    def load(self, b: Buffer, at: Reg | int, lanes: int = 0, mask: Reg | None = None) -> Reg:
        """Read one element or ``lanes`` consecutive ones; 16-bit floats come as f32.

        Where a ``mask`` (see ``first_lanes``) is false, nothing is read, and the lane is 0.
        """
        if b.dtype.is_complex:
            return self._load_complex(b, at, lanes, mask)
        return self._from_memory(self._raw_load(b, at, lanes, mask), b.dtype, lanes)

    def load_bits(self, b: Buffer, at: Reg | int) -> Reg:
        """The bits of an element of a buffer of 16-bit floats."""
        return self._bitcast(self._raw_load(b, at, 0), self._form(b.dtype), u16, 0)

    def _raw_load(self, b: Buffer, at: Reg | int, lanes: int, mask: Reg | None = None) -> str:
        i, elem = self._place(b, at).name, self._element(b.dtype)
        raw = self.fresh()
        if mask is not None:
            zero = self.const(0, u8 if b.dtype is bool_ else self._form(b.dtype), lanes).name
            self.line(
                f"{raw} = vector.maskedload {b.name}[{i}], {mask.name}, {zero} : {b.mlir}, "
                f"{mask.mlir}, vector<{lanes}x{elem}> into vector<{lanes}x{elem}>"
            )
        elif lanes:
            self.line(f"{raw} = vector.load {b.name}[{i}] : {b.mlir}, vector<{lanes}x{elem}>")
        else:
            self.line(f"{raw} = memref.load {b.name}[{i}] : {b.mlir}")
        return raw

    def _place(self, b: Buffer, at: Reg | int) -> Reg:
        """The element of what is bound: a view starts somewhere in it."""
        index = self._index(at)
        if not self.target.binds or b.name not in {a.name for a in self._buffers}:
            return index
        return index + self.reg(start_of(b), INDEX)

    def store(
        self,
        value: Reg | Number,
        b: Buffer,
        at: Reg | int,
        lanes: int = 0,
        mask: Reg | None = None,
    ) -> None:
        """Write a register; its type must be the buffer's (f32 for a 16-bit float, rounded).

        ``lanes`` says how many elements a number or a scalar register fills. Where a ``mask`` is
        false, nothing is written.
        """
        wide = f32 if b.dtype in (f16, bf16) else b.dtype
        v = value if isinstance(value, Reg) else self.const(value, wide, lanes)
        if v.dtype is not wide:
            raise self._refuse(f"cannot store {v.dtype} into a {b.dtype} buffer")
        v = self.splat(v, lanes) if lanes else v
        if isinstance(v, Complex):
            self._store_complex(v, b, at, mask)
            return
        raw, i = self._to_memory(v, b.dtype), self._place(b, at).name
        self._written.add(b.name)
        kind = f"vector<{v.lanes}x{self._element(b.dtype)}>"
        if mask is not None:
            kinds = f"{b.mlir}, {mask.mlir}, {kind}"
            self.line(f"vector.maskedstore {b.name}[{i}], {mask.name}, {raw} : {kinds}")
        elif v.lanes:
            self.line(f"vector.store {raw}, {b.name}[{i}] : {b.mlir}, {kind}")
        else:
            self.line(f"memref.store {raw}, {b.name}[{i}] : {b.mlir}")

    def _load_complex(self, b: Buffer, at: Reg | int, lanes: int, mask: Reg | None) -> Reg:
        flat, first = Buffer(b.name, b.dtype.part, b.mlir), self._index(at) * 2
        if not lanes:
            return pair(self.load(flat, first), self.load(flat, first + 1))
        low, high = (
            self.load(flat, first + lanes * n, lanes, m)
            for n, m in enumerate(self._masks_of_parts(mask))
        )
        return pair(*(self.shuffle(low, high, range(n, 2 * lanes, 2)) for n in (0, 1)))

    def _store_complex(self, v: Complex, b: Buffer, at: Reg | int, mask: Reg | None) -> None:
        flat, first, n = Buffer(b.name, b.dtype.part, b.mlir), self._index(at) * 2, v.lanes
        if not n:
            self.store(v.re, flat, first)
            self.store(v.im, flat, first + 1)
            return
        mixed = [i // 2 + n * (i % 2) for i in range(2 * n)]
        low, high = self._masks_of_parts(mask)
        self.store(self.shuffle(v.re, v.im, mixed[:n]), flat, first, mask=low)
        self.store(self.shuffle(v.re, v.im, mixed[n:]), flat, first + n, mask=high)

    def _masks_of_parts(self, mask: Reg | None) -> tuple[Reg | None, Reg | None]:
        """The masks of the two vectors that hold the parts of complex numbers."""
        if mask is None:
            return None, None
        n = mask.lanes
        both = [i // 2 for i in range(2 * n)]
        return self.shuffle(mask, mask, both[:n]), self.shuffle(mask, mask, both[n:])

    def gather(self, b: Buffer, at: Reg | int, stride: Reg | int, lanes: int) -> Reg:
        """Read ``lanes`` elements that lie ``stride`` elements apart."""
        base = self._index(at)
        return self._together(b, (base + stride * n if n else base for n in range(lanes)))

    def take(self, b: Buffer, at: Reg | int, places: Reg) -> Reg:
        """Read the elements at ``places``, a vector of i64, counted from ``at``."""
        base = self._index(at)
        lanes = (self.extract(places, n) for n in range(places.lanes))
        return self._together(b, (base + self.kernel.cast(place, INDEX) for place in lanes))

    def _together(self, b: Buffer, offsets: Iterable[Reg]) -> Reg:
        """The vector of the elements at these offsets. One load each: instructions that gather take
        1.15 to 1.5 times as long on Zen 5."""
        if b.dtype.is_complex:
            found = [self.load(b, offset) for offset in offsets]
            re_parts, im_parts = zip(*(parts(x) for x in found), strict=True)
            return pair(self.from_elements(re_parts), self.from_elements(im_parts))
        items = [self._raw_load(b, offset, 0) for offset in offsets]
        raw, kind = self.fresh(), f"vector<{len(items)}x{self._element(b.dtype)}>"
        self.line(f"{raw} = vector.from_elements {', '.join(items)} : {kind}")
        return self._from_memory(raw, b.dtype, len(items))

    def first_lanes(self, count: Reg, lanes: int) -> Reg:
        """The mask of the first ``count`` of ``lanes``."""
        return self.compare("lt", self.lane_numbers(i32, lanes), self.cast(count, i32))

    def prefetch(self, b: Buffer, at: Reg, write: bool = False, level: int = 1) -> None:
        """Ask for the cache line of an element, to ``write`` it or to read, in the L1 or the L2
        cache by ``level``; any address is allowed. Few lines at a time are on their way to L1."""
        how = f"{'write' if write else 'read'}, locality<{4 - level}>, data"
        self.line(f"memref.prefetch {b.name}[{at.name}], {how} : {b.mlir}")

    def round_to(self, x: Reg, dt: DType) -> Reg:
        """What storing an f32 as ``dt`` and reading it back gives; other types pass unchanged."""
        if dt not in (f16, bf16):
            return x
        raw = self._to_memory(x, dt)
        out = self._from_memory(raw, dt, x.lanes)
        self._rounded[out.name, dt] = raw
        return out

    def bits_of(self, x: Reg, dt: DType) -> Reg:
        """The bits of an f32 that is rounded to a 16-bit float."""
        return self._bitcast(self._to_memory(x, dt), self._form(dt), u16, x.lanes)

    def _from_memory(self, raw: str, dt: DType, lanes: int) -> Reg:
        if dt is bool_:
            zero = self.const(0, u8, lanes)
            kind = mlir_type(u8, lanes)
            return self.op(f"arith.cmpi ne, {raw}, {zero.name} : {kind}", bool_, lanes)
        if dt is f16:
            kinds = f"{mlir_type(f16, lanes)} to {mlir_type(f32, lanes)}"
            return self.op(f"arith.extf {raw} : {kinds}", f32, lanes)
        if dt is bf16:
            bits = self._bitcast(raw, self._form(bf16), u16, lanes)
            return self.bitcast(self.cast(bits, u32) << 16, f32)
        return self.reg(raw, dt, lanes)

    def _to_memory(self, v: Reg, dt: DType) -> str:
        if (v.name, dt) in self._rounded:
            return self._rounded[v.name, dt]
        if dt is bool_:
            byte = f"{mlir_type(bool_, v.lanes)} to {mlir_type(u8, v.lanes)}"
            return self.op(f"arith.extui {v.name} : {byte}", u8, v.lanes).name
        if dt is f16:
            v = self.rounded_to_f16(v) if self.target.logical else v
            half = f"{v.mlir} to {mlir_type(f16, v.lanes)}"
            return self.op(f"arith.truncf {v.name} : {half}", f16, v.lanes).name
        if dt is bf16:
            word = rounded_to_bf16(self.kernel, v)
            return self._bitcast(word.name, u16, self._form(bf16), v.lanes).name
        return v.name

    def from_half(self, bits: Reg) -> Reg:
        """The numbers of f16 that bits are, as f32."""
        raw = self._bitcast(bits.name, u16, self._form(f16), bits.lanes)
        return self._from_memory(raw.name, f16, bits.lanes)

    def rounded_to_float8(self, x: Reg, dt: DType, saturate: bool) -> Reg:
        """An f32 as an 8-bit float; see ``rlx.codegen.float8``."""
        return rounded(self.kernel, x, dt, saturate)

    def rounded_to_f16(self, x: Reg) -> Reg:
        """An f32 rounded to a value of f16, ties to even, inf from 65520 on. Where a target may
        round a conversion to f16 as it likes, it has nothing left to round."""
        bits = self.bitcast(x, u32)
        word = bits & 0x7FFFFFFF
        size = self.bitcast(word, f32)
        normal = self.bitcast((word + 0xFFF + ((word >> 13) & 1)) & 0xFFFFE000, f32)
        # The distance of f32 numbers at 0.5 is that of the subnormal numbers of f16.
        tiny = (size + 0.5) - 0.5
        value = self.select(size < 2.0**-14, tiny, normal)
        value = self.select(value > 65504.0, math.inf, value)
        signed = self.bitcast(self.bitcast(value, u32) | (bits & 0x80000000), f32)
        return self.select(self.compare("ne", x, x), x, signed)

"""The builder of one kernel's text: scf, arith, math, memref and vector ops on flat buffers.

A kernel computes the indices ``[begin, end)`` of a parallel range. Constants are hoisted to the
top and kept once. 16-bit floats are memory formats: ``load`` widens them to f32 and ``store``
rounds once, so that an op written in f32 has the result that IEEE rounding of the exact value
gives. What differs between targets (vector widths, math functions, the frame of the function)
is in the ``KernelTarget``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlx.kernels.reg import INDEX, Buffer, Number, Reg, mlir_element, mlir_type
from rlx.types import DType, bf16, bool_, f16, f32, f64, u8, u16, u32

__all__ = ["Kernel", "KernelTarget", "KernelText"]

FLAT = 1 << 40
"""Declared length of flat buffers: a static shape is what MLIR's bare-pointer convention needs."""

ArithName = Literal["add", "sub", "mul", "div", "rem", "and", "or", "xor", "shl", "shr"]
CompareName = Literal["eq", "ne", "lt", "le", "gt", "ge"]


@dataclass(frozen=True)
class KernelTarget:
    """What kernels may know of the machine.

    ``math`` maps a function's name ("exp") to an emitter over registers; ``frame`` is "cpu" (a
    function over a range) or "gpu" (a gpu.func, one thread an index); ``buffer_space`` is put
    into the memref types of arguments.
    """

    name: str
    vector_bytes: int
    registers: int
    math: dict[str, Callable[..., Reg]] = field(repr=False)
    frame: Literal["cpu", "gpu"] = "cpu"
    buffer_space: str = ""
    block: int = 128

    def lanes(self, dt: DType = f32) -> int:
        """Lanes of one vector register for elements as they are computed with (16 bit as f32)."""
        width = 4 if dt.is_float and dt.bits == 16 else dt.bytes
        return max(1, self.vector_bytes // width) if self.vector_bytes else 1


@dataclass(frozen=True)
class KernelText:
    """A finished kernel: MLIR text of one function, and the arguments after begin and end.

    ``buffers`` then ``sizes`` is the order of the arguments; ``scratch`` says whether a scratch
    pointer follows them.
    """

    name: str
    text: str
    buffers: tuple[DType, ...]
    sizes: tuple[str, ...]
    scratch: bool
    frame: str


class Kernel:
    """Builds one kernel. Declare buffers and sizes first, then call ``parallel`` once."""

    def __init__(self, name: str, target: KernelTarget) -> None:
        self.name, self.target = name, target
        self._head: list[str] = []
        self._lines: list[str] = []
        self._buffers: list[Buffer] = []
        self._sizes: list[Reg] = []
        self._constants: dict[str, str] = {}
        self._count = 0
        self._depth = 2
        self._scratch: Buffer | None = None

    # -- text ------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Append one line of MLIR."""
        self._lines.append("  " * self._depth + text)

    def fresh(self) -> str:
        self._count += 1
        return f"%t{self._count}"

    def op(self, text: str, dt: DType, lanes: int) -> Reg:
        """Append ``%new = text`` and return the register it defines."""
        name = self.fresh()
        self.line(f"{name} = {text}")
        return Reg(self, name, dt, lanes)

    def text(self) -> KernelText:
        """The finished function."""
        args = [f"{b.name}: {b.mlir}" for b in self._buffers]
        if self.target.frame == "gpu":
            args += [f"{s.name}_i32: i32" for s in self._sizes]
            casts = [f"    {s.name} = arith.index_cast {s.name}_i32 : i32 to index" for s in self._sizes]
            start = f"  gpu.func @{self.name}({', '.join(args)}) kernel"
            start += f" attributes {{known_block_size = array<i32: {self.target.block}, 1, 1>}} {{"
            body = [start, *casts, *self._head, *self._lines, "    gpu.return", "  }"]
        else:
            args = ["%begin: index", "%end: index", *args]
            args += [f"{s.name}: index" for s in self._sizes]
            if self._scratch:
                args.append(f"{self._scratch.name}: {self._scratch.mlir}")
            start = f"  func.func @{self.name}({', '.join(args)}) {{"
            body = [start, *self._head, *self._lines, "    return", "  }"]
        return KernelText(
            self.name,
            "\n".join(body),
            tuple(b.dtype for b in self._buffers),
            tuple(s.name[1:] for s in self._sizes),
            self._scratch is not None,
            self.target.frame,
        )

    # -- arguments and memory --------------------------------------------------------------

    def buffer(self, name: str, dt: DType) -> Buffer:
        """Declare a buffer argument."""
        space = f", {self.target.buffer_space}" if self.target.buffer_space else ""
        b = Buffer(f"%{name}", dt, f"memref<{FLAT}x{mlir_element(dt, memory=True)}{space}>")
        self._buffers.append(b)
        return b

    def size(self, name: str) -> Reg:
        """Declare a run-time index argument: a dim, a stride, an offset."""
        r = Reg(self, f"%{name}", INDEX)
        self._sizes.append(r)
        return r

    def scratch(self, dt: DType, offset: Reg | int = 0) -> Buffer:
        """The worker's own scratch memory as elements of ``dt``, from a byte offset (aligned 64)."""
        if self._scratch is None:
            self._scratch = Buffer("%scratch", u8, f"memref<{FLAT}xi8>")
        at = self.index(offset) if isinstance(offset, int) else offset
        name, elem = self.fresh(), mlir_element(dt, memory=True)
        kind = f"memref<{FLAT // dt.bytes}x{elem}>"
        self.line(f"{name} = memref.view %scratch[{at.name}][] : memref<{FLAT}xi8> to {kind}")
        return Buffer(name, dt, kind)

    def stack(self, dt: DType, count: int) -> Buffer:
        """A small array on the stack, 64-byte aligned."""
        kind = f"memref<{count}x{mlir_element(dt, memory=True)}>"
        name = self.fresh()
        self._head.append(f"    {name} = memref.alloca() {{alignment = 64 : i64}} : {kind}")
        return Buffer(name, dt, kind)

    def load(self, b: Buffer, at: Reg | int, lanes: int = 0) -> Reg:
        """Read one element or ``lanes`` consecutive ones; 16-bit floats come as f32."""
        i, elem = self._index(at).name, mlir_element(b.dtype, memory=True)
        raw = self.fresh()
        if lanes:
            self.line(f"{raw} = vector.load {b.name}[{i}] : {b.mlir}, vector<{lanes}x{elem}>")
        else:
            self.line(f"{raw} = memref.load {b.name}[{i}] : {b.mlir}")
        return self._from_memory(raw, b.dtype, lanes)

    def store(self, value: Reg | Number, b: Buffer, at: Reg | int, lanes: int = 0) -> None:
        """Write a register; its type must be the buffer's (f32 for a 16-bit float, rounded)."""
        wide = f32 if b.dtype in (f16, bf16) else b.dtype
        v = value if isinstance(value, Reg) else self.const(value, wide, lanes)
        if v.dtype is not wide:
            raise TypeError(f"kernel {self.name}: cannot store {v.dtype} into a {b.dtype} buffer")
        raw, i = self._to_memory(v, b.dtype), self._index(at).name
        if v.lanes:
            elem = mlir_element(b.dtype, memory=True)
            self.line(f"vector.store {raw}, {b.name}[{i}] : {b.mlir}, vector<{v.lanes}x{elem}>")
        else:
            self.line(f"memref.store {raw}, {b.name}[{i}] : {b.mlir}")

    def gather(self, b: Buffer, at: Reg | int, stride: Reg | int, lanes: int) -> Reg:
        """Read ``lanes`` elements that lie ``stride`` elements apart."""
        base = self._index(at)
        parts = [self.load(b, base + stride * n if n else base) for n in range(lanes)]
        return self.from_elements(parts)

    def prefetch(self, b: Buffer, at: Reg) -> None:
        self.line(f"memref.prefetch {b.name}[{at.name}], read, locality<3>, data : {b.mlir}")

    def _from_memory(self, raw: str, dt: DType, lanes: int) -> Reg:
        if dt is bool_:
            zero = self.const(0, u8, lanes)
            return self.op(f"arith.cmpi ne, {raw}, {zero.name} : {mlir_type(u8, lanes)}", bool_, lanes)
        if dt is f16:
            return self.op(f"arith.extf {raw} : {mlir_type(f16, lanes)} to {mlir_type(f32, lanes)}", f32, lanes)
        if dt is bf16:
            bits = self._bitcast(raw, bf16, u16, lanes)
            return self.bitcast(self.cast(bits, u32) << 16, f32)
        return Reg(self, raw, dt, lanes)

    def _to_memory(self, v: Reg, dt: DType) -> str:
        if dt is bool_:
            byte = f"{mlir_type(bool_, v.lanes)} to {mlir_type(u8, v.lanes)}"
            return self.op(f"arith.extui {v.name} : {byte}", u8, v.lanes).name
        if dt is f16:
            half = f"{v.mlir} to {mlir_type(f16, v.lanes)}"
            return self.op(f"arith.truncf {v.name} : {half}", f16, v.lanes).name
        if dt is bf16:
            # Round to nearest even on the bits: LLVM would call a library function for fptrunc.
            bits = self.bitcast(v, u32)
            even = (bits + 0x7FFF) + ((bits >> 16) & 1)
            quiet = bits | 0x400000
            rounded = self.select(self.compare("ne", v, v), quiet, even) >> 16
            return self._bitcast(self.cast(rounded, u16).name, u16, bf16, v.lanes).name
        return v.name

    # -- constants and conversions ---------------------------------------------------------

    def index(self, value: int) -> Reg:
        return self.const(value, INDEX)

    def const(self, value: Number, dt: DType, lanes: int = 0) -> Reg:
        """A constant, splat over ``lanes``."""
        kind = mlir_type(dt, lanes)
        lit = _literal(value, dt)
        # MLIR writes a scalar bool with no type: ``true`` is already an i1.
        typed = "" if dt is bool_ and not lanes else f" : {kind}"
        text = f"arith.constant {f'dense<{lit}>' if lanes else lit}{typed}"
        name = self._constants.get(text)
        if name is None:
            name = self._constants[text] = f"%c{len(self._constants)}"
            self._head.append(f"    {name} = {text}")
        return Reg(self, name, dt, lanes)

    def splat(self, x: Reg, lanes: int) -> Reg:
        """Broadcast a scalar to a vector."""
        if x.lanes == lanes:
            return x
        return self.op(f"vector.broadcast {x.name} : {x.mlir} to {mlir_type(x.dtype, lanes)}", x.dtype, lanes)

    def from_elements(self, parts: Sequence[Reg]) -> Reg:
        dt, n = parts[0].dtype, len(parts)
        return self.op(f"vector.from_elements {', '.join(p.name for p in parts)} : {mlir_type(dt, n)}", dt, n)

    def extract(self, x: Reg, lane: int) -> Reg:
        return self.op(f"vector.extract {x.name}[{lane}] : {mlir_element(x.dtype)} from {x.mlir}", x.dtype, 0)

    def bitcast(self, x: Reg, dt: DType) -> Reg:
        return self._bitcast(x.name, x.dtype, dt, x.lanes)

    def _bitcast(self, name: str, src: DType, dst: DType, lanes: int) -> Reg:
        if mlir_element(src) == mlir_element(dst):
            return Reg(self, name, dst, lanes)
        verb = "vector.bitcast" if lanes else "arith.bitcast"
        return self.op(f"{verb} {name} : {mlir_type(src, lanes)} to {mlir_type(dst, lanes)}", dst, lanes)

    def cast(self, x: Reg, dt: DType) -> Reg:
        """Convert a value. Float to integer saturates, and nan becomes 0; to bool means ``!= 0``.

        16-bit float types do not exist in registers: cast to f32 and use ``round_to``.
        """
        from rlx.kernels.convert import convert

        return convert(self, x, dt)

    def round_to(self, x: Reg, dt: DType) -> Reg:
        """What storing an f32 as ``dt`` and reading it back gives; other types pass unchanged."""
        if dt not in (f16, bf16):
            return x
        return self._from_memory(self._to_memory(x, dt), dt, x.lanes)

    # -- arithmetic ------------------------------------------------------------------------

    def _pair(self, a: Reg | Number, b: Reg | Number) -> tuple[Reg, Reg]:
        like = a if isinstance(a, Reg) else b
        assert isinstance(like, Reg)
        x = a if isinstance(a, Reg) else self.const(a, like.dtype, like.lanes)
        y = b if isinstance(b, Reg) else self.const(b, like.dtype, like.lanes)
        lanes = max(x.lanes, y.lanes)
        x, y = (self.splat(v, lanes) if lanes else v for v in (x, y))
        if x.dtype is not y.dtype:
            raise TypeError(f"kernel {self.name}: operands are {x.dtype} and {y.dtype}")
        return x, y

    def arith(self, verb: ArithName, a: Reg | Number, b: Reg | Number) -> Reg:
        """One arithmetic instruction. Integer division truncates and is undefined for 0."""
        x, y = self._pair(a, b)
        dt = x.dtype
        name = _FLOAT_OPS[verb] if dt.is_float else _int_op(verb, dt)
        return self.op(f"arith.{name} {x.name}, {y.name} : {x.mlir}", dt, x.lanes)

    def compare(self, pred: CompareName, a: Reg | Number, b: Reg | Number) -> Reg:
        """Ordered float compare (``ne`` is true for nan), signed or unsigned integer compare."""
        x, y = self._pair(a, b)
        if x.dtype.is_float:
            p = "une" if pred == "ne" else "o" + pred
            return self.op(f"arith.cmpf {p}, {x.name}, {y.name} : {x.mlir}", bool_, x.lanes)
        sign = "" if pred in ("eq", "ne") else "s" if x.dtype.kind == "int" else "u"
        return self.op(f"arith.cmpi {sign}{pred}, {x.name}, {y.name} : {x.mlir}", bool_, x.lanes)

    def select(self, cond: Reg, a: Reg | Number, b: Reg | Number) -> Reg:
        x, y = self._pair(a, b)
        lanes = max(cond.lanes, x.lanes)
        if lanes:
            cond, x, y = self.splat(cond, lanes), self.splat(x, lanes), self.splat(y, lanes)
            return self.op(f"arith.select {cond.name}, {x.name}, {y.name} : {cond.mlir}, {x.mlir}", x.dtype, lanes)
        return self.op(f"arith.select {cond.name}, {x.name}, {y.name} : {x.mlir}", x.dtype, 0)

    def logical_not(self, x: Reg) -> Reg:
        return x ^ True

    def neg(self, x: Reg) -> Reg:
        if x.dtype.is_float:
            return self.op(f"arith.negf {x.name} : {x.mlir}", x.dtype, x.lanes)
        return self.arith("sub", 0, x)

    def fma(self, a: Reg, b: Reg | Number, c: Reg | Number) -> Reg:
        """a * b + c, rounded once."""
        a, b = self._pair(a, b)
        a, c = self._pair(a, c)
        b = self.splat(b, a.lanes) if a.lanes else b
        verb = "vector.fma" if a.lanes else "math.fma"
        return self.op(f"{verb} {a.name}, {b.name}, {c.name} : {a.mlir}", a.dtype, a.lanes)

    def maximum(self, a: Reg | Number, b: Reg | Number) -> Reg:
        """The larger; nan if either is nan."""
        return self._extreme("max", a, b)

    def minimum(self, a: Reg | Number, b: Reg | Number) -> Reg:
        """The smaller; nan if either is nan."""
        return self._extreme("min", a, b)

    def _extreme(self, verb: str, a: Reg | Number, b: Reg | Number) -> Reg:
        x, y = self._pair(a, b)
        if x.dtype is bool_:
            return x | y if verb == "max" else x & y
        tail = "imumf" if x.dtype.is_float else "ui" if x.dtype.kind == "uint" else "si"
        return self.op(f"arith.{verb}{tail} {x.name}, {y.name} : {x.mlir}", x.dtype, x.lanes)

    def unary(self, mlir_op: str, x: Reg) -> Reg:
        """An upstream op of one operand, such as ``math.sqrt`` or ``math.roundeven``."""
        return self.op(f"{mlir_op} {x.name} : {x.mlir}", x.dtype, x.lanes)

    def call(self, name: str, *xs: Reg) -> Reg:
        """A function of the target's math table, such as ``exp``."""
        return self.target.math[name](*xs)

    def reduce(self, kind: str, x: Reg) -> Reg:
        """Fold the lanes of a vector in a fixed tree: add, mul, maximum or minimum."""
        n = x.lanes
        while n > 1:
            n //= 2
            lo = self._slice(x, 0, n)
            hi = self._slice(x, n, n)
            x = self.arith(kind, lo, hi) if kind in ("add", "mul") else getattr(self, kind)(lo, hi)  # type: ignore[arg-type]
        return self.extract(x, 0)

    def _slice(self, x: Reg, offset: int, size: int) -> Reg:
        return self.op(
            f"vector.extract_strided_slice {x.name} {{offsets = [{offset}], sizes = [{size}], strides = [1]}}"
            f" : {x.mlir} to {mlir_type(x.dtype, size)}",
            x.dtype,
            size,
        )

    # Math functions by name, so that an op's scalar meaning reads as a formula.
    def exp(self, x: Reg) -> Reg:
        return self.call("exp", x)

    def log(self, x: Reg) -> Reg:
        return self.call("log", x)

    def tanh(self, x: Reg) -> Reg:
        return self.call("tanh", x)

    def erf(self, x: Reg) -> Reg:
        return self.call("erf", x)

    def sin(self, x: Reg) -> Reg:
        return self.call("sin", x)

    def cos(self, x: Reg) -> Reg:
        return self.call("cos", x)

    def tan(self, x: Reg) -> Reg:
        return self.call("tan", x)

    def atan(self, x: Reg) -> Reg:
        return self.call("atan", x)

    def pow(self, x: Reg, y: Reg) -> Reg:
        return self.call("pow", x, y)

    def sigmoid(self, x: Reg) -> Reg:
        """1 / (1 + exp(-x)), with no overflow for large negative x."""
        return 1.0 / (self.exp(-x) + 1.0)

    def sqrt(self, x: Reg) -> Reg:
        return self.unary("math.sqrt", x)

    def abs(self, x: Reg) -> Reg:
        if x.dtype.kind == "uint":
            return x
        return self.unary("math.absf" if x.dtype.is_float else "math.absi", x)

    def floor(self, x: Reg) -> Reg:
        return self.unary("math.floor", x)

    def ceil(self, x: Reg) -> Reg:
        return self.unary("math.ceil", x)

    def round_even(self, x: Reg) -> Reg:
        return self.unary("math.roundeven", x)

    # -- control ---------------------------------------------------------------------------

    def parallel(self, body: Callable[[Reg], None]) -> None:
        """Run ``body(i)`` for every index of the launch's range that this call was given."""
        if self.target.frame == "cpu":
            self.loop(Reg(self, "%begin", INDEX), Reg(self, "%end", INDEX), 1, lambda i: body(i))
            return
        limit = self.size("range")
        ids = [self.op(f"gpu.{n} x", INDEX, 0) for n in ("block_id", "thread_id")]
        i = ids[0] * self.target.block + ids[1]
        self.when(i < limit, lambda: body(i))

    def loop(
        self,
        lo: Reg | int,
        hi: Reg | int,
        step: Reg | int,
        body: Callable[..., Sequence[Reg] | Reg | None],
        init: Sequence[Reg] = (),
    ) -> list[Reg]:
        """``for i in range(lo, hi, step)``; ``body(i, *carried)`` returns the next carried values."""
        lo, hi, step = (self._index(v).name for v in (lo, hi, step))
        i = Reg(self, self.fresh(), INDEX)
        if not init:
            self._region(f"scf.for {i.name} = {lo} to {hi} step {step} {{", lambda: body(i))
            return []
        args = [Reg(self, self.fresh(), r.dtype, r.lanes) for r in init]
        result, types = self.fresh(), ", ".join(r.mlir for r in init)
        pairs = ", ".join(f"{a.name} = {r.name}" for a, r in zip(args, init, strict=True))
        head = f"{result}:{len(init)} = scf.for {i.name} = {lo} to {hi} step {step}"
        self._region(f"{head} iter_args({pairs}) -> ({types}) {{", lambda: body(i, *args), types)
        return [Reg(self, f"{result}#{n}", r.dtype, r.lanes) for n, r in enumerate(init)]

    def when(
        self,
        cond: Reg,
        then: Callable[[], Sequence[Reg] | Reg | None],
        otherwise: Callable[[], Sequence[Reg] | Reg | None] | None = None,
        results: Sequence[Reg] = (),
    ) -> list[Reg]:
        """``if cond``; ``results`` gives the types of what both branches return."""
        types = ", ".join(r.mlir for r in results)
        name = self.fresh()
        head = f"{name}:{len(results)} = scf.if {cond.name} -> ({types}) {{" if results else f"scf.if {cond.name} {{"
        self._region(head, then, types)
        if otherwise is not None:
            self._lines[-1] = "  " * self._depth + "} else {"
            self._region(None, otherwise, types)
        return [Reg(self, f"{name}#{n}", r.dtype, r.lanes) for n, r in enumerate(results)]

    def _region(self, head: str | None, body: Callable[[], object], types: str = "") -> None:
        if head is not None:
            self.line(head)
        self._depth += 1
        out = body()
        if types:
            regs = [out] if isinstance(out, Reg) else list(out)  # type: ignore[arg-type]
            self.line(f"scf.yield {', '.join(r.name for r in regs)} : {types}")
        self._depth -= 1
        self.line("}")

    def vector_loop(self, n: Reg, lanes: int, body: Callable[[Reg, int], None]) -> None:
        """Cover ``[0, n)`` by vectors, then the rest one by one: ``body(j, lanes)``, ``body(j, 0)``."""
        whole = n - n % lanes
        self.loop(0, whole, lanes, lambda j: body(j, lanes))
        self.loop(whole, n, 1, lambda j: body(j, 0))

    def _index(self, v: Reg | int) -> Reg:
        return v if isinstance(v, Reg) else self.index(v)


_FLOAT_OPS = {"add": "addf", "sub": "subf", "mul": "mulf", "div": "divf", "rem": "remf"}


def _int_op(verb: str, dt: DType) -> str:
    unsigned = dt.kind != "int" or dt is INDEX
    if verb in ("div", "rem"):
        return f"{verb}{'ui' if unsigned else 'si'}"
    if verb == "shr":
        return "shrui" if unsigned else "shrsi"
    return f"{verb}i"


def _literal(value: Number, dt: DType) -> str:
    if dt is bool_:
        return "true" if value else "false"
    if not dt.is_float:
        return str(int(value))
    v = float(value)
    if math.isfinite(v):
        return f"{v:.17e}"
    bits = {f32: (0x7F800000, 0x7FC00000, 32), f64: (0x7FF0 << 48, 0x7FF8 << 48, 64)}[dt]
    word = bits[1] if math.isnan(v) else bits[0] | ((1 << (bits[2] - 1)) if v < 0 else 0)
    return f"0x{word:0{bits[2] // 4}X}"



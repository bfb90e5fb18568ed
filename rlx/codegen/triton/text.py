"""Blocks of elements, and the lines of TTIR that work on them.

A program has an index (``Text.program``), reads and writes through pointers, and computes on whole
blocks, whose sides are powers of two. Integers are signed, of 32 or 64 bits; where both meet, the
narrow one is widened. Two blocks of one rank are broadcast along sides of 1.

The kernel's arguments are those of ``rlx.targets.gpu.emit``: a pointer a buffer, then one to the
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx.base.frozen import frozen
from rlx.codegen.builder import KernelText
from rlx.codegen.control import ROW
from rlx.codegen.reg import mlir_element
from rlx.types import DType, bf16, bool_, f16, f32

__all__ = ["Block", "Pointer", "Text", "register_type"]


_POINTER = "!tt.ptr<"
_FLOATS = ("f16", "bf16", "f32", "f64")
_LEAST = {"f16": "0xFC00", "bf16": "0xFF80", "f32": "0xFF800000", "f64": "0xFFF0000000000000"}
"""The bits of the negative infinity."""
_WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
_IEEE = 2
"""Of ``tt.dot``'s precisions: products of f32 are f32's own, not those of fewer bits."""


def register_type(dt: DType) -> DType:
    """The type in which elements are computed with: f32 for a 16-bit float."""
    return f32 if dt in (f16, bf16) else dt


@dataclass(frozen=True, eq=False)
class Block:
    """A value: a scalar (no ``shape``) or a block. ``kind`` is MLIR's name of the element type."""

    t: Text
    name: str
    kind: str
    shape: tuple[int, ...] = ()

    @property
    def mlir(self) -> str:
        """The MLIR type."""
        return self.typed(self.kind)

    def typed(self, kind: str) -> str:
        """The MLIR type of as many elements of a kind."""
        return f"tensor<{'x'.join(map(str, self.shape))}x{kind}>" if self.shape else kind

    def __add__(self, o: Block | float) -> Block:
        return self.t.arith("add", self, o)

    def __sub__(self, o: Block | float) -> Block:
        return self.t.arith("sub", self, o)

    def __mul__(self, o: Block | float) -> Block:
        return self.t.arith("mul", self, o)

    def __truediv__(self, o: Block | float) -> Block:
        return self.t.arith("div", self, o)

    def __floordiv__(self, o: Block | float) -> Block:
        return self.t.arith("divs", self, o)

    def __mod__(self, o: Block | float) -> Block:
        return self.t.arith("rems", self, o)

    def __and__(self, o: Block | float) -> Block:
        return self.t.arith("and", self, o)

    def __lt__(self, o: Block | float) -> Block:
        return self.t.compare("lt", self, o)

    def __le__(self, o: Block | float) -> Block:
        return self.t.compare("le", self, o)

    def __ge__(self, o: Block | float) -> Block:
        return self.t.compare("ge", self, o)


@frozen
class Pointer:
    """An argument: the address of a buffer's view, and the type of its elements."""

    base: Block
    dtype: DType


class Text:
    """The lines of one kernel. Declared are ``buffers``, of which the last takes the result, and
    ``sizes`` by name; "range" is the number of programs."""

    def __init__(
        self, name: str, buffers: Sequence[tuple[str, DType]], sizes: Sequence[str]
    ) -> None:
        self.name = name
        self.buffers = list(buffers)
        self.sizes = ["range", *sizes]
        self._lines: list[str] = []
        self._head: list[str] = []
        self._constants: dict[str, str] = {}
        self._count = 0
        self._depth = 2
        self._arguments = [
            Block(self, f"%{n}", f"{_POINTER}{mlir_element(dt, memory=True)}>")
            for n, dt in self.buffers
        ]
        self._numbers = Block(self, "%sizes", f"{_POINTER}i32>")

    # -- lines -----------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Append one line."""
        self._lines.append("  " * self._depth + text)

    def fresh(self) -> str:
        """A new SSA name."""
        self._count += 1
        return f"%v{self._count}"

    def op(self, text: str, kind: str, shape: tuple[int, ...]) -> Block:
        """Append ``%new = text``."""
        found = Block(self, self.fresh(), kind, shape)
        self.line(f"{found.name} = {text}")
        return found

    def generic(
        self, op: str, operands: Sequence[Block], kind: str, shape: tuple[int, ...], said: str = ""
    ) -> Block:
        """Append an op in generic form; ``said`` are its attributes."""
        found = Block(self, self.fresh(), kind, shape)
        self.line(f"{found.name} = {_generic(op, operands, said)} -> {found.mlir}")
        return found

    def const(self, value: float | bool, kind: str, shape: tuple[int, ...] = ()) -> Block:
        """A constant, once each at the top."""
        whole = Block(self, "", kind, shape).mlir
        literal = _literal(value, kind)
        typed = "" if whole == "i1" else f" : {whole}"  # a scalar bool is written without
        text = f"arith.constant {f'dense<{literal}>' if shape else literal}{typed}"
        if text not in self._constants:
            self._constants[text] = f"%k{len(self._constants)}"
            self._head.append(f"    {self._constants[text]} = {text}")
        return Block(self, self._constants[text], kind, shape)

    # -- arguments -------------------------------------------------------------------------

    def size(self, name: str, multiple: int = 1) -> Block:
        """A number of the launch, as i32; ``multiple`` says that it is one of so many. That is
        written in a form which Triton's analysis of addresses sees."""
        at = self.const(self.sizes.index(name), "i32")
        return self._multiple(self._number(at), multiple)

    def buffer(self, name: str, multiple: int = 1) -> Pointer:
        """An argument; ``multiple`` says that its view starts at an element that is one of so
        many."""
        at = [n for n, _ in self.buffers].index(name)
        start = self._number(self.const(len(self.sizes) + at, "i32"))
        return Pointer(self._arguments[at] + self._multiple(start, multiple), self.buffers[at][1])

    def _number(self, at: Block) -> Block:
        return self._load(self._numbers + at)

    def _multiple(self, x: Block, n: int) -> Block:
        return x // n * n if n > 1 else x

    def program(self) -> Block:
        """The index of the program, below the size "range". The last row of a grid may reach beyond
        it: those programs do what the last one does."""
        x, y = (
            self.generic("tt.get_program_id", [], "i32", (), f"axis = {n} : i32") for n in (0, 1)
        )
        return self.minimum(y * ROW + x, self.size("range") - 1)

    # -- shapes ----------------------------------------------------------------------------

    def arange(self, n: int) -> Block:
        """0, 1, … n - 1 as i32."""
        return self.generic("tt.make_range", [], "i32", (n,), f"start = 0 : i32, end = {n} : i32")

    def row(self, x: Block) -> Block:
        """A block of one dim as one row."""
        return self.generic("tt.expand_dims", [x], x.kind, (1, *x.shape), "axis = 0 : i32")

    def column(self, x: Block) -> Block:
        """A block of one dim as one column."""
        return self.generic("tt.expand_dims", [x], x.kind, (*x.shape, 1), "axis = 1 : i32")

    def spread(self, x: Block, shape: tuple[int, ...]) -> Block:
        """A scalar, or a block with sides of 1, broadcast."""
        if x.shape == shape:
            return x
        return self.generic("tt.broadcast" if x.shape else "tt.splat", [x], x.kind, shape)

    def _alike(self, *xs: Block) -> list[Block]:
        """Blocks broadcast to one shape."""
        ranks = {len(x.shape) for x in xs if x.shape}
        if not ranks:
            return list(xs)
        assert len(ranks) == 1, f"blocks of several ranks: {[x.shape for x in xs]}"
        sides = zip(*(x.shape for x in xs if x.shape), strict=True)
        shape = tuple(max(s) for s in sides)
        return [self.spread(x, shape) for x in xs]

    # -- arithmetic ------------------------------------------------------------------------

    def _pair(self, a: Block | float, b: Block | float) -> list[Block]:
        like = a if isinstance(a, Block) else b
        assert isinstance(like, Block)
        x, y = (v if isinstance(v, Block) else self.const(v, like.kind) for v in (a, b))
        if {x.kind, y.kind} == {"i32", "i64"}:
            x, y = self.wide(x), self.wide(y)
        assert x.kind == y.kind, f"{x.kind} and {y.kind}"
        return self._alike(x, y)

    def arith(self, verb: str, a: Block | float, b: Block | float) -> Block:
        """One arithmetic instruction; of a pointer, ``add`` moves it by elements."""
        if isinstance(a, Block) and a.kind.startswith(_POINTER):
            assert isinstance(b, Block) and verb == "add"
            x, y = self._alike(a, b)
            return self.generic("tt.addptr", [x, y], x.kind, x.shape)
        x, y = self._pair(a, b)
        name = {"divs": "divsi", "rems": "remsi"}.get(
            verb, f"{verb}{'f' if x.kind in _FLOATS else 'i'}"
        )
        return self.op(f"arith.{name} {x.name}, {y.name} : {x.mlir}", x.kind, x.shape)

    def compare(self, predicate: str, a: Block | float, b: Block | float) -> Block:
        """An ordered compare of floats, a signed one of integers."""
        x, y = self._pair(a, b)
        if x.kind in _FLOATS:
            op, said = "cmpf", f"o{predicate}"
        else:
            op, said = "cmpi", predicate if predicate in ("eq", "ne") else f"s{predicate}"
        return self.op(f"arith.{op} {said}, {x.name}, {y.name} : {x.mlir}", "i1", x.shape)

    def select(self, condition: Block, a: Block | float, b: Block | float) -> Block:
        """a where ``condition`` holds, else b."""
        c, x, y = self._alike(condition, *self._pair(a, b))
        kinds = f"{c.mlir}, {x.mlir}" if c.shape else x.mlir
        return self.op(f"arith.select {c.name}, {x.name}, {y.name} : {kinds}", x.kind, x.shape)

    def minimum(self, a: Block | float, b: Block | float) -> Block:
        """The smaller of two integers."""
        x, y = self._pair(a, b)
        return self.op(f"arith.minsi {x.name}, {y.name} : {x.mlir}", x.kind, x.shape)

    def maximum(self, a: Block | float, b: Block | float) -> Block:
        """The larger; of floats nan if one is."""
        x, y = self._pair(a, b)
        verb = "maximumf" if x.kind in _FLOATS else "maxsi"
        return self.op(f"arith.{verb} {x.name}, {y.name} : {x.mlir}", x.kind, x.shape)

    def exp2(self, x: Block) -> Block:
        """2 to the power of x, by the machine's own instruction: about 2 units of the last place
        of f32."""
        return self.op(f"math.exp2 {x.name} : {x.mlir}", x.kind, x.shape)

    def wide(self, x: Block) -> Block:
        """An integer with 64 bits."""
        return x if x.kind == "i64" else self.convert(x, "i64")

    def convert(self, x: Block, kind: str) -> Block:
        """A float rounded to, or widened to, another float type; an integer or bool widened."""
        if x.kind == kind:
            return x
        if x.kind == "i1":
            verb = "arith.extui"
        elif x.kind in _WIDTHS:
            verb = "arith.extsi"
        else:
            verb = "arith.truncf" if kind in ("f16", "bf16") else "arith.extf"
        return self.op(f"{verb} {x.name} : {x.mlir} to {x.typed(kind)}", kind, x.shape)

    def dot(self, a: Block, b: Block, total: Block) -> Block:
        """total + a b, products and sums of f32 as IEEE 754 says."""
        said = f"inputPrecision = {_IEEE} : i32, maxNumImpreciseAcc = 0 : i32"
        return self.generic("tt.dot", [a, b, total], total.kind, total.shape, said)

    def reduce(self, x: Block, axis: int, op: str) -> Block:
        """A block of two dims folded along one: ``op`` is "arith.addf" or "arith.maximumf"."""
        shape = tuple(n for d, n in enumerate(x.shape) if d != axis)
        found, a, b, c = Block(self, self.fresh(), x.kind, shape), *(self.fresh() for _ in "abc")
        self.line(f'{found.name} = "tt.reduce"({x.name}) ({{')
        self.line(f"^bb0({a}: {x.kind}, {b}: {x.kind}):")
        self.line(f"  {c} = {op} {a}, {b} : {x.kind}")
        self.line(f'  "tt.reduce.return"({c}) : ({x.kind}) -> ()')
        self.line(f"}}) {{axis = {axis} : i32}} : ({x.mlir}) -> {found.mlir}")
        return found

    # -- memory ----------------------------------------------------------------------------

    def load(self, pointers: Block, mask: Block | None = None) -> Block:
        """What lies at pointers; 0 where the mask is false, and nothing is read there."""
        return self._load(pointers, mask)

    def read(self, p: Pointer, pointers: Block, mask: Block | None = None) -> Block:
        """As ``load``, in the type that is computed with."""
        x = self._load(pointers, mask)
        if p.dtype is bool_:
            return self.compare("ne", x, 0)
        return self.convert(x, "f32") if p.dtype in (f16, bf16) else x

    def _load(self, pointers: Block, mask: Block | None = None) -> Block:
        kind = pointers.kind.removeprefix(_POINTER).removesuffix(">")
        operands = [pointers]
        if mask is not None:
            zero = self.const(0, kind, pointers.shape)
            operands += [self.spread(mask, pointers.shape), zero]
        given = int(mask is not None)
        segments = f"operandSegmentSizes = array<i32: 1, {given}, {given}>"
        said = f"{segments}, {_CACHE}, isVolatile = false"
        return self.generic("tt.load", operands, kind, pointers.shape, said)

    def write(self, p: Pointer, pointers: Block, value: Block, mask: Block) -> None:
        """Store a value of the type that is computed with, where the mask holds."""
        if p.dtype is bool_:
            value = self.convert(value, "i8")
        elif p.dtype in (f16, bf16):
            value = self.convert(value, p.dtype.name)
        mask, value, pointers = self._alike(mask, value, pointers)
        self.line(f"{_generic('tt.store', [pointers, value, mask], _CACHE)} -> ()")

    # -- control ---------------------------------------------------------------------------

    def loop(
        self, low: Block, high: Block, step: int, body: Callable[..., Sequence[Block]],
        init: Sequence[Block],
    ) -> list[Block]:  # fmt: skip
        """``body(i, *carried)`` for i from low to high by a step: what it carries at the end."""
        by, i = self.const(step, "i32"), Block(self, self.fresh(), "i32")
        carried = [Block(self, self.fresh(), x.kind, x.shape) for x in init]
        pairs = ", ".join(f"{c.name} = {x.name}" for c, x in zip(carried, init, strict=True))
        kinds = ", ".join(x.mlir for x in init)
        name = self.fresh()
        self.line(
            f"{name}:{len(init)} = scf.for {i.name} = {low.name} to {high.name} step {by.name}"
            f" iter_args({pairs}) -> ({kinds}) : i32 {{"
        )
        self._depth += 1
        out = body(i, *carried)
        self.line(f"scf.yield {', '.join(x.name for x in out)} : {kinds}")
        self._depth -= 1
        self.line("}")
        return [Block(self, f"{name}#{n}", x.kind, x.shape) for n, x in enumerate(init)]

    # -- the end ---------------------------------------------------------------------------

    def text(self, warps: int, wave: int, stages: int) -> KernelText:
        """The finished kernel, for blocks of so many waves of threads."""
        arguments = [*self._arguments, self._numbers]
        kinds = ", ".join(a.mlir for a in arguments)
        # The driver's memory begins at round addresses.
        marks = ", ".join(["{tt.divisibility = 16 : i32}"] * len(arguments))
        lines = [
            "module {",
            '  "tt.func"() ({',
            f"  ^bb0({', '.join(f'{a.name}: {a.mlir}' for a in arguments)}):",
            *self._head,
            *self._lines,
            '    "tt.return"() : () -> ()',
            f'  }}) {{sym_name = "{self.name}", sym_visibility = "public",'
            f" function_type = ({kinds}) -> (), arg_attrs = [{marks}], noinline = false}}"
            " : () -> ()",
            "}",
        ]
        buffers = tuple(dt for _, dt in self.buffers)
        return KernelText(
            self.name, "\n".join(lines), buffers, tuple(self.sizes), False, "triton",
            (len(buffers) - 1,), True, warps * wave, 1, stages,
        )  # fmt: skip


_CACHE = "boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32"


def _generic(op: str, operands: Sequence[Block], said: str) -> str:
    names, kinds = ", ".join(x.name for x in operands), ", ".join(x.mlir for x in operands)
    return f'"{op}"({names}){f" {{{said}}}" if said else ""} : ({kinds})'


def _literal(value: float | bool, kind: str) -> str:
    if kind not in _FLOATS:
        return str(int(value)) if kind != "i1" else str(bool(value)).lower()
    if value == float("-inf"):
        return _LEAST[kind]
    return f"{float(value):.17e}"

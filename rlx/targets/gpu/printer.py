"""The one visitor that prints kernels: gpu.func of scf, arith, math and memref to a language.

It knows MLIR and no language: every piece of text is a row of a table (``language.py``). A value is
a variable that is set once. Integers are signless in MLIR and held as signed ones.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence

from rlx._mlir import ir
from rlx.errors import UnsupportedError
from rlx.targets.gpu.language import Language

__all__ = ["print_kernels"]

_CMPI = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_CMPF = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
    "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
)  # fmt: skip
_PREDICATES = {"arith.cmpi": _CMPI, "arith.cmpf": _CMPF}

_SUMS = frozenset(["arith.addf", "arith.subf", "arith.mulf"])
_ROUNDED = _SUMS | {"math.fma"}
_OF_ZERO = frozenset(["arith.mulf", "scf.for", "scf.while"])
"""What a float 0 is a factor in, or may be: a loop of which a round is known is unrolled."""

_INDEX_BITS = 32

_FORMATS = {"f16": ("<e", "<H"), "f32": ("<f", "<I"), "f64": ("<d", "<Q")}


def print_kernels(module: ir.Module, language: Language) -> str:
    """The source of the kernels of a module in a language.

    UnsupportedError names what a kernel needs and the language lacks.
    """
    kernels = [
        func.operation
        for outer in module.body.operations
        for func in outer.operation.regions[0].blocks[0].operations
        if func.operation.name == "gpu.func"
    ]
    parts = [_Kernel(k, language).text() for k in kernels]
    return "\n\n".join([*_preamble("\n".join(parts), language), *parts]) + "\n"


def _preamble(text: str, language: Language) -> Iterator[str]:
    """The header, and the helpers that the text calls, each after those that it calls itself."""
    if language.header:
        yield language.header
    needed: set[str] = set()
    todo = [text]
    while todo:
        for name in re.findall(r"\brlx_\w+", todo.pop()):
            if name in language.helpers and name not in needed:
                needed.add(name)
                todo.append(language.helpers[name])
    yield from (body for name, body in language.helpers.items() if name in needed)


class _Kernel:
    """Prints one function."""

    def __init__(self, func: ir.Operation, language: Language) -> None:
        self.func, self.language = func, language
        self.name = ir.StringAttr(func.attributes["sym_name"]).value
        self.lines: list[str] = []
        self.outside: list[str] = []
        self.names: dict[ir.Value, str] = {}
        self.kinds: dict[ir.Value, str] = {}
        self.count = 0
        self.depth = 1
        self.targets: list[list[str]] = []

    def text(self) -> str:
        block = self.func.regions[0].blocks[0]
        bindings = self.bindings(block)
        self.block(block)
        x, y, z = list(ir.DenseI32ArrayAttr(self.func.attributes["known_block_size"]))
        between = self.language.rows["between"]
        head = self.row("kernel", name=self.name, x=x, y=y, z=z, bindings=between.join(bindings))
        before, after = (
            [self.row(key, name=self.name)] if key in self.language.rows else []
            for key in ("before", "after")
        )
        return "\n".join([*before, *self.outside, head, *self.lines, self.row("end"), *after])

    def bindings(self, block: ir.Block) -> list[str]:
        """The declarations of the buffers, and of the numbers after them."""
        stored = set(_stored(self.func))
        out: list[str] = []
        for k, arg in enumerate(block.arguments):
            kind = ir.MemRefType(arg.type)
            element = str(kind.element_type)
            self.names[arg] = name = self.row("buffer", k=k, kernel=self.name)
            self.kinds[arg] = access = "read_write" if arg in stored else "read"
            count = kind.shape[0] if kind.has_static_shape else 0
            row = self.find([f"binding.{access} {element}", f"binding.{access}"], element)
            t = self.language.memory.get(element) or self.type(element)
            out.append(row.format(k=k, n=name, t=t, count=count))
        return out

    # -- pieces ----------------------------------------------------------------------------

    def row(self, key: str, **fields: object) -> str:
        return self.language.rows[key].format(**fields)

    def find(self, keys: Sequence[str], what: str) -> str:
        for key in keys:
            if key in self.language.rows:
                return self.language.rows[key]
        raise UnsupportedError(f"kernel {self.name}: {self.language.name} has no {what}")

    def line(self, text: str) -> None:
        self.lines += ["    " * self.depth + part for part in text.split("\n")]

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def type(self, t: str) -> str:
        if t not in self.language.types:
            raise UnsupportedError(
                f"kernel {self.name} computes with {t}, which {self.language.name} lacks"
            )
        return self.language.types[t]

    def unsigned(self, v: ir.Value) -> str:
        template = self.language.unsigned.get(str(v.type), "{e}")
        return template.format(e=self.names[v])

    def let(self, result: ir.Value, text: str) -> None:
        self.names[result] = n = self.fresh()
        self.line(self.row("let", t=self.type(str(result.type)), n=n, e=text))

    # -- ops -------------------------------------------------------------------------------

    def block(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            special = _SPECIAL.get(op.name)
            if special is not None:
                special(self, op)
            elif len(op.results) == 1 and not len(op.regions):
                self.plain(op)
            else:
                self.find([], f"form of {op.name}")

    def plain(self, op: ir.Operation) -> None:
        """An op whose result is an expression of its operands."""
        out = str(op.results[0].type)
        source = str(op.operands[0].type) if len(op.operands) else ""
        predicate = ""
        if op.name in _PREDICATES:
            number = ir.IntegerAttr(op.attributes["predicate"]).value
            predicate = "." + _PREDICATES[op.name][number]
            if predicate in (".une", ".uno") and op.operands[0] == op.operands[1]:
                predicate = ".nan"  # what a value does not equal itself for
        elif "dimension" in op.attributes:
            predicate = "." + str(op.attributes["dimension"]).split()[-1].rstrip(">")
        keys = [
            f"{op.name}{predicate} {source}>{out}", f"{op.name} {source}>{out}",
            f"{op.name}{predicate} {source}", f"{op.name} {source}",
            f"{op.name}{predicate}", op.name,
        ]  # fmt: skip
        template = self.find(keys, f"{op.name}{predicate} from {source} to {out}")
        fields = {x: self.operand(op, n) for n, x in enumerate("abc"[: len(op.operands)])}
        fields |= {f"u{x}": self.unsigned(v) for x, v in zip("abc", op.operands, strict=False)}
        fields["t"], fields["ut"] = self.type(out), self.language.unsigned_types.get(out, "")
        text = template.removeprefix("u:").format(**fields)
        if template.startswith("u:") and out in self.language.signed:
            text = self.language.signed[out].format(e=text)
        self.let(op.results[0], text)

    def operand(self, op: ir.Operation, n: int) -> str:
        """Operand n, hidden where compilers would not keep what an op says: ``exact`` from those
        that reorder sums and products, since the math functions and sums of two terms stand on
        every rounding; ``opaque`` from those that know of no nan, and make 0 of a product with a
        literal 0, or of a number less itself."""
        v = op.operands[n]
        if str(v.type) not in ("f16", "f32"):
            return self.names[v]
        maker = None if isinstance(v.owner, ir.Block) else v.owner.operation
        key = ""
        if op.name in _SUMS and maker is not None and maker.name in _ROUNDED:
            key = "exact"
        elif (op.name in _OF_ZERO and _is_zero(maker)) or (
            op.name in ("arith.subf", "arith.divf") and n and v == op.operands[0]
        ):
            key = "opaque"
        row = self.language.rows.get(key) and key
        return self.row(row, e=self.names[v]) if row else self.names[v]

    def constant(self, op: ir.Operation) -> None:
        result, value = op.results[0], op.attributes["value"]
        t = str(result.type)
        self.type(t)
        if isinstance(value, ir.FloatAttr):
            self.names[result] = self.float(value.value, t)
            return
        number = ir.IntegerAttr(value).value
        if t == "index" and not -1 << (_INDEX_BITS - 1) <= number < 1 << (_INDEX_BITS - 1):
            raise UnsupportedError(
                f"kernel {self.name} uses the index {number}, beyond {_INDEX_BITS} bits"
            )
        if t == "i1":
            key = "true" if number else "false"
        else:
            key = f"{t} least" if number == _least(t) else t
        text = self.language.literals[key].format(v=number)
        self.names[result] = f"({text})" if number < 0 and t != "i1" else text

    def float(self, value: float, t: str) -> str:
        as_float, as_bits = _FORMATS[t]
        data = struct.pack(as_float, value)
        if t not in self.language.literals or not math.isfinite(value):
            bits = struct.unpack(as_bits, data)[0]
            return self.language.bits[t].format(v=f"0x{bits:x}")
        text = f"{struct.unpack(as_float, data)[0]:.{9 if t == 'f32' else 17}g}"
        text = text if any(c in text for c in ".e") else text + ".0"
        text = self.language.literals[t].format(v=text)
        return f"({text})" if math.copysign(1.0, value) < 0 else text

    # -- memory ----------------------------------------------------------------------------

    def place(
        self, op: ir.Operation, memref: ir.Value, index: ir.Value
    ) -> tuple[str, dict[str, str]]:
        """The row for reading or writing an element, and the names for it."""
        element = str(ir.MemRefType(memref.type).element_type)
        kind = self.kinds[memref]
        keys = [f"{op.name}.{kind} {element}", f"{op.name} {element}", op.name]
        row = self.find(keys, f"{op.name} of {element}")
        return row, {"m": self.names[memref], "i": self.names[index]}

    def load(self, op: ir.Operation) -> None:
        row, fields = self.place(op, op.operands[0], op.operands[1])
        t = self.type(str(op.results[0].type))
        self.let(op.results[0], row.format(t=t, **fields))

    def store(self, op: ir.Operation) -> None:
        row, fields = self.place(op, op.operands[1], op.operands[2])
        value = op.operands[0]
        self.line(row.format(a=self.names[value], ua=self.unsigned(value), **fields))

    def array(self, op: ir.Operation) -> None:
        """Memory of a work item's own, or of its work group."""
        kind = ir.MemRefType(op.results[0].type)
        self.names[op.results[0]] = n = self.fresh()
        shared = op.name == "memref.alloc"
        self.kinds[op.results[0]] = "shared" if shared else "private"
        n = self.names[op.results[0]] = f"{self.name}_{n}" if shared else n
        fields = {"t": self.type(str(kind.element_type)), "n": n, "count": kind.shape[0]}
        if not shared:
            self.line(self.row("private", **fields))
            return
        for key, put in (("shared.outside", self.outside.append), ("shared.inside", self.line)):
            if text := self.row(key, **fields):
                put(text)

    # -- control ---------------------------------------------------------------------------

    def declare(self, results: Sequence[ir.Value]) -> list[str]:
        out: list[str] = []
        for r in results:
            self.names[r] = n = self.fresh()
            self.line(self.row("declare", t=self.type(str(r.type)), n=n))
            out.append(n)
        return out

    def variables(self, op: ir.Operation, at: int, *groups: Sequence[ir.Value]) -> list[str]:
        """Variables of a loop that start as its operands from ``at`` on; the values of ``groups``
        are called like them."""
        out: list[str] = []
        for k, v in enumerate(list(op.operands)[at:]):
            n = self.fresh()
            e = self.operand(op, at + k)
            self.line(self.row("var", t=self.type(str(v.type)), n=n, e=e))
            for group in groups:
                self.names[group[k]] = n
            out.append(n)
        return out

    def inside(self, block: ir.Block, targets: list[str]) -> None:
        self.depth += 1
        self.targets.append(targets)
        self.block(block)
        self.targets.pop()
        self.depth -= 1

    def assign(self, targets: Sequence[str], values: Sequence[ir.Value]) -> None:
        """Set variables, all at once: a value may be a variable that is set too."""
        moves = [
            (n, self.names[v], str(v.type))
            for n, v in zip(targets, values, strict=True)
            if n != self.names[v]
        ]
        taken = {n for n, _, _ in moves}
        if len(moves) > 1 and any(e in taken for _, e, _ in moves):
            for k, (n, e, t) in enumerate(moves):
                kept = self.fresh()
                self.line(self.row("let", t=self.type(t), n=kept, e=e))
                moves[k] = (n, kept, t)
        for n, e, _ in moves:
            self.line(self.row("assign", n=n, e=e))

    def end(self, op: ir.Operation) -> None:
        self.assign(self.targets[-1], op.operands)

    def loop(self, op: ir.Operation) -> None:
        lo, hi, step, *_ = op.operands
        block = op.regions[0].blocks[0]
        counter, *carried = block.arguments
        targets = self.variables(op, 3, carried, list(op.results))
        self.names[counter] = i = self.fresh()
        names = {"lo": self.names[lo], "hi": self.names[hi], "step": self.names[step]}
        self.line(self.row("for", t=self.type(str(counter.type)), n=i, **names))
        self.inside(block, targets)
        self.line(self.row("end"))

    def repeat(self, op: ir.Operation) -> None:
        before, after = (r.blocks[0] for r in op.regions)
        targets = self.variables(op, 0, list(before.arguments))
        passed = self.declare(op.results)
        for arg, n in zip(after.arguments, passed, strict=True):
            self.names[arg] = n
        self.line(self.row("while"))
        self.inside(before, passed)
        self.inside(after, targets)
        self.line(self.row("end"))

    def condition(self, op: ir.Operation) -> None:
        test, *values = op.operands
        self.assign(self.targets[-1], values)
        self.line(self.row("unless", a=self.names[test]))

    def branch(self, op: ir.Operation) -> None:
        targets = self.declare(op.results)
        self.line(self.row("if", a=self.names[op.operands[0]]))
        self.inside(op.regions[0].blocks[0], targets)
        if len(op.regions[1].blocks):
            self.line(self.row("else"))
            self.inside(op.regions[1].blocks[0], targets)
        self.line(self.row("end"))

    def barrier(self, op: ir.Operation) -> None:
        self.line(self.find([op.name], "barrier"))


def _stored(op: ir.Operation) -> Iterator[ir.Value]:
    """The memories that the ops inside of one write."""
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                inner = view.operation
                if inner.name == "memref.store":
                    yield inner.operands[1]
                yield from _stored(inner)


def _is_zero(op: ir.Operation | None) -> bool:
    """Whether an op is a float 0 of either sign."""
    if op is None or op.name != "arith.constant":
        return False
    value = op.attributes["value"]
    return isinstance(value, ir.FloatAttr) and value.value == 0


def _least(t: str) -> int:
    return -(1 << (_INDEX_BITS if t == "index" else int(t[1:])) - 1)


def _nothing(printer: _Kernel, op: ir.Operation) -> None:
    pass


_SPECIAL: dict[str, Callable[[_Kernel, ir.Operation], None]] = {
    "arith.constant": _Kernel.constant,
    "memref.load": _Kernel.load,
    "memref.store": _Kernel.store,
    "memref.alloca": _Kernel.array,
    "memref.alloc": _Kernel.array,
    "scf.for": _Kernel.loop,
    "scf.while": _Kernel.repeat,
    "scf.condition": _Kernel.condition,
    "scf.if": _Kernel.branch,
    "scf.yield": _Kernel.end,
    "gpu.barrier": _Kernel.barrier,
    "gpu.return": _nothing,
}

"""TTIR in NumPy: programs on blocks run one after the other, and every access is checked.

Memory is one line of addresses with gaps between the buffers; what is read or written outside of
one, or unaligned, raises. Floats of 16 bits are multiplied and summed in f32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from rlx import _mlir
from rlx._mlir import ir
from rlx.codegen.builder import KernelText

__all__ = ["OutOfBounds", "run_programs"]

Env = dict[Any, Any]

_DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip

_GAP = 1 << 40


class OutOfBounds(AssertionError):
    """An access that is outside of every buffer."""


class Memory:
    """Buffers, ``first[n]`` being the address of the n-th."""

    def __init__(self, buffers: Sequence[np.ndarray[Any, Any]]) -> None:
        self.buffers = list(buffers)
        assert all(b.ndim == 1 for b in buffers)
        self.first = [(n + 1) * _GAP for n in range(len(buffers))]

    def places(self, at: Any, dtype: Any) -> tuple[np.ndarray[Any, Any], Any]:
        """The buffer, as elements of a type, and the numbers of these addresses in it."""
        number = np.unique((at + _GAP // 2) // _GAP)
        if len(number) != 1 or not 1 <= number[0] <= len(self.buffers):
            raise OutOfBounds(f"addresses of no one buffer: {number}")
        buffer = self.buffers[number[0] - 1].view(dtype)
        offset = at - number[0] * _GAP
        index, rest = np.divmod(offset, buffer.itemsize)
        if rest.any() or (index < 0).any() or (index >= len(buffer)).any():
            raise OutOfBounds(f"buffer {number[0] - 1}: {index.min()} to {index.max()}")
        return buffer, index


def run_programs(
    text: KernelText, count: int, buffers: Sequence[np.ndarray[Any, Any]], numbers: Sequence[int],
    which: Sequence[int] | None = None,
) -> None:  # fmt: skip
    """Run programs 0 to ``count``, or those of ``which``, on flat buffers; ``numbers`` are the
    launch's sizes without the range and the starts of the views."""
    context = _mlir.context()
    context.allow_unregistered_dialects = True
    module = _mlir.parse_module(text.text, context)
    (function,) = [op.operation for op in module.body.operations]
    block = function.regions[0].blocks[0]
    words = np.array([count, *numbers], np.int32)
    memory = Memory([*buffers, words])
    row = 1 << 15
    for program in range(count) if which is None else which:
        env: Env = dict(zip(block.arguments, memory.first, strict=True))
        with np.errstate(all="ignore"):
            _Run(memory, (program % row, program // row, 0)).block(block, env)


class _Run:
    """One program."""

    def __init__(self, memory: Memory, program: tuple[int, int, int]) -> None:
        self.memory, self.program = memory, program

    def block(self, block: ir.Block, env: Env) -> list[Any]:
        """Run a block; the values that its last op hands on."""
        *ops, last = [op.operation for op in block.operations]
        for op in ops:
            values = [env[v] for v in op.operands]
            if op.name == "scf.for":
                found = self.loop(op, values, env)
            else:
                found = _OPS[op.name](self, op, *values)
            results = found if isinstance(found, list) else [found] if len(op.results) else []
            for r, value in zip(op.results, map(np.asarray, results), strict=True):
                shape, dtype = _type(r.type)
                assert value.shape == shape, (str(op), value.shape)
                assert value.dtype == dtype, (str(op), value.dtype)
                env[r] = value
        return [env[v] for v in last.operands]

    def loop(self, op: ir.Operation, values: list[Any], env: Env) -> list[Any]:
        low, high, step, *carried = values
        inner = op.regions[0].blocks[0]
        for i in range(int(low), int(high), int(step)):
            own = dict(zip(inner.arguments, [np.int32(i), *carried], strict=True))
            carried = self.block(inner, {**env, **own})
        return carried

    # -- ops of tt -------------------------------------------------------------------------

    def load(self, op: ir.Operation, at: Any, mask: Any = None, other: Any = None) -> Any:
        shape, dtype = _type(op.results[0].type)
        keep = np.ones(shape, bool) if mask is None else mask
        out = np.zeros(shape, dtype) if other is None else np.array(other)
        if keep.any():
            buffer, index = self.memory.places(np.asarray(at)[keep], dtype)
            out[keep] = buffer[index]
        return out

    def store(self, op: ir.Operation, at: Any, value: Any, mask: Any) -> None:
        if mask.any():
            buffer, index = self.memory.places(at[mask], value.dtype)
            assert len(np.unique(index)) == len(index), "an element is written twice"
            buffer[index] = value[mask]

    def program_id(self, op: ir.Operation) -> Any:
        return np.int32(self.program[_number(op, "axis")])

    def addptr(self, op: ir.Operation, at: Any, offset: Any) -> Any:
        return np.asarray(at, np.int64) + np.asarray(offset, np.int64) * _pointee(op).itemsize


def _shaped(change: Callable[[Any, tuple[int, ...]], Any]) -> Callable[..., Any]:
    def run(_: _Run, op: ir.Operation, x: Any) -> Any:
        return change(np.asarray(x), _type(op.results[0].type)[0])

    return run


def _make_range(_: _Run, op: ir.Operation) -> Any:
    return np.arange(_number(op, "start"), _number(op, "end"), dtype=np.int32)


def _expand_dims(_: _Run, op: ir.Operation, x: Any) -> Any:
    return np.expand_dims(x, _number(op, "axis"))


def _reduce(_: _Run, op: ir.Operation, x: Any) -> Any:
    combine = op.regions[0].blocks[0].operations[0].operation.name
    fold = {"arith.addf": np.add, "arith.maximumf": np.maximum}[combine]
    return fold.reduce(x, axis=_number(op, "axis"))


def _dot(_: _Run, op: ir.Operation, a: Any, b: Any, total: Any) -> Any:
    assert _number(op, "inputPrecision") == 2, "products as IEEE 754 says"
    assert min(*a.shape, *b.shape) >= 16
    return total + a.astype(np.float32) @ b.astype(np.float32)


def _bitcast(_: _Run, op: ir.Operation, x: Any) -> Any:
    return x.view(_type(op.results[0].type)[1])


# -- arith and math ------------------------------------------------------------------------


def _constant(_: _Run, op: ir.Operation) -> Any:
    value = op.attributes["value"]
    shape, dtype = _type(op.results[0].type)
    if isinstance(value, ir.DenseElementsAttr):
        value = value.get_splat_value()
    return np.full(shape, value.value, dtype)


def _plain(compute: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, op, *xs: compute(*xs)


def _divided(a: Any, b: Any) -> Any:
    return np.trunc(np.divide(a, b, dtype=np.float64)).astype(a.dtype)


def _rest(a: Any, b: Any) -> Any:
    return np.fmod(a, b)


def _unsigned(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Of integers that are taken for unsigned ones."""

    def run(*xs: Any) -> Any:
        found = compute(*(np.asarray(x).view(f"u{x.dtype.itemsize}") for x in xs))
        return found if found.dtype == np.bool_ else found.view(xs[0].dtype)

    return run


_PREDICATES: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip
_CMPI = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]
_CMPF = ["false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult",
         "ule", "une", "uno"]  # fmt: skip


def _cmpi(_: _Run, op: ir.Operation, a: Any, b: Any) -> Any:
    name = _CMPI[_number(op, "predicate")]
    compare = _PREDICATES[name[-2:]]
    return (_unsigned(compare) if name[0] == "u" else compare)(a, b)


def _cmpf(_: _Run, op: ir.Operation, a: Any, b: Any) -> Any:
    name = _CMPF[_number(op, "predicate")]
    assert name == "une" or name[0] == "o", name
    return _PREDICATES[name[1:]](a, b)


def _cast(_: _Run, op: ir.Operation, x: Any) -> Any:
    return np.asarray(x).astype(_type(op.results[0].type)[1])


def _from_unsigned(_: _Run, op: ir.Operation, x: Any) -> Any:
    x = np.asarray(x)
    plain = x if x.dtype == np.bool_ else x.view(f"u{x.dtype.itemsize}")
    return plain.astype(_type(op.results[0].type)[1])


def _fma(a: Any, b: Any, c: Any) -> Any:
    if a.dtype == np.float64:
        return np.vectorize(_exact_fma, otypes=[np.float64])(a, b, c)
    # Exact in f64 up to the sum, whose rounding there hardly ever shows in f32.
    return (np.multiply(a, b, dtype=np.float64) + c).astype(np.float32)


def _exact_fma(a: float, b: float, c: float) -> float:
    if not np.isfinite([a, b, c]).all():
        return a * b + c
    found = Fraction(a) * Fraction(b) + Fraction(c)
    return float(found) if abs(found) < Fraction(2) ** 1023 else a * b + c


_OPS: dict[str, Callable[..., Any]] = {
    "tt.get_program_id": _Run.program_id, "tt.load": _Run.load, "tt.store": _Run.store,
    "tt.addptr": _Run.addptr, "tt.make_range": _make_range, "tt.expand_dims": _expand_dims,
    "tt.splat": _shaped(np.broadcast_to),
    "tt.broadcast": _shaped(np.broadcast_to), "tt.reduce": _reduce, "tt.dot": _dot,
    "tt.bitcast": _bitcast, "arith.constant": _constant, "arith.cmpi": _cmpi, "arith.cmpf": _cmpf,
    "arith.select": _plain(np.where), "math.fma": _plain(_fma), "math.exp2": _plain(np.exp2),
    "math.sqrt": _plain(np.sqrt), "math.absf": _plain(np.abs), "math.floor": _plain(np.floor),
    "math.ceil": _plain(np.ceil), "arith.negf": _plain(np.negative),
    "arith.divsi": _plain(_divided), "arith.remsi": _plain(_rest),
    "arith.divui": _plain(_unsigned(np.floor_divide)), "arith.remui": _plain(_unsigned(np.fmod)),
    "arith.shli": _plain(np.left_shift), "arith.shrsi": _plain(np.right_shift),
    "arith.shrui": _plain(_unsigned(np.right_shift)), "arith.minui": _plain(_unsigned(np.minimum)),
    "arith.maxui": _plain(_unsigned(np.maximum)), "arith.extui": _from_unsigned,
    "arith.uitofp": _from_unsigned,
    **dict.fromkeys((f"arith.{n}" for n in ("extf", "truncf", "extsi", "trunci", "sitofp", "fptosi",
                                            "fptoui")), _cast),
    **{f"arith.{n}{t}": _plain(f) for t in "if" for n, f in (
        ("add", np.add), ("sub", np.subtract), ("mul", np.multiply))},
    "arith.divf": _plain(np.divide),
    "arith.andi": _plain(np.bitwise_and), "arith.ori": _plain(np.bitwise_or),
    "arith.xori": _plain(np.bitwise_xor),
    "arith.minsi": _plain(np.minimum), "arith.maxsi": _plain(np.maximum),
    "arith.minimumf": _plain(np.minimum), "arith.maximumf": _plain(np.maximum),
}  # fmt: skip


# -- types ---------------------------------------------------------------------------------


@functools.cache
def _parsed(text: str) -> tuple[tuple[int, ...], Any]:
    kind = text.removeprefix("tensor<").removesuffix(">") if text.startswith("tensor<") else text
    if "!tt.ptr" in text:
        sides = kind.partition("!")[0] if text.startswith("tensor<") else ""
        return tuple(map(int, sides.rstrip("x").split("x"))) if sides else (), np.dtype(np.int64)
    *shape, element = kind.split("x") if text.startswith("tensor<") else [kind]
    return tuple(map(int, shape)), np.dtype(_DTYPES[element])


def _type(t: ir.Type) -> tuple[tuple[int, ...], Any]:
    """The shape and NumPy's type of a value; addresses are i64."""
    return _parsed(str(t))


def _pointee(op: ir.Operation) -> Any:
    text = str(op.results[0].type)
    return np.dtype(_DTYPES[text[text.index("ptr<") + 4 :].partition(">")[0]])


def _number(op: ir.Operation, name: str) -> int:
    return int(ir.IntegerAttr(op.attributes[name]).value)

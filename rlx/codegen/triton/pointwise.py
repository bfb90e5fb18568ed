"""From the scalar code of pointwise ops to code on blocks: the ops are the same, the types wider.

What an op computes is said once, by its ``scalar`` and the math functions, in the builder of scalar
kernels. Their lines are straight code of elementwise ops of MLIR, each of which takes blocks too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial

from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.math import CPU_MATH
from rlx.codegen.program import Program
from rlx.codegen.reg import Reg, mlir_element
from rlx.codegen.triton.text import Block, Text, register_type
from rlx.errors import UnsupportedError
from rlx.types import DType, f64

__all__ = ["pointwise", "refused"]

_SCALARS = KernelTarget("blocks", vector_bytes=0, registers=0, math=CPU_MATH, frame="gpu")

_OPS = re.compile(r"arith\.\w+|math\.(?:fma|absf|sqrt|floor|ceil)")
"""What may stand in a line. The rest, control flow above all, has no form on blocks."""

_LINE = re.compile(r"\s*(%\w+) = ([\w.]+) ?(.*)")
_NAME = re.compile(r"%\w+")
_TYPE = re.compile(r"\b(?:i1|i8|i16|i32|i64|f16|bf16|f32|f64)\b")
_STRANGE = re.compile(r"\b(?:index|vector|memref)\b")

Function = Callable[[Kernel, Sequence[Reg]], Sequence[Reg]]


def pointwise(
    t: Text, function: Function, values: Sequence[Block], dtypes: Sequence[DType]
) -> list[Block]:
    """What a function of scalars makes of the elements of blocks of one shape, which are of
    ``dtypes``, or rather of the types that those are computed with.

    UnsupportedError for a function that is no straight code.
    """
    shape = values[0].shape
    regs, lines = _scalar(function, dtypes)
    names = {f"%in{n}": v.name for n, v in enumerate(values)}
    for name, op, rest in lines:
        operands = _NAME.sub(lambda m: names[m[0]], rest)
        names[name] = _lifted(t, op, operands, shape)
    found = [(names[r.name], mlir_element(r.dtype)) for r in regs]
    return [Block(t, name, kind, shape) for name, kind in found]


def _scalar(
    function: Function, dtypes: Sequence[DType]
) -> tuple[Sequence[Reg], list[tuple[str, str, str]]]:
    """The results and the lines of a function; its inputs are called %in0, %in1, …"""
    k = Kernel("pointwise", _SCALARS)
    regs = function(k, [Reg(k, f"%in{n}", register_type(dt)) for n, dt in enumerate(dtypes)])
    lines: list[tuple[str, str, str]] = []
    for line in k.text().text.splitlines()[1:-2]:  # without the frame
        parts = _LINE.fullmatch(line)
        if parts is None or not _OPS.fullmatch(parts[2]) or _STRANGE.search(parts[3]):
            raise UnsupportedError(f"no code on blocks: {line.strip()}")
        lines.append((parts[1], parts[2], parts[3]))
    return regs, lines


def _lifted(t: Text, op: str, text: str, shape: tuple[int, ...]) -> str:
    """The name of the value of a line on blocks."""
    sides = "x".join(map(str, shape))

    def wide(kinds: str) -> str:
        return _TYPE.sub(lambda m: f"tensor<{sides}x{m[0]}>", kinds) if shape else kinds

    operands, _, kinds = text.rpartition(" : ")
    if op == "arith.constant":
        literal, kind = (operands, kinds) if operands else (text, "i1")
        value = f"dense<{literal}>" if shape else literal
        text = f"{op} {value} : {wide(kind)}"
    elif op == "arith.bitcast":
        source, target = (wide(kind) for kind in kinds.split(" to "))
        text = f'"tt.bitcast"({operands}) : ({source}) -> {target}'
    elif op == "arith.select" and shape:
        text = f"{op} {operands} : {wide('i1')}, {wide(kinds)}"
    else:
        text = f"{op} {operands} : {wide(kinds)}"
    return t.op(text, "", shape).name


@cache
def refused(program: Program) -> str | None:
    """Why a program has no form on blocks; None if it has one."""
    dtypes = [*program.inputs, *(s.dtype for s in program.steps)]
    if strange := [dt for dt in dtypes if dt is f64 or dt.is_complex]:
        return f"its epilogue computes with {strange[0]}"
    try:
        _scalar(partial(_emitted, program), program.inputs)
    except UnsupportedError as e:
        return f"its epilogue has {e.message}"
    return None


def _emitted(program: Program, k: Kernel, values: Sequence[Reg]) -> Sequence[Reg]:
    return program.emit(k, values)

"""Literals of a graph as arguments of kernels, so that graphs which differ in numbers alone share
their code.

The words of a literal follow the sizes of a launch: one of 64 bits on a CPU, on a GPU one or two of
32. What stays in the code, because it makes better code there:

- the numbers with an algebraic meaning: 0, 1, 2 and 1/2 of either sign, the infinities, nan;
- a divisor of floats and a factor of integers that is a power of two;
- a literal that any op but those of ``_TAKERS`` reads: powers, maxima, shifts, remainders;
- bools and complex numbers, and the numbers that an op's own formula or attributes bring.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any

from rlx.codegen.program import Program, Step
from rlx.codegen.reg import Number
from rlx.kernels.rowwise.plan import Reduce, RowProgram
from rlx.ops.pointwise.binary import Add, Div, Mul, Sub
from rlx.ops.pointwise.compare import Eq, Ge, Gt, Le, Lt, Ne, Where
from rlx.types import DType, bf16, f16, f32

__all__ = ["lifted", "words_of"]

_TAKERS = frozenset(op.name for op in (Add, Sub, Mul, Div, Where, Eq, Ne, Lt, Le, Gt, Ge))
"""The ops that run as fast on a number that the launch brings."""

_PROGRAMS = (Program, RowProgram)
_PLAIN = frozenset({0, 1, -1, 2, -2, 0.5, -0.5, math.inf, -math.inf})


def lifted(config: Any, width: int) -> tuple[Any, tuple[int, ...]]:
    """A config without the literals that a launch can bring, and the words, of ``width`` bits, that
    bring them."""
    words: list[int] = []
    found: dict[tuple[str, int], tuple[int, Step]] = {}
    programs = {
        name: value
        for name in _field_names(type(config))
        if isinstance(value := getattr(config, name), _PROGRAMS)
    }
    for name, program in programs.items():
        for n, step, value in _literals(program):
            found[name, n] = len(words), step
            words += words_of(value, step.dtype, width)
    if not words:
        return config, ()
    changed: dict[str, Any] = {}
    for name, program in programs.items():
        steps = list(program.steps)
        for (owner, n), (at, step) in found.items():
            if owner == name:
                steps[n] = Step.argument(at, len(words), step.dtype)
        changed[name] = replace(program, steps=tuple(steps))
    return replace(config, **changed), tuple(words)


@cache
def _field_names(config: type) -> tuple[str, ...]:
    return tuple([f.name for f in fields(config)])


def _literals(program: Program | RowProgram) -> Iterator[tuple[int, Step, Number]]:
    """The literals of a program that a launch can bring: the numbers of their steps, and values."""
    first = len(program.inputs)
    numbers = {
        first + n: (s, value)
        for n, s in enumerate(program.steps)
        if isinstance(s, Step) and (value := s.number) is not None and _is_free(value, s.dtype)
    }
    if not numbers:
        return
    read, kept = set(program.outputs), set[int]()
    for s in program.steps:
        args = (s.arg,) if isinstance(s, Reduce) else s.args
        read |= set(args)
        for place, v in enumerate(args):
            if v in numbers and not (isinstance(s, Step) and _takes(s, place, *numbers[v])):
                kept.add(v)
    for v, (step, value) in numbers.items():
        if v in read and v not in kept:
            yield v - first, step, value


def _is_free(value: Number, dt: DType) -> bool:
    """Whether a number means nothing by itself."""
    if dt.is_complex or dt.is_float8 or dt.kind == "bool" or isinstance(value, complex):
        return False
    return not math.isnan(value) and value not in _PLAIN


def _takes(step: Step, place: int, literal: Step, value: Number) -> bool:
    """Whether an op takes a literal in the given place from the launch."""
    assert not isinstance(value, complex)
    if step.op == Div.name and (place == 0 or not literal.dtype.is_float):
        return literal.dtype.is_float
    if step.op == Div.name or (step.op == Mul.name and literal.dtype.is_int):
        return abs(math.frexp(value)[0]) != 0.5
    return step.op in _TAKERS


def words_of(value: Number, dt: DType, width: int) -> list[int]:
    """A number as it is in a register, in the words of a launch, of ``width`` bits
    (``Kernel.literal``)."""
    assert not isinstance(value, complex)
    if dt.is_float:
        dt = f32 if dt in (f16, bf16) else dt
        kinds = {32: "<fi", 64: "<dq"}[dt.bits]
        bits = int(struct.unpack(f"<{kinds[2]}", struct.pack(f"<{kinds[1]}", value))[0])
    else:
        bits = int(value)
    count = 2 if dt.bits > width else 1
    return [_signed(bits >> (width * n), width) for n in range(count)]


def _signed(bits: int, width: int) -> int:
    """The low bits of a number as a signed one."""
    half = 1 << (width - 1)
    return ((bits + half) & ((1 << width) - 1)) - half

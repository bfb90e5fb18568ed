"""Literals, and dims as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from rlx.base.dim_atoms import Atom, Call, Symbol
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.ops.pointwise.binary import Maximum, Minimum
from rlx.types import Dim, DType, SymDim

__all__ = ["constant", "full", "scalar", "size_value"]


def constant(a: Any, like: DType | None = None) -> Value:
    """A literal, of a type of ours."""
    return Constant(np.asarray(a, like.numpy if like else None)).out


def scalar(number: float, like: Value) -> Value:
    """A number as a rank-0 constant of a value's element type."""
    return constant(number, like.dtype)


def full(shape: Sequence[Dim], number: float, like: DType) -> Value:
    """A tensor of one number."""
    return constant(number, like).expand(list(shape))


def size_value(d: Dim) -> Value:
    """A dim as an i64: a symbol is the sum of so many ones."""
    one = constant(np.asarray(1, np.int64))
    if isinstance(d, int):
        return one * d
    sizes = {s: one.expand([SymDim({(s,): 1})]).sum() for s in sorted(d.leaves())}
    return _computed(d, one, sizes)


def _computed(d: Dim, one: Value, sizes: Mapping[Symbol, Value]) -> Value:
    """A dim of symbols whose sizes are values."""
    if isinstance(d, int):
        return one * d
    total: Value | None = None
    for atoms, factor in d.terms:
        term = one * factor
        for a in atoms:
            term = term * (sizes[a] if isinstance(a, Symbol) else _called(a, one, sizes))
        total = term if total is None else total + term
    assert total is not None, "a symbolic dim has a term"
    return total


def _called(atom: Atom, one: Value, sizes: Mapping[Symbol, Value]) -> Value:
    assert isinstance(atom, Call), "an atom is a symbol or a call"
    args = [_computed(a, one, sizes) for a in atom.args]
    if atom.kind == "//":
        return args[0] // args[1]
    pick = Minimum if atom.kind == "min" else Maximum
    return reduce(lambda a, b: pick(a, b).out, args)

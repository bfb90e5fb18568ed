"""The words of MIL, by the builder of coremltools. A tensor without axes has one of one element
there, as models take and give no scalars. An empty tensor, which Core ML has not, has no handle:
no op is written of it, and models neither take nor give it.

Where a tensor is spread along an axis its variable has one element there, which MIL's pointwise
ops and products repeat themselves; ``full`` repeats it for other ops. A weight spread over a batch
is in the package once.

https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from rlx.codegen.builder import KernelTarget
from rlx.targets.graph import flat
from rlx.targets.graph.rows.products import by_sums
from rlx.targets.graph.tensor import Number, Tensor
from rlx.targets.graph.whole import Refused, Whole
from rlx.types import DType, bool_, f16, f32, i32

__all__ = ["MOST_AXES", "Words", "coremltools", "kind_of", "quietly"]

MOST_AXES = 5
"""Axes of a tensor of Core ML."""

_UNARY = {
    name: name
    for name in ("exp", "tanh", "erf", "sin", "cos", "tan", "atan", "sqrt", "floor", "ceil", "abs",
                 "sigmoid", "asin", "acos", "sinh", "cosh", "atanh", "exp2")
} | {"round_even": "round", "not": "logical_not"}  # fmt: skip
_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "max": "maximum", "min": "minimum", "pow": "pow",
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip
_BOOLS = {
    "and": "logical_and", "or": "logical_or", "xor": "logical_xor", "ne": "logical_xor",
    "max": "logical_or", "min": "logical_and", "mul": "logical_and",
}  # fmt: skip
_FOLDS = {"add": "reduce_sum", "mul": "reduce_prod", "max": "reduce_max", "min": "reduce_min"}
_SCATTERS = {"add": "add", "mul": "mul", "max": "max", "min": "min", "set": "update"}
_NAMES = {f16: "fp16", f32: "fp32", i32: "int32", bool_: "bool"}


def quietly() -> contextlib.ExitStack:
    """Keeps to itself what coremltools prints of its progress."""
    stack = contextlib.ExitStack()
    stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
    stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
    return stack


@cache
def coremltools() -> Any:
    """The package, which says little of versions that it has not been tried with."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with quietly():
            return importlib.import_module("coremltools")
    finally:
        logging.disable(before)


@cache
def _mil() -> Any:
    coremltools()
    return importlib.import_module("coremltools.converters.mil.mil")


def kind_of(dt: DType) -> Any:
    """MIL's own name of a type."""
    return getattr(_mil().types, _NAMES[dt])


class Words(Whole):
    """Writes ops of MIL into the function that is open."""

    def __init__(self, target: KernelTarget) -> None:
        super().__init__(target)
        self.mb = _mil().Builder

    def tensor(self, handle: Any, dt: DType, shape: Sequence[int]) -> Tensor:
        """A tensor of a variable."""
        if len(shape) > MOST_AXES:
            raise Refused(f"a tensor of {len(shape)} axes, of which Core ML has {MOST_AXES}")
        return Tensor(self, handle, dt, tuple(shape))

    def empty(self, dt: DType, shape: Sequence[int]) -> Tensor | None:
        """The tensor of a shape with no elements; None for another shape."""
        return Tensor(self, None, dt, tuple(shape)) if 0 in shape else None

    def literal(self, value: Number, dt: DType, shape: tuple[int, ...] = ()) -> Tensor:
        if none := self.empty(dt, shape):
            return none
        if dt is i32 and isinstance(value, int):
            value = int(np.asarray(value & 0xFFFFFFFF, np.uint32).view(np.int32))
        one = np.full([1] * max(len(shape), 1), value, dt.numpy)
        return self.tensor(self.mb.const(val=one), dt, shape)

    def array(self, a: Any, dt: DType) -> Tensor:
        given = np.asarray(a, dt.numpy)
        if none := self.empty(dt, given.shape):
            return none
        held = self.tensor(None, dt, given.shape)
        handle = self.mb.const(val=given.reshape(given.shape or (1,)))
        return Tensor(self, handle, held.dtype, held.shape)

    def full(self, t: Tensor) -> Any:
        """The variable of a tensor, with all of its elements."""
        shape, has = t.shape or (1,), t.handle.shape
        if shape == has:
            return t.handle
        return self.mb.tile(x=t.handle, reps=[n // m for n, m in zip(shape, has, strict=True)])

    # -- elements --------------------------------------------------------------------------

    def make(
        self, verb: str, operands: Sequence[Tensor], dt: DType, shape: tuple[int, ...]
    ) -> Tensor:
        if none := self.empty(dt, shape):
            return none
        of, x = operands[0].dtype, [t.handle for t in operands]
        if verb == "select":
            return self._select(operands, dt, shape)
        if verb in ("div", "rem"):
            return self._quotient(verb, operands[0], operands[1], shape)
        if verb == "eq" and of is bool_:
            return self.logical_not(self.make("ne", operands, dt, shape))
        if of is bool_ and verb in ("lt", "le", "gt", "ge"):
            return self.make(verb, [self.converted(t, i32) for t in operands], dt, shape)
        if verb == "neg":
            return operands[0] * -1
        if verb == "log":
            return self.tensor(self.mb.log(x=x[0], epsilon=of.numpy.type(0)), dt, shape)
        if verb in ("expm1", "log1p"):
            one = operands[0] + 1.0 if verb == "log1p" else self.exp(operands[0])
            return self.log(one) if verb == "log1p" else one - 1.0
        table = _UNARY if len(x) == 1 else _BOOLS if of is bool_ else _BINARY
        if verb in table and (of.is_float or verb in _BINARY or table is _BOOLS or verb in
                              ("abs", "not")):  # fmt: skip
            names = ("x",) if len(x) == 1 else ("x", "y")
            made = getattr(self.mb, table[verb])(**dict(zip(names, x, strict=True)))
            return self.tensor(made, dt, shape)
        return self.formula(verb, *operands) if of.is_float else self._refuse(verb, of)

    def _refuse(self, verb: str, dt: DType) -> Tensor:
        raise Refused(f"Core ML has no {verb} of {dt}")

    def _select(self, operands: Sequence[Tensor], dt: DType, shape: tuple[int, ...]) -> Tensor:
        cond, a, b = operands
        if dt is bool_:
            return (cond & a) | (self.logical_not(cond) & b)
        x, y = a.handle, b.handle
        has = np.broadcast_shapes(x.shape, y.shape)
        if np.broadcast_shapes(has, cond.handle.shape) != has:
            x = self.full(a)  # coremltools takes the shape of the result from these two alone
        return self.tensor(self.mb.select(cond=cond.handle, a=x, b=y), dt, shape)

    def _quotient(self, verb: str, a: Tensor, b: Tensor, shape: tuple[int, ...]) -> Tensor:
        dt = a.dtype
        if dt.is_float and verb == "div":
            return self.tensor(self.mb.real_div(x=a.handle, y=b.handle), dt, shape)
        if dt.is_float:
            size, by = self.abs(a), self.abs(b)
            rest = self.tensor(self.mb.mod(x=size.handle, y=by.handle), dt, shape)
            return self.select(a < 0.0, -rest, rest)
        down = self.tensor(self.mb.floor_div(x=a.handle, y=b.handle), dt, shape)
        rest = a - down * b
        inexact = self.compare("ne", rest, 0) & self.compare("ne", rest < 0, a < 0)
        found = self.select(inexact, down + 1, down)
        return found if verb == "div" else a - found * b

    def converted(self, t: Tensor, dt: DType) -> Tensor:
        if none := self.empty(dt, t.shape):
            return none
        return self.tensor(self.mb.cast(x=t.handle, dtype=_NAMES[dt]), dt, t.shape)

    def bitcast(self, t: Tensor, dt: DType) -> Tensor:
        if t.dtype is not dt:
            raise Refused("Core ML has no way to the bits of a number")
        return t

    # -- shapes ----------------------------------------------------------------------------

    def broadcast(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        if none := self.empty(t.dtype, shape):
            return none
        return self.tensor(t.handle, t.dtype, shape)

    def reshaped(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        if none := self.empty(t.dtype, shape):
            return none
        held = self.tensor(None, t.dtype, shape)
        if set(t.handle.shape) == {1}:  # the same everywhere, and so it stays
            handle = self.mb.reshape(x=t.handle, shape=[1] * max(len(shape), 1))
        else:
            handle = self.mb.reshape(x=self.full(t), shape=list(shape) or [1])
        return Tensor(self, handle, t.dtype, held.shape)

    def transposed(self, t: Tensor, perm: Sequence[int]) -> Tensor:
        shape = [t.shape[p] for p in perm]
        if none := self.empty(t.dtype, shape):
            return none
        return self.tensor(self.mb.transpose(x=t.handle, perm=list(perm)), t.dtype, shape)

    def sliced(
        self, t: Tensor, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]
    ) -> Tensor:
        rows = zip(starts, ends, steps, strict=True)
        shape = [max(-(-(e - s) // step), 0) for s, e, step in rows]
        if none := self.empty(t.dtype, shape):
            return none
        held = self.tensor(None, t.dtype, shape)
        handle = self.mb.slice_by_index(
            x=self.full(t), begin=list(starts), end=list(ends), stride=list(steps)
        )
        return Tensor(self, handle, t.dtype, held.shape)

    def flipped(self, t: Tensor, axes: Sequence[int]) -> Tensor:
        if none := self.empty(t.dtype, t.shape):
            return none
        if t.dtype is bool_:
            return self.compare("ne", self.flipped(self.converted(t, i32), axes), 0)
        return self.tensor(self.mb.reverse(x=t.handle, axes=list(axes)), t.dtype, t.shape)

    def padded(self, t: Tensor, fill: Tensor, low: Sequence[int], high: Sequence[int]) -> Tensor:
        for axis, sides in enumerate(zip(low, high, strict=True)):
            before, behind = (
                [self.spread(fill, (*t.shape[:axis], n, *t.shape[axis + 1 :]))] if n else []
                for n in sides
            )
            if before or behind:
                t = self.joined([*before, t, *behind], axis)
        return t

    def joined(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        if none := self.empty(parts[0].dtype, shape):
            return none
        parts = [p for p in parts if 0 not in p.shape]
        if parts[0].dtype is bool_:
            numbers = self.joined([self.converted(p, i32) for p in parts], axis)
            return self.compare("ne", numbers, 0)
        made = self.mb.concat(values=[self.full(p) for p in parts], axis=axis)
        return self.tensor(made, parts[0].dtype, shape)

    def iota(self, shape: tuple[int, ...], axis: int, dt: DType) -> Tensor:
        line = [-1 if i == axis else 1 for i in range(len(shape))]
        places = np.arange(shape[axis]).reshape(line) if shape else np.zeros(())
        return self.spread(self.array(places, dt), shape)

    # -- folds and products ----------------------------------------------------------------

    def folded(self, verb: str, t: Tensor, axes: Sequence[int]) -> Tensor:
        if t.dtype is bool_:
            return self.compare("ne", self.folded(verb, self.converted(t, i32), axes), 0)
        shape = [n for i, n in enumerate(t.shape) if i not in axes]
        if none := self.empty(t.dtype, shape):
            return none
        made = getattr(self.mb, _FOLDS[verb])(x=self.full(t), axes=list(axes), keep_dims=True)
        held = Tensor(self, made, t.dtype, tuple(1 if i in axes else n for i, n in
                                                 enumerate(t.shape)))  # fmt: skip
        return self.reshape(held, shape)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        if not a.dtype.is_float:
            return by_sums(self, a, b)
        shape = (*a.shape[:-1], b.shape[-1])
        x, y = (t.handle if t.handle.shape[-2:] == t.shape[-2:] else self.full(t) for t in (a, b))
        return self.widened(self.tensor(self.mb.matmul(x=x, y=y), a.dtype, shape))

    def correlated(
        self, x: Tensor, w: Tensor, stride: Sequence[int], low: Sequence[int], high: Sequence[int],
        dilation: Sequence[int], groups: int,
    ) -> Tensor:  # fmt: skip
        weight = self.full(w)
        if any(d > 1 for d in dilation) and weight.val is None:
            raise Refused("a convolution with gaps, whose weights are no literal")
        rows = zip(x.shape[2:], w.shape[2:], stride, low, high, dilation, strict=True)
        counts = [(n + lo + hi - (k - 1) * d - 1) // s + 1 for n, k, s, lo, hi, d in rows]
        made = self.mb.conv(
            x=self.full(x), weight=weight, strides=list(stride), pad_type="custom",
            pad=[n for pair in zip(low, high, strict=True) for n in pair],
            dilations=list(dilation), groups=groups,
        )  # fmt: skip
        return self.widened(self.tensor(made, x.dtype, (x.shape[0], w.shape[0], *counts)))

    # -- indices ---------------------------------------------------------------------------

    def taken(self, t: Tensor, indices: Tensor, axis: int, lead: int) -> Tensor:
        if t.dtype is bool_:
            numbers = self.taken(self.converted(t, i32), indices, axis, lead)
            return self.compare("ne", numbers, 0)
        rows = flat.rows_of(self, t, axis, lead)
        at = flat.in_rows(self, indices, t.shape[axis], lead)
        made = self.mb.gather(x=self.full(rows), indices=self.full(at), axis=0)
        found = self.tensor(made, t.dtype, (at.shape[0], rows.shape[1]))
        return flat.gathered(self, found, t, indices, axis, lead)

    def scattered(
        self, verb: str, t: Tensor, indices: Tensor, updates: Tensor, axis: int, lead: int
    ) -> Tensor:
        rows = flat.rows_of(self, t, axis, lead)
        at = flat.in_rows(self, indices, t.shape[axis], lead)
        moved = flat.update_rows(self, updates, axis, lead, indices.rank - lead)
        made = self.mb.scatter_nd(
            data=self.full(rows), indices=self.full(self.reshape(at, (at.shape[0], 1))),
            updates=self.full(moved), mode=_SCATTERS[verb],
        )  # fmt: skip
        return flat.rows_back(self, self.tensor(made, t.dtype, rows.shape), t, axis, lead)

    def sorted(self, t: Tensor, axis: int, descending: bool) -> tuple[Tensor, Tensor]:
        raise AssertionError("its indices are i64, which Core ML's programs lack")

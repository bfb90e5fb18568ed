"""The words of mlx.core. Tensors are its arrays: real ones, or those that it traces."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from rlx.codegen.builder import KernelTarget
from rlx.ops.control.control import Cond, Scan
from rlx.targets.graph import flat
from rlx.targets.graph.rows.products import by_sums
from rlx.targets.graph.tensor import Number, Tensor
from rlx.targets.graph.whole import Body, Refused, Whole
from rlx.types import DType, bf16, bool_, f32, i64

__all__ = ["Words", "from_mlx", "kind_of", "mlx", "to_mlx"]

Array = np.ndarray[Any, Any]

_UNARY = {
    "neg": "negative", "exp": "exp", "log": "log", "expm1": "expm1", "log1p": "log1p",
    "tanh": "tanh", "erf": "erf", "erfinv": "erfinv", "sin": "sin", "cos": "cos", "tan": "tan",
    "atan": "arctan", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round_even": "round",
    "abs": "abs", "sigmoid": "sigmoid", "asin": "arcsin", "acos": "arccos", "sinh": "sinh",
    "cosh": "cosh", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "real": "real",
    "imag": "imag",
}  # fmt: skip
_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "max": "maximum", "min": "minimum",
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal", "pow": "power", "atan2": "arctan2", "shl": "left_shift",
    "shr": "right_shift",
}  # fmt: skip
_BITS = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}
_BOOLS = {
    "and": "logical_and", "or": "logical_or", "xor": "not_equal", "max": "logical_or",
    "min": "logical_and",
}  # fmt: skip
_FOLDS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}
_AT = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}

ROUNDS = 64
"""Rounds of a scan up to which they are written out."""


@cache
def mlx() -> Any:
    """The module mlx.core."""
    return importlib.import_module("mlx.core")


def kind_of(dt: DType) -> Any:
    """MLX's own name of a type."""
    names = {"bool": "bool_", "f16": "float16", "bf16": "bfloat16", "f32": "float32",
             "c64": "complex64"}  # fmt: skip
    if dt.is_int:
        return getattr(mlx(), f"{'u' if dt.kind == 'uint' else ''}int{dt.bits}")
    return getattr(mlx(), names[dt.name])


def to_mlx(a: Array) -> Any:
    """An array of MLX's with the elements of one of NumPy's."""
    a = np.array(a, order="C")
    if a.dtype == bf16.numpy:
        return mlx().array(a.view(np.uint16)).view(mlx().bfloat16)
    return mlx().array(a)


def from_mlx(a: Any, dt: DType) -> Array:
    """The elements of an array of MLX's."""
    if dt is bf16:
        return np.array(a.view(mlx().uint16)).view(bf16.numpy)
    return np.array(a).astype(dt.numpy, copy=False)


class Words(Whole):
    """Calls functions of mlx.core."""

    def __init__(self, target: KernelTarget) -> None:
        super().__init__(target)
        self.mx = mlx()

    def tensor(self, handle: Any, dt: DType) -> Tensor:
        """A tensor of an array, in a type."""
        kind = kind_of(dt)
        handle = handle if handle.dtype == kind else handle.astype(kind)
        return Tensor(self, handle, dt, tuple(handle.shape))

    def literal(self, value: Number, dt: DType, shape: tuple[int, ...] = ()) -> Tensor:
        if isinstance(value, int) and dt.is_int:
            one = np.asarray(value & ((1 << dt.bits) - 1), f"u{dt.bytes}").view(dt.numpy)
        else:
            one = np.asarray(value, dt.numpy)
        return self.tensor(self.mx.broadcast_to(to_mlx(one), shape), dt)

    def array(self, a: Any, dt: DType) -> Tensor:
        return self.tensor(to_mlx(np.asarray(a, dt.numpy)), dt)

    # -- elements --------------------------------------------------------------------------

    def make(
        self, verb: str, operands: Sequence[Tensor], dt: DType, shape: tuple[int, ...]
    ) -> Tensor:
        x, of = [t.handle for t in operands], operands[0].dtype
        if verb == "select":
            return self.tensor(self.mx.where(*x), dt)
        if verb == "not":
            return self.tensor(self.mx.logical_not(*x), dt)
        if verb == "complex":
            return self.tensor(self._complex(*x), dt)
        if verb in ("div", "rem"):
            return self.tensor(self._quotient(verb, x[0], x[1], of), dt)
        table: Mapping[str, str] = _UNARY if len(x) == 1 else _BINARY
        if verb in _BITS or (of is bool_ and verb in _BOOLS):
            table = _BOOLS if of is bool_ else _BITS
        if verb not in table:
            return self.formula(verb, *operands)
        return self.tensor(getattr(self.mx, table[verb])(*x), dt)

    def _complex(self, re: Any, im: Any) -> Any:
        # Not re + im * 1j, in which an infinity makes the other part nan.
        parts = self.mx.stack([re, im], -1)
        return self.mx.reshape(parts.view(self.mx.complex64), re.shape)

    def _quotient(self, verb: str, a: Any, b: Any, dt: DType) -> Any:
        if not dt.is_int:
            return self.mx.divide(a, b) if verb == "div" else self._float_rest(a, b)
        if dt.kind == "uint":
            return (self.mx.floor_divide if verb == "div" else self.mx.remainder)(a, b)
        down = self.mx.floor_divide(a, b)
        rest = a - down * b
        toward_zero = (rest != 0) & ((rest < 0) != (a < 0))
        found = self.mx.where(toward_zero, down + 1, down)
        return found if verb == "div" else a - found * b

    def _float_rest(self, a: Any, b: Any) -> Any:
        rest = self.mx.remainder(self.mx.abs(a), self.mx.abs(b))
        return self.mx.where(a < 0, -rest, rest)

    def converted(self, t: Tensor, dt: DType) -> Tensor:
        return self.tensor(t.handle, dt)

    def bitcast(self, t: Tensor, dt: DType) -> Tensor:
        handle = t.handle if t.rank else self.mx.reshape(t.handle, (1,))
        return self.tensor(self.mx.reshape(handle.view(kind_of(dt)), t.shape), dt)

    # -- shapes ----------------------------------------------------------------------------

    def broadcast(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        return self.tensor(self.mx.broadcast_to(t.handle, shape), t.dtype)

    def reshaped(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        return self.tensor(self.mx.reshape(t.handle, shape), t.dtype)

    def transposed(self, t: Tensor, perm: Sequence[int]) -> Tensor:
        return self.tensor(self.mx.transpose(t.handle, list(perm)), t.dtype)

    def sliced(
        self, t: Tensor, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]
    ) -> Tensor:
        box = tuple(slice(*row) for row in zip(starts, ends, steps, strict=True))
        return self.tensor(t.handle[box], t.dtype)

    def flipped(self, t: Tensor, axes: Sequence[int]) -> Tensor:
        box = tuple(slice(None, None, -1 if i in axes else 1) for i in range(t.rank))
        return self.tensor(t.handle[box], t.dtype)

    def padded(self, t: Tensor, fill: Tensor, low: Sequence[int], high: Sequence[int]) -> Tensor:
        widths = list(zip(low, high, strict=True))
        return self.tensor(self.mx.pad(t.handle, widths, constant_values=fill.handle), t.dtype)

    def joined(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        return self.tensor(self.mx.concatenate([p.handle for p in parts], axis), parts[0].dtype)

    def iota(self, shape: tuple[int, ...], axis: int, dt: DType) -> Tensor:
        if 0 in shape:
            return self.literal(0, dt, shape)
        line = [shape[axis] if i == axis else 1 for i in range(len(shape))]
        places = self.mx.reshape(self.mx.arange(shape[axis]), line)
        return self.tensor(self.mx.broadcast_to(places, shape), dt)

    # -- folds and products ----------------------------------------------------------------

    def folded(self, verb: str, t: Tensor, axes: Sequence[int]) -> Tensor:
        if t.dtype is bool_:
            fold = self.mx.any if verb == "max" else self.mx.all
            return self.tensor(fold(t.handle, axis=list(axes)), bool_)
        return self.tensor(getattr(self.mx, _FOLDS[verb])(t.handle, axis=list(axes)), t.dtype)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        if a.dtype.is_complex:
            re = self.product(a.re, b.re) - self.product(a.im, b.im)
            return self.pair(re, self.product(a.re, b.im) + self.product(a.im, b.re))
        if not a.dtype.is_float:
            return by_sums(self, a, b)
        a, b = self.widened(a), self.widened(b)
        return self.tensor(self.mx.matmul(a.handle, b.handle), f32)

    def correlated(
        self, x: Tensor, w: Tensor, stride: Sequence[int], low: Sequence[int], high: Sequence[int],
        dilation: Sequence[int], groups: int,
    ) -> Tensor:  # fmt: skip
        spatial = len(stride)
        if groups > 1 and spatial == 3:
            raise Refused("MLX has no convolutions in groups over three axes")
        last, first = [0, *range(2, spatial + 2), 1], [0, spatial + 1, *range(1, spatial + 1)]
        given = [self.transpose(self.widened(t), last).handle for t in (x, w)]
        found = self.mx.conv_general(
            *given, stride=list(stride), padding=(list(low), list(high)),
            kernel_dilation=list(dilation), groups=groups,
        )  # fmt: skip
        return self.transpose(self.tensor(found, f32), first)

    # -- indices ---------------------------------------------------------------------------

    def taken(self, t: Tensor, indices: Tensor, axis: int, lead: int) -> Tensor:
        if not lead:
            return self.tensor(self.mx.take(t.handle, indices.handle, axis=axis), t.dtype)
        rows, at = (
            flat.rows_of(self, t, axis, lead),
            flat.in_rows(self, indices, t.shape[axis], lead),
        )
        found = self.tensor(self.mx.take(rows.handle, at.handle, axis=0), t.dtype)
        return flat.gathered(self, found, t, indices, axis, lead)

    def scattered(
        self, verb: str, t: Tensor, indices: Tensor, updates: Tensor, axis: int, lead: int
    ) -> Tensor:
        rows = flat.rows_of(self, t, axis, lead).handle
        at = flat.in_rows(self, indices, t.shape[axis], lead).handle
        moved = flat.update_rows(self, updates, axis, lead, indices.rank - lead).handle
        if verb == "set":
            rows = self.mx.reshape(rows, rows.shape)  # what is written over is this name alone
            rows[at] = moved
        else:
            rows = getattr(rows.at[at], _AT[verb])(moved)
        return flat.rows_back(self, self.tensor(rows, t.dtype), t, axis, lead)

    def sorted(self, t: Tensor, axis: int, descending: bool) -> tuple[Tensor, Tensor]:
        x = self.flipped(t, [axis]).handle if descending else t.handle
        order = self.mx.argsort(x, axis=axis)
        if t.dtype.is_float:  # nan is the greatest: a second, stable sort
            nan = self.mx.isnan(x)
            order = self.mx.argsort(self.mx.where(nan, np.inf, x), axis=axis)
            behind = self.mx.take_along_axis(nan, order, axis).astype(self.mx.int32)
            order = self.mx.take_along_axis(order, self.mx.argsort(behind, axis=axis), axis)
        places = self.tensor(order, i64)
        if descending:
            places = (t.shape[axis] - 1) - self.flipped(places, [axis])
        found = self.mx.take_along_axis(t.handle, places.handle, axis)
        return self.tensor(found, t.dtype), places

    # -- control flow ----------------------------------------------------------------------

    def control(
        self, node: Any, args: Sequence[Tensor], bodies: Mapping[str, Body]
    ) -> Sequence[Tensor]:
        """Of a branch both sides are computed, and one is taken; a scan is written out."""
        if isinstance(node, Cond):
            return self._cond(args, bodies)
        if isinstance(node, Scan) and int(node.rounds) <= ROUNDS:
            return self._scan(node, args, bodies["body"])
        raise Refused(f"MLX traces functions, which have no loops but scans of {ROUNDS} rounds")

    def _cond(self, args: Sequence[Tensor], bodies: Mapping[str, Body]) -> list[Tensor]:
        pred, before = self.reshape(args[0], ()), len(self.sites)
        both = [bodies[name](self, args[1:]) for name in ("then", "otherwise")]
        if len(self.sites) > before:
            raise Refused("what may fail in a branch would be computed where it is not taken")
        return [self.select(pred, a, b) for a, b in zip(*both, strict=True)]

    def _scan(self, node: Scan, args: Sequence[Tensor], body: Body) -> list[Tensor]:
        n, at, rounds = node.carries, len(args) - node.scanned, int(node.rounds)
        state, fixed, scanned = list(args[:n]), args[n:at], args[at:]
        made: dict[int, list[Tensor]] = {}
        for i in reversed(range(rounds)) if node.reverse else range(rounds):
            elements = [self.reshape(self.narrow(t, 0, i, i + 1), t.shape[1:]) for t in scanned]
            found = body(self, [self.literal(i, i64), *state, *fixed, *elements])
            state, made[i] = found[:n], found[n:]
        stacks: list[Tensor] = []
        for j, v in enumerate(node.results[n:]):
            rows = [self.reshape(made[i][j], (1, *made[i][j].shape)) for i in range(rounds)]
            empty = self.literal(0, v.dtype, v.type.static_shape)
            stacks.append(self.joined(rows, 0) if rows else empty)
        return [*state, *stacks]

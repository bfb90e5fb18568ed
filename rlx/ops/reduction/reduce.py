"""Reductions over any axes: sum, mean, max, min, prod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.factors import Factors, Parts
from rlx.ir.op import Array, Bad, Cost, Op, Sample, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import axis_of
from rlx.ops.pointwise.base import ARITHMETIC, INEXACT, NUMERIC, unsuitable
from rlx.ops.pointwise.cast import in_double, widened
from rlx.types import Dim, DType, TensorType, bool_

__all__ = [
    "Folding", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "bound",
]  # fmt: skip

SAMPLES: tuple[Sample, ...] = (
    sample("2x3x4xT", axes=(1,)),
    sample("2x3x4xT", axes=(0, 2), keepdims=True),
    sample("2x3x4xT", axes=(0, 1, 2)),
    sample("2x1x3xT", axes=(1,)),
    sample("5xT", axes=(0,), keepdims=True),
    sample("2x3xT", axes=()),
    sample("T", axes=()),
    sample("0x3xT", axes=(1,)),
)
EMPTY_AXIS = (sample("3x0xT", axes=(1,)), sample("0x3xT", axes=(0, 1), keepdims=True))
AXES: tuple[Bad, ...] = (
    bad("2x3xf32", match="axis 2 is out of range", error=ShapeError, axes=(2,)),
    bad("2x3xf32", match="twice", error=ShapeError, axes=(1, 1)),
    bad("2x3xf32", match="ascending", error=ShapeError, axes=(1, 0)),
)


class Folding(Op):
    """An op that makes one element of those along some axes. No axes at all fold nothing."""

    x: Value = operand("any tensor of the op's types")
    axes: tuple[int, ...] = attr(doc="the axes to fold, ascending")
    keepdims: bool = attr(False, "keep the folded axes with size 1")

    dtypes = NUMERIC

    @classmethod
    def build(
        cls,
        x: Value,
        axes: Iterable[int] | int | None = None,
        keepdims: bool = False,
        *,
        axis: Iterable[int] | int | None = None,
        keep_dim: bool = False,
    ) -> Value:
        """None folds all axes; negative axes count from the end. ``axis`` and ``keep_dim`` are
        other names of ``axes`` and ``keepdims``."""
        short = cls.name.split(".")[1]
        if axes is not None and axis is not None:
            raise GraphError(f"{short} takes axes or axis, found both")
        given = axis if axes is None else axes
        listed = range(x.rank) if given is None else given
        many = listed if isinstance(listed, Iterable) else (listed,)
        ascending = tuple(sorted(axis_of(a, x.rank, short) for a in many))
        return cls(x, ascending, keepdims or keep_dim).out

    def infer(self) -> TensorType:
        if self.x.dtype not in self.dtypes:
            raise unsuitable(self, self.x.dtype)
        for a in self.axes:
            axis_of(a, self.x.rank, self.short)
        if len(set(self.axes)) < len(self.axes):
            raise ShapeError(f"{self.short}: an axis is listed twice in {list(self.axes)}")
        if list(self.axes) != sorted(self.axes) or any(a < 0 for a in self.axes):
            raise ShapeError(
                f"{self.short}: axes must be ascending and not negative, found {list(self.axes)}"
            )
        return self.x.type.with_shape(self._shape(self.keepdims))

    def _shape(self, keepdims: bool) -> tuple[Dim, ...]:
        kept = [1 if i in self.axes else d for i, d in enumerate(self.x.shape)]
        return tuple(d for i, d in enumerate(kept) if keepdims or i not in self.axes)

    def spread(self, v: Value) -> Value:
        """A value of the result's shape, broadcast back over the folded axes."""
        return v.reshape(self._shape(True)).expand(self.x.shape)

    def again(self, v: Value, kind: type[Folding]) -> Value:
        """Fold another value of the operand's shape along the same axes."""
        return kind(v, self.axes, self.keepdims).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands, axes=tuple(a + 1 for a in self.axes)).out

    def cost(self) -> Cost:
        """One operation an element of the operand."""
        size = self.x.type.size
        return Cost(size if is_known(size) else 0, super().cost().bytes)


class Reduce(Folding):
    """A fold that takes one element after another."""

    fold: ClassVar[Callable[..., Any]]
    """``fold(self, k, acc, x)`` -> register: the accumulator with one more element."""
    adds: ClassVar[bool] = False
    """Whether it is a sum."""
    folds: ClassVar[str] = "sum"
    """How ranks combine what they have folded: as ``all_reduce`` calls it."""

    def start(self) -> int | float | bool:
        """The result of folding nothing."""
        raise AssertionError(f"{self.name} defines no start")

    def finish(self, acc: Any) -> Any:
        """The result from the last accumulator."""
        return acc

    def loops(self, b: Any) -> None:
        shape = self.x.type.static_shape
        sums = self.adds and self.x.dtype in INEXACT

        def nest(left: Sequence[int], at: list[Any], acc: Any) -> Any:
            if not left:
                return self.fold(b.k, acc, b.load(0, at))
            axis, *rest = left

            def step(i: Any, acc: Any) -> list[Any]:
                return [nest(rest, [*at[:axis], i, *at[axis + 1 :]], acc)]

            return (b.sum if sums else b.loop)(shape[axis], step, [acc])[0]

        def point(*at: Any) -> None:
            kept = iter(at)
            place = [
                (next(kept) if self.keepdims else None) if i in self.axes else next(kept)
                for i in range(len(shape))
            ]
            acc = nest(self.axes, place, b.const(self.start(), self.x.dtype))
            b.store(0, at, self.finish(acc))

        b.parallel(self.out.type.static_shape, point)

    def factors(self) -> Factors:
        summed = self.axes if self.adds else ()
        folded: dict[int | str, str] = {} if self.adds else dict.fromkeys(self.axes, self.folds)
        return Factors(self, [range(self.x.rank)], [self._kept()], sums=summed, folds=folded)

    def _kept(self) -> list[int | None]:
        """The axis of the operand that each of the result's is; None for one that is folded."""
        kept = [None if i in self.axes else i for i in range(self.x.rank)]
        return kept if self.keepdims else [i for i in kept if i is not None]


class ReduceSum(Reduce, name="mir.reduce_sum"):
    """Sum along axes. Integers keep their type and wrap; f16 and bf16 accumulate in f32."""

    linear = ((0,),)
    adds = True
    dtypes = ARITHMETIC
    samples = (*SAMPLES, *EMPTY_AXIS)
    bads = (
        *AXES,
        bad("2xbool", match="found bool. Cast the operand", error=DTypeError, axes=(0,)),
    )

    def reference(self, x: Array) -> Array:
        return _fold(np.sum, self, x)

    def start(self) -> int:
        return 0

    def fold(self, k: Any, acc: Any, x: Any) -> Any:
        return acc + x

    def vjp(self, g: Value) -> tuple[Value]:
        return (self.spread(g),)

    def jvp(self, t: Value) -> Value:
        return self.again(t, ReduceSum)


class ReduceMean(Reduce, name="mir.reduce_mean"):
    """Arithmetic mean along axes, of floats or complex numbers; nan over an empty axis."""

    linear = ((0,),)
    adds = True
    dtypes = INEXACT
    samples = (*SAMPLES, sample("3x0xT", axes=(1,)))
    bads = (
        *AXES,
        bad("2xi32", match="found i32. Cast the operand", error=DTypeError, axes=(0,)),
    )

    def reference(self, x: Array) -> Array:
        return _fold(_mean, self, x)

    def start(self) -> int:
        return 0

    def fold(self, k: Any, acc: Any, x: Any) -> Any:
        return acc + x

    def finish(self, acc: Any) -> Any:
        count = 1
        for a in self.axes:
            count *= self.x.type.static_shape[a]
        return acc / float(count)

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        (local,) = self.with_operands(operands).results
        ranks = prod([parts.cut.get(a, 1) for a in self.axes])
        return [local if ranks == 1 else local / ranks]

    def vjp(self, g: Value) -> tuple[Value]:
        share = widened(g) / _count(self, widened(g).dtype)
        return (self.spread(share.cast(to=g.dtype)),)

    def jvp(self, t: Value) -> Value:
        return self.again(t, ReduceMean)


class Extremum(Reduce):
    """The shared part of max and min: elements that tie share the gradient evenly."""

    dtypes = (*NUMERIC, bool_)
    samples = SAMPLES
    bads = (
        *AXES,
        bad("2x0xf32", match="empty axis 1", error=ShapeError, axes=(1,)),
    )

    def infer(self) -> TensorType:
        out = super().infer()
        for a in self.axes:
            if self.x.shape[a] == 0:
                raise ShapeError(f"{self.short}: the empty axis {a} of {self.x.type} has none")
        return out

    def _winners(self) -> tuple[Value, Value]:
        """1 at every element that equals its fold, else 0; and how many of them each fold has."""
        kind = widened(self.x).dtype
        mask = self.x.eq(self.spread(self.out)).cast(to=kind)
        return mask, self.again(mask, ReduceSum)

    # A fold of nan has no winner: its derivatives are 0 / 0.

    def vjp(self, g: Value) -> tuple[Value]:
        mask, count = self._winners()
        return ((mask * self.spread(widened(g) / count)).cast(to=g.dtype),)

    def jvp(self, t: Value) -> Value:
        mask, count = self._winners()
        return (self.again(mask * widened(t), ReduceSum) / count).cast(to=t.dtype)


class ReduceMax(Extremum, name="mir.reduce_max"):
    """The largest element along axes, which must not be empty; nan if there is one.

    Of bools it says whether any is true.
    """

    folds = "max"

    def reference(self, x: Array) -> Array:
        return np.max(x, axis=self.axes, keepdims=self.keepdims)

    def start(self) -> int | float | bool:
        return bound(self.x.dtype, "min")

    def fold(self, k: Any, acc: Any, x: Any) -> Any:
        return k.maximum(acc, x)


class ReduceMin(Extremum, name="mir.reduce_min"):
    """The smallest element along axes, which must not be empty; nan if there is one.

    Of bools it says whether all are true.
    """

    folds = "min"

    def reference(self, x: Array) -> Array:
        return np.min(x, axis=self.axes, keepdims=self.keepdims)

    def start(self) -> int | float | bool:
        return bound(self.x.dtype, "max")

    def fold(self, k: Any, acc: Any, x: Any) -> Any:
        return k.minimum(acc, x)


class ReduceProd(Reduce, name="mir.reduce_prod"):
    """Product along axes; 1 over an empty axis. Integers keep their type and wrap.

    The gradient multiplies the other elements instead of dividing the product, so it holds at
    zeros, and so do its own derivatives.
    """

    folds = "prod"
    dtypes = ARITHMETIC
    samples = (*SAMPLES, *EMPTY_AXIS)
    bads = (
        *AXES,
        bad("2xbool", match="found bool. Cast the operand", error=DTypeError, axes=(0,)),
    )

    def reference(self, x: Array) -> Array:
        return _fold(np.prod, self, x)

    def start(self) -> int:
        return 1

    def fold(self, k: Any, acc: Any, x: Any) -> Any:
        return acc * x

    def _others(self) -> Value:
        """For every element the product of all others in its fold, in f32 or wider.

        One axis at a time: the others in the same line along the first axis, times the products
        of the other lines, and so on.
        """
        x, lines = widened(self.x), None
        for a in self.axes:
            others = x.cumprod(a, exclusive=True) * x.cumprod(a, exclusive=True, reverse=True)
            lines = others if lines is None else lines * others
            x = ReduceProd(x, (a,), True).out
        return Constant(np.ones((), x.dtype.numpy)).out if lines is None else lines

    def vjp(self, g: Value) -> tuple[Value]:
        return ((self.spread(widened(g)) * self._others()).cast(to=g.dtype),)

    def jvp(self, t: Value) -> Value:
        return self.again(widened(t) * self._others(), ReduceSum).cast(to=t.dtype)


def bound(dt: DType, which: str) -> int | float | bool:
    """The least or the largest value of a type."""
    if dt.is_float:
        return float("-inf" if which == "min" else "inf")
    if dt is bool_:
        return which == "max"
    return int(getattr(np.iinfo(dt.numpy), which))


def _fold(f: Callable[..., Array], node: Reduce, x: Array) -> Array:
    """A NumPy reduction: floats in f64 and rounded once, integers in their own type."""
    if node.x.dtype in INEXACT:
        return in_double(lambda v: f(v, axis=node.axes, keepdims=node.keepdims), x)
    return f(x, axis=node.axes, keepdims=node.keepdims, dtype=x.dtype)


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    # np.mean would warn about an empty axis; the sum and the count give nan in silence.
    count = np.prod([x.shape[a] for a in axis], dtype=np.float64)
    return np.sum(x, axis=axis, keepdims=keepdims) / count


def _count(node: Reduce, dt: DType) -> Value | float:
    """How many elements each fold has: a number, or a Value where a dim is symbolic."""
    size = node.x.type.with_shape(node.x.shape[a] for a in node.axes).size
    return float(size) if isinstance(size, int) else as_value(size).cast(to=dt)


def as_value(d: Dim) -> Value:
    """A dim, which is not negative, as an i64 scalar: of a symbolic one as many ones are summed."""
    if isinstance(d, int):
        return Constant(np.asarray(d, np.int64)).out
    return ReduceSum(Constant(np.ones((), np.int64)).out.expand([d]), (0,), False).out

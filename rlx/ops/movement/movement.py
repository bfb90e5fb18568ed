"""Ops that place the elements of a tensor anew: reshape, transpose, expand.

Every loop nest is in pull form: a point of the result says which operand element it is. All
element types are taken. Ops that take or add elements are in ``slicing``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx.base.dims import (
    as_dim,
    exact_quotient,
    is_known,
    maximum,
    same_shape,
    surely_differ,
    surely_less,
)
from rlx.base.guards import deciding, is_one, prefers
from rlx.errors import GraphError, ShapeError
from rlx.ir.attrs import with_ranges
from rlx.ir.factors import Factors, Parts, broadcast, split
from rlx.ir.op import Array, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.ops.pointwise.base import ANY, sum_to
from rlx.types import Dim, DType, Shape, SymDim, TensorType

__all__ = [
    "DimLike",
    "Expand",
    "Reshape",
    "Transpose",
    "axis_of",
    "is_negative",
    "listed",
    "unravel",
    "zeros",
]

DimLike = int | str | SymDim


def axis_of(axis: int, rank: int, what: str) -> int:
    """``axis`` counted from the front; ShapeError if a tensor of that rank has no such axis."""
    if not isinstance(axis, int | np.integer) or isinstance(axis, bool):
        raise GraphError(f"{what}: an axis is an int, found {axis!r}")
    if not -rank <= axis < rank:
        raise ShapeError(f"{what}: axis {axis} is out of range for a tensor of rank {rank}")
    return axis % rank


def zeros(shape: Shape, dt: DType) -> Value:
    """A tensor of zeros: one zero, broadcast."""
    return Expand.build(Constant(np.zeros((), dt.numpy)).out, shape)


def listed(dims: Iterable[Dim]) -> str:
    """A shape as messages show it."""
    return "[" + ", ".join(map(str, dims)) + "]"


def _spread(first: Any, more: tuple[Any, ...]) -> tuple[Any, ...]:
    """The dims or axes of ``x.reshape(2, 3)`` and of ``x.reshape([2, 3])`` alike."""
    if more:
        return (first, *more)
    return tuple(first) if isinstance(first, Iterable) and not isinstance(first, str) else (first,)


def is_negative(d: Dim) -> bool:
    """Whether a dim is surely below zero; else it is checked when its symbols are bound."""
    return surely_less(d, 0)


def unravel(flat: Any, shape: Sequence[int]) -> list[Any]:
    """The index along every axis of the element at the row-major place ``flat`` (a register)."""
    places: list[Any] = []
    for axis, size in enumerate(shape):
        stride = math.prod(shape[axis + 1 :])
        # An empty tensor has no elements, but the code for one is still built: divide by 1 there.
        whole = prefers(lambda stride=stride: stride <= 1, otherwise=False)
        place = flat if whole else flat // stride
        places.append(place % maximum(size, 1) if axis else place)
    return places


class Reshape(Op, name="mir.reshape"):
    """The same elements in row-major order, in another shape."""

    x: Value = operand("any tensor")
    shape: tuple[Dim, ...] = attr(doc="the result's shape, with as many elements")

    linear = ((0,),)
    flops_per_element = 0
    dtypes = ANY
    samples = (
        sample("2x3xT", shape=(3, 2)),
        sample("4x1x6xT", shape=(2, 2, 2, 3)),
        sample("2x3x4xT", shape=(24,)),
        sample("T", shape=(1, 1)),
        sample("1x1xT", shape=()),
        sample("0x3xT", shape=(5, 0)),
    )
    bads = (
        bad("2x3xf32", match="has 6 elements", error=ShapeError, shape=(4,)),
        bad("2x3xf32", match="-1", error=ShapeError, shape=(-1, 6)),
    )

    @classmethod
    def build(cls, x: Value, shape: Iterable[DimLike] | DimLike, *more: DimLike) -> Value:
        """One dim may be -1: it takes what the others leave."""
        dims = _spread(shape, more)
        unknown = [i for i, d in enumerate(dims) if isinstance(d, int) and d == -1]
        if len(unknown) > 1:
            raise ShapeError(f"reshape: only one dim can be -1, found {list(dims)}")
        if unknown:
            known = tuple(as_dim(d) for i, d in enumerate(dims) if i not in unknown)
            rest = _remaining(x, with_ranges(known, [x]))
            dims = (*dims[: unknown[0]], rest, *dims[unknown[0] + 1 :])
        node = cls(x, dims)
        return x if node.shape == x.shape else node.out

    def infer(self) -> TensorType:
        new = self.x.type.with_shape(self.shape)
        if any(is_negative(d) for d in self.shape) or _many_others(new.size, self.x.type.size):
            raise ShapeError(
                f"reshape: {listed(self.x.shape)} has {self.x.type.size} elements and cannot become"
                f" {listed(self.shape)} ({new.size})"
            )
        return new

    def reference(self, x: Array) -> Array:
        return x.reshape(self.out.type.static_shape)

    def loops(self, b: Any) -> None:
        old, new = self.x.type.static_shape, self.out.type.static_shape

        def point(*at: Any) -> None:
            flat: Any = 0
            for i, size in zip(at, new, strict=True):
                flat = flat * size + i
            b.store(0, at, b.load(0, unravel(flat, old)))

        b.parallel(new, point)

    def factors(self) -> Factors:
        before, after, sizes = split(self.x.shape, self.out.shape)
        return Factors(self, [before], [after], sizes=sizes)

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        return self.with_operands(operands, shape=parts.shape()).results

    def vjp(self, g: Value) -> tuple[Value]:
        return (g.reshape(self.x.shape),)

    def jvp(self, t: Value) -> Value:
        return t.reshape(self.shape)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        (x,) = operands
        return self.with_operands([x], shape=(x.shape[0], *self.shape)).out


def _many_others(new: Dim, old: Dim) -> bool:
    """Whether a shape has another number of elements. Polynomials that differ do; what holds
    quotients may be equal for some sizes, and is checked when they are known."""
    if new == old:
        return False
    polynomial = all(isinstance(n, int) or not n.depth for n in (new, old))
    return (polynomial and deciding() is None) or surely_differ(new, old)


def _remaining(x: Value, known: Sequence[Dim]) -> Dim:
    """The dim that -1 stands for."""
    part = TensorType(tuple(known), x.dtype).size
    size = x.type.size
    where = f"reshape: cannot tell the dim -1 of {listed(x.shape)} beside {listed(known)}"
    if part == 0:
        raise ShapeError(f"{where}: the others hold no element; give every dim")
    if is_known(size) and is_known(part) and size % part == 0:
        return size // part
    if isinstance(size, SymDim):
        return exact_quotient(size, part)
    raise ShapeError(f"{where}: {size} elements are no multiple of {part}")


class Transpose(Op, name="mir.transpose"):
    """The axes in another order: result axis i is operand axis perm[i]."""

    x: Value = operand("any tensor")
    perm: tuple[int, ...] = attr(doc="a permutation of the axes")

    linear = ((0,),)
    flops_per_element = 0
    dtypes = ANY
    samples = (
        sample("2x3xT", perm=(1, 0)),
        sample("2x1x3x4xT", perm=(2, 0, 3, 1)),
        sample("2x3x4xT", perm=(0, 2, 1)),
        sample("2x3x4xT", perm=(2, 1, 0)),
        sample("T", perm=()),
        sample("3x0xT", perm=(1, 0)),
    )
    bads = (
        bad("2x3xf32", match="permutation", error=ShapeError, perm=(0, 0)),
        bad("2x3xf32", match="permutation", error=ShapeError, perm=(0, 1, 2)),
    )

    @classmethod
    def build(cls, x: Value, perm: Iterable[int] | int | None = None, *more: int) -> Value:
        """No ``perm`` reverses the axes; negative axes count from the end."""
        axes = tuple(reversed(range(x.rank))) if perm is None else _spread(perm, more)
        axes = tuple(axis_of(a, x.rank, "transpose") for a in axes)
        node = cls(x, axes)
        return x if axes == tuple(range(x.rank)) else node.out

    def infer(self) -> TensorType:
        if sorted(self.perm) != list(range(self.x.rank)):
            raise ShapeError(
                f"transpose: {self.perm} is no permutation of the {self.x.rank} axes of"
                f" {listed(self.x.shape)}"
            )
        return self.x.type.with_shape(self.x.shape[p] for p in self.perm)

    def reference(self, x: Array) -> Array:
        return np.ascontiguousarray(np.transpose(x, self.perm)).reshape(self.out.type.static_shape)

    def loops(self, b: Any) -> None:
        back = self.inverse()

        def point(*at: Any) -> None:
            b.store(0, at, b.load(0, [at[i] for i in back]))

        b.parallel(self.out.type.static_shape, point)

    def inverse(self) -> tuple[int, ...]:
        """The permutation that undoes this one."""
        return tuple(self.perm.index(i) for i in range(len(self.perm)))

    def factors(self) -> Factors:
        return Factors(self, [range(self.x.rank)], [self.perm])

    def vjp(self, g: Value) -> tuple[Value]:
        return (g.transpose(self.inverse()),)

    def jvp(self, t: Value) -> Value:
        return t.transpose(self.perm)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands, perm=(0, *(p + 1 for p in self.perm))).out


class Expand(Op, name="mir.expand"):
    """The tensor broadcast to a shape, as ``numpy.broadcast_to``."""

    x: Value = operand("any tensor")
    shape: tuple[Dim, ...] = attr(doc="the result's shape")

    linear = ((0,),)
    flops_per_element = 0
    dtypes = ANY
    samples = (
        sample("3xT", shape=(2, 3)),
        sample("2x1x3xT", shape=(2, 4, 3)),
        sample("T", shape=(2, 2)),
        sample("1xT", shape=(0,)),
        sample("T", shape=()),
    )
    bads = (
        bad("3xf32", match="does not broadcast to", error=ShapeError, shape=(4,)),
        bad("2x3xf32", match="does not broadcast to", error=ShapeError, shape=(3,)),
        bad("3xf32", match="does not broadcast to", error=ShapeError, shape=(-1, 3)),
    )

    @classmethod
    def build(cls, x: Value, shape: Iterable[DimLike] | DimLike, *more: DimLike) -> Value:
        """A dim of -1 keeps the operand's."""
        dims = list(_spread(shape, more))
        extra = len(dims) - x.rank
        for i, dim in enumerate(dims):
            if isinstance(dim, int) and dim == -1 and i >= extra:
                dims[i] = x.shape[i - extra]
        node = cls(x, tuple(dims))
        return x if node.shape == x.shape else node.out

    def infer(self) -> TensorType:
        extra = len(self.shape) - self.x.rank
        fits = extra >= 0 and not any(is_negative(d) for d in self.shape)
        if not fits or any(
            not same_shape((d,), (want,)) and d not in (1, want)
            for d, want in zip(self.x.shape, self.shape[extra:], strict=True)
        ):
            raise ShapeError(
                f"expand: {listed(self.x.shape)} does not broadcast to {listed(self.shape)}"
            )
        return self.x.type.with_shape(self.shape)

    def reference(self, x: Array) -> Array:
        return np.broadcast_to(x, self.out.type.static_shape).copy()

    def loops(self, b: Any) -> None:
        source = self.x.type.static_shape
        extra = len(self.shape) - len(source)

        def point(*at: Any) -> None:
            place = [0 if is_one(d) else i for d, i in zip(source, at[extra:], strict=True)]
            b.store(0, at, b.load(0, place))

        b.parallel(self.out.type.static_shape, point)

    def factors(self) -> Factors:
        return broadcast(self)

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        return self.with_operands(operands, shape=parts.shape()).results

    def vjp(self, g: Value) -> tuple[Value]:
        return (sum_to(g, self.x),)

    def jvp(self, t: Value) -> Value:
        return t.expand(self.shape)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        (x,) = operands
        between = [1] * (len(self.shape) - self.x.rank)
        ready = x.reshape((x.shape[0], *between, *x.shape[1:]))
        return self.with_operands([ready], shape=(x.shape[0], *self.shape)).out

"""Collectives that combine what the ranks have, one rank after another in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.base.mesh import Axis, check_axis
from rlx.errors import DTypeError, GraphError, ShapeError, did_you_mean
from rlx.ir.op import Array, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.collective.base import Moving, axis_given
from rlx.ops.collective.exchange import AllGather, AxisIndex, block_length, in_blocks
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.movement import axis_of
from rlx.ops.pointwise.base import ANY, ARITHMETIC, ORDERED, unsuitable
from rlx.ops.pointwise.cast import converted, widened
from rlx.ops.reduction.reduce import ReduceMax, ReduceMin, ReduceProd, ReduceSum
from rlx.types import Dim, TensorType, bf16, dtype, f16, i64

__all__ = ["REDUCTIONS", "AllReduce", "ReduceScatter", "Vary"]

REDUCTIONS: dict[str, tuple[Callable[..., Array], type[Op]]] = {
    "sum": (np.add, ReduceSum),
    "prod": (np.multiply, ReduceProd),
    "min": (np.minimum, ReduceMin),
    "max": (np.maximum, ReduceMax),
}
"""How two elements are combined, and the reduction along an axis that does the same."""


def _folded(given: Sequence[Array], op: str) -> Array:
    """The arrays of all ranks in one, from the first rank on: floats of 16 bits in f32, rounded
    once; integers wrap."""
    combine = REDUCTIONS[op][0]
    kind = given[0].dtype
    wide = np.dtype(np.float32) if kind in (f16.numpy, bf16.numpy) else kind
    total = given[0].astype(wide)
    with np.errstate(all="ignore"):
        for x in given[1:]:
            total = combine(total, x.astype(wide))
    return converted(total, dtype(kind))


class AllReduce(Moving, name="mir.all_reduce"):
    """The sum of what all ranks have, or their product, least or largest, on every rank.

    Elements are combined from rank 0 on, so that all ranks have the same bits. f16 and bf16 are
    combined in f32 and rounded once; integers wrap; the least of bools says whether all are true,
    the largest whether any is. A nan is the least and the largest.

    A derivative is that of what all ranks compute together, as in ``jax.vmap`` with an axis name: a
    cotangent of the result counts on every rank, so theirs are summed. With ``replicated`` the
    result is one value, which all ranks hold: its cotangent, the same on all of them, counts once.
    """

    op: str = attr("sum", "how elements are combined: sum, prod, min or max")
    replicated: bool = attr(False, "whether the result counts once, not once a rank")

    kind = "all_reduce"
    dtypes = ARITHMETIC
    samples = (
        sample("2x3xT", axis="data", ranks=1),
        sample("T", axis="data", ranks=1, replicated=True),
        sample("2x0xT", axis="data", ranks=1),
        sample("3xf32", axis="data", ranks=1, op="prod"),
        sample("3xf32", axis="data", ranks=1, op="max"),
        sample("2x2xf64", axis="data", ranks=1, op="min", replicated=True),
        sample("3xbool", axis="data", ranks=1, op="max"),
    )
    bads = (
        bad(
            "2xf32", match="'mean' is no reduction", error=GraphError, axis="a", ranks=2, op="mean"
        ),
        bad("2xbool", match="found bool", error=DTypeError, axis="a", ranks=2),
        bad("2xc64", match="found c64", error=DTypeError, axis="a", ranks=2, op="max"),
        bad("2xf32", match="from 1 to", error=GraphError, axis="a", ranks=0),
        bad("2xf32", match="letters, digits", error=GraphError, axis="a b", ranks=2),
    )

    @classmethod
    def build(cls, x: Value, axis: Axis, op: str = "sum", replicated: bool = False) -> Value:
        """``op`` may be "mean" too, of floats and complex numbers: the sum over their number."""
        along = axis_given(axis, "all_reduce")
        if op != "mean":
            return cls(x, along.name, along.ranks, op, replicated).out
        if x.dtype.is_int or x.dtype.kind == "bool":
            raise DTypeError(f"all_reduce: a mean is of floats, found {x.dtype}; cast the operand")
        total = cls(widened(x), along.name, along.ranks, "sum", replicated).out
        return (total / float(along.ranks)).cast(to=x.dtype)

    def result_type(self) -> TensorType:
        if self.op not in REDUCTIONS:
            hint = did_you_mean(self.op, REDUCTIONS)
            raise GraphError(
                f"all_reduce: {self.op!r} is no reduction{hint}; there are {', '.join(REDUCTIONS)}"
            )
        if self.x.dtype not in (ARITHMETIC if self.op in ("sum", "prod") else ORDERED):
            raise unsuitable(self, self.x.dtype)
        return self.x.type

    def reduction(self) -> str:
        return self.op

    def across(self, given: Sequence[Array]) -> Sequence[Array]:
        return [_folded(given, self.op)] * len(given)

    def named(self, x: Value, size: int) -> tuple[Value, bool]:
        wide = self.wide(x, size)
        made: Any = REDUCTIONS[self.op][1]
        return made(wide, (0,)).out, False

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands).out

    # -- derivatives -----------------------------------------------------------------------

    def again(self, v: Value, *, replicated: bool = False) -> Value:
        """The sum over the ranks of another value."""
        return self.over(v, AllReduce, "sum", replicated)

    def vjp(self, g: Value) -> tuple[Value]:
        # What all ranks hold as one comes back as what each of them has of its own.
        total = Vary(g, self.axis, self.ranks).out if self.replicated else self.again(g)
        if self.op == "sum":
            return (total,)
        return ((widened(total) * self._share()).cast(to=g.dtype),)

    def jvp(self, t: Value) -> Value:
        if self.op == "sum":
            return self.again(t, replicated=self.replicated)
        moved = self.again(widened(t) * self._share(), replicated=self.replicated)
        return moved.cast(to=t.dtype)

    def _share(self) -> Value:
        """The derivative of the result by this rank's operand, in f32 or wider."""
        x = widened(self.x)
        if self.op != "prod":  # what ties shares it
            wins = self.x.eq(self.out).cast(to=x.dtype)
            return wins / self.again(wins)
        every = self.over(x.reshape((1, *x.shape)), AllGather, 0)
        others = every.cumprod(0, exclusive=True) * every.cumprod(0, exclusive=True, reverse=True)
        own = Iota((self.ranks,), 0, i64).out.eq(AxisIndex(self.axis, self.ranks).out)
        mask = own.cast(to=x.dtype).reshape((self.ranks, *[1] * x.rank))
        return ReduceSum(others * mask, (0,), False).out


class ReduceScatter(Moving, name="mir.reduce_scatter"):
    """The sum of what all ranks have, of which each keeps its block along ``dim``.

    The axis ``dim`` is cut in as many blocks as there are ranks, and rank r has block r. Sums are
    those of ``all_reduce``.
    """

    dim: int = attr(0, "the axis that is cut in blocks")

    kind = "reduce_scatter"
    dtypes = ARITHMETIC
    samples = (
        sample("2x3xT", axis="data", ranks=1),
        sample("2x3xT", axis="data", ranks=1, dim=1),
        sample("0x3xT", axis="data", ranks=1),
    )
    bads = (
        bad("3x2xf32", match="no multiple of 2", error=ShapeError, axis="a", ranks=2),
        bad("2xf32", match="out of range", error=ShapeError, axis="a", ranks=2, dim=1),
        bad("2xbool", match="found bool", error=DTypeError, axis="a", ranks=2),
    )

    @classmethod
    def build(cls, x: Value, axis: Axis, dim: int = 0) -> Value:
        """A negative ``dim`` counts from the end."""
        along = axis_given(axis, "reduce_scatter")
        return cls(x, along.name, along.ranks, axis_of(dim, x.rank, "reduce_scatter")).out

    def result_type(self) -> TensorType:
        if self.x.dtype not in ARITHMETIC:
            raise unsuitable(self, self.x.dtype)
        shape = list(self.x.shape)
        shape[axis_of(self.dim, self.x.rank, self.short)] = block_length(self, self.dim)
        return self.x.type.with_shape(tuple(shape))

    def across(self, given: Sequence[Array]) -> Sequence[Array]:
        return np.split(_folded(given, "sum"), len(given), self.dim)

    def block(self) -> Dim:
        return self.out.type.size

    def flat(self) -> bool:
        return self.dim == 0

    def by_blocks(self) -> Value:
        blocks = in_blocks(self.x, self.dim, self.ranks)
        return self.over(blocks, ReduceScatter, 0).reshape(self.out.shape)

    def named(self, x: Value, size: int) -> tuple[Value, bool]:
        wide = self.wide(x, size)
        return in_blocks(ReduceSum(wide, (0,), False).out, self.dim, self.ranks), True

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands, dim=self.dim + 1).out

    def vjp(self, g: Value) -> tuple[Value]:
        return (self.over(g, AllGather, self.dim),)

    def jvp(self, t: Value) -> Value:
        return self.over(t, ReduceScatter, self.dim)


class Vary(Op, name="hir.vary"):
    """Its operand, one value that all ranks along an axis hold, as what each has of its own.

    It computes nothing: its derivative does, which sums the cotangents of the ranks. So a param
    that all ranks hold is given to what each rank computes, and its gradient is of all of them.
    """

    x: Value = operand("a tensor that is the same on every rank")
    axis: str = attr(doc="the name of the mesh's axis")
    ranks: int = attr(doc="how many ranks there are along it")

    flops_per_element = 0
    dtypes = ANY
    samples = (sample("2x3xT", axis="data", ranks=1), sample("0x2xT", axis="data", ranks=1))
    bads = (bad("2xf32", match="from 1 to", error=GraphError, axis="a", ranks=0),)

    @classmethod
    def build(cls, x: Value, axis: Axis) -> Value:
        along = axis_given(axis, "vary")
        return cls(x, along.name, along.ranks).out

    def infer(self) -> TensorType:
        check_axis(self.axis, self.ranks)
        return self.x.type

    def reference(self, x: Array) -> Array:
        return x

    def expand(self) -> Value:
        return self.x

    def vjp(self, g: Value) -> tuple[Value]:
        return (AllReduce(g, self.axis, self.ranks, "sum", True).out,)

    def jvp(self, t: Value) -> Value:
        return self.with_operands([t]).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands).out

"""Looking up values in sorted lines, and what follows from it: counts by bin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.base.guards import at_hand, prefers
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.factors import Factors
from rlx.ir.lift import promoted
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.indexing.index_modes import same_batch
from rlx.ops.movement.constant import Constant, Iota
from rlx.ops.movement.movement import DimLike, listed, zeros
from rlx.ops.pointwise.base import ORDERED, check_ordered
from rlx.types import TensorType, bf16, bool_, f16, i64

__all__ = ["Searchsorted", "bincount", "histogram", "nonzero"]

SIDES = ("left", "right")


class Searchsorted(Op, name="mir.searchsorted"):
    """Where values would go into a sorted line so that it stays sorted, as i64.

    With side "left" the index i has ``line[i-1] < v <= line[i]``, with "right"
    ``line[i-1] <= v < line[i]``. nan counts as greater than every number, as in NumPy. Lines of
    rank above 1 are batches: the values have their leading dims in front.
    """

    line: Value = operand("ascending along its last axis")
    values: Value = operand("what to look up, of the same element type")
    side: str = attr("left", '"left" or "right": before or behind equal elements')

    differentiable = False
    dtypes = ORDERED
    samples = (
        sample("5xT", "2x3xT"),
        sample("8xT", "4xT", side="right"),
        sample("2x3xT", "2x4xT"),
        sample("0xT", "2xT"),
        sample("1xT", "T"),
    )
    bads = (
        bad("2xc64", "2xc64", match="has an order", error=DTypeError),
        bad("f32", "2xf32", match="rank of at least 1", error=ShapeError),
        bad("2x3xf32", "3x4xf32", match="leading dims", error=ShapeError),
        bad("3xf32", "4xf64", match="one type", error=DTypeError),
        bad("3xf32", "4xf32", match='"left" or "right"', error=GraphError, side="both"),
    )

    @classmethod
    def build(cls, line: Value, values: Value | Array | float, side: str = "left") -> Value:
        """Numbers take the line's element type; two types meet by promotion."""
        line, found = promoted(line, values)
        return cls(line, found, side).out

    def infer(self) -> TensorType:
        line, values = self.line, self.values
        check_ordered("searchsorted", line.dtype)
        if not line.rank:
            raise ShapeError("searchsorted: the line needs a rank of at least 1, found a scalar")
        if line.dtype is not values.dtype:
            raise DTypeError(
                f"searchsorted takes a line and values of one type, found {line.dtype} and"
                f" {values.dtype}"
            )
        lead = line.shape[:-1]
        if values.shape[: len(lead)] != lead:
            raise ShapeError(
                f"searchsorted: the leading dims of the lines {listed(line.shape)} and of the"
                f" values {listed(values.shape)} differ"
            )
        if self.side not in SIDES:
            raise GraphError(f'searchsorted: side is "left" or "right", found {self.side!r}')
        return values.type.with_dtype(i64)

    def cost(self) -> Cost:
        """The comparisons of a binary search for every value."""
        size, n = self.values.type.size, self.line.shape[-1]
        found = size * at_hand(n).bit_length() if is_known(size) and is_known(n) else 0
        return Cost(found, super().cost().bytes)

    def reference(self, line: Array, values: Array) -> Array:
        """The same search as in the loop nest, so that the two agree on lines in no order too."""
        wide = np.float32 if self.line.dtype in (f16, bf16) else line.dtype
        n, many = line.shape[-1], math.prod(line.shape[:-1])
        lines = line.reshape(many, n).astype(wide)
        v = np.asarray(values, wide).reshape(many, math.prod(np.shape(values)[line.ndim - 1 :]))
        low, high = np.zeros(v.shape, np.int64), np.full(v.shape, n, np.int64)
        for _ in range(n.bit_length()):
            middle = np.minimum((low + high) // 2, n - 1)
            x = np.take_along_axis(lines, middle, 1)
            right = _before(x, v) if self.side == "left" else ~_before(v, x)
            low, high = np.where(right, middle + 1, low), np.where(right, high, middle)
        return low.reshape(np.shape(values))

    def loops(self, b: Any) -> None:
        k, lead, n = b.k, self.line.rank - 1, self.line.type.static_shape[-1]
        rounds = prefers(n.bit_length, otherwise=0)

        def before(a: Any, than: Any) -> Any:
            found = a < than
            if not a.dtype.is_float:
                return found
            return found | (k.compare("ne", than, than) & k.compare("eq", a, a))

        def point(*at: Any) -> None:
            v = b.load(1, at)

            def halve(low: Any, high: Any) -> tuple[Any, Any]:
                # A range that is down to nothing is still looked at, which changes nothing.
                middle = k.minimum((low + high) // 2, n - 1)
                x = b.load(0, [*at[:lead], middle])
                right = before(x, v) if self.side == "left" else k.logical_not(before(v, x))
                return k.select(right, middle + 1, low), k.select(right, high, middle)

            ends = [k.index(0), k.index(n)]
            if rounds:
                found = b.loop(rounds, lambda _, low, high: halve(low, high), ends)
            else:
                found = k.repeat(lambda low, high: low < high, halve, ends)
            b.store(0, at, b.convert(found[0], i64))

        b.parallel(self.out.type.static_shape, point)

    def factors(self) -> Factors:
        dims = range(self.values.rank)
        return Factors(self, [[*range(self.line.rank - 1), None], dims], [dims])

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        if self.line.rank > 1 or batched[0]:
            operands = same_batch(operands, batched)
        return self.with_operands(operands).out


def _before(a: Array, than: Array) -> Array:
    return (a < than) | ((than != than) & (a == a))  # noqa: PLR0124


def bincount(x: Value, length: DimLike, weights: Value | None = None) -> Value:
    """How often each of 0 to ``length`` - 1 is in a vector of integers, as i64, or the sum of its
    weights.

    As ``jax.numpy.bincount`` with a length: a negative number counts as 0, and one of ``length``
    and above is dropped.
    """
    if x.rank != 1 or not x.dtype.is_int:
        raise DTypeError(f"bincount takes a vector of integers, found {x.type}")
    if weights is not None and weights.shape != x.shape:
        raise ShapeError(f"bincount: the weights {weights.type} and {x.type} differ in shape")
    return _ones(x, weights).scatter_add(x.maximum(0), length, mode="fill")


def _ones(x: Value, weights: Value | None) -> Value:
    one = Constant(np.ones((), np.int64)).out
    return one.expand(x.shape) if weights is None else weights


def histogram(x: Value, edges: Value | Array, weights: Value | None = None) -> Value:
    """How many elements lie between each two neighbours of the ascending vector ``edges``, as i64,
    or the sums of their weights: the counts of ``numpy.histogram``.

    A bin holds its lower edge, and the last one both; what is outside of all is dropped.
    """
    x, line = promoted(x, edges)
    if line.rank != 1 or not is_known(line.shape[0]) or line.shape[0] < 2:
        raise ShapeError(f"histogram: edges are a vector of two or more, found {line.type}")
    if weights is not None and weights.shape != x.shape:
        raise ShapeError(f"histogram: the weights {weights.type} and {x.type} differ in shape")
    bins = line.shape[0] - 1
    bin_ = line.searchsorted(x, "right") - 1
    bin_ = x.eq(line[-1]).where(bins - 1, bin_)
    outside = bin_.lt(0)  # as a negative index it would count from the end
    flat = [x.type.size]
    bin_ = outside.where(bins, bin_).reshape(flat)
    return _ones(x, weights).reshape(flat).scatter_add(bin_, bins, mode="fill")


def nonzero(x: Value, size: int, fill_value: int = 0) -> list[Value]:
    """The indices of the elements that are not 0 in row-major order, a vector of ``size`` i64 for
    every axis, as ``jax.numpy.nonzero`` with a size.

    Of more elements the first are taken; for fewer ``fill_value`` fills the rest.
    """
    if not x.rank:
        raise ShapeError("nonzero takes a tensor of rank 1 or more, found a scalar")
    shape = x.type.static_shape
    flat = (x if x.dtype is bool_ else x.ne(0)).reshape([-1])
    rank = flat.cast(to=i64).cumsum(0)
    slot = flat.where(rank - 1, size)
    place = Iota(flat.shape, 0, i64).out
    found = zeros((size,), i64).scatter(slot, place, mode="fill")
    there = Iota((size,), 0, i64).out.lt(flat.cast(to=i64).sum())
    out: list[Value] = []
    for axis in reversed(range(x.rank)):
        n = max(shape[axis], 1)
        rest = found.div(n)
        out.append(there.where(found - rest * n, fill_value))
        found = rest
    return out[::-1]

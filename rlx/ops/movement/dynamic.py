"""Boxes of a tensor at starts that are known at run time: read and overwritten.

The meaning of a start is JAX's: a negative one counts from the end, and then it is moved so that
the whole box lies within the tensor. So no start is a fault.

The first ``batch_dims`` axes are shared, and ``starts`` has them in front: each batch element has
a box of its own, with a start for every other axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx.base.dims import as_dim
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.attrs import from_numbers
from rlx.ir.factors import Factors, Parts
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value, bytes_of
from rlx.ops.indexing.index_modes import as_indices, check_integers, same_batch
from rlx.ops.movement.movement import DimLike, is_negative, listed, zeros
from rlx.ops.pointwise.base import ANY
from rlx.ops.sugar import concat
from rlx.types import Dim, DType, Shape, TensorType, bool_, i32, i64, u64

__all__ = ["DynamicSlice", "DynamicUpdateSlice"]


class Box(Op):
    """The shared part: a box of ``x`` behind the batch dims."""

    flops_per_element = 0

    def check(self: Any, box: Shape) -> None:
        """Refuse starts that are not one for every axis, and a box that does not fit."""
        check_integers(self, self.starts)
        lead, shape = self.batch_dims, self.x.shape
        if not 0 <= lead <= self.x.rank:
            raise ShapeError(f"{self.short}: batch_dims={lead} for a tensor of rank {self.x.rank}")
        wanted = (*shape[:lead], self.x.rank - lead)
        if self.starts.shape != wanted:
            raise ShapeError(
                f"{self.short}: the starts of a tensor {listed(shape)} with {lead} batch dims are"
                f" {listed(wanted)}, found {listed(self.starts.shape)}"
            )
        if len(box) != self.x.rank - lead:
            raise ShapeError(
                f"{self.short}: the box {listed(box)} needs {self.x.rank - lead} dims, one for"
                f" every axis of {listed(shape)} behind the batch dims"
            )
        for axis, (size, dim) in enumerate(zip(box, shape[lead:], strict=True), lead):
            if is_negative(size) or is_negative(dim - size):
                raise ShapeError(
                    f"{self.short}: {size} elements along axis {axis}, which has {dim}"
                )

    def places(self: Any, starts: Array, box: Sequence[int]) -> Array:
        """Where boxes begin, in numpy: the starts, moved into the tensor."""
        dims = np.array(self.x.type.static_shape[self.batch_dims :], np.int64)
        room = dims - np.array(box, np.int64)
        if starts.dtype.kind == "u":
            return np.minimum(starts.astype(np.uint64), room.astype(np.uint64)).astype(np.int64)
        wide = starts.astype(np.int64)
        return np.clip(np.where(wide < 0, wide + dims, wide), 0, room)

    def boxes(self: Any, starts: Array, box: Sequence[int]) -> Iterable[tuple[Any, Any]]:
        """For every batch element its index, and the index of its box."""
        lead = self.x.type.static_shape[: self.batch_dims]
        found = self.places(starts, box)
        for at in np.ndindex(lead):
            ranges = zip(found[at], box, strict=True)
            yield at, (*at, *(slice(s, s + n) for s, n in ranges))

    def start(self: Any, b: Any, number: int, at: Sequence[Any], box: Sequence[int]) -> list[Any]:
        """Where the box of a batch element begins, in a loop nest, as indices."""
        k, lead = b.k, self.batch_dims
        found: list[Any] = []
        for axis, size in enumerate(box):
            dim = self.x.type.static_shape[lead + axis]
            s = b.load(number, [*at[:lead], axis])
            s = k.cast(s, k.index_word(s.dtype))
            if s.dtype.kind == "int":
                s = k.maximum(k.select(s < 0, s + dim, s), 0)
            found.append(b.index(k.minimum(s, dim - size)))
        return found

    def batch(self: Any, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        both = same_batch(operands, batched)
        return self.with_operands(both, batch_dims=self.batch_dims + 1).out


def _vector(starts: Value | Array | Sequence[Value | int]) -> Value:
    """One tensor of starts, or a number or scalar for every axis, as a vector."""
    if isinstance(starts, Value):
        return starts
    if isinstance(starts, Sequence) and any(isinstance(s, Value) for s in starts):
        # Devices that have no integers of 64 bits take those that need none.
        own = [s.dtype for s in starts if isinstance(s, Value)]
        short = all((t.is_int and t.bits < 32) or t is i32 for t in own)
        fits = all(isinstance(s, Value) or -(2**31) <= s < 2**31 for s in starts)
        return concat([_scalar(s, i32 if short and fits else i64) for s in starts])
    known = isinstance(starts, np.ndarray)
    return as_indices(starts if known else from_numbers(starts, i64, "the starts"))


def _scalar(start: Value | int, to: DType) -> Value:
    if not isinstance(start, Value):
        return as_indices(np.asarray([start], to.numpy))
    if start.rank or not start.dtype.is_int:
        raise GraphError(f"a start is an integer scalar, found {start.type}")
    if start.dtype is u64:
        start = start.minimum(2**63 - 1)
    return start.cast(to=to).reshape([1])


def _kept(op: Any, box: Shape) -> tuple[list[int | None], list[int | None]]:
    """The factors of the tensor, of those dims alone that a box takes whole, and of the starts."""
    lead, shape = op.batch_dims, op.x.shape
    behind = zip(shape[lead:], box, strict=True)
    kept = [*range(lead), *(i if d == n else None for i, (d, n) in enumerate(behind, lead))]
    return kept, [*range(lead), None]


class DynamicSlice(Box, name="mir.dynamic_slice"):
    """A box of the tensor, of fixed sizes, at starts known at run time.

    A negative start counts from the end; then each is moved so that the box lies within the
    tensor, as in ``jax.lax.dynamic_slice``.
    """

    x: Value = operand("any tensor")
    starts: Value = operand("integers: the first index along every axis")
    sizes: tuple[Dim, ...] = attr(doc="number of elements taken along every axis")
    batch_dims: int = attr(0, "number of leading axes, each element of which has its own starts")

    linear = ((0,),)
    dtypes = ANY
    samples = (
        sample("5x4xT", "2xi64", sizes=(3, 2), data={1: "index:4"}),
        sample("5xT", "1xi8", sizes=(2,)),
        sample("2x5x3xT", "2x2xu8", sizes=(2, 3), batch_dims=1, data={1: "index:6"}),
        sample("T", "0xi64", sizes=()),
        sample("4x3xT", "2xi32", sizes=(0, 2)),
    )
    bads = (
        bad("4xf32", "1xf32", match="cast them to i64", error=DTypeError, sizes=(2,)),
        bad("4xf32", "2xi64", match=r"are \[1\]", error=ShapeError, sizes=(2,)),
        bad("4xf32", "1xi64", match="5 elements along axis 0", error=ShapeError, sizes=(5,)),
        bad("4xf32", "1xi64", match="needs 1 dims", error=ShapeError, sizes=(2, 2)),
        bad("4xf32", "1xi64", match="batch_dims=2", error=ShapeError, sizes=(2,), batch_dims=2),
    )

    @classmethod
    def build(
        cls,
        x: Value,
        starts: Value | Array | Sequence[Value | int],
        sizes: Iterable[DimLike],
        batch_dims: int = 0,
    ) -> Value:
        """The starts are a vector, or a list of scalars and numbers."""
        return cls(x, _vector(starts), tuple(as_dim(d) for d in sizes), batch_dims).out

    def infer(self) -> TensorType:
        self.check(self.sizes)
        return self.x.type.with_shape((*self.x.shape[: self.batch_dims], *self.sizes))

    def cost(self) -> Cost:
        """As much is read as the result holds."""
        return Cost(0, bytes_of([self.starts, self.out, self.out]))

    def reference(self, x: Array, starts: Array) -> Array:
        out = np.empty(self.out.type.static_shape, x.dtype)
        for at, box in self.boxes(starts, out.shape[self.batch_dims :]):
            out[at] = np.asarray(x)[box]
        return out

    def loops(self, b: Any) -> None:
        """A point is a row of the result, so that the starts are looked at once a row."""
        lead, shape = self.batch_dims, self.out.type.static_shape
        box = shape[lead:]

        def row(*at: Any) -> None:
            first = self.start(b, 1, at, box)

            def copy(*last: Any) -> None:
                place = [*at, *last]
                inner = [i + s for i, s in zip(place[lead:], first, strict=True)]
                b.store(0, place, b.load(0, [*place[:lead], *inner]))

            if box:
                b.loop(box[-1], copy)
            else:
                copy()

        b.parallel(shape[:-1] if box else shape, row)

    def factors(self) -> Factors:
        kept, starts = _kept(self, self.sizes)
        return Factors(self, [kept, starts], [kept])

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        return self.with_operands(operands, sizes=parts.shape()[self.batch_dims :]).results

    def vjp(self, g: Value) -> tuple[Value, None]:
        nothing = zeros(self.x.shape, g.dtype)
        return DynamicUpdateSlice(nothing, g, self.starts, self.batch_dims).out, None

    def jvp(self, tx: Value | None, ts: Value | None) -> Value:
        if tx is None:
            return zeros(self.out.shape, self.out.dtype)
        return self.with_operands([tx, self.starts]).out


class DynamicUpdateSlice(Box, name="mir.dynamic_update_slice"):
    """The tensor with a box of it overwritten, at starts known at run time.

    A negative start counts from the end; then each is moved so that the box lies within the
    tensor, as in ``jax.lax.dynamic_update_slice``.
    """

    x: Value = operand("any tensor")
    update: Value = operand("what the box holds then; at most as long along every axis")
    starts: Value = operand("integers: the first index along every axis")
    batch_dims: int = attr(0, "number of leading axes, each element of which has its own starts")

    dtypes = ANY
    samples = (
        sample("5x4xT", "3x2xT", "2xi64", data={2: "index:4"}),
        sample("5xT", "2xT", "1xi8"),
        sample("2x5x3xT", "2x2x3xT", "2x2xu8", batch_dims=1, data={2: "index:6"}),
        sample("T", "T", "0xi64"),
        sample("4x3xT", "0x2xT", "2xi32"),
    )
    bads = (
        bad("4xf32", "2xf32", "1xf32", match="cast them to i64", error=DTypeError),
        bad("4xf32", "2xf64", "1xi64", match="one type", error=DTypeError),
        bad("4xf32", "2xf32", "2xi64", match=r"are \[1\]", error=ShapeError),
        bad("4xf32", "5xf32", "1xi64", match="5 elements along axis 0", error=ShapeError),
        bad("4xf32", "2x2xf32", "1xi64", match="needs 1 dims", error=ShapeError),
        bad("2x4xf32", "3x2xf32", "2x1xi64", match="batch dims", error=ShapeError, batch_dims=1),
    )

    @classmethod
    def build(
        cls,
        x: Value,
        update: Value,
        starts: Value | Array | Sequence[Value | int],
        batch_dims: int = 0,
    ) -> Value:
        """The starts are a vector, or a list of scalars and numbers."""
        return cls(x, update, _vector(starts), batch_dims).out

    def infer(self) -> TensorType:
        lead, x, update = self.batch_dims, self.x, self.update
        if update.dtype is not x.dtype:
            raise DTypeError(
                f"{self.short} takes a tensor and an update of one type, found {x.dtype} and"
                f" {update.dtype}"
            )
        self.check(update.shape[max(lead, 0) :])
        if update.shape[:lead] != x.shape[:lead]:
            raise ShapeError(
                f"{self.short}: the batch dims of {listed(x.shape)} and of the update"
                f" {listed(update.shape)} differ"
            )
        return x.type

    def reference(self, x: Array, update: Array, starts: Array) -> Array:
        out = np.array(x)
        for at, box in self.boxes(starts, update.shape[self.batch_dims :]):
            out[box] = np.asarray(update)[at]
        return out

    def loops(self, b: Any) -> None:
        """A point is a row: it is copied, and then the box written if it crosses the row."""
        lead, shape = self.batch_dims, self.out.type.static_shape
        box = self.update.type.static_shape[lead:]

        def row(*at: Any) -> None:
            first = self.start(b, 2, at, box)
            k, inside, source = b.k, b.const(True, bool_), list(at[:lead])
            for i, s, n in zip(at[lead:], first, box[:-1], strict=False):
                inside = inside & (i >= s) & (i < s + n)
                source.append(i - s)

            def keep(*last: Any) -> None:
                b.store(0, [*at, *last], b.load(0, [*at, *last]))

            def write(*last: Any) -> None:
                place = [first[-1] + i for i in last]
                b.store(0, [*at, *place], b.load(1, [*source, *last]))

            if not box:
                write()
                return
            b.loop(shape[-1], keep)
            k.when(inside, lambda: b.loop(box[-1], write))

        b.parallel(shape[:-1] if box else shape, row)

    def factors(self) -> Factors:
        kept, starts = _kept(self, self.update.shape[self.batch_dims :])
        return Factors(self, [kept, kept, starts], [kept])

    def vjp(self, g: Value) -> tuple[Value, Value, None]:
        nothing = zeros(self.update.shape, g.dtype)
        lead = self.batch_dims
        part = DynamicSlice(g, self.starts, self.update.shape[lead:], lead).out
        return self.with_operands([g, nothing, self.starts]).out, part, None

    def jvp(self, tx: Value | None, tu: Value | None, ts: Value | None) -> Value:
        tx = zeros(self.x.shape, self.x.dtype) if tx is None else tx
        tu = zeros(self.update.shape, self.x.dtype) if tu is None else tu
        return self.with_operands([tx, tu, self.starts]).out

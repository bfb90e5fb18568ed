"""Products of tensors that sum over shared axes: matmul, and dot_general for any axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factors
from rlx.ir.lift import promoted
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.movement import axis_of, listed
from rlx.ops.pointwise.base import ARITHMETIC, INEXACT
from rlx.types import Dim, DType, TensorType, bf16, broadcast_shapes, check_one_type, f16

__all__ = ["DotGeneral", "MatMul"]


def _check_dtypes(op: Op, a: DType, b: DType) -> None:
    for dt in (a, b):
        if dt not in ARITHMETIC:
            raise DTypeError(f"{op.short} multiplies numbers, found {dt}. Cast the operand first")
    check_one_type(op.short, a, b)


def _accumulator(dt: DType) -> Any:
    """The numpy type that sums are made in: f32 for 16-bit floats; integers wrap in their own."""
    return np.float32 if dt in (f16, bf16) else dt.numpy


def _sum_tangents(a: Value | None, b: Value | None) -> Value:
    parts = [t for t in (a, b) if t is not None]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


class MatMul(Op, name="mir.matmul"):
    """Matrix product over the last two axes; the axes before them broadcast.

    a is [..., M, K], b is [..., K, N], the result [..., M, N]. 16-bit floats accumulate in f32 and
    round once; integers accumulate in their own type and wrap.
    """

    a: Value = operand("left matrices, rank 2 or more")
    b: Value = operand("right matrices, of the same element type")

    linear = ((0,), (1,))
    dtypes = ARITHMETIC
    samples = (
        sample("2x3xT", "3x4xT"),
        sample("2x3x4xT", "4x5xT"),
        sample("3x4xT", "2x4x5xT"),
        sample("2x3x4xT", "2x4x5xT"),
        sample("2x1x3x4xT", "3x4x2xT"),
        sample("1x2x3xT", "4x3x1xT"),
        sample("1x1xT", "1x1xT"),
        sample("2x0xT", "0x3xT"),
        sample("0x2xT", "2x3xT"),
    )
    bads = (
        bad("2x3xf32", "4x5xf32", match="inner dims 3 and 4", error=ShapeError),
        bad("2x2x3xf32", "3x3x4xf32", match="do not broadcast", error=ShapeError),
        bad("3xf32", "3x4xf32", match="rank 2 or more", error=ShapeError),
        bad("2x3xf32", "3x4xf64", match="one type", error=DTypeError),
        bad("2x3xbool", "3x4xbool", match="found bool", error=DTypeError),
    )

    @classmethod
    def build(cls, a: Value | Array, b: Value | Array) -> Value:
        """``numpy.matmul``: a vector on either side is a matrix of one row or one column whose
        axis is dropped from the result; two element types are promoted."""
        a, b = promoted(a, b)
        if not a.rank or not b.rank:
            raise ShapeError(f"matmul takes no scalars, found {a.type} and {b.type}; multiply by *")
        row, column = a.rank == 1, b.rank == 1
        out = cls(
            a.reshape((1, *a.shape)) if row else a, b.reshape((*b.shape, 1)) if column else b
        ).out
        if not row and not column:
            return out
        drop = {out.rank - 2} if row else set[int]()
        drop |= {out.rank - 1} if column else set()
        return out.reshape([d for i, d in enumerate(out.shape) if i not in drop])

    def infer(self) -> TensorType:
        a, b = self.a, self.b
        _check_dtypes(self, a.dtype, b.dtype)
        if a.rank < 2 or b.rank < 2:
            raise ShapeError(
                f"matmul takes operands of rank 2 or more, found {a.type} and {b.type}"
            )
        if a.shape[-1] != b.shape[-2]:
            raise ShapeError(
                f"matmul: inner dims {a.shape[-1]} and {b.shape[-2]} of {listed(a.shape)} and"
                f" {listed(b.shape)} differ{self._hint()}"
            )
        batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return a.type.with_shape((*batch, a.shape[-2], b.shape[-1]))

    def _hint(self) -> str:
        if self.a.shape[-1] == self.b.shape[-1]:
            return "; is the right operand to be transposed (x @ w.T)?"
        return ""

    def reference(self, a: Array, b: Array) -> Array:
        wide = _accumulator(self.a.dtype)
        return np.matmul(a.astype(wide), b.astype(wide)).astype(a.dtype)

    def loops(self, b: Any) -> None:
        left, right = self.a.type.static_shape, self.b.type.static_shape

        def point(*at: Any) -> None:
            *batch, row, column = at

            def place(shape: tuple[int, ...]) -> list[Any]:
                own = batch[len(batch) - (len(shape) - 2) :]
                return [0 if d == 1 else i for d, i in zip(shape[:-2], own, strict=True)]

            def step(k: Any, total: Any) -> Any:
                x = b.load(0, [*place(left), row, k])
                return total + x * b.load(1, [*place(right), k, column])

            add = b.sum if self.a.dtype in INEXACT else b.loop
            b.store(0, at, *add(left[-1], step, [b.const(0, self.a.dtype)]))

        b.parallel(self.out.type.static_shape, point)

    def cost(self) -> Cost:
        """2 M N K operations a matrix."""
        return Cost(_operations(self.out.type.size, self.a.shape[-1]), super().cost().bytes)

    def factors(self) -> Factors:
        rank = self.out.rank

        def named(v: Value, *matrix: str) -> list[int | str | None]:
            batch = enumerate(v.shape[:-2], rank - v.rank)
            return [*[i if d == self.out.shape[i] else None for i, d in batch], *matrix]

        out = [*range(rank - 2), "m", "n"]
        return Factors(self, [named(self.a, "m", "k"), named(self.b, "k", "n")], [out], sums=["k"])

    def vjp(self, g: Value) -> tuple[Value, Value]:
        """g bᵀ and aᵀ g. Batch axes along which an operand was broadcast are summed inside the
        product, so a weight shared by a batch meets one matmul and no temporary of batch size."""
        batch = g.rank - 2
        rows, inner, columns = batch, batch + 1, batch + 2
        g_axes = [*range(batch), rows, columns]
        a, a_axes = self._labelled(self.a, rows, inner)
        b, b_axes = self._labelled(self.b, inner, columns)
        # A batch axis that only the other operand has is summed; one of size 1 may stay.
        a_kept = [i for i in range(batch) if i not in b_axes or i in a_axes]
        b_kept = [i for i in range(batch) if i not in a_axes or i in b_axes]
        ga = product(g, g_axes, b, b_axes, [*a_kept, rows, inner])
        gb = product(a, a_axes, g, g_axes, [*b_kept, inner, columns])
        return ga.reshape(self.a.shape), gb.reshape(self.b.shape)

    def _labelled(self, v: Value, *matrix: int) -> tuple[Value, list[int]]:
        """An operand without its batch axes of size 1, and which axis of the result each is."""
        extra = self.out.rank - v.rank
        batch = [i for i in range(v.rank - 2) if v.shape[i] != 1]
        slim = v.reshape([*(v.shape[i] for i in batch), *v.shape[-2:]])
        return slim, [*(i + extra for i in batch), *matrix]

    def jvp(self, ta: Value | None, tb: Value | None) -> Value:
        return _sum_tangents(
            None if ta is None else MatMul(ta, self.b).out,
            None if tb is None else MatMul(self.a, tb).out,
        )

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        """The new axis is one more broadcasting axis in front; lower ranks are padded behind it."""
        rank = self.out.rank + 1
        return self.with_operands(
            [
                v.reshape((v.shape[0], *([1] * (rank - v.rank)), *v.shape[1:])) if has else v
                for v, has in zip(operands, batched, strict=True)
            ]
        ).out


class DotGeneral(Op, name="mir.dot_general"):
    """Product summed over chosen axes, with batch axes that the operands share, as XLA's.

    The result has the batch axes, then the left operand's free axes, then the right one's, each
    group in order.
    """

    a: Value = operand("left tensor")
    b: Value = operand("right tensor, of the same element type")
    lhs_contracting: tuple[int, ...] = attr(doc="axes of a to sum over")
    rhs_contracting: tuple[int, ...] = attr(doc="the axes of b that they meet")
    lhs_batch: tuple[int, ...] = attr((), "axes of a that are batch axes")
    rhs_batch: tuple[int, ...] = attr((), "the axes of b that they meet")

    linear = ((0,), (1,))
    dtypes = ARITHMETIC
    samples = (
        sample("2x3xT", "3x4xT", lhs_contracting=(1,), rhs_contracting=(0,)),
        sample("3x2xT", "4x3xT", lhs_contracting=(0,), rhs_contracting=(1,)),
        sample("2x3x4xT", "4x3x2xT", lhs_contracting=(1, 2), rhs_contracting=(1, 0)),
        sample("3x2x4xT", "4x5x2xT", lhs_contracting=(2,), rhs_contracting=(0,),
               lhs_batch=(1,), rhs_batch=(2,)),
        sample("2x3x4x5xT", "3x5x2xT", lhs_contracting=(3,), rhs_contracting=(1,),
               lhs_batch=(1, 0), rhs_batch=(0, 2)),
        sample("2xT", "3xT", lhs_contracting=(), rhs_contracting=()),
        sample("3xT", "3xT", lhs_contracting=(0,), rhs_contracting=(0,)),
        sample("T", "T", lhs_contracting=(), rhs_contracting=()),
    )  # fmt: skip
    bads = (
        bad("2x3xf32", "4x5xf32", match="meets", error=ShapeError,
            lhs_contracting=(1,), rhs_contracting=(0,)),
        bad("2x3xf32", "3x5xf32", match="axis 2", error=ShapeError,
            lhs_contracting=(2,), rhs_contracting=(0,)),
        bad("2x3xf32", "3x2xf32", match="as many", error=ShapeError,
            lhs_contracting=(1,), rhs_contracting=(0, 1)),
        bad("2x2xf32", "2x2xf32", match="twice", error=ShapeError,
            lhs_contracting=(0,), rhs_contracting=(0,), lhs_batch=(0,), rhs_batch=(1,)),
        bad("2xf32", "2xi32", match="one type", error=DTypeError,
            lhs_contracting=(0,), rhs_contracting=(0,)),
        bad("2xbool", "2xbool", match="found bool", error=DTypeError,
            lhs_contracting=(0,), rhs_contracting=(0,)),
    )  # fmt: skip

    @classmethod
    def build(
        cls,
        a: Value | Array,
        b: Value | Array,
        lhs_contracting: Sequence[int] | int,
        rhs_contracting: Sequence[int] | int,
        lhs_batch: Sequence[int] | int = (),
        rhs_batch: Sequence[int] | int = (),
    ) -> Value:
        """Negative axes count from the end; two element types are promoted."""
        a, b = promoted(a, b)

        def axes(given: Sequence[int] | int, v: Value) -> tuple[int, ...]:
            many = given if isinstance(given, Iterable) else (given,)
            return tuple(axis_of(i, v.rank, "dot_general") for i in many)

        return cls(
            a,
            b,
            axes(lhs_contracting, a),
            axes(rhs_contracting, b),
            axes(lhs_batch, a),
            axes(rhs_batch, b),
        ).out

    def infer(self) -> TensorType:
        _check_dtypes(self, self.a.dtype, self.b.dtype)
        for what, left, right in (
            ("contracting", self.lhs_contracting, self.rhs_contracting),
            ("batch", self.lhs_batch, self.rhs_batch),
        ):
            if len(left) != len(right):
                raise ShapeError(
                    f"dot_general needs as many {what} axes left as right, found {left} and {right}"
                )
            for i, j in zip(left, right, strict=True):
                m = self.a.shape[axis_of(i, self.a.rank, "dot_general")]
                n = self.b.shape[axis_of(j, self.b.rank, "dot_general")]
                if m != n:
                    raise ShapeError(
                        f"dot_general: axis {i} of {listed(self.a.shape)} meets axis {j} of"
                        f" {listed(self.b.shape)}, and {m} is not {n}"
                    )
        for used in (
            (*self.lhs_contracting, *self.lhs_batch),
            (*self.rhs_contracting, *self.rhs_batch),
        ):
            if len(set(used)) != len(used):
                raise ShapeError(f"dot_general: an axis is used twice in {used}")
        sizes = dict(zip(self.labels()[0], self.a.shape, strict=True))
        sizes |= dict(zip(self.labels()[1], self.b.shape, strict=True))
        return self.a.type.with_shape(sizes[i] for i in self.labels()[2])

    def labels(self) -> tuple[list[int], list[int], list[int]]:
        """A number for every axis of a, of b and of the result; axes that meet share theirs."""
        left = list(range(self.a.rank))
        right = list(range(self.a.rank, self.a.rank + self.b.rank))
        pairs = zip(
            (*self.lhs_contracting, *self.lhs_batch),
            (*self.rhs_contracting, *self.rhs_batch),
            strict=True,
        )
        for i, j in pairs:
            right[j] = i
        met = {*self.lhs_contracting, *self.lhs_batch}
        out = [
            *self.lhs_batch,
            *(i for i in left if i not in met),
            *(i for i in right if i not in met),
        ]
        return left, right, out

    def expand(self) -> Value:
        """Transpose and reshape to matrices, with the batch axes in front, and multiply."""
        a, b = self.a, self.b
        batch = [a.shape[i] for i in self.lhs_batch]
        rows = _free(a, self.lhs_contracting, self.lhs_batch)
        columns = _free(b, self.rhs_contracting, self.rhs_batch)
        inner = _size(a, self.lhs_contracting)
        left = a.transpose([*self.lhs_batch, *rows, *self.lhs_contracting])
        right = b.transpose([*self.rhs_batch, *self.rhs_contracting, *columns])
        left = left.reshape([*batch, _size(a, rows), inner])
        right = right.reshape([*batch, inner, _size(b, columns)])
        return MatMul(left, right).out.reshape(self.out.shape)

    def reference(self, a: Array, b: Array) -> Array:
        left, right, out = self.labels()
        wide = _accumulator(self.a.dtype)
        return np.einsum(a.astype(wide), left, b.astype(wide), right, out).astype(a.dtype)

    def cost(self) -> Cost:
        """Two operations for every element of the result and of the contracted axes."""
        return Cost(
            _operations(self.out.type.size, _size(self.a, self.lhs_contracting)),
            super().cost().bytes,
        )

    def factors(self) -> Factors:
        left, right, out = self.labels()
        return Factors(self, [left, right], [out], sums={*left, *right} - {*out})

    def vjp(self, g: Value) -> tuple[Value, Value]:
        left, right, out = self.labels()
        return product(g, out, self.b, right, left), product(self.a, left, g, out, right)

    def jvp(self, ta: Value | None, tb: Value | None) -> Value:
        return _sum_tangents(
            None if ta is None else self.with_operands([ta, self.b]).out,
            None if tb is None else self.with_operands([self.a, tb]).out,
        )

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        left, right, out = self.labels()
        new = self.a.rank + self.b.rank
        left, right = [new] * batched[0] + left, [new] * batched[1] + right
        return product(operands[0], left, operands[1], right, [new, *out])


def product(
    a: Value, a_labels: Sequence[int], b: Value, b_labels: Sequence[int], out: Sequence[int]
) -> Value:
    """The product of two tensors with labelled axes, as ``numpy.einsum`` of two operands.

    A label of both operands is a batch axis if ``out`` has it and is summed over otherwise; a
    label of one operand alone must be in ``out``.
    """
    both = [i for i in a_labels if i in b_labels]
    batch = [i for i in out if i in both]
    summed = [i for i in both if i not in out]

    def axes(labels: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
        return tuple(labels.index(i) for i in wanted)

    made = DotGeneral(
        a,
        b,
        axes(a_labels, summed),
        axes(b_labels, summed),
        axes(a_labels, batch),
        axes(b_labels, batch),
    ).out
    order = [*batch, *(i for i in (*a_labels, *b_labels) if i not in both)]
    return made.transpose(axes(order, out))


def _free(v: Value, *used: Sequence[int]) -> list[int]:
    taken = {i for axes in used for i in axes}
    return [i for i in range(v.rank) if i not in taken]


def _size(v: Value, axes: Sequence[int]) -> Dim:
    """The number of elements along some axes."""
    return v.type.with_shape(v.shape[i] for i in axes).size


def _operations(size: Dim, inner: Dim) -> int:
    """Multiplications and additions; 0 while a dim is symbolic."""
    return 2 * size * inner if is_known(size) and is_known(inner) else 0

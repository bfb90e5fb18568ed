"""Triangular systems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factors
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value, bytes_of
from rlx.ops.indexing.index_modes import same_batch
from rlx.ops.linalg.common import (
    TYPES,
    below,
    blocks,
    check_matrices,
    each_matrix,
    no_result,
    tril,
)
from rlx.ops.movement.movement import listed
from rlx.types import TensorType, broadcast_shapes, check_one_type

__all__ = [
    "SINGULAR",
    "TriangularSolve",
    "batch_system",
    "check_pair",
    "check_system",
    "triangular",
    "with_matrices",
]

SINGULAR = (
    "the matrix is singular: an element of the diagonal of its triangle is 0; for a least squares"
    " solution multiply by rlx.linalg.pinv"
)


def check_system(op: Op, a: Value, b: Value, axis: int = -2) -> None:
    """The same for square matrices a."""
    check_matrices(op, a, square=True)
    check_pair(op, a, b, axis)


def check_pair(op: Op, a: Value, b: Value, axis: int) -> None:
    """ShapeError or DTypeError unless b has matrices whose ``axis`` is as long as those of a have
    rows."""
    m, _ = check_matrices(op, a)
    check_matrices(op, b)
    check_one_type(op.short, a.dtype, b.dtype)
    if a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(
            f"{op.short}: the batch axes of {listed(a.shape)} and {listed(b.shape)} differ"
        )
    if b.shape[axis] != m:
        what = "rows" if axis == -2 else "columns"
        raise ShapeError(
            f"{op.short}: matrices of {m} rows need a right-hand side of {m} {what}, found"
            f" {listed(b.shape)}"
        )


def batch_system(
    op: Op, operands: Sequence[Value], batched: Sequence[bool], axis: int = -1
) -> Value:
    """A system on operands with a new leading axis. Where all have one matrix it stays one: the
    right-hand sides join along ``axis``, the one that counts them."""
    if batched[0]:
        return op.with_operands(same_batch(operands, batched)).out
    a, b = operands
    at, count = b.rank + axis, b.shape[0]
    beside = b.transpose([*range(1, at), 0, *range(at, b.rank)])
    joined = [*beside.shape[: at - 1], count * b.shape[at], *beside.shape[at + 1 :]]
    out = op.with_operands([a, beside.reshape(joined)]).out
    apart = out.reshape([*out.shape[: at - 1], count, b.shape[at], *out.shape[at:]])
    return apart.transpose([at - 1, *range(at - 1), *range(at, b.rank)])


def with_matrices(
    a: Value, b: Value, solve: Callable[[Value, Value], Value], what: str, *, column: bool = True
) -> Value:
    """Call ``solve`` on matrices whose batch axes are the same, by broadcasting. b holds vectors if
    its rank is 1, or its shape that of a without the last axis (the rule of torch.linalg.solve)."""
    if a.rank < 2 or not b.rank:
        raise ShapeError(
            f"{what} takes matrices and a right-hand side, found {a.type} and {b.type}"
        )
    vector = b.rank == 1 or b.shape == a.shape[:-1]
    if vector:
        b = b.reshape((*b.shape, 1) if column else (*b.shape[:-1], 1, b.shape[-1]))
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (v if v.shape[:-2] == batch else v.expand((*batch, *v.shape[-2:])) for v in (a, b))
    out = solve(a, b)
    if not vector:
        return out
    return out.reshape(out.shape[:-1] if column else (*out.shape[:-2], out.shape[-1]))


def triangular(
    a: Value,
    b: Value,
    *,
    lower: bool = True,
    transpose: bool = False,
    unit_diagonal: bool = False,
    left_side: bool = True,
) -> Value:
    """The node, for the ops made of it: operands of equal batch axes."""
    return TriangularSolve(a, b, lower, transpose, unit_diagonal, left_side).out


class TriangularSolve(Op, name="mir.triangular_solve"):
    """The X with op(a) X = b, or with X op(a) = b, for triangular matrices a.

    op(a) is a or its transpose. Only the named triangle of a is read. An element 0 on its diagonal
    is a FaultError of the run; nan gives nan.
    """

    a: Value = operand("triangular matrices [..., n, n]")
    b: Value = operand("right-hand sides [..., n, k], or [..., k, n] if a stands on the right")
    lower: bool = attr(True, "the lower triangle of a; False: the upper one")
    transpose: bool = attr(False, "solve with the transpose of a")
    unit_diagonal: bool = attr(False, "take the diagonal as ones, and do not read it")
    left_side: bool = attr(True, "a X = b; False: X a = b")

    linear = ((1,),)
    dtypes = TYPES
    samples = (
        sample("3x3xT", "3x2xT", data={0: "dominant", 1: "nonzero"}),
        sample("2x4x4xT", "2x4x1xT", lower=False, data={0: "dominant", 1: "nonzero"}),
        sample(
            "3x3xT", "3x2xT", transpose=True, unit_diagonal=True, data={0: "unit", 1: "nonzero"}
        ),
        sample("3x3xT", "2x3xT", left_side=False, lower=False, data={0: "dominant", 1: "nonzero"}),
        sample(
            "3x3xT", "2x3xT", left_side=False, transpose=True, data={0: "dominant", 1: "nonzero"}
        ),
        sample("0x0xT", "0x2xT"),
    )
    bads = (
        bad("2x3xf32", "2x2xf32", match="square matrices", error=ShapeError),
        bad("2x2xf32", "3x2xf32", match="right-hand side of 2 rows", error=ShapeError),
        bad("2x2xf32", "2x3xf32", match="right-hand side of 2 columns", error=ShapeError,
            left_side=False),
        bad("4x2x2xf32", "3x2x2xf32", match="batch axes", error=ShapeError),
        bad("2x2xf32", "2x2xf64", match="one type", error=DTypeError),
        bad("2x2xbf16", "2x2xbf16", match="16 bits are too few", error=DTypeError),
    )  # fmt: skip

    @classmethod
    def build(
        cls,
        a: Value,
        b: Value,
        lower: bool = True,
        transpose: bool = False,
        unit_diagonal: bool = False,
        left_side: bool = True,
    ) -> Value:
        """A right-hand side with one axis less than a holds vectors; batch axes broadcast."""

        def solve(a: Value, b: Value) -> Value:
            return cls(a, b, lower, transpose, unit_diagonal, left_side).out

        return with_matrices(a, b, solve, "triangular_solve", column=left_side)

    def infer(self) -> TensorType:
        check_system(self, self.a, self.b, -2 if self.left_side else -1)
        return self.b.type

    def cost(self) -> Cost:
        """n² operations for each column of the result."""
        size, n = self.out.type.size, self.a.shape[-1]
        flops = size * n if is_known(size) and is_known(n) else 0
        return Cost(flops, bytes_of([self.a, self.b, self.out]))

    def reference(self, a: Array, b: Array) -> Array:
        def solve(a: Array, b: Array) -> tuple[Array]:
            a = np.tril(a) if self.lower else np.triu(a)
            if self.unit_diagonal:
                np.fill_diagonal(a, 1.0)
            elif (np.diagonal(a) == 0).any():
                raise no_result(self, SINGULAR)
            a = a.T if self.transpose else a
            return (np.linalg.solve(a, b) if self.left_side else np.linalg.solve(a.T, b.T).T,)

        return each_matrix(self, solve, a, b)[0]

    def loops(self, b: Any) -> None:
        """By blocks of rows of the solution: what is known is taken off at once, as a product."""
        *batch, n, _ = self.a.type.static_shape
        rhs = self.b.type.static_shape
        columns = rhs[-1] if self.left_side else rhs[-2]
        width = blocks(n, self.a.dtype)
        turned = self.transpose == self.left_side
        forward = self.lower != turned

        def system(*at: Any) -> None:
            k, x = b.k, b.work(n, columns, self.a.dtype)
            given, result = b.matrix(1, at), b.result_matrix(0, at)
            t = b.matrix(0, at).T if turned else b.matrix(0, at)
            x.load(given if self.left_side else given.T, n, columns)

            def row(i: Any, known: tuple[Any, Any]) -> None:
                x.subtract_product(t, x, (i, i + 1), (0, columns), known, tall=False)
                if self.unit_diagonal:
                    return
                pivot = t.get(i, i)
                b.fault(k.compare("eq", pivot, 0.0), SINGULAR)
                x.span(0, columns, lambda j: x.put(i, j, x.vec(i, j) / pivot))

            def block(start: Any) -> None:
                if not forward:
                    start = (n - 1) // width * width - start
                end = k.minimum(start + width, k.index(n))
                if n > width:
                    known = (0, start) if forward else (end, n)
                    x.subtract_product(t, x, (start, end), (0, columns), known)

                def one(r: Any) -> None:
                    i = start + r if forward else end - 1 - r
                    row(i, (start, i) if forward else (i + 1, end))

                k.loop(0, end - start, 1, one)

            k.loop(0, n, width, block)
            saved = x if self.left_side else x.T
            saved.save(result, rhs[-2], rhs[-1])

        b.parallel(batch, system)

    def factors(self) -> Factors:
        lead = list(range(self.a.rank - 2))
        sides = [None, "columns"] if self.left_side else ["rows", None]
        return Factors(self, [[*lead, None, None], [*lead, *sides]], [[*lead, *sides]])

    def vjp(self, g: Value) -> tuple[Value, Value]:
        """gb = op(a)⁻ᵀ g, ga = -gb Xᵀ within the triangle (Giles 2008)."""
        gb = self._with(self.a, g, transpose=not self.transpose)
        ga = gb @ self.out.mT if self.left_side else self.out.mT @ gb
        return self._triangle(-(ga.mT if self.transpose else ga)), gb

    def jvp(self, ta: Value | None, tb: Value | None) -> Value:
        if ta is None:
            assert tb is not None
            return self._with(self.a, tb)
        moved = self._triangle(ta)
        moved = moved.mT if self.transpose else moved
        rest = -(moved @ self.out if self.left_side else self.out @ moved)
        return self._with(self.a, rest if tb is None else tb + rest)

    def _with(self, a: Value, b: Value, **attrs: bool) -> Value:
        return self.with_operands([a, b], **attrs).out

    def _triangle(self, a: Value) -> Value:
        """The part of a matrix in the shape of a that is read."""
        take = below if self.unit_diagonal else tril
        return take(a) if self.lower else take(a.mT).mT

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return batch_system(self, operands, batched, -1 if self.left_side else -2)

"""Common parts of the ops of linear algebra: checks, masks of triangles, diagonals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from rlx.base.dims import minimum
from rlx.errors import DTypeError, FaultError, ShapeError
from rlx.ir.factors import Factors
from rlx.ir.lift import lift
from rlx.ir.op import Array, Op
from rlx.ir.value import Value
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.movement import listed
from rlx.types import Dim, DType, Shape, bool_, f32, f64, i32

__all__ = [
    "BLOCK",
    "TYPES",
    "LinearAlgebra",
    "as_rows",
    "below",
    "blocks",
    "check_matrices",
    "columns_times",
    "diagonal",
    "each_matrix",
    "embedded",
    "eye",
    "inverse_differences",
    "least",
    "mirrored",
    "no_result",
    "on_diagonal",
    "symmetric",
    "tril",
    "triu",
]

TYPES: tuple[DType, ...] = (f32, f64)

BLOCK = 32
"""Columns of a panel: a factorization works on one at a time, then updates the rest at once."""


def check_matrices(op: Op, x: Value, *, square: bool = False) -> tuple[Dim, Dim]:
    """Rows and columns of an operand; DTypeError or ShapeError if it holds no such matrices."""
    if x.dtype not in TYPES:
        why = ": 16 bits are too few for it" if x.dtype.is_float else ""
        raise DTypeError(
            f'{op.short} takes f32 or f64, found {x.dtype}{why}; cast it first: x.cast(to="f32")'
        )
    if x.rank < 2:
        raise ShapeError(f"{op.short} takes matrices: rank 2 or more, found {listed(x.shape)}")
    m, n = x.shape[-2:]
    if square and m != n:
        raise ShapeError(f"{op.short} takes square matrices, found {m} rows and {n} columns")
    return m, n


def least(op: Op, m: Dim, n: Dim) -> Dim:
    """The smaller side of a matrix."""
    return minimum(m, n)


class LinearAlgebra(Op):
    """An op of one operand whose leading axes are batch axes."""

    dtypes: ClassVar[tuple[DType, ...]] = TYPES

    def factors(self: Any) -> Factors:
        batch = list(range(self.x.rank - 2))
        behind = [[*batch, *[None] * (r.rank - len(batch))] for r in self.results]
        return Factors(self, [[*batch, None, None]], behind)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Any:
        node = self.with_operands(operands)
        return node.results if len(node.results) > 1 else node.out


def each_matrix(op: Op, f: Callable[..., tuple[Array, ...]], *operands: Array) -> tuple[Array, ...]:
    """The reference of an op: ``f`` in f64 on every matrix. nan in a matrix makes all of its
    floating-point results nan; ``f`` is then called on zeros with a unit diagonal."""
    outs = [np.empty(v.type.static_shape, v.dtype.numpy) for v in op.results]
    batch = operands[0].shape[:-2]
    for at in np.ndindex(batch):
        own = [x[at].astype(np.float64) for x in operands]
        bad = not all(np.isfinite(x).all() for x in own)
        own = [np.eye(*x.shape) for x in own] if bad else own
        for out, found in zip(outs, f(*own), strict=True):
            out[at] = np.nan if bad and out.dtype.kind == "f" else found
    return tuple(outs)


def blocks(n: int, dt: DType) -> int:
    """The width of panels of a matrix of n columns: whole vectors."""
    line = 64 // dt.bytes
    return min(BLOCK, max(1, -(-n // line)) * line)


# -- triangles and diagonals -----------------------------------------------------------------


def _places(m: Dim, n: Dim) -> tuple[Value, Value]:
    shape: Shape = (m, n)
    return Iota(shape, 0, i32).out, Iota(shape, 1, i32).out


def _kept(x: Value, mask: Value) -> Value:
    return mask.where(x, lift(0.0, x))


def tril(x: Value) -> Value:
    """The elements on and below the diagonal; the others are 0."""
    row, column = _places(*x.shape[-2:])
    return _kept(x, row.ge(column))


def below(x: Value) -> Value:
    """The elements below the diagonal."""
    row, column = _places(*x.shape[-2:])
    return _kept(x, row.gt(column))


def triu(x: Value) -> Value:
    """The elements on and above the diagonal."""
    row, column = _places(*x.shape[-2:])
    return _kept(x, row.le(column))


def on_diagonal(x: Value) -> Value:
    """The elements on the diagonal."""
    row, column = _places(*x.shape[-2:])
    return _kept(x, row.eq(column))


def diagonal(x: Value) -> Value:
    """The diagonals of square matrices as vectors."""
    return on_diagonal(x).sum(axes=-1)


def embedded(v: Value) -> Value:
    """Diagonal matrices of vectors."""
    return eye(v.shape[-1], v.dtype) * as_rows(v)


def as_rows(v: Value) -> Value:
    """Vectors as matrices of one row."""
    return v.reshape((*v.shape[:-1], 1, v.shape[-1]))


def columns_times(x: Value, v: Value) -> Value:
    """Each column of matrices times its element of vectors."""
    return x * as_rows(v)


def inverse_differences(w: Value) -> Value:
    """1 / (w_j - w_i), and 0 on the diagonal."""
    same = eye(w.shape[-1], w.dtype)
    apart = as_rows(w) - w.reshape((*w.shape, 1))
    # The diagonal divides by 1: an infinity there would come back in derivatives of this.
    return same.cast(to=bool_).where(lift(0.0, w), 1.0 / (apart + same))


def eye(n: Dim, dt: DType) -> Value:
    """The identity matrix."""
    row, column = _places(n, n)
    return row.eq(column).cast(to=dt)


def mirrored(x: Value) -> Value:
    """The symmetric matrix whose lower triangle is that of x."""
    return tril(x) + below(x).mT


def symmetric(g: Value) -> Value:
    """The cotangent of a lower triangle from that of the symmetric matrix it stands for."""
    return tril(g) + below(g.mT)


def no_result(op: Op, message: str) -> FaultError:
    """The fault of data for which an op has no result."""
    return FaultError(message, op.location)

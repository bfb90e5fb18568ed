"""Composites of the LU factorization: systems, inverses, determinants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factors
from rlx.ir.lift import lift
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value, bytes_of
from rlx.ops.linalg.common import (
    TYPES,
    LinearAlgebra,
    check_matrices,
    diagonal,
    each_matrix,
    eye,
    no_result,
)
from rlx.ops.linalg.lu import Lu, inverse_permutation, permuted
from rlx.ops.linalg.triangular import (
    SINGULAR,
    batch_system,
    check_system,
    triangular,
    with_matrices,
)
from rlx.ops.movement.constant import Iota
from rlx.types import TensorType, i32

__all__ = ["Det", "Inv", "Slogdet", "Solve"]


class Solve(Op, name="mir.solve"):
    """The X with a X = b, for square matrices a: LU with partial pivoting, two triangular systems.

    A singular matrix, whose elimination meets a column of zeros, is a FaultError of the run; nan
    gives nan. Derivatives: Giles 2008, "Collected matrix derivative results".
    """

    a: Value = operand("square matrices [..., n, n]")
    b: Value = operand("right-hand sides [..., n, k]")
    transpose: bool = attr(False, "solve with the transpose of a")

    linear = ((1,),)
    dtypes = TYPES
    samples = (
        sample("3x3xT", "3x2xT", data={0: "dominant", 1: "nonzero"}),
        sample("2x3x3xT", "2x3x1xT", transpose=True, data={0: "dominant", 1: "nonzero"}),
        sample("1x1xT", "1x2xT", data={0: "dominant", 1: "nonzero"}),
        sample("0x0xT", "0x2xT"),
    )
    bads = (
        bad("2x3xf32", "2x2xf32", match="square matrices", error=ShapeError),
        bad("2x2xf32", "3x2xf32", match="right-hand side of 2 rows", error=ShapeError),
        bad("4x2x2xf32", "3x2x2xf32", match="batch axes", error=ShapeError),
        bad("2x2xf32", "2x2xf64", match="one type", error=DTypeError),
        bad("2x2xf16", "2x2xf16", match="16 bits are too few", error=DTypeError),
    )

    @classmethod
    def build(cls, a: Value, b: Value, transpose: bool = False) -> Value:
        """A right-hand side of rank 1, or of the shape of a without its last axis, holds vectors;
        batch axes broadcast."""
        return with_matrices(a, b, lambda a, b: cls(a, b, transpose).out, "solve")

    def infer(self) -> TensorType:
        check_system(self, self.a, self.b)
        return self.b.type

    def cost(self) -> Cost:
        """2 n³ / 3 operations a matrix, and 2 n² a column of the result."""
        size, n, sides = self.a.type.size, self.a.shape[-1], self.b.type.size
        flops = 0
        if is_known(size) and is_known(n) and is_known(sides):
            flops = 2 * size * n // 3 + 2 * n * sides
        return Cost(flops, bytes_of([self.a, self.b, self.out]))

    def expand(self) -> Value:
        lu, _, order = Lu(self.a).results
        if not self.transpose:
            y = triangular(lu, permuted(self.b, order), unit_diagonal=True)
            return triangular(lu, y, lower=False)
        y = triangular(lu, self.b, lower=False, transpose=True)
        x = triangular(lu, y, transpose=True, unit_diagonal=True)
        return permuted(x, inverse_permutation(order))

    def reference(self, a: Array, b: Array) -> Array:
        def solve(a: Array, b: Array) -> tuple[Array]:
            try:
                return (np.linalg.solve(a.T if self.transpose else a, b),)
            except np.linalg.LinAlgError:
                raise no_result(self, SINGULAR) from None

        return each_matrix(self, solve, a, b)[0]

    def factors(self) -> Factors:
        lead = list(range(self.a.rank - 2))
        b = [*lead, None, "columns"]
        return Factors(self, [[*lead, None, None], b], [b])

    def vjp(self, g: Value) -> tuple[Value, Value]:
        """gb = a⁻ᵀ g, ga = -gb Xᵀ."""
        gb = self.with_operands([self.a, g], transpose=not self.transpose).out
        ga = -(gb @ self.out.mT)
        return ga.mT if self.transpose else ga, gb

    def jvp(self, ta: Value | None, tb: Value | None) -> Value:
        """a⁻¹ (tb - ta X)."""
        rest = tb
        if ta is not None:
            moved = (ta.mT if self.transpose else ta) @ self.out
            rest = -moved if tb is None else tb - moved
        assert rest is not None
        return self.with_operands([self.a, rest]).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return batch_system(self, operands, batched)


class Inv(LinearAlgebra, name="mir.inv"):
    """The inverse of square matrices. Multiply by it seldom: solve is faster and more accurate.

    A singular matrix is a FaultError of the run; nan gives nan.
    """

    x: Value = operand("square matrices [..., n, n]")

    samples = (sample("3x3xT", data={0: "dominant"}), sample("2x2x2xT", data={0: "dominant"}))
    bads = (
        bad("2x3xf32", match="square matrices", error=ShapeError),
        bad("2x2xf16", match="16 bits are too few", error=DTypeError),
    )

    def infer(self) -> TensorType:
        check_matrices(self, self.x, square=True)
        return self.x.type

    def expand(self) -> Value:
        one = eye(self.x.shape[-1], self.x.dtype)
        return Solve(self.x, one.expand(self.x.shape), False).out

    def reference(self, x: Array) -> Array:
        def invert(a: Array) -> tuple[Array]:
            try:
                return (np.linalg.inv(a),)
            except np.linalg.LinAlgError:
                raise no_result(self, SINGULAR) from None

        return each_matrix(self, invert, x)[0]

    def vjp(self, g: Value) -> tuple[Value]:
        """-yᵀ g yᵀ for the inverse y."""
        return (-(self.out.mT @ g @ self.out.mT),)

    def jvp(self, t: Value) -> Value:
        """-y t y."""
        return -(self.out @ t @ self.out)


def _swaps_sign(pivots: Value, like: Value) -> Value:
    """1 or -1 for an even or odd number of row exchanges."""
    own = Iota(pivots.shape, pivots.rank - 1, i32).out
    signs = own.eq(pivots).where(lift(1.0, like), lift(-1.0, like))
    return signs.prod(axes=-1)


class Det(LinearAlgebra, name="mir.det"):
    """The determinant of square matrices, from the LU factorization; 0 of a singular matrix.

    It overflows soon: slogdet does not. The gradient needs the inverse, and so is a FaultError of
    the run where the matrix is singular.
    """

    x: Value = operand("square matrices [..., n, n]")

    samples = (sample("3x3xT", data={0: "dominant"}), sample("2x2x2xT", data={0: "dominant"}),
               sample("0x0xT"))  # fmt: skip
    bads = (
        bad("2x3xf32", match="square matrices", error=ShapeError),
        bad("2x2xf16", match="16 bits are too few", error=DTypeError),
    )

    def infer(self) -> TensorType:
        check_matrices(self, self.x, square=True)
        return self.x.type.with_shape(self.x.shape[:-2])

    def expand(self) -> Value:
        lu, pivots, _ = Lu(self.x).results
        return diagonal(lu).prod(axes=-1) * _swaps_sign(pivots, lu)

    def reference(self, x: Array) -> Array:
        return each_matrix(self, lambda a: (np.linalg.det(a),), x)[0]

    def vjp(self, g: Value) -> tuple[Value]:
        """g det x⁻ᵀ."""
        return (Inv(self.x).out.mT * _scalars(g * self.out),)

    def jvp(self, t: Value) -> Value:
        """det trace(x⁻¹ t)."""
        return self.out * diagonal(Solve(self.x, t, False).out).sum(axes=-1)


class Slogdet(LinearAlgebra, name="mir.slogdet"):
    """Sign and logarithm of the absolute value of the determinant, as ``numpy.linalg.slogdet``.

    A singular matrix has sign 0 and logarithm -inf; its gradient is a FaultError of the run.
    """

    x: Value = operand("square matrices [..., n, n]")

    result_count: ClassVar[int] = 2
    samples = (sample("3x3xT", data={0: "dominant"}), sample("2x2x2xT", data={0: "dominant"}),
               sample("0x0xT"))  # fmt: skip
    bads = (
        bad("2x3xf32", match="square matrices", error=ShapeError),
        bad("2x2xf16", match="16 bits are too few", error=DTypeError),
    )

    def infer(self) -> tuple[TensorType, TensorType]:
        check_matrices(self, self.x, square=True)
        t = self.x.type.with_shape(self.x.shape[:-2])
        return t, t

    def expand(self) -> tuple[Value, Value]:
        lu, pivots, _ = Lu(self.x).results
        d = diagonal(lu)
        return d.sign().prod(axes=-1) * _swaps_sign(pivots, lu), d.abs().log().sum(axes=-1)

    def reference(self, x: Array) -> tuple[Array, ...]:
        return each_matrix(self, lambda a: tuple(np.linalg.slogdet(a)), x)

    def vjp(self, gs: Value | None, g: Value | None) -> tuple[Value | None]:
        """g x⁻ᵀ; the sign is constant."""
        return (None if g is None else Inv(self.x).out.mT * _scalars(g),)

    def jvp(self, t: Value) -> tuple[None, Value]:
        """trace(x⁻¹ t)."""
        return None, diagonal(Solve(self.x, t, False).out).sum(axes=-1)


def _scalars(g: Value) -> Value:
    """Numbers of matrices, to be multiplied with them."""
    return g.reshape((*g.shape, 1, 1))

"""Composites of the singular value decomposition: pseudo-inverses and least squares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.factors import Factors
from rlx.ir.lift import lift
from rlx.ir.op import Array, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.linalg.common import (
    TYPES,
    LinearAlgebra,
    check_matrices,
    columns_times,
    each_matrix,
    least,
)
from rlx.ops.linalg.svd import Svd
from rlx.ops.linalg.triangular import batch_system, check_pair, with_matrices
from rlx.types import TensorType

__all__ = ["Lstsq", "Pinv"]


def _default(x: Value, rtol: float | None) -> float:
    """The cutoff of NumPy: max(m, n) times the machine precision."""
    if rtol is not None:
        return float(rtol)
    if x.rank < 2 or x.dtype not in TYPES:
        return 0.0  # refused by the op
    m, n = x.shape[-2:]
    if not (is_known(m) and is_known(n)):
        raise ShapeError(f"the default rtol depends on the dims {m} and {n}: bind them, or give it")
    return max(m, n) * float(np.finfo(x.dtype.numpy).eps)


def _check(op: Pinv | Lstsq, x: Value) -> None:
    least(op, *check_matrices(op, x))
    if op.rtol < 0:
        raise GraphError(f"{op.short}: rtol is a part of the largest singular value, not negative;"
                         f" found {op.rtol}")  # fmt: skip


def _parts(x: Value, rtol: float) -> tuple[Value, Value, Value]:
    """u, v and the inverses of the singular values, 0 for those that count as 0."""
    u, s, vt = Svd(x, False).results
    top = s.max(axes=-1, keepdims=True) if s.shape[-1] != 0 else s
    kept = s.gt(top * rtol)
    return u, vt.mT, kept.where(1.0 / kept.where(s, lift(1.0, s)), lift(0.0, s))


class Pinv(LinearAlgebra, name="mir.pinv"):
    """The Moore-Penrose inverse of matrices, from the singular value decomposition.

    Derivatives are those at constant rank: Golub and Pereyra 1973, "The differentiation of
    pseudo-inverses and nonlinear least squares problems whose variables separate".
    """

    x: Value = operand("matrices [..., m, n]")
    rtol: float = attr(doc="singular values of at most this part of the largest one count as 0")

    samples = (
        sample("2x4x2xT", data={0: "dominant"}, rtol=1e-6),
        sample("2x3xT", data={0: "dominant"}, rtol=1e-6),
    )
    bads = (
        bad("3xf32", match="rank 2 or more", error=ShapeError, rtol=0.0),
        bad("2x2xf16", match="16 bits are too few", error=DTypeError, rtol=0.0),
        bad("2x2xf32", match="not negative", error=GraphError, rtol=-1.0),
    )

    @classmethod
    def build(cls, x: Value, rtol: float | None = None) -> Value:
        """By default rtol is max(m, n) times the machine precision, as in NumPy."""
        return cls(x, _default(x, rtol)).out

    def infer(self) -> TensorType:
        _check(self, self.x)
        m, n = self.x.shape[-2:]
        return self.x.type.with_shape((*self.x.shape[:-2], n, m))

    def expand(self) -> Value:
        u, v, inverse = _parts(self.x, self.rtol)
        return columns_times(v, inverse) @ u.mT

    def reference(self, x: Array) -> Array:
        return each_matrix(self, lambda a: (np.linalg.pinv(a, rcond=self.rtol),), x)[0]

    def vjp(self, g: Value) -> tuple[Value]:
        """-pᵀ g pᵀ + (1 - x p) gᵀ p pᵀ + pᵀ p gᵀ (1 - p x)."""
        return (_cotangent(self.x, self.out, g),)

    def jvp(self, t: Value) -> Value:
        """-p t p + p pᵀ tᵀ (1 - x p) + (1 - p x) tᵀ pᵀ p."""
        p = self.out
        left, right = p @ p.mT @ t.mT, t.mT @ p.mT @ p
        return (left - left @ self.x @ p) + (right - p @ (self.x @ right)) - p @ t @ p


def _cotangent(x: Value, p: Value, g: Value) -> Value:
    left, right = g.mT @ p @ p.mT, p.mT @ p @ g.mT
    return (left - x @ (p @ left)) + (right - right @ p @ x) - p.mT @ g @ p.mT


class Lstsq(Op, name="mir.lstsq"):
    """The least squares solutions of a X = b: of those with the least residual the shortest.

    From the singular value decomposition, so that matrices of any rank have one, as in NumPy.
    Derivatives are those at constant rank.
    """

    a: Value = operand("matrices [..., m, n]")
    b: Value = operand("right-hand sides [..., m, k]")
    rtol: float = attr(doc="singular values of at most this part of the largest one count as 0")

    linear = ((1,),)
    dtypes = TYPES
    samples = (
        sample("4x2xT", "4x2xT", data={0: "dominant", 1: "nonzero"}, rtol=1e-6),
        sample("2x2x3xT", "2x2x1xT", data={0: "dominant", 1: "nonzero"}, rtol=1e-6),
    )
    bads = (
        bad("3x2xf32", "2x2xf32", match="right-hand side of 3 rows", error=ShapeError, rtol=0.0),
        bad("3xf32", "3x2xf32", match="rank 2 or more", error=ShapeError, rtol=0.0),
        bad("2x2xf32", "2x2xf64", match="one type", error=DTypeError, rtol=0.0),
        bad("2x2xf32", "2x2xf32", match="not negative", error=GraphError, rtol=-1.0),
    )

    @classmethod
    def build(cls, a: Value, b: Value, rtol: float | None = None) -> Value:
        """By default rtol is max(m, n) times the machine precision. A right-hand side of rank 1, or
        of the shape of a without its last axis, holds vectors; batch axes broadcast."""
        cutoff = _default(a, rtol)
        return with_matrices(a, b, lambda a, b: cls(a, b, cutoff).out, "lstsq")

    def infer(self) -> TensorType:
        _check(self, self.a)
        check_pair(self, self.a, self.b, -2)
        return self.b.type.with_shape((*self.b.shape[:-2], self.a.shape[-1], self.b.shape[-1]))

    def expand(self) -> Value:
        u, v, inverse = _parts(self.a, self.rtol)
        return columns_times(v, inverse) @ (u.mT @ self.b)

    def reference(self, a: Array, b: Array) -> Array:
        def solve(a: Array, b: Array) -> tuple[Array]:
            return (np.linalg.pinv(a, rcond=self.rtol) @ b,)

        return each_matrix(self, solve, a, b)[0]

    def factors(self) -> Factors:
        lead = list(range(self.a.rank - 2))
        b = [*lead, None, "columns"]
        return Factors(self, [[*lead, None, None], b], [b])

    def vjp(self, g: Value) -> tuple[Value, Value]:
        """Those of pinv(a) b."""
        p = Pinv(self.a, self.rtol).out
        return _cotangent(self.a, p, g @ self.b.mT), p.mT @ g

    def jvp(self, ta: Value | None, tb: Value | None) -> Value:
        """Those of pinv(a) b."""
        node = Pinv(self.a, self.rtol)
        parts = [] if ta is None else [node.jvp(ta) @ self.b]
        parts += [] if tb is None else [node.out @ tb]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return batch_system(self, operands, batched)

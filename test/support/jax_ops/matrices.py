"""Products of matrices, and linear algebra.

Signs that are a convention (of eigenvectors and singular vectors) are pinned as the ops say.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from support.jax_ops.peer import Table, jnp, lax

__all__ = ["OPS"]


def _dot_general(n: Any, a: Any, b: Any) -> Any:
    summed, shared = (n.lhs_contracting, n.rhs_contracting), (n.lhs_batch, n.rhs_batch)
    return lax.dot_general(a, b, (summed, shared))


def _det(n: Any, x: Any) -> Any:
    # JAX does not differentiate that of an empty matrix.
    return jnp.linalg.det(x) if x.shape[-1] else jnp.ones(x.shape[:-2])


def _of_lower(x: Any) -> Any:
    """The symmetric matrix of a lower triangle."""
    return jnp.tril(x) + jnp.tril(x, -1).mT


def _signs(columns: Any) -> Any:
    """What makes the first of the largest components of each column positive."""
    if not columns.shape[-2]:
        return jnp.ones((*columns.shape[:-2], 1, columns.shape[-1]))
    place = jnp.argmax(jnp.abs(columns), -2, keepdims=True)
    return jnp.sign(jnp.take_along_axis(columns, place, -2))


def _eigh(n: Any, x: Any) -> Any:
    w, v = jnp.linalg.eigh(_of_lower(x))
    return w, v * _signs(v)


def _svd(n: Any, x: Any) -> Any:
    u, s, vt = jnp.linalg.svd(x, full_matrices=n.full_matrices)
    k = s.shape[-1]
    if not k:
        return u, s, vt
    su = _signs(u)
    # Rows that full matrices add stand by themselves.
    sv = jnp.concatenate([su[..., :k], _signs(vt[..., k:, :].mT)], -1) if vt.shape[-2] > k else su
    return u * su, s, vt * sv[..., : vt.shape[-2]].mT


def _lu(n: Any, x: Any) -> Any:
    lu, pivots, permutation = lax.linalg.lu(x)
    return lu, pivots.astype(np.int32), permutation.astype(np.int32)


def _triangular_solve(n: Any, a: Any, b: Any) -> Any:
    return lax.linalg.triangular_solve(
        a, b, left_side=n.left_side, lower=n.lower, transpose_a=n.transpose,
        unit_diagonal=n.unit_diagonal,
    )  # fmt: skip


OPS: Table = {
    "mir.dot_general": _dot_general,
    "mir.matmul": lambda n, a, b: jnp.matmul(a, b),
    "mir.cholesky": lambda n, x: jnp.linalg.cholesky(_of_lower(x)),
    "mir.det": _det,
    "mir.eigh": _eigh,
    "mir.eigvalsh": lambda n, x: jnp.linalg.eigvalsh(_of_lower(x)),
    "mir.inv": lambda n, x: jnp.linalg.inv(x),
    "mir.lstsq": lambda n, a, b: jnp.linalg.pinv(a, rtol=n.rtol) @ b,
    "mir.lu": _lu,
    "mir.pinv": lambda n, x: jnp.linalg.pinv(x, rtol=n.rtol),
    "mir.qr": lambda n, x: lax.linalg.qr(x, full_matrices=n.complete),
    "mir.slogdet": lambda n, x: tuple(jnp.linalg.slogdet(x)),
    "mir.solve": lambda n, a, b: jnp.linalg.solve(a.mT if n.transpose else a, b),
    "mir.svd": _svd,
    "mir.svdvals": lambda n, x: jnp.linalg.svd(x, compute_uv=False),
    "mir.triangular_solve": _triangular_solve,
}

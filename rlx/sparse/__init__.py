"""Sparse matrices in compressed rows (CSR): products, direct and iterative solvers.

    a = rlx.sparse.CSR(data, indices, indptr, (rows, cols))
    y = rlx.sparse.matmul(a, x)

All ops here are declared from outside, as anybody could declare them. Values are floats of
32 or 64 bits; the pattern is of i64, may have entries of a row in any order and several at one
place, which count as their sum, unless a function says otherwise. An entry outside the matrix is a
fault of the run.
"""

from __future__ import annotations

from rlx.sparse.csr import CSR, diagonal, from_dense, matmul, spgemm, to_dense, transpose
from rlx.sparse.solvers import (
    bicgstab,
    cg,
    cholesky,
    cholesky_solve,
    gmres,
    ilu_pcg,
    lsqr,
    lu_solve,
    pcg,
    values_grad,
)
from rlx.sparse.tensor import SparseTensor, csr_transpose_pattern

__all__ = [
    "CSR",
    "SparseTensor",
    "bicgstab",
    "cg",
    "cholesky",
    "cholesky_solve",
    "csr_transpose_pattern",
    "diagonal",
    "from_dense",
    "gmres",
    "ilu_pcg",
    "lsqr",
    "lu_solve",
    "matmul",
    "pcg",
    "spgemm",
    "to_dense",
    "transpose",
    "values_grad",
]

"""A sparse matrix as an object, with what it does as methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError, a_type
from rlx.ir.attrs import to_array
from rlx.ir.builders import located, public
from rlx.ir.op import Array
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.sparse import solvers
from rlx.sparse.csr import CSR, check_pattern, from_dense, matmul, spgemm, to_dense, transpose

__all__ = ["SparseTensor", "csr_transpose_pattern"]


def _pattern(v: Any, what: str) -> Value:
    if isinstance(v, Value):
        return v
    array = to_array(v, what)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DTypeError(f"{what} is {array.dtype}{list(array.shape)}, expected a vector of ints")
    return Constant(array.astype(np.int64)).out


@public
class SparseTensor:
    """A CSR matrix whose methods are the functions of ``rlx.sparse``.

        a = rlx.sparse.SparseTensor.from_csr(values, col_idx, row_ptr, n)
        x = a.solve(b)

    Solvers that end at a tolerance give x alone; ``rlx.sparse.cg(a.csr, b)`` gives the rounds too.
    """

    def __init__(self, csr: CSR) -> None:
        if not isinstance(csr, CSR):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DTypeError(f"SparseTensor takes a sparse.CSR, found {a_type(csr)}")
        self.csr = csr

    @classmethod
    def from_csr(
        cls, values: Any, col_idx: Any, row_ptr: Any, n: int, cols: int | None = None
    ) -> SparseTensor:
        """A matrix of n rows and ``cols`` columns (n, unless given). Values and patterns are Values
        of a graph or arrays; a pattern of arrays is checked here, ShapeError if it is wrong."""
        width = n if cols is None else cols
        indices, indptr = _pattern(col_idx, "col_idx"), _pattern(row_ptr, "row_ptr")
        if isinstance(indices.op, Constant) and isinstance(indptr.op, Constant):
            check_pattern(
                indices.op.value, indptr.op.value, n, width, "SparseTensor.from_csr"
            )  # fmt: skip
        data = values if isinstance(values, Value) else Constant(to_array(values, "values")).out
        if data.shape != indices.shape:
            raise ShapeError(f"SparseTensor.from_csr: values are {data.type}, expected"
                             f" {list(indices.shape)}")  # fmt: skip
        return cls(CSR(data, indices, indptr, (n, width)))

    @classmethod
    def from_dense(cls, a: Any) -> SparseTensor:
        """The entries of a NumPy matrix that are not 0, as constants."""
        dense = to_array(a, "from_dense")
        data, indices, indptr = from_dense(dense)
        return cls.from_csr(data, indices, indptr, *dense.shape)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.csr.shape

    @property
    def values(self) -> Value:
        """The entries."""
        return self.csr.data

    def __repr__(self) -> str:
        rows, cols = self.shape
        return f"<SparseTensor {rows} x {cols}, {self.values.type} entries>"

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, SparseTensor):
            return SparseTensor(spgemm(self.csr, other.csr))
        return matmul(self.csr, other)

    def mat_vec(self, x: Value) -> Value:
        """The product with a vector or a matrix."""
        return matmul(self.csr, x)

    def to_dense(self) -> Value:
        """The matrix as a dense one."""
        return to_dense(self.csr)

    def transpose(self) -> SparseTensor:
        """The transposed matrix."""
        return SparseTensor(transpose(self.csr))

    def transpose_values(self) -> Value:
        """The entries in the order of the transposed matrix."""
        return transpose(self.csr).data

    def solve(self, b: Value, *, method: str = "dense") -> Value:
        """``lu_solve``, of any square matrix."""
        return solvers.lu_solve(self.csr, b, method=method)

    solve_general = solve
    """The original's name for what takes any matrix; ``solve`` does here."""

    def cholesky_solve(self, b: Value) -> Value:
        """``cholesky_solve``."""
        return solvers.cholesky_solve(self.csr, b)

    def cg_solve(self, b: Value, *, tol: float = 1e-5, limit: int | None = None) -> Value:
        """The x of ``cg``."""
        return solvers.cg(self.csr, b, tol=tol, limit=limit)[0]

    def pcg_solve(self, b: Value, *, tol: float = 1e-5, limit: int | None = None) -> Value:
        """The x of ``pcg``."""
        return solvers.pcg(self.csr, b, tol=tol, limit=limit)[0]

    def ilu_pcg_solve(self, b: Value, *, tol: float = 1e-5, limit: int | None = None) -> Value:
        """The x of ``ilu_pcg``."""
        return solvers.ilu_pcg(self.csr, b, tol=tol, limit=limit)[0]

    def bicgstab_solve(self, b: Value, *, tol: float = 1e-5, limit: int | None = None) -> Value:
        """The x of ``bicgstab``."""
        return solvers.bicgstab(self.csr, b, tol=tol, limit=limit)[0]

    def gmres_solve(
        self, b: Value, *, tol: float = 1e-5, limit: int | None = None, restart: int = 30
    ) -> Value:
        """The x of ``gmres``."""
        return solvers.gmres(self.csr, b, tol=tol, limit=limit, restart=restart)[0]

    def lsqr_solve(self, b: Value, *, tol: float = 1e-8, limit: int | None = None) -> Value:
        """The x of ``lsqr``."""
        return solvers.lsqr(self.csr, b, tol=tol, limit=limit)[0]


@located
def csr_transpose_pattern(col_idx: Any, row_ptr: Any, cols: int) -> tuple[Array, Array, Array]:
    """Of arrays: the columns and row bounds of the transposed pattern, and the order in which the
    values go into it (``values[order]``)."""
    indices = to_array(col_idx, "col_idx")
    indptr = to_array(row_ptr, "row_ptr")
    check_pattern(indices, indptr, max(indptr.size - 1, 0), cols, "csr_transpose_pattern")
    order = np.argsort(indices, kind="stable")
    rows = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    bounds = np.searchsorted(indices[order], np.arange(cols + 1))
    return rows[order].astype(np.int64), bounds.astype(np.int64), order

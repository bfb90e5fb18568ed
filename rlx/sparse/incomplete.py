"""Incomplete LU without fill-in: the factors, and the systems that they solve.

ILU(0) keeps the entries of ``L U`` on the pattern of the matrix: Meijerink and van der Vorst 1977,
"An iterative solution method for linear systems of which the coefficient matrix is a symmetric
M-matrix". The unit diagonal of L is not stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.custom import custom_op
from rlx.errors import FaultError
from rlx.ir.foreign_kernel import MlirKernel
from rlx.ir.op import Array
from rlx.sparse.kernels import FAULTS
from rlx.types import DType, TensorType, i64

__all__ = ["ilu_solve", "incomplete_lu"]

WRONG = (
    FAULTS[0],
    "incomplete LU takes a pattern whose rows are in order, with one entry a place and one on the"
    " diagonal",
    "incomplete LU met a 0 on the diagonal",
)

_FAULT = """
        %site64_{n} = arith.index_cast %site : index to i64
        %fault_{n} = arith.constant {n} : i64
        memref.store %site64_{n}, %error[%c1] : memref<?xi64>
        memref.store %fault_{n}, %error[%c0] : memref<?xi64>"""


def _constants(dt: DType) -> str:
    return f"""
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %none = arith.constant -1 : i64
  %zero = arith.constant 0.0 : {dt}
  %yes = arith.constant true
  %no = arith.constant false"""


def _ends(row: str, tag: str) -> str:
    """The first entry of a row and the one behind its last, as ``%first_tag`` and ``%last_tag``."""
    return f"""
    %next_{tag} = arith.addi {row}, %c1 : index
    %first64_{tag} = memref.load %indptr[{row}] : memref<?xi64>
    %last64_{tag} = memref.load %indptr[%next_{tag}] : memref<?xi64>
    %first_{tag} = arith.index_cast %first64_{tag} : i64 to index
    %last_{tag} = arith.index_cast %last64_{tag} : i64 to index"""


def _column(k: str, name: str) -> str:
    return f"""
        {name}64 = memref.load %indices[{k}] : memref<?xi64>
        {name} = arith.index_cast {name}64 : i64 to index"""


# Whether indptr rises from 0 to the count, then whether columns rise and meet the diagonal, whose
# place is kept. Nothing is read by a pattern that is wrong.
_CHECK = f"""
  %begin_ok = scf.for %r = %c0 to %n step %c1 iter_args(%ok = %yes) -> (i1) {{
    {_ends("%r", "a")}
    %is_first = arith.cmpi eq, %r, %c0 : index
    %is_last = arith.cmpi eq, %next_a, %n : index
    %want_first = arith.cmpi eq, %first_a, %c0 : index
    %want_last = arith.cmpi eq, %last_a, %count : index
    %rises = arith.cmpi sle, %first_a, %last_a : index
    %low = arith.cmpi sge, %first_a, %c0 : index
    %high = arith.cmpi sle, %last_a, %count : index
    %a0 = arith.select %is_first, %want_first, %yes : i1
    %a1 = arith.select %is_last, %want_last, %yes : i1
    %a2 = arith.andi %a0, %a1 : i1
    %a3 = arith.andi %rises, %low : i1
    %a4 = arith.andi %a2, %a3 : i1
    %a5 = arith.andi %a4, %high : i1
    %all = arith.andi %ok, %a5 : i1
    scf.yield %all : i1
  }}
  %inside = scf.for %k = %c0 to %count step %c1 iter_args(%ok = %begin_ok) -> (i1) {{
    {_column("%k", "%c")}
    %within = arith.cmpi ult, %c, %n : index
    %both = arith.andi %ok, %within : i1
    scf.yield %both : i1
  }}
  %ordered = scf.if %inside -> (i1) {{
    %rows_ok = scf.for %r = %c0 to %n step %c1 iter_args(%ok = %yes) -> (i1) {{
      {_ends("%r", "b")}
      memref.store %none, %place[%r] : memref<?xi64>
      %rises:2 = scf.for %k = %first_b to %last_b step %c1
          iter_args(%good = %ok, %before = %none) -> (i1, i64) {{
        {_column("%k", "%c")}
        %more = arith.cmpi sgt, %c64, %before : i64
        %on = arith.cmpi eq, %c, %r : index
        scf.if %on {{
          %k64 = arith.index_cast %k : index to i64
          memref.store %k64, %place[%r] : memref<?xi64>
        }}
        %still = arith.andi %good, %more : i1
        scf.yield %still, %c64 : i1, i64
      }}
      %found = memref.load %place[%r] : memref<?xi64>
      %there = arith.cmpi sge, %found, %none : i64
      %real = arith.cmpi ne, %found, %none : i64
      %seen = arith.andi %there, %real : i1
      %row_ok = arith.andi %rises#0, %seen : i1
      scf.yield %row_ok : i1
    }}
    scf.yield %rows_ok : i1
  }} else {{
    scf.yield %no : i1
  }}"""


def _eliminate(dt: DType) -> str:
    """Row r less multiples of the rows above it, on the places that there are."""
    return f"""
    scf.for %k = %c0 to %count step %c1 {{
      %v = memref.load %d[%k] : memref<?x{dt}>
      memref.store %v, %out[%k] : memref<?x{dt}>
    }}
    scf.for %r = %c0 to %n step %c1 {{
      {_ends("%r", "e")}
      %here64 = memref.load %place[%r] : memref<?xi64>
      %here = arith.index_cast %here64 : i64 to index
      scf.for %k = %first_e to %here step %c1 {{
        {_column("%k", "%above")}
        %pivot64 = memref.load %place[%above] : memref<?xi64>
        %pivot = arith.index_cast %pivot64 : i64 to index
        %p = memref.load %out[%pivot] : memref<?x{dt}>
        %v = memref.load %out[%k] : memref<?x{dt}>
        %m = arith.divf %v, %p : {dt}
        memref.store %m, %out[%k] : memref<?x{dt}>
        %behind = arith.addi %pivot, %c1 : index
        {_ends("%above", "f")}
        %after = arith.addi %k, %c1 : index
        scf.for %j = %after to %last_e step %c1 {{
          {_column("%j", "%c")}
          scf.for %i = %behind to %last_f step %c1 {{
            {_column("%i", "%o")}
            %same = arith.cmpi eq, %c, %o : index
            scf.if %same {{
              %u = memref.load %out[%i] : memref<?x{dt}>
              %w = memref.load %out[%j] : memref<?x{dt}>
              %t = arith.mulf %m, %u : {dt}
              %s = arith.subf %w, %t : {dt}
              memref.store %s, %out[%j] : memref<?x{dt}>
            }}
          }}
        }}
      }}
      %own = memref.load %out[%here] : memref<?x{dt}>
      %empty = arith.cmpf oeq, %own, %zero : {dt}
      scf.if %empty {{{_FAULT.format(n=3)}
      }}
    }}"""


def _lu_kernel(n: Any) -> MlirKernel:
    dt = n.d.dtype
    text = f"""
func.func @kernel(%begin: index, %end: index, %d: memref<?x{dt}>, %indices: memref<?xi64>,
                  %indptr: memref<?xi64>, %out: memref<?x{dt}>, %place: memref<?xi64>,
                  %error: memref<?xi64>, %n: index, %count: index, %site: index) {{
  {_constants(dt)}
  {_CHECK}
  scf.if %ordered {{
    {_eliminate(dt)}
  }} else {{
    scf.for %r = %c0 to %n step %c1 {{
      memref.store %none, %place[%r] : memref<?xi64>
    }}
    scf.if %inside {{{_FAULT.format(n=2)}
    }} else {{{_FAULT.format(n=1)}
    }}
  }}
  return
}}"""
    return MlirKernel(text, range=1, sizes=(n.n, n.d.type.size), faults=WRONG)


def _checked(indices: Array, indptr: Array, n: int) -> Array:
    """The place of the diagonal in each row; FaultError for a pattern that is not taken."""
    counts = np.diff(indptr)
    outside = indices.size and (indices.min() < 0 or indices.max() >= n)
    if outside or indptr[0] != 0 or indptr[-1] != indices.size or (counts < 0).any():
        raise FaultError(WRONG[0])
    rows = np.repeat(np.arange(n), counts)
    flat = rows * n + indices
    places = np.flatnonzero(rows == indices)
    if (np.diff(flat) <= 0).any() or places.size != n:
        raise FaultError(WRONG[1])
    return places.astype(np.int64)


def _infer_lu(
    d: TensorType, indices: TensorType, indptr: TensorType, n: int
) -> tuple[TensorType, TensorType]:
    return d, TensorType((n,), i64)


@custom_op("sparse.incomplete_lu", infer=_infer_lu, kernel=_lu_kernel, results=2)
def incomplete_lu(d: Array, indices: Array, indptr: Array, *, n: int) -> tuple[Array, Array]:
    """The factors in the places of the entries, and where the diagonal stands."""
    place = _checked(indices, indptr, n)
    out = d.copy()
    for r in range(n):
        for k in range(indptr[r], place[r]):
            above = indices[k]
            out[k] /= out[place[above]]
            own = np.arange(k + 1, int(indptr[r + 1]))
            other = np.arange(int(place[above]) + 1, int(indptr[above + 1]))
            _, i, j = np.intersect1d(indices[own], indices[other], return_indices=True)
            out[own[i]] -= out[k] * out[other[j]]
        if out[place[r]] == 0:
            raise FaultError(WRONG[2])
    return out, place


def _substitute(dt: DType, *, down: bool) -> str:
    """One triangular system: rows in order below the diagonal, or backwards above it."""
    low, high = ("%first_s", "%here") if down else ("%beyond", "%last_s")
    source = "%b" if down else "%out"
    row = "%r = arith.addi %q, %c0 : index"
    if not down:
        row = "%most = arith.subi %n, %c1 : index\n      %r = arith.subi %most, %q : index"
    divided = (
        "memref.store %sum, %out[%r]"
        if down
        else f"""%p = memref.load %f[%here] : memref<?x{dt}>
      %x = arith.divf %sum, %p : {dt}
      memref.store %x, %out[%r]"""
    )
    return f"""
    scf.for %q = %c0 to %n step %c1 {{
      {row}
      {_ends("%r", "s")}
      %here64 = memref.load %place[%r] : memref<?xi64>
      %here = arith.index_cast %here64 : i64 to index
      %beyond = arith.addi %here, %c1 : index
      %given = memref.load {source}[%r] : memref<?x{dt}>
      %sum = scf.for %k = {low} to {high} step %c1 iter_args(%acc = %given) -> ({dt}) {{
        {_column("%k", "%c")}
        %u = memref.load %f[%k] : memref<?x{dt}>
        %v = memref.load %out[%c] : memref<?x{dt}>
        %t = arith.mulf %u, %v : {dt}
        %s = arith.subf %acc, %t : {dt}
        scf.yield %s : {dt}
      }}
      {divided} : memref<?x{dt}>
    }}"""


def _solve_kernel(n: Any) -> MlirKernel:
    dt = n.f.dtype
    rows = n.b.type.size
    # Where the pattern was wrong, no place is known, and nothing is read by it.
    text = f"""
func.func @kernel(%begin: index, %end: index, %f: memref<?x{dt}>, %place: memref<?xi64>,
                  %indices: memref<?xi64>, %indptr: memref<?xi64>, %b: memref<?x{dt}>,
                  %out: memref<?x{dt}>, %n: index) {{
  {_constants(dt)}
  scf.for %r = %c0 to %n step %c1 {{
    memref.store %zero, %out[%r] : memref<?x{dt}>
  }}
  %some = arith.cmpi sgt, %n, %c0 : index
  %known = scf.if %some -> (i1) {{
    %p0 = memref.load %place[%c0] : memref<?xi64>
    %real = arith.cmpi ne, %p0, %none : i64
    scf.yield %real : i1
  }} else {{
    scf.yield %no : i1
  }}
  scf.if %known {{
    {_substitute(dt, down=True)}
    {_substitute(dt, down=False)}
  }}
  return
}}"""
    return MlirKernel(text, range=1, sizes=(rows,))


def _infer_solve(
    f: TensorType, place: TensorType, indices: TensorType, indptr: TensorType, b: TensorType
) -> TensorType:
    return b


@custom_op("sparse.ilu_solve", infer=_infer_solve, kernel=_solve_kernel)
def ilu_solve(f: Array, place: Array, indices: Array, indptr: Array, b: Array) -> Array:
    """The x with ``L U x = b`` for the factors of ``incomplete_lu``."""
    y = np.zeros_like(b)
    for r in range(b.size):
        own = slice(indptr[r], place[r])
        y[r] = b[r] - f[own] @ y[indices[own]]
    for r in range(b.size - 1, -1, -1):
        own = slice(place[r] + 1, indptr[r + 1])
        y[r] = (y[r] - f[own] @ y[indices[own]]) / f[place[r]]
    return y

"""The kernels of sparse matrices, as the text that ``rlx.MlirKernel`` takes."""

from __future__ import annotations

from typing import Any

from rlx.ir.foreign_kernel import MlirKernel
from rlx.types import DType

__all__ = ["FAULTS", "at_kernel", "back_kernel", "times_kernel"]

FAULTS = (
    "the pattern of a sparse matrix is wrong: indptr must rise from 0 to the number of entries, and"
    " every index must be a column",
)


def _kernel(
    n: Any, dt: DType, buffers: str, init: str, entry: str, *, width: int, apart: bool
) -> Any:
    """A walk over all entries, with %r, %c, %k and %j at hand: of a row in order, and of all rows
    at once where they are ``apart``."""
    rows, cols, count = n.rows, n.cols, n.indices.type.size
    total = n.out.type.size
    text = f"""
func.func @kernel(%begin: index, %end: index, {buffers}, %out: memref<?x{dt}>,
                  %error: memref<?xi64>, %cols: index, %count: index, %width: index,
                  %total: index, %rows: index, %site: index) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1 : i64
  %zero = arith.constant 0.0 : {dt}
  {init}
  scf.for %r = {"%begin to %end" if apart else "%c0 to %rows"} step %c1 {{
    %next = arith.addi %r, %c1 : index
    %first64 = memref.load %indptr[%r] : memref<?xi64>
    %last64 = memref.load %indptr[%next] : memref<?xi64>
    %first = arith.index_cast %first64 : i64 to index
    %last = arith.index_cast %last64 : i64 to index
    %low = arith.cmpi slt, %first, %c0 : index
    %high = arith.cmpi sgt, %last, %count : index
    %back = arith.cmpi sgt, %first, %last : index
    %is_first = arith.cmpi eq, %r, %c0 : index
    %is_last = arith.cmpi eq, %next, %rows : index
    %late = arith.cmpi ne, %first, %c0 : index
    %early = arith.cmpi ne, %last, %count : index
    %begins_late = arith.andi %is_first, %late : i1
    %ends_early = arith.andi %is_last, %early : i1
    %bad0 = arith.ori %low, %high : i1
    %bad1 = arith.ori %bad0, %back : i1
    %bad2 = arith.ori %bad1, %begins_late : i1
    %bad = arith.ori %bad2, %ends_early : i1
    scf.if %bad {{
      {_RECORD}
    }} else {{
      scf.for %k = %first to %last step %c1 {{
        %c64 = memref.load %indices[%k] : memref<?xi64>
        %c = arith.index_cast %c64 : i64 to index
        %out_of_range = arith.cmpi uge, %c, %cols : index
        scf.if %out_of_range {{
          {_RECORD}
        }} else {{
          {entry}
        }}
      }}
    }}
  }}
  return
}}"""
    sizes = (cols, count, width, total, rows)
    return MlirKernel(text, range=rows if apart else 1, grain=64, sizes=sizes, faults=FAULTS)


_RECORD = """
%site64 = arith.index_cast %site : index to i64
memref.store %site64, %error[%c1] : memref<?xi64>
memref.store %one, %error[%c0] : memref<?xi64>
"""


def _clear(first: str, last: str, dt: DType) -> str:
    return f"""
  scf.for %i = {first} to {last} step %c1 {{
    memref.store %zero, %out[%i] : memref<?x{dt}>
  }}"""


_ROWS_OF_OUT = """
  %out_first = arith.muli %begin, %width : index
  %out_last = arith.muli %end, %width : index"""


def _spread(dt: DType, source: str, row: str, target: str) -> str:
    """``out[target, j] += d[k] * source[row, j]`` for all j."""
    return f"""
          %dk = memref.load %d[%k] : memref<?x{dt}>
          scf.for %j = %c0 to %width step %c1 {{
            %a0 = arith.muli {row}, %width : index
            %a = arith.addi %a0, %j : index
            %b0 = arith.muli {target}, %width : index
            %b = arith.addi %b0, %j : index
            %s = memref.load {source}[%a] : memref<?x{dt}>
            %t = memref.load %out[%b] : memref<?x{dt}>
            %p = arith.mulf %dk, %s : {dt}
            %u = arith.addf %t, %p : {dt}
            memref.store %u, %out[%b] : memref<?x{dt}>
          }}"""


def _buffers(dt: DType, *names: str) -> str:
    kinds = {"indices": "i64", "indptr": "i64"}
    return ", ".join(f"%{n}: memref<?x{kinds.get(n, dt)}>" for n in names)


def times_kernel(n: Any) -> MlirKernel:
    """Of ``sparse.times``: rows apart."""
    dt = n.d.dtype
    return _kernel(
        n, dt, _buffers(dt, "d", "indices", "indptr", "x"),
        _ROWS_OF_OUT + _clear("%out_first", "%out_last", dt), _spread(dt, "%x", "%c", "%r"),
        width=n.x.shape[1], apart=True,
    )  # fmt: skip


def back_kernel(n: Any) -> MlirKernel:
    """Of ``sparse.back``: one part, since rows meet in a column."""
    dt = n.d.dtype
    return _kernel(
        n, dt, _buffers(dt, "d", "indices", "indptr", "y"), _clear("%c0", "%total", dt),
        _spread(dt, "%y", "%r", "%c"), width=n.y.shape[1], apart=False,
    )  # fmt: skip


def at_kernel(n: Any) -> MlirKernel:
    """Of ``sparse.at``: rows apart."""
    dt = n.x.dtype
    entry = f"""
          %sum = scf.for %j = %c0 to %width step %c1 iter_args(%acc = %zero) -> ({dt}) {{
            %a0 = arith.muli %r, %width : index
            %a = arith.addi %a0, %j : index
            %b0 = arith.muli %c, %width : index
            %b = arith.addi %b0, %j : index
            %s = memref.load %y[%a] : memref<?x{dt}>
            %t = memref.load %x[%b] : memref<?x{dt}>
            %p = arith.mulf %s, %t : {dt}
            %u = arith.addf %acc, %p : {dt}
            scf.yield %u : {dt}
          }}
          memref.store %sum, %out[%k] : memref<?x{dt}>"""
    return _kernel(
        n, dt, _buffers(dt, "indices", "indptr", "y", "x"), "", entry, width=n.x.shape[1],
        apart=True,
    )  # fmt: skip

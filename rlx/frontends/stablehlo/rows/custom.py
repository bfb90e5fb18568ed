"""Custom calls: those of linear algebra that JAX makes for CPUs, and marks that change nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx import linalg
from rlx._mlir import ir
from rlx.frontends.stablehlo.node import ROWS, Node, Result, as_type, row
from rlx.frontends.stablehlo.rows.reflections import apply_reflections, factor
from rlx.ir.value import Value
from rlx.ops.linalg.triangular import TriangularSolve
from rlx.ops.movement.constant import Constant

__all__ = ["is_known"]

_MARKS = (
    "shape_assertion",
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "annotate_device_placement",
)
_NAMED = {
    "mhlo.erf": "chlo.erf", "mhlo.topk": "chlo.top_k",
    "stablehlo.dynamic_reduce_window": "dynamic_reduce_window",
}  # fmt: skip


@row("custom_call")
def _custom_call(n: Node) -> Result:
    target = n.text("call_target_name")
    if target == "shape_assertion":
        return []  # the ranges of the dims say it
    if target in _MARKS:
        return n.x
    if target in _NAMED:
        return ROWS[_NAMED[target]](n.inner("mhlo.attributes") if target == "mhlo.topk" else n)
    known = _routine(target)
    assert known is not None, "refuse_missing has seen to it"
    return known(n)


def is_known(target: str) -> bool:
    """Whether there is a row for calls of a function of this name."""
    return target in _MARKS or target in _NAMED or _routine(target) is not None


def _routine(target: str) -> Callable[[Node], Sequence[Value]] | None:
    routine = target.removeprefix("lapack_").removeprefix("blas_").removesuffix("_ffi")
    return _ROUTINES.get(routine[1:]) if target.endswith("_ffi") else None


def _letter(n: Node, name: str) -> str:
    """A setting of a LAPACK routine, which is a letter's code."""
    settings = ir.DictAttr(n.op.attributes["mhlo.backend_config"])
    return chr(int(ir.IntegerAttr(settings[name]).value))


def _fine(n: Node, result: int) -> Value:
    """What a routine says of success, which is 0: ours fails otherwise."""
    t = n.importer.type_of_result(n.op, result)
    return Constant(np.zeros(t.static_shape, t.dtype.numpy)).out


def _potrf(n: Node) -> Sequence[Value]:
    lower = _letter(n, "uplo") == "L"
    found = linalg.cholesky(n.x if lower else n.x.mT, symmetrize=False)
    return [found if lower else found.mT, _fine(n, 1)]


def _trsm(n: Node) -> Sequence[Value]:
    a, b = n.xs[:2]
    way = _letter(n, "trans_x")
    a = a.conj() if way == "C" and a.dtype.is_complex else a
    lower, unit = _letter(n, "uplo") == "L", _letter(n, "diag") == "U"
    if _letter(n, "side") == "L":
        return [TriangularSolve.build(a, b, lower, way != "N", unit)]
    return [TriangularSolve.build(a, b.mT, lower, way == "N", unit).mT]


def _getrf(n: Node) -> Sequence[Value]:
    found, pivots, _ = linalg.lu(n.x)
    t = n.importer.type_of_result(n.op, 1)
    return [found, as_type(pivots, t.dtype) + 1, _fine(n, 2)]


def _syevd(n: Node) -> Sequence[Value]:
    x = n.x if _letter(n, "uplo") == "L" else n.x.mT
    values, vectors = linalg.eigh(x, symmetrize=False)
    return [vectors, values, _fine(n, 2)]


def _gesdd(n: Node) -> Sequence[Value]:
    mode = _letter(n, "mode")
    shapes = [n.importer.type_of_result(n.op, i) for i in (2, 3)]
    if mode == "N":
        u, vt = (Constant(np.zeros(t.static_shape, t.dtype.numpy)).out for t in shapes)
        return [n.x, linalg.svdvals(n.x), u, vt, _fine(n, 4)]
    u, s, vt = linalg.svd(n.x, full_matrices=mode == "A")
    return [n.x, s, u, vt, _fine(n, 4)]


def _geqrf(n: Node) -> Sequence[Value]:
    return [*factor(n), _fine(n, 2)] if len(n.op.results) > 2 else factor(n)


def _orgqr(n: Node) -> Sequence[Value]:
    return [apply_reflections(n), _fine(n, 1)] if len(n.op.results) > 1 else [apply_reflections(n)]


_ROUTINES: dict[str, Callable[[Node], Sequence[Value]]] = {
    "potrf": _potrf, "trsm": _trsm, "getrf": _getrf, "syevd": _syevd, "gesdd": _gesdd,
    "geqrf": _geqrf, "orgqr": _orgqr, "ungqr": _orgqr,
}  # fmt: skip
"""By the names of LAPACK and BLAS, without the letter of the type."""

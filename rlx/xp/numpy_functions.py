"""NumPy's functions on Values: ``np.where(mask, x, y)`` in a function that is traced.

NumPy hands a call with a Value among its arguments to ``Value.__array_function__``. A row says what
one of its functions is: a function of ``rlx.xp`` whose parameters have NumPy's names, or a function
here that has NumPy's parameters, as many of them as mean something on Values. Functions of elements
that are ufuncs come by ``rlx.xp.ufuncs``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any

import numpy as np

from rlx import linalg, xp
from rlx.base.frozen import frozen
from rlx.errors import GraphError, ShapeError
from rlx.ir.lift import lift, promoted
from rlx.ir.location import caller
from rlx.ir.value import Value
from rlx.ops.matmul.einsum import einsum as _einsum

__all__ = ["call_on_values"]


@frozen
class Row:
    """What a function of NumPy's is: ``call``, whose first ``leading`` arguments are those that
    NumPy's has first. ``takes`` has its other parameters by the name that NumPy gives them."""

    call: Callable[..., Any]
    leading: int
    takes: dict[str, str]
    required: int


def call_on_values(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``function``, one of NumPy's, gives of Values; GraphError for one without a row and for
    arguments that its row does not take."""
    name = function.__module__.replace("numpy", "np", 1) + "." + function.__name__
    row = _ROWS.get(function)
    if row is None:
        raise GraphError(
            f"{name} computes on arrays, and a Value has no elements yet; write ops on it, or"
            " functions of rlx.xp",
            caller(),
        )
    theirs = signature(function)
    given = theirs.bind(*args, **kwargs).arguments
    first = [*theirs.parameters][: row.leading]
    positional = [given.pop(p) for p in first if p in given]
    named: dict[str, Any] = {}
    for parameter, value in given.items():
        if _is_default(value, theirs.parameters[parameter]):
            continue
        if parameter not in row.takes:
            takes = ", ".join([*first, *row.takes])
            raise GraphError(f"{name} of a Value takes {takes}; found {parameter}", caller())
        named[row.takes[parameter]] = value
    if len(positional) < row.required:
        raise GraphError(
            f"{name} of a Value needs {', '.join(first[: row.required])}: without one its shape"
            " depends on the elements",
            caller(),
        )
    return row.call(*positional, **named)


def _is_default(value: Any, parameter: Parameter) -> bool:
    default = parameter.default
    return value is default or (isinstance(value, str) and value == default)


# -- functions whose meaning or parameters are not those of a function of rlx.xp -------------------


def _along(a: Value, axis: int | None) -> Value:
    return a.flatten() if axis is None else a


def cumsum(a: Value, axis: int | None = None, dtype: Any = None) -> Value:
    return xp.cumulative_sum(_along(a, axis), axis=axis, dtype=dtype)


def cumprod(a: Value, axis: int | None = None, dtype: Any = None) -> Value:
    return xp.cumulative_prod(_along(a, axis), axis=axis, dtype=dtype)


def take(a: Any, indices: Any, axis: int | None = None) -> Value:
    a, indices = _lifted(a, indices)
    return xp.take(_along(a, axis), indices, axis=axis)


def _lifted(*arrays: Any) -> list[Value]:
    """Values of operands, each of its own element type."""
    like = next(a for a in arrays if isinstance(a, Value))
    return [lift(a, like) for a in arrays]


def transpose(a: Value, axes: Sequence[int] | None = None) -> Value:
    return a.transpose() if axes is None else xp.permute_dims(a, tuple(axes))


def squeeze(a: Value, axis: Any = None) -> Value:
    return a.squeeze() if axis is None else xp.squeeze(a, axis)


def swapaxes(a: Value, axis1: int, axis2: int) -> Value:
    return a.swapaxes(axis1, axis2)


def ravel(a: Value) -> Value:
    return a.flatten()


def copy(a: Value) -> Value:
    return a


def shape(a: Value) -> Any:
    return a.shape


def ndim(a: Value) -> int:
    return a.rank


def size(a: Value, axis: int | None = None) -> Any:
    return a.size if axis is None else a.shape[axis]


def result_type(arrays_and_dtypes: Sequence[Any]) -> Any:
    return xp.result_type(*arrays_and_dtypes)


def dot(a: Any, b: Any) -> Value:
    a, b = promoted(a, b)
    if not a.rank or not b.rank:
        return a * b
    return a @ b if b.rank <= 2 else xp.tensordot(a, b, axes=([a.rank - 1], [b.rank - 2]))


def inner(a: Any, b: Any) -> Value:
    a, b = promoted(a, b)
    if not a.rank or not b.rank:
        return a * b
    return xp.tensordot(a, b, axes=([a.rank - 1], [b.rank - 1]))


def outer(a: Any, b: Any) -> Value:
    a, b = promoted(a, b)
    return a.flatten().unsqueeze(1) * b.flatten()


def vdot(a: Any, b: Any) -> Value:
    a, b = promoted(a, b)
    return xp.vecdot(a.flatten(), b.flatten())


def einsum(operands: Sequence[Any]) -> Value:
    return _einsum(*operands)


def split(ary: Value, indices_or_sections: Any, axis: int = 0) -> list[Value]:
    length = ary.shape[axis]
    if not isinstance(length, int):
        raise ShapeError(f"np.split along an axis of the dim {length} needs a known size")
    if isinstance(indices_or_sections, int | np.integer):
        if length % indices_or_sections:
            raise ShapeError(
                f"np.split: {length} elements are not {indices_or_sections} equal parts"
            )
        part = length // int(indices_or_sections)
        bounds = [part * i for i in range(1, indices_or_sections)]
    else:
        bounds = [slice(i).indices(length)[1] for i in indices_or_sections]
    ends = zip([0, *bounds], [*bounds, length], strict=True)
    return [ary.narrow(axis, start, max(stop - start, 0)) for start, stop in ends]


def _at_least(rank: int, arys: Sequence[Any]) -> list[Value]:
    found = _lifted(*arys)
    return [v.reshape([1] * (rank - v.rank) + [*v.shape]) if v.rank < rank else v for v in found]


def atleast_1d(arys: Sequence[Any]) -> Any:
    found = _at_least(1, arys)
    return found[0] if len(found) == 1 else tuple(found)


def atleast_2d(arys: Sequence[Any]) -> Any:
    found = _at_least(2, arys)
    return found[0] if len(found) == 1 else tuple(found)


def vstack(tup: Sequence[Any]) -> Value:
    return xp.concat(_at_least(2, tup), axis=0)


def hstack(tup: Sequence[Any]) -> Value:
    parts = _at_least(1, tup)
    return xp.concat(parts, axis=0 if parts[0].rank == 1 else 1)


def meshgrid(xi: Sequence[Any], indexing: str = "xy") -> Any:
    return tuple(xp.meshgrid(*_lifted(*xi), indexing=indexing))


def broadcast_arrays(args: Sequence[Any]) -> Any:
    return tuple(xp.broadcast_arrays(*_lifted(*args)))


def pad(array: Value, pad_width: Any, mode: str = "constant", kwargs: Any = None) -> Value:
    options = dict(kwargs or {})
    value = options.pop("constant_values", 0)
    if options or np.ndim(value):
        found = ", ".join(options) or f"the constant_values {value}"
        raise GraphError(f"np.pad of a Value takes one number as constant_values; found {found}")
    widths = np.broadcast_to(np.asarray(pad_width), (array.rank, 2)).tolist()
    return array.pad([w[0] for w in widths], [w[1] for w in widths], value=value, mode=mode)


def diag(v: Value, k: int = 0) -> Value:
    if v.rank > 2:
        raise ShapeError(f"np.diag takes a vector or a matrix, found {v.type}; write np.diagonal")
    return v.diag(k) if v.rank == 1 else v.diagonal(k)


def diagonal(a: Value, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    return a.diagonal(offset, axis1, axis2)


def trace(a: Value, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    return xp.sum(a.diagonal(offset, axis1, axis2), axis=-1)


def round_to(a: Value, decimals: int = 0) -> Value:
    if a.dtype.is_int:
        return a if decimals >= 0 else round_to(a.cast("f64"), decimals).cast(a.dtype)
    if not decimals:
        return xp.round(a)
    scale = 10.0 ** abs(decimals)
    return xp.round(a * scale) / scale if decimals > 0 else xp.round(a / scale) * scale


def nan_to_num(
    x: Value, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Value:
    if x.dtype.is_complex:
        re, im = (nan_to_num(part, nan, posinf, neginf) for part in (x.real(), x.imag()))
        return re.complex(im)
    if not x.dtype.is_float:
        return x
    largest = float(xp.finfo(x.dtype).max)
    x = xp.where(x.eq(math.inf), largest if posinf is None else posinf, x)
    x = xp.where(x.eq(-math.inf), -largest if neginf is None else neginf, x)
    return xp.where(x.isnan(), nan, x)


def isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    a, b = promoted(a, b)
    near = xp.less_equal(xp.abs(a - b), b.abs() * rtol + atol) & xp.isfinite(b)
    found = near | a.eq(b)
    return found | (xp.isnan(a) & xp.isnan(b)) if equal_nan else found


def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    return isclose(a, b, rtol, atol, equal_nan).all()


def ptp(a: Value, axis: Any = None, keepdims: bool = False) -> Value:
    return xp.max(a, axis=axis, keepdims=keepdims) - xp.min(a, axis=axis, keepdims=keepdims)


def norm(x: Value, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Value:
    return linalg.norm(x, ord, axis, keepdims)


def svd(a: Value, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    return xp.linalg.svd(a, full_matrices=full_matrices) if compute_uv else xp.linalg.svdvals(a)


def fft2(a: Value, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str = "backward") -> Value:
    return xp.fft.fftn(a, s=s, axes=axes, norm=norm)


def ifft2(a: Value, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str = "backward") -> Value:
    return xp.fft.ifftn(a, s=s, axes=axes, norm=norm)


def kron(a: Any, b: Any) -> Value:
    return linalg.kron(*promoted(a, b))


# -- rows ------------------------------------------------------------------------------------------

_SAME = (
    "all", "any", "argmax", "argmin", "argsort", "astype", "broadcast_to", "clip", "concatenate",
    "count_nonzero", "diff", "empty_like", "expand_dims", "flip", "full_like", "imag",
    "matrix_transpose", "max", "mean", "min", "moveaxis", "ones_like", "prod", "real", "repeat",
    "reshape", "roll", "searchsorted", "sort", "stack", "std", "sum", "take_along_axis",
    "tensordot", "tile", "tril", "triu", "unstack", "var", "where", "zeros_like",
)  # fmt: skip
"""Functions of ``rlx.xp`` with NumPy's parameters, in NumPy's order, beside those of its
``fft`` and ``linalg``."""

_NAMES = {"concatenate": "concat"}
_RENAMED = {
    "clip": {"a_min": "min", "a_max": "max"},
    "std": {"ddof": "correction"},
    "var": {"ddof": "correction"},
}
_REQUIRED = {"where": 3}

_OWN = {
    "": (
        allclose, atleast_1d, atleast_2d, broadcast_arrays, copy, cumprod, cumsum, diag, diagonal,
        dot, einsum, hstack, inner, isclose, kron, meshgrid, nan_to_num, ndim, outer, pad, ptp,
        ravel, result_type, shape, size, split, squeeze, swapaxes, take, trace, transpose,
        vdot, vstack,
    ),
    "fft": (fft2, ifft2),
    "linalg": (norm, svd),
}  # fmt: skip


def _row(call: Any, renamed: dict[str, str] | None = None, required: int = 0) -> Row:
    """The row of a function whose parameters have NumPy's names, but for those before ``/``."""
    ours = signature(call).parameters.values()
    leading = sum(p.kind is Parameter.POSITIONAL_ONLY for p in ours)
    takes = {p.name: p.name for p in list(ours)[leading:]}
    for theirs, own in (renamed or {}).items():
        takes[theirs] = own
    return Row(call, leading, takes, required)


def _rows() -> dict[Any, Row]:
    rows: dict[Any, Row] = {}
    same = {
        np: {name: getattr(xp, _NAMES.get(name, name)) for name in _SAME},
        np.fft: {n: getattr(xp.fft, n) for n in xp.fft.__all__ if not n.endswith("freq")},
        np.linalg: {name: getattr(xp.linalg, name) for name in xp.linalg.__all__},
    }
    for module, functions in same.items():
        for name, call in functions.items():
            if hasattr(module, name):  # NumPy 1 lacks a few
                row = _row(call, _RENAMED.get(name), _REQUIRED.get(name, 0))
                rows[getattr(module, name)] = row
    rows |= {np.amax: rows[np.max], np.amin: rows[np.min], np.round: _row(round_to)}
    rows |= {np.around: rows[np.round]}
    refused = Row(xp.nonzero, 1, {}, 0)
    rows |= {np.nonzero: refused, np.argwhere: refused, np.flatnonzero: refused}
    rows |= {np.unique: Row(xp.unique_values, 1, {}, 0)}
    for place, own in _OWN.items():
        module = getattr(np, place) if place else np
        rows |= {getattr(module, f.__name__): _row(f) for f in own}
    return rows


_ROWS = _rows()

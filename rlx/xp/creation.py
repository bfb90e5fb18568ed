"""Functions that make arrays, and what says of which types they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError, shown
from rlx.ir.builders import builder, located
from rlx.ir.lift import lift, promoted
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.types import DType, promote
from rlx.types import dtype as as_dtype
from rlx.xp.function import Operand, check_device, creation, function, numpy_type

__all__ = [
    "arange", "asarray", "astype", "can_cast", "empty", "empty_like", "eye", "finfo", "from_dlpack",
    "full", "full_like", "iinfo", "isdtype", "linspace", "meshgrid", "ones", "ones_like",
    "result_type", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip

Shape = int | Sequence[Any]


def _typed(v: Any, dtype: Any) -> Any:
    return v if dtype is None or v.dtype is as_dtype(dtype) else v.cast(as_dtype(dtype))


@located
def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
    """An array of numbers, lists or another array; a Value stays one."""
    check_device(device)
    if isinstance(obj, Value):
        return _typed(obj, dtype)
    to = None if dtype is None else numpy_type(dtype)
    return np.array(obj, to) if copy else np.asarray(obj, to, copy=copy)


@located
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """The array of another library, by DLPack."""
    check_device(device)
    if isinstance(x, Value):
        return x
    if not hasattr(x, "__dlpack__"):
        raise GraphError(f"from_dlpack takes an array that speaks DLPack, found {shown(x)}")
    return np.from_dlpack(x, copy=copy)


@creation
def full(shape: Shape, fill_value: complex, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of one number: bool, int64, float64 or complex128 unless ``dtype`` says."""
    check_device(device)
    to = np.asarray(fill_value).dtype if dtype is None else dtype
    return Constant(np.asarray(fill_value).astype(numpy_type(to))).out.expand(shape)


@creation
def zeros(shape: Shape, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros, of float64 unless ``dtype`` says."""
    return full(shape, 0.0, dtype=np.float64 if dtype is None else dtype, device=device)


@creation
def ones(shape: Shape, *, dtype: Any = None, device: Any = None) -> Any:
    """Ones, of float64 unless ``dtype`` says."""
    return full(shape, 1.0, dtype=np.float64 if dtype is None else dtype, device=device)


@creation
def empty(shape: Shape, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of any elements, which here are zeros."""
    return zeros(shape, dtype=dtype, device=device)


@creation
def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Any:
    """Ones on a diagonal, the ``k``-th to the right of the main one, and zeros beside it."""
    check_device(device)
    found: Any = builder("eye")
    return found(n_rows, n_cols, k, np.float64 if dtype is None else as_dtype(dtype))


@creation
def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Any:
    """``start``, ``start + step``, … below ``stop``, as ``numpy.arange``."""
    check_device(device)
    first, end = (0, start) if stop is None else (start, stop)
    line: Any = np.arange(first, end, step)
    return Constant(line if dtype is None else line.astype(numpy_type(dtype))).out


@creation
def linspace(
    start: complex, stop: complex, /, num: int, *, dtype: Any = None, device: Any = None,
    endpoint: bool = True,
) -> Any:  # fmt: skip
    """``num`` numbers at equal distances."""
    check_device(device)
    to = None if dtype is None else numpy_type(dtype)
    return Constant(np.linspace(start, stop, num, endpoint=endpoint, dtype=to)).out


@function
def zeros_like(x: Operand, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros in the shape of an array, and of its type unless ``dtype`` says."""
    check_device(device)
    return _filled(x, 0, dtype)


@function
def ones_like(x: Operand, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Ones in the shape of an array."""
    check_device(device)
    return _filled(x, 1, dtype)


@function
def empty_like(x: Operand, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Any elements in the shape of an array, which here are zeros."""
    check_device(device)
    return _filled(x, 0, dtype)


@function
def full_like(x: Operand, /, fill_value: complex, *, dtype: Any = None, device: Any = None) -> Any:
    """One number in the shape of an array."""
    check_device(device)
    return _filled(x, fill_value, dtype)


def _filled(x: Value, n: Any, dtype: Any) -> Value:
    to = x.dtype if dtype is None else as_dtype(dtype)
    return Constant(np.asarray(n).astype(to.numpy)).out.expand(x.shape)


@function
def astype(x: Operand, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """The elements as another type."""
    check_device(device)
    return _typed(x, dtype)


@function
def tril(x: Operand, /, *, k: int = 0) -> Any:
    """The elements on and below the ``k``-th diagonal of the last two axes, and zeros."""
    return x.tril(k)


@function
def triu(x: Operand, /, *, k: int = 0) -> Any:
    """The elements on and above the ``k``-th diagonal of the last two axes, and zeros."""
    return x.triu(k)


@function
def meshgrid(*arrays: Operand, indexing: str = "xy") -> Any:
    """The coordinates of a grid, from those along its axes: a list of arrays of its rank."""
    values = promoted(*arrays)
    order = list(range(len(values)))
    if indexing == "xy" and len(values) > 1:
        order[:2] = [1, 0]
    shape = [values[i].shape[0] if values[i].rank else 1 for i in order]
    found: list[Value] = []
    for i, v in enumerate(values):
        at = order.index(i)
        found.append(v.reshape([-1 if j == at else 1 for j in range(len(shape))]).expand(shape))
    return found


# -- types ---------------------------------------------------------------------------------


def _type(x: Operand) -> Any:
    """The element type of an array, or one that is named."""
    return x.dtype if hasattr(x, "dtype") and not isinstance(x, type) else x


@located
def finfo(type: Any, /) -> Any:
    """The limits of a float type (``numpy.finfo``)."""
    import ml_dtypes

    found = as_dtype(_type(type))
    part = found.part if found.is_complex else found
    return ml_dtypes.finfo(part.numpy) if part.name == "bf16" else np.finfo(part.numpy)


@located
def iinfo(type: Any, /) -> Any:
    """The limits of an integer type (``numpy.iinfo``)."""
    return np.iinfo(numpy_type(_type(type)))


@located
def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a type is of a kind, such as "real floating", or one of several."""
    try:
        return np.isdtype(numpy_type(dtype), _kind(kind))
    except (TypeError, ValueError) as e:
        raise GraphError(f"isdtype: the kind is {shown(kind)}: {e}") from None


def _kind(kind: Any) -> Any:
    if isinstance(kind, tuple):
        return tuple(_kind(k) for k in kind)
    return kind.numpy if isinstance(kind, DType) else kind


@located
def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether all numbers of a type are numbers of another, by NumPy's rules."""
    return np.can_cast(numpy_type(_type(from_)), numpy_type(to))


@located
def result_type(*arrays_and_dtypes: Any) -> Any:
    """The type in which arrays, types and numbers meet."""
    numbers = [x for x in arrays_and_dtypes if isinstance(x, bool | int | float | complex)]
    types = [as_dtype(_type(x)) for x in arrays_and_dtypes if not any(x is n for n in numbers)]
    if not types:
        return np.result_type(*numbers)
    common = types[0]
    for t in types[1:]:
        common = promote(common, t)
    zero = Value(_scalar(common))
    for n in numbers:
        common = promote(common, lift(n, zero).dtype)
    return common.numpy


def _scalar(dt: DType) -> Any:
    from rlx.types import TensorType

    return TensorType.of((), dt)

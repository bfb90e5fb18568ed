"""Integer arithmetic on shapes with symbolic dims, done on dims while importing.

Only nodes with a symbolic operand come here, and only if all their operands are known: what is
known without symbols is evaluated by the interpreter, if a shape needs it. A row gives the results
of a node, or None where they are no polynomials; such a node becomes a computation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from rlx.base.dim_bounds import least
from rlx.base.dims import LimitError, exact_quotient, maximum, minimum
from rlx.errors import ShapeError
from rlx.frontends.onnx.edges import is_symbolic
from rlx.frontends.onnx.node import Node, full_name
from rlx.frontends.onnx.rows.movement import slices
from rlx.types import Dim, SymDim

__all__ = ["fold"]

Array = np.ndarray[Any, Any]
Fold = Callable[[Node, list[Array]], Array | list[Array]]


class _UnsureError(Exception):
    """What a comparison of dims gives depends on their sizes."""


def fold(n: Node) -> list[Array] | None:
    """The results of a node on symbolic dims; None if it is no such node, or cannot be folded."""
    row = FOLDS.get(full_name(n.proto))
    if row is None or not any(
        e is not None and e.known is not None and is_symbolic(e.known) for e in n._inputs
    ):
        return None
    arrays: list[Array] = []
    for e in n._inputs:
        found = None if e is None else n.importer.evaluator.known(e)
        if isinstance(found, set):
            return None
        if found is not None:
            arrays.append(found)
    try:
        given = row(n, arrays)
    except LimitError:
        raise
    except (_UnsureError, ShapeError, ValueError, IndexError):
        return None  # the row says what is wrong, if anything is
    return given if isinstance(given, list) else [given]


def _fits(d: Any) -> Any:
    """A result that an i64 holds; what overflows is computed, and wraps around."""
    if isinstance(d, int) and not -(1 << 63) <= d < 1 << 63:
        raise _UnsureError
    return d


def _at_least(a: Dim, b: Dim) -> bool:
    """Whether a >= b whatever the sizes of symbols, which are 0 or more."""
    return least(a - b) >= 0


def _not_less(a: Dim, b: Dim) -> bool:
    """Whether a >= b; raises where that depends on sizes."""
    if _at_least(a, b):
        return True
    if _at_least(b, a + 1):
        return False
    raise _UnsureError


def _equal(a: Dim, b: Dim) -> bool:
    if a == b:
        return True
    if _at_least(a, b + 1) or _at_least(b, a + 1):
        return False
    raise _UnsureError


def _each(function: Callable[..., Any], kind: Any = object) -> Fold:
    """A function of dims, element by element."""

    def row(n: Node, arrays: list[Array]) -> Array:
        spread = np.broadcast_arrays(*(a.astype(object) for a in arrays))
        out = np.empty(spread[0].shape, kind)
        for at in np.ndindex(out.shape):
            out[at] = _fits(function(*(a[at] for a in spread)))
        return out

    return row


def _quotient(a: Dim, b: Dim) -> Dim:
    """Cut toward zero, as ONNX divides integers: with symbols where both are surely not negative,
    or it comes out even."""
    if isinstance(a, int) and isinstance(b, int) and b:
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if least(a) >= 0 and least(b) >= 1:
        return a // b
    if isinstance(a, SymDim) and b != 0:
        return exact_quotient(a, b)
    raise _UnsureError


def _remainder(a: Dim, b: Dim) -> Dim:
    if least(a) >= 0 and least(b) >= 1:
        return a % b
    raise _UnsureError


def _ints(a: Array) -> list[int]:
    """The elements of an operand that says how to move the others."""
    if is_symbolic(a):
        raise _UnsureError
    return [int(d) for d in a.reshape(-1)]


def _cast(n: Node, arrays: list[Array]) -> Array:
    if n.need("to") != TensorProto.INT64:
        raise _UnsureError
    return arrays[0]


def _gather(n: Node, arrays: list[Array]) -> Array:
    at = np.reshape(_ints(arrays[1]), arrays[1].shape).astype(np.int64)
    return np.asarray(np.take(arrays[0], at, n.attr("axis", 0)), object)


def _slice(n: Node, arrays: list[Array]) -> Array:
    key: list[Any] = [slice(None)] * arrays[0].ndim
    for axis, start, end, step in slices(n):
        if isinstance(start, SymDim) or isinstance(end, SymDim):
            raise _UnsureError
        key[axis] = slice(start, end, step)
    return arrays[0][tuple(key)]


def _reshape(n: Node, arrays: list[Array]) -> Array:
    return arrays[0].reshape(_ints(arrays[1]))


def _squeeze(n: Node, arrays: list[Array]) -> Array:
    axes = n.axes(1)
    return arrays[0].squeeze(None if axes is None else tuple(axes))


def _unsqueeze(n: Node, arrays: list[Array]) -> Array:
    return np.expand_dims(arrays[0], tuple(n.axes(1) or ()))


def _concat(n: Node, arrays: list[Array]) -> Array:
    return np.concatenate([a.astype(object) for a in arrays], n.attr("axis", 0))


def _expand(n: Node, arrays: list[Array]) -> Array:
    shape = np.broadcast_shapes(arrays[0].shape, tuple(_ints(arrays[1])))
    return np.broadcast_to(arrays[0], shape)


def _product(n: Node, arrays: list[Array]) -> Array:
    if n.axes(1) not in (None, [], [0]):
        raise _UnsureError
    total: Dim = 1
    for d in arrays[0].flat:
        total = _fits(total * d)
    shape = (1,) * arrays[0].ndim if n.attr("keepdims", 1) else ()
    return np.full(shape, total, object)


def _same(n: Node, arrays: list[Array]) -> Array:
    return arrays[0]


def _parts(n: Node, arrays: list[Array]) -> list[Array]:
    sizes: Sequence[int]
    if len(arrays) > 1:
        sizes = _ints(arrays[1])
    else:
        count = len(n.proto.output)
        sizes = n.attr("split", [-(-len(arrays[0]) // count)] * count)
    return np.split(arrays[0], np.cumsum(sizes)[:-1])


FOLDS: dict[str, Fold] = {
    "Add": _each(lambda a, b: a + b),
    "Sub": _each(lambda a, b: a - b),
    "Mul": _each(lambda a, b: a * b),
    "Div": _each(_quotient),
    "Neg": _each(lambda a: a * -1),
    "Mod": _each(_remainder),
    "Max": _each(maximum),
    "Min": _each(minimum),
    "Equal": _each(_equal, bool),
    "Less": _each(lambda a, b: not _not_less(a, b), bool),
    "Greater": _each(lambda a, b: not _not_less(b, a), bool),
    "LessOrEqual": _each(lambda a, b: _not_less(b, a), bool),
    "GreaterOrEqual": _each(_not_less, bool),
    "Where": _each(lambda condition, a, b: a if condition else b),
    "Cast": _cast,
    "Concat": _concat,
    "Expand": _expand,
    "Gather": _gather,
    "Identity": _same,
    "ReduceProd": _product,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _parts,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}

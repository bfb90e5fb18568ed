"""Sizes as data: what a module of symbolic shapes computes with its dims, as dims of ours.

A program for any sizes asks for them (``get_dimension_size``), computes with them and gives shapes
to dynamic ops. In such a module an edge of integers is an array of dims for as long as all that
made it are sizes and literals; it becomes a Value where another op reads it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx._mlir import ir
from rlx.base.dims import (
    choose,
    floor_div,
    maximum,
    minimum,
    surely_differ,
    surely_less,
)
from rlx.frontends.stablehlo.node import Edge, Sizes, constant_of, element_of, title
from rlx.ir.value import Value
from rlx.types import Dim

__all__ = ["has_dynamic_dims", "known_sizes"]

Flag = bool | Dim
"""Whether something is so: a bool, or a dim that is 0 or 1 where only a call tells."""
TAKES_SIZES = frozenset({
    "dynamic_broadcast_in_dim", "dynamic_gather", "dynamic_iota", "dynamic_pad", "dynamic_reshape",
    "real_dynamic_slice",
})  # fmt: skip
MOST = 64
"""Elements of a literal that may be sizes."""


class _Undecided(Exception):
    """What is asked depends on sizes that a call brings, or is not asked of sizes."""


def has_dynamic_dims(function: Any) -> bool:
    """Whether a function takes arrays with dims that are known in a run alone, or has ops that take
    sizes as operands."""
    if any("?" in str(a.type) for a in function.regions[0].blocks[0].arguments):
        return True
    taking: list[str] = []

    def visit(op: Any) -> ir.WalkResult:
        if title(op) in TAKES_SIZES:
            taking.append(op.name)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    function.operation.walk(visit)
    return bool(taking)


def known_sizes(op: Any, edges: Sequence[Edge]) -> list[Sizes] | None:
    """What an op makes of sizes; None for one that is to be an op of the graph."""
    name = title(op)
    if name == "constant":
        kind = op.results[0].type
        literal = element_of(kind).is_int or element_of(kind).name == "bool"
        if not literal or kind.rank > 2 or int(np.prod(list(kind.shape))) > MOST:
            return None
        return [_objects(constant_of(op))]
    if name == "get_dimension_size":
        return None if not isinstance(edges[0], Value) else [_one(edges[0].shape[_int(op)])]
    if not edges or not all(isinstance(e, np.ndarray) for e in edges):
        return None
    moved, computed = _MOVED.get(name), _COMPUTED.get(name)
    try:
        if moved is not None:
            return [moved(op, *edges)]
        if computed is not None:
            return [_each(computed(op) if name == "compare" else computed, edges)]
    except _Undecided:
        return None
    return None


def _int(op: Any) -> int:
    return int(op.attributes["dimension"].value)


def _one(d: Any) -> Sizes:
    found = np.empty((), object)
    found[()] = d
    return found


def _objects(a: Any) -> Sizes:
    found = np.empty(np.shape(a), object)
    found.reshape(-1)[:] = np.asarray(a).reshape(-1).tolist()
    return found


def _each(f: Callable[..., Any], edges: Sequence[Any]) -> Sizes:
    together = np.broadcast_arrays(*edges)
    found = np.empty(together[0].shape, object)
    for at in np.ndindex(*found.shape):
        found[at] = f(*(e[at] for e in together))
    return found


# -- of elements ---------------------------------------------------------------------------


def _positive(d: Dim) -> bool:
    return d > 0 if isinstance(d, int) else surely_less(0, d)


def _whole(a: Dim, b: Dim) -> None:
    """Undecided unless a division of the two rounds down as one towards 0 does."""
    if not _positive(b) or (a < 0 if isinstance(a, int) else not surely_less(-1, a)):
        raise _Undecided


def _divide(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return int(a / b) if b else -1
    _whole(a, b)
    return floor_div(a, b)


def _remainder(a: Dim, b: Dim) -> Dim:
    return a if b == 0 else a - b * _divide(a, b)


def _sign(a: Dim) -> Dim:
    if isinstance(a, int):
        return (a > 0) - (a < 0)
    if _positive(a) or _positive(-a):
        return 1 if _positive(a) else -1
    raise _Undecided


def _less(a: Dim, b: Dim) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if surely_less(a, b) or surely_less(b - 1, a):
        return surely_less(a, b)
    raise _Undecided


def _differ(a: Dim, b: Dim) -> Flag:
    apart = a - b
    if isinstance(apart, int) or surely_differ(a, b):
        return apart != 0
    if not surely_less(-1, apart):
        raise _Undecided
    return minimum(apart, 1)


def _not(a: Flag) -> Flag:
    return not a if isinstance(a, bool) else 1 - a


def _and(a: Flag, b: Flag) -> Flag:
    if isinstance(a, bool) or isinstance(b, bool):
        known, other = (a, b) if isinstance(a, bool) else (b, a)
        return other if known else False
    return minimum(a, b)


def _select(flag: Flag, yes: Dim, no: Dim) -> Dim:
    if isinstance(flag, bool):
        return yes if flag else no
    return choose(flag, yes, no)


_COMPARED: dict[str, Callable[[Any, Any], Flag]] = {
    "EQ": lambda a, b: _not(_differ(a, b)), "NE": _differ, "LT": _less,
    "GT": lambda a, b: _less(b, a),
    "GE": lambda a, b: not _less(a, b), "LE": lambda a, b: not _less(b, a),
}  # fmt: skip


def _compare(op: Any) -> Callable[[Any, Any], Flag]:
    words = str(op.attributes["comparison_direction"]).replace(">", " ").split()
    return _COMPARED[words[-1]]


_COMPUTED: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "negate": operator.neg, "maximum": maximum, "minimum": minimum, "divide": _divide,
    "remainder": _remainder, "sign": _sign, "compare": _compare, "convert": lambda a: a,
    "and": _and, "or": lambda a, b: _not(_and(_not(a), _not(b))), "not": _not, "select": _select,
    "clamp": lambda low, x, high: minimum(maximum(x, low), high),
}  # fmt: skip

# -- of arrays -----------------------------------------------------------------------------


def _broadcast(op: Any, x: Sizes) -> Sizes:
    shape = list(op.results[0].type.shape)
    dims = [int(d) for d in op.attributes["broadcast_dimensions"]]
    if dims != sorted(dims):
        raise _Undecided
    middle = [1] * len(shape)
    for size, d in zip(x.shape, dims, strict=True):
        middle[d] = size
    return np.broadcast_to(x.reshape(middle), shape).copy()


def _slice(op: Any, x: Sizes) -> Sizes:
    words = ("start_indices", "limit_indices", "strides")
    parts = zip(*(list(op.attributes[name]) for name in words), strict=True)
    return x[tuple(slice(*map(int, part)) for part in parts)]


_MOVED: dict[str, Callable[..., Sizes]] = {
    "reshape": lambda op, x: x.reshape(list(op.results[0].type.shape)),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda op, *xs: np.concatenate(xs),
    "slice": _slice,
}

"""Indexing by ``x[key]``: slices, integers, None and Ellipsis as in NumPy, and index tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.base.dims import SymDim, ceil_div, is_known, maximum, surely_less
from rlx.errors import GraphError, ShapeError
from rlx.ir.builders import located
from rlx.ir.value import Value
from rlx.ops.indexing.along import joined
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.rearrange import Flip
from rlx.ops.movement.slicing import Slice
from rlx.types import Dim

__all__ = ["index"]


@dataclass
class _Box:
    """The slice that a key takes, one entry an axis."""

    starts: list[Dim]
    sizes: list[Dim]
    steps: list[int]

    def of(self, value: Value) -> Value:
        """The elements of ``value`` in the box, those of a negative step from the last on."""
        back = [axis for axis, step in enumerate(self.steps) if step < 0]
        starts = [
            start + (size - 1) * step if step < 0 else start
            for start, size, step in zip(self.starts, self.sizes, self.steps, strict=True)
        ]
        if any(start != 0 for start in starts) or tuple(self.sizes) != value.shape:
            value = Slice.build(value, starts, self.sizes, [abs(step) for step in self.steps])
        return Flip.build(value, back) if back else value


@located
def index(value: Value, key: Any) -> Value:
    """``value[key]``. The key is made of integers, slices, None, Ellipsis, and integer tensors or
    arrays side by side, which broadcast and pick along their axes together.

    Raises ShapeError for an index outside its axis and GraphError for a key of another kind, such
    as a mask, whose result would have a shape that depends on data.
    """
    parts = _complete(key if isinstance(key, tuple) else (key,), value.rank)
    box = _Box([], [], [])
    shape: list[Dim] = []
    picks: list[Value] = []
    first = 0
    for part in parts:
        if part is None:
            shape.append(1)
            continue
        axis = len(box.starts)
        dim = value.shape[axis]
        if isinstance(part, slice):
            start, size, step = _range(part, dim, axis)
            shape.append(size)
        elif isinstance(part, Value):
            first = first if picks else len(shape)
            picks.append(part)
            start, size, step = 0, dim, 1
            shape.append(size)
        else:
            start, size, step = _place(part, dim, axis), 1, 1
        box.starts.append(start)
        box.sizes.append(size)
        box.steps.append(step)
    out = box.of(value).reshape(shape)
    if len(picks) < 2:
        return Gather.build(out, picks[0], first) if picks else out
    flat, rows = joined("index", out, picks, "fault", first)
    return Gather(rows, flat, first, "clip", 0).out


def _complete(key: tuple[Any, ...], rank: int) -> list[Any]:
    """One part for every axis (and the Nones between them), each of a kind that is known."""
    parts = [_part(p) for p in key]
    dots = [i for i, p in enumerate(parts) if p is Ellipsis]
    if len(dots) > 1:
        raise GraphError("an index can have one Ellipsis (...), found more")
    used = sum(p is not None and p is not Ellipsis for p in parts)
    if used > rank:
        raise ShapeError(f"{used} indices for a tensor of rank {rank}")
    at = dots[0] if dots else len(parts)
    fill = [slice(None)] * (rank - used)
    parts = [*parts[:at], *fill, *parts[at + 1 :]]
    _check_tensors(parts)
    return parts


def _part(part: Any) -> Any:
    if part is None or part is Ellipsis or isinstance(part, slice | Value):
        return part
    if isinstance(part, bool | np.bool_):
        raise GraphError("a bool is no index; select by condition with where(mask, x, y)")
    if isinstance(part, list | np.ndarray):
        a = np.asarray(part)
        if a.ndim:
            return Constant(a if a.size else a.astype(np.int64)).out
        part = a[()]
    try:
        return operator.index(part)
    except TypeError:
        raise GraphError(
            f"an index is an integer, a slice, None, ... or an integer tensor; found {part!r}"
        ) from None


def _check_tensors(parts: Sequence[Any]) -> None:
    tensors = [i for i, p in enumerate(parts) if isinstance(p, Value)]
    if not tensors:
        return
    if any(parts[i].dtype.kind == "bool" for i in tensors):
        raise GraphError(
            "a mask selects a number of elements that depends on data; use where(mask, x, y)"
        )
    # NumPy moves the tensors' dims to the front when an integer or another stands apart.
    picks = [i for i, p in enumerate(parts) if isinstance(p, int | Value)]
    if picks[-1] - picks[0] != len(picks) - 1:
        raise GraphError(
            "integers and tensors with a slice between them move axes about in NumPy; index in two"
            " steps, such as x[:, 0][..., indices], or transpose the axes of two tensors together"
        )


def _place(i: int, dim: Dim, axis: int) -> Dim:
    if is_known(dim) and not -dim <= i < dim:
        raise ShapeError(f"index {i} is out of range for axis {axis} of {dim} elements")
    return dim + i if i < 0 else i


def _range(s: slice, dim: Dim, axis: int) -> tuple[Dim, Dim, int]:
    """Start, size and step that a Python slice takes of an axis."""
    try:
        start, stop = (
            v if v is None or isinstance(v, SymDim) else operator.index(v)
            for v in (s.start, s.stop)
        )
        step = None if s.step is None else operator.index(s.step)
    except TypeError:
        raise GraphError(
            f"the bounds of a slice are integers known while the graph is built, found {s}; for an"
            " offset that is a tensor use gather"
        ) from None
    step = 1 if step is None else step
    if step == 0:
        raise ShapeError(f"axis {axis}: the step of a slice must not be 0")
    if any(isinstance(d, SymDim) for d in (dim, start, stop)):
        return _symbolic_range(start, stop, step, dim)
    taken = range(*slice(start, stop, step).indices(dim))
    return (taken.start, len(taken), step) if taken else (0, 0, 1)


def _symbolic_range(
    start: Dim | None, stop: Dim | None, step: int, dim: Dim
) -> tuple[Dim, Dim, int]:
    """The same along a symbolic dim: the bounds are taken as they are, and checked when it is
    bound, for a size that is clipped to the length hides what it is equal to."""
    first: Dim = 0 if step > 0 else dim - 1
    last: Dim = dim if step > 0 else -1
    if start is not None:
        first = dim + start if surely_less(start, 0) else start
    if stop is not None:
        last = dim + stop if surely_less(stop, 0) else stop
    size = ceil_div(last - first, step) if step > 0 else ceil_div(first - last, -step)
    return first, maximum(0, size) if is_known(size) else size, step

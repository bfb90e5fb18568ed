"""Functions that rearrange arrays, and products: the array API standard's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError
from rlx.ir.lift import promoted
from rlx.ir.location import caller
from rlx.ir.value import Value
from rlx.ops.movement.movement import axis_of
from rlx.ops.movement.rearrange import broadcast_arrays as _broadcast_arrays
from rlx.ops.movement.rearrange import stack as _stack
from rlx.ops.sugar import concat as _concat
from rlx.xp.function import Operand, function

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "matmul",
    "matrix_transpose", "moveaxis", "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack",
    "tensordot", "tile", "unstack", "vecdot",
]  # fmt: skip

Axes = int | Sequence[int]


@function
def broadcast_arrays(*arrays: Operand) -> Any:
    """Arrays in the shape in which they meet."""
    return _broadcast_arrays(arrays)


@function
def broadcast_to(x: Operand, /, shape: Sequence[Any]) -> Any:
    """The array in a larger shape."""
    return x.expand(shape)


@function
def concat(arrays: Sequence[Operand], /, *, axis: int | None = 0) -> Any:
    """Arrays one behind the other along an axis; None joins all their elements."""
    parts = promoted(*arrays)
    return _concat([v.flatten() for v in parts], 0) if axis is None else _concat(parts, axis)


@function
def expand_dims(x: Operand, /, *, axis: Axes = 0) -> Any:
    """The array with new axes of size 1."""
    many = [axis] if isinstance(axis, int) else list(axis)
    rank = x.rank + len(many)
    for a in sorted(axis_of(a, rank, "expand_dims") for a in many):
        x = x.unsqueeze(a)
    return x


@function
def squeeze(x: Operand, /, axis: Axes) -> Any:
    """The array without axes of size 1."""
    return x.squeeze(axis)


@function
def flip(x: Operand, /, *, axis: Axes | None = None) -> Any:
    """The elements along axes in the other direction."""
    return x.flip(axis)


@function
def moveaxis(x: Operand, source: Axes, destination: Axes, /) -> Any:
    """The array with axes elsewhere."""
    return x.moveaxis(source, destination)


@function
def permute_dims(x: Operand, /, axes: Sequence[int]) -> Any:
    """The axes in another order."""
    return x.transpose([axis_of(a, x.rank, "permute_dims") for a in axes])


@function
def matrix_transpose(x: Operand, /) -> Any:
    """The last two axes exchanged."""
    return x.swapaxes(-1, -2)


@function
def reshape(x: Operand, /, shape: Sequence[Any], *, copy: bool | None = None) -> Any:
    """The elements in another shape; -1 stands for what is left."""
    return x.reshape(shape)


@function
def roll(x: Operand, /, shift: Axes, *, axis: Axes | None = None) -> Any:
    """The elements moved along axes, from the end to the beginning."""
    if axis is not None and not isinstance(axis, int) and isinstance(shift, int):
        shift = [shift] * len(axis)
    return x.roll(shift, axis)


@function
def tile(x: Operand, repetitions: Sequence[int], /) -> Any:
    """The array beside itself, as often as said along each axis."""
    return x.tile(repetitions)


@function
def _repeat(x: Operand, repeats: Any, axis: int | None) -> Any:
    return x.repeat(repeats, axis)


def repeat(x: Operand, repeats: Any, /, *, axis: int | None = None) -> Any:
    """The elements several times each: numbers that the shape depends on, so no Values."""
    if isinstance(repeats, Value) or np.ndim(repeats) > 1:
        raise GraphError(
            "repeat: how often is a number or a list of them, on which the shape depends; found a"
            f" {type(repeats).__name__}",
            caller(),
        )
    times = np.asarray(repeats).tolist()
    return _repeat(x, tuple(times) if isinstance(times, list) else times, axis)


@function
def stack(arrays: Sequence[Operand], /, *, axis: int = 0) -> Any:
    """Arrays of one shape along a new axis."""
    return _stack(promoted(*arrays), axis=axis)


@function
def unstack(x: Operand, /, *, axis: int = 0) -> Any:
    """The parts of an array along an axis, as a tuple."""
    return tuple(x.unstack(axis))


@function
def matmul(x1: Operand, x2: Operand, /) -> Any:
    """The product of matrices."""
    a, b = promoted(x1, x2)
    return a.matmul(b)


@function
def tensordot(x1: Operand, x2: Operand, /, *, axes: int | Sequence[Sequence[int]] = 2) -> Any:
    """The sum of products along the last ``axes`` of one array and the first of the other, or along
    pairs of axes."""
    a, b = promoted(x1, x2)
    if isinstance(axes, int):
        left, right = list(range(a.rank - axes, a.rank)), list(range(axes))
    else:
        left = [axis_of(i, a.rank, "tensordot") for i in axes[0]]
        right = [axis_of(i, b.rank, "tensordot") for i in axes[1]]
    return a.dot_general(b, left, right)


@function
def vecdot(x1: Operand, x2: Operand, /, *, axis: int = -1) -> Any:
    """The sum of the products of two arrays along an axis, with the first conjugated."""
    a, b = promoted(x1, x2)
    return ((a.conj() if a.dtype.is_complex else a) * b).sum(axes=axis)

"""The arrays of a scheme that has several: taken by name, and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, NameError, ShapeError, did_you_mean
from rlx.quant.bits import Array

__all__ = ["matrix", "part", "rows_of_scales"]


def matrix(scheme: str, shape: Sequence[int]) -> tuple[int, int]:
    """The two sizes of a shape. ShapeError: it has not two."""
    if len(shape) != 2:
        raise ShapeError(f"{scheme} holds a matrix, found the shape {list(shape)}")
    return shape[0], shape[1]


def part(
    scheme: str, data: Mapping[str, Any], name: str, kinds: str, shape: Sequence[int | None]
) -> Array:
    """An array by name, of one of the element types and of a shape, where None is any size."""
    if name not in data:
        hint = did_you_mean(name, [str(n) for n in data])
        raise NameError(f"{scheme} has an array {name!r}, which is not there{hint}")
    x = np.asarray(data[name])
    if x.dtype.name not in kinds.split():
        raise DTypeError(f"{scheme}: {name} is {x.dtype}, expected {kinds.replace(' ', ' or ')}")
    if x.ndim != len(shape) or any(w not in (None, n) for n, w in zip(x.shape, shape, strict=True)):
        wanted = ", ".join("any" if w is None else str(w) for w in shape)
        raise ShapeError(f"{scheme}: {name} has the shape {list(x.shape)}, expected [{wanted}]")
    return x


def rows_of_scales(scheme: str, scales: Array, k: int) -> Array:
    """For each of k rows, which row of the scales it has."""
    groups = scales.shape[0]
    if groups == 0 or k % groups:
        raise ShapeError(f"{scheme}: {k} rows are no whole number of groups for {groups} of scales")
    return np.arange(k) // (k // groups)

"""Windows that slide over spatial axes: the arguments, sizes and loop nests of conv and pool.

Along each spatial axis a window has ``kernel`` taps, ``dilation`` apart; the first one starts
``low`` places before the axis, each next one ``stride`` further, and none goes beyond ``high``
places behind it. A negative number of places drops elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.base.dims import is_known, surely_less
from rlx.errors import GraphError, ShapeError
from rlx.ir.op import Array
from rlx.ops.movement.movement import listed
from rlx.types import Dim

__all__ = [
    "Numbers",
    "Padding",
    "Windows",
    "check_counts",
    "each",
    "extent",
    "fold_backward",
    "fold_forward",
    "padding_of",
    "view_of_windows",
    "window_count",
]

Fold = Callable[..., Any]
Numbers = int | Sequence[int]
"""One number for all spatial axes, or one for each."""
Padding = int | Sequence[int] | Sequence[Sequence[int]]
"""Places around all spatial axes, or each, or a pair (before, after) for each."""


class Windows(NamedTuple):
    """Where windows lie, with a number for each spatial axis."""

    taps: tuple[int, ...]
    stride: tuple[int, ...]
    low: tuple[int, ...]
    dilation: tuple[int, ...]


def each(value: Any, rank: int, what: str) -> tuple[int, ...]:
    """One number an axis, from such numbers or from one for all axes."""
    if isinstance(value, str):
        raise GraphError(f"{what} is an int or one a spatial axis, found {value!r}")
    many = tuple(value) if isinstance(value, Iterable) else (value,) * rank
    if len(many) == 1:
        many = many * rank
    if len(many) != rank or not all(
        (is_known(n) or isinstance(n, np.integer)) and not isinstance(n, bool) for n in many
    ):
        raise GraphError(f"{what} is an int or one for each of {rank} spatial axes, found {value}")
    return tuple(int(n) for n in many)


def padding_of(
    padding: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], what: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The places before and after each axis, from an int, one an axis, a pair (low, high) an axis,
    "valid" (none), or "same": as many results as elements, the odd place at the end."""
    rank = len(kernel)
    named = padding if isinstance(padding, str) else ""
    if named == "valid":
        return (0,) * rank, (0,) * rank
    if named == "same":
        if any(s != 1 for s in stride):
            raise ShapeError(f'{what}: padding "same" takes stride 1, found {listed(stride)}')
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    if isinstance(padding, str):
        raise GraphError(f'{what}: padding is "same", "valid" or numbers, found {padding!r}')
    many = list(padding) if isinstance(padding, Iterable) else [padding]
    if many and all(isinstance(p, Iterable) and not isinstance(p, str) for p in many):
        pairs = [tuple(p) for p in many]
        if any(len(p) != 2 for p in pairs):
            raise GraphError(f"{what}: padding pairs are (low, high), found {padding}")
        low = each([p[0] for p in pairs], rank, f"{what}: padding")
        high = each([p[1] for p in pairs], rank, f"{what}: padding")
    else:
        low = high = each(padding, rank, f"{what}: padding")
    if any(p < 0 for p in (*low, *high)):
        raise ShapeError(f"{what}: padding is not negative, found {padding}; take a slice first")
    return low, high


def check_counts(what: str, rank: int, **given: Sequence[Dim]) -> None:
    """ShapeError unless each attribute has one number for each of ``rank`` spatial axes; strides,
    dilations and taps are at least 1."""
    for name, numbers in given.items():
        if len(numbers) != rank:
            raise ShapeError(
                f"{what}: {name} needs one number for each of {rank} spatial axes, found"
                f" {listed(numbers)}"
            )
        if name in ("stride", "dilation", "taps") and any(surely_less(n, 1) for n in numbers):
            raise ShapeError(f"{what}: {name} must be at least 1, found {listed(numbers)}")


def extent(kernel: Dim, dilation: int) -> Dim:
    """The places from the first tap of a window to the last one, both included."""
    return (kernel - 1) * dilation + 1


def window_count(what: str, size: Dim, taps: Dim, stride: int, dilation: int, places: Dim) -> Dim:
    """How many windows fit into an axis of ``size`` elements with ``places`` places around it;
    ShapeError if there is surely none."""
    room = size + places - extent(taps, dilation)
    if surely_less(room, 0):
        raise ShapeError(
            f"{what}: a window of {extent(taps, dilation)} places (kernel {taps}, dilation"
            f" {dilation}) does not fit into {size} elements with {places} places of padding"
        )
    return room // stride + 1


def view_of_windows(x: Array, counts: Sequence[int], windows: Windows) -> Array:
    """The windows of an array [N, C, *spatial] that has its padding: a view [N, C, *counts,
    *kernel]."""
    steps = x.strides[2:]
    strides = [n * s for n, s in zip(windows.stride, steps, strict=True)]
    strides += [n * d for n, d in zip(windows.dilation, steps, strict=True)]
    shape = (*x.shape[:2], *counts, *windows.taps)
    return np.lib.stride_tricks.as_strided(x, shape, (*x.strides[:2], *strides), writeable=False)


# -- loop nests ----------------------------------------------------------------------------


def fold_forward(
    b: Any,
    at: Sequence[Any],
    sizes: Sequence[int],
    windows: Windows,
    body: Fold,
    init: Sequence[Any],
) -> list[Any]:
    """Fold the elements of the window number ``at``, in order: ``body(places, taps, *carried)``.

    ``sizes`` are those of the axes. Padding is left out.
    """
    kernel, strides, low, dilation = windows

    def reach(axis: int, tap: Any) -> tuple[Any, Any]:
        place = at[axis] * strides[axis] + tap * dilation[axis] - low[axis]
        return place, (place >= 0) & (place < sizes[axis])

    return _fold(b, reach, kernel, body, init)


def fold_backward(
    b: Any,
    at: Sequence[Any],
    counts: Sequence[int],
    windows: Windows,
    body: Fold,
    init: Sequence[Any],
) -> list[Any]:
    """Fold the windows, of ``counts`` along each axis, that have the element ``at``, by its tap in
    them: ``body(windows, taps, *carried)``."""
    kernel, strides, low, dilation = windows

    def reach(axis: int, tap: Any) -> tuple[Any, Any]:
        place, stride = at[axis] + low[axis] - tap * dilation[axis], strides[axis]
        # Division is of unsigned numbers; what is negative is out already.
        window = place // stride if stride > 1 else place
        inside = (place >= 0) & (window < counts[axis])
        if stride > 1:
            inside = inside & b.k.compare("eq", place % stride, 0)
        return window, inside

    return _fold(b, reach, kernel, body, init)


def _fold(
    b: Any,
    reach: Callable[[int, Any], tuple[Any, Any]],
    kernel: Sequence[int],
    body: Fold,
    init: Sequence[Any],
) -> list[Any]:
    def nest(axis: int, inside: Any, places: list[Any], taps: list[Any], acc: Sequence[Any]) -> Any:
        if axis == len(kernel):
            return b.when(
                inside, lambda: body(places, taps, *acc), lambda: list(acc), results=list(acc)
            )

        def step(tap: Any, *acc: Any) -> Any:
            place, here = reach(axis, tap)
            both = here if inside is None else inside & here
            return nest(axis + 1, both, [*places, place], [*taps, tap], acc)

        return b.loop(kernel[axis], step, list(acc))

    return nest(0, None, [], [], init)

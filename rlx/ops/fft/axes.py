"""Fourier transforms along several axes, and the frequencies of their elements: ``numpy.fft``'s."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError, ShapeError, shown
from rlx.ir.builders import located
from rlx.ir.value import Value
from rlx.ops.fft.fft import Fft, Ifft, Irfft, Rfft, length_of
from rlx.ops.fft.plan import OPPOSITE
from rlx.ops.movement.constant import Constant, check_count
from rlx.ops.movement.movement import axis_of
from rlx.ops.sugar import concat
from rlx.types import DType
from rlx.types import dtype as dtype_of

__all__ = [
    "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft2", "ifftn", "ifftshift", "ihfft",
    "irfftn", "rfftfreq", "rfftn",
]  # fmt: skip


# -- several axes --------------------------------------------------------------------------


def fftn(
    x: Value,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Value:
    """``numpy.fft.fftn``: the transform along all axes, or those given, cut or filled to ``s``."""
    for axis, n in reversed(_axes(x, s, axes)):
        x = Fft.build(x, n, axis, norm)
    return x


def ifftn(
    x: Value,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Value:
    """``numpy.fft.ifftn``: the inverse of ``fftn``."""
    for axis, n in reversed(_axes(x, s, axes)):
        x = Ifft.build(x, n, axis, norm)
    return x


def rfftn(
    x: Value,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Value:
    """``numpy.fft.rfftn``: of real numbers; the last of the axes keeps n // 2 + 1 elements."""
    *others, (axis, n) = _axes(x, s, axes)
    x = Rfft.build(x, n, axis, norm)
    for axis, n in reversed(others):
        x = Fft.build(x, n, axis, norm)
    return x


def irfftn(
    x: Value,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Value:
    """``numpy.fft.irfftn``: the inverse of ``rfftn``; by default the last axis becomes even."""
    *others, (axis, n) = _axes(x, s, axes)
    for other, size in reversed(others):
        x = Ifft.build(x, size, other, norm)
    return Irfft.build(x, n, axis, norm)


def fft2(
    x: Value,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str = "backward",
) -> Value:
    """``numpy.fft.fft2``: the transform along two axes."""
    return fftn(x, s, axes, norm)


def ifft2(
    x: Value,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str = "backward",
) -> Value:
    """``numpy.fft.ifft2``: the inverse of ``fft2``."""
    return ifftn(x, s, axes, norm)


def _axes(
    x: Value, s: Sequence[int] | None, axes: Sequence[int] | None
) -> list[tuple[int, int | None]]:
    """Axes from the front, each with the length wanted."""
    if axes is None:
        axes = range(x.rank) if s is None else range(x.rank - len(s), x.rank)
    listed = [axis_of(a, x.rank, "the transform") for a in axes]
    if not listed:
        raise ShapeError(f"a transform needs one axis at least; {x.type} and axes={list(axes)}")
    if s is not None and len(s) != len(listed):
        raise ShapeError(
            f"a transform of {len(listed)} axes takes as many lengths, found {list(s)}"
        )
    return list(zip(listed, [None] * len(listed) if s is None else s, strict=True))


def hfft(x: Value, n: int | None = None, axis: int = -1, norm: str = "backward") -> Value:
    """``numpy.fft.hfft``: the transform, which is real, of a signal given by its first half."""
    _known_norm(norm)
    return Irfft.build(x.conj(), n, axis, OPPOSITE[norm])


def ihfft(x: Value, n: int | None = None, axis: int = -1, norm: str = "backward") -> Value:
    """``numpy.fft.ihfft``: the inverse of ``hfft``."""
    _known_norm(norm)
    return Rfft.build(x, n, axis, OPPOSITE[norm]).conj()


def _known_norm(norm: str) -> None:
    if norm not in OPPOSITE:
        raise GraphError(f"norm {norm!r} is none of {', '.join(OPPOSITE)}")


# -- frequencies ---------------------------------------------------------------------------


@located
def fftfreq(n: int, d: float = 1.0, dtype: DType | str | Any = "f64") -> Value:
    """``numpy.fft.fftfreq``: the frequencies of a transform of n samples ``d`` apart."""
    return _frequencies(np.fft.fftfreq, n, d, dtype)


@located
def rfftfreq(n: int, d: float = 1.0, dtype: DType | str | Any = "f64") -> Value:
    """``numpy.fft.rfftfreq``: those of a transform of n real samples."""
    return _frequencies(np.fft.rfftfreq, n, d, dtype)


def _frequencies(function: Any, n: int, d: float, dt: DType | str | Any) -> Value:
    counted = isinstance(n, int | np.integer) and n >= 1
    apart = isinstance(d, int | float | np.floating) and d != 0
    if not counted or not apart:
        raise ShapeError(
            "frequencies are of one sample or more, some time apart: found"
            f" n={shown(n)}, d={shown(d)}"
        )
    check_count("frequencies", n)
    return Constant(function(n, d).astype(dtype_of(dt).numpy)).out


def fftshift(x: Value, axes: Sequence[int] | int | None = None) -> Value:
    """``numpy.fft.fftshift``: frequency 0 moved to the middle of all axes, or those given."""
    return _shifted(x, axes, lambda n: (n + 1) // 2)


def ifftshift(x: Value, axes: Sequence[int] | int | None = None) -> Value:
    """``numpy.fft.ifftshift``: the inverse of ``fftshift``."""
    return _shifted(x, axes, lambda n: n // 2)


def _shifted(x: Value, axes: Sequence[int] | int | None, first: Any) -> Value:
    listed = range(x.rank) if axes is None else axes
    given = listed if isinstance(listed, Iterable) else [listed]
    for axis in (axis_of(a, x.rank, "the shift") for a in given):
        n = length_of(x, axis)
        at = first(n)
        if 0 < at < n:
            x = concat([x.narrow(axis, at, n - at), x.narrow(axis, 0, at)], axis)
    return x

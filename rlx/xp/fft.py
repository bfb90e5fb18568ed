"""The standard's extension of Fourier transforms, of f32, f64 and their complex types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.ir.builders import builder
from rlx.ops.movement.constant import Constant
from rlx.types import complex_of, f64
from rlx.types import dtype as as_dtype
from rlx.xp.function import Operand, check_device, creation, function

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfftn", "rfft", "rfftfreq", "rfftn",
]  # fmt: skip


def _ready(x: Any, real: bool) -> Any:
    """An operand in an element type that the op takes: integers count as f64."""
    x = x if x.dtype.is_float or x.dtype.is_complex else x.cast(f64)
    return x if real or x.dtype.is_complex else x.cast(complex_of(x.dtype))


def _named(f: Callable[..., Any], name: str, what: str) -> Callable[..., Any]:
    f.__name__ = f.__qualname__ = name
    f.__doc__ = what
    return function(f)


def _line(name: str, what: str, *, real: bool = False) -> Callable[..., Any]:
    op = builder(name)
    assert op is not None

    def f(x: Operand, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
        return op(_ready(x, real), n, axis, norm)

    return _named(f, name, f"{what} along an axis, of length ``n``.")


def _axes(name: str, what: str, *, real: bool = False) -> Callable[..., Any]:
    op = builder(name)
    assert op is not None

    def f(
        x: Operand, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
        norm: str = "backward",
    ) -> Any:  # fmt: skip
        return op(_ready(x, real), s, axes, norm)

    return _named(f, name, f"{what} along axes, by default all, of the lengths ``s``.")


def _shift(name: str, what: str) -> Callable[..., Any]:
    op = builder(name)
    assert op is not None

    def f(x: Operand, /, *, axes: int | Sequence[int] | None = None) -> Any:
        return op(x, axes)

    return _named(f, name, what)


fft = _line("fft", "The Fourier transform")
ifft = _line("ifft", "The inverse Fourier transform")
rfft = _line("rfft", "The half of the Fourier transform of reals", real=True)
irfft = _line("irfft", "The reals of which that is the transform")
hfft = _line("hfft", "The Fourier transform of numbers whose second half mirrors the first")
ihfft = _line("ihfft", "The half of the inverse transform of reals", real=True)
fftn = _axes("fftn", "The Fourier transform")
ifftn = _axes("ifftn", "The inverse Fourier transform")
rfftn = _axes("rfftn", "The half of the Fourier transform of reals", real=True)
irfftn = _axes("irfftn", "The reals of which that is the transform")
fftshift = _shift("fftshift", "The frequency 0 moved to the middle.")
ifftshift = _shift("ifftshift", "The frequency 0 moved back to the front.")


def _frequencies(found: Any, dtype: Any, device: Any) -> Any:
    check_device(device)
    return Constant(found.astype(as_dtype(f64 if dtype is None else dtype).numpy)).out


@creation
def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of a transform of length n, of samples ``d`` apart."""
    return _frequencies(np.fft.fftfreq(n, d), dtype, device)


@creation
def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """Those that the half of it has."""
    return _frequencies(np.fft.rfftfreq(n, d), dtype, device)

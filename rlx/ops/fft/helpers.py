"""The helpers of the system that RLX follows, in NumPy's conventions: complex tensors in the place
of rows of real and imaginary parts, and no filling up but where it is asked for."""

from __future__ import annotations

from rlx.errors import DTypeError, ShapeError
from rlx.ir.builders import located
from rlx.ir.value import Value
from rlx.ops.fft.fft import Fft, Ifft, Rfft, cut, length_of

__all__ = [
    "fft_batch_real", "fft_real", "ifft_spectrum", "pad_last_axis_to_pow2", "psd_real",
    "split_spectrum",
]  # fmt: skip


def _real(x: Value, what: str) -> None:
    if x.dtype.is_complex:
        raise DTypeError(f"{what} takes real numbers, found {x.dtype}; fft takes complex ones")


@located
def fft_real(x: Value) -> Value:
    """The whole transform of real numbers along the last axis, complex, n elements for n; ``rfft``
    gives the half that the other follows from. DTypeError for complex numbers."""
    _real(x, "fft_real")
    return Fft.build(x)


@located
def fft_batch_real(x: Value) -> Value:
    """``fft_real`` of the rows of a matrix [batch, n]; ShapeError for another rank."""
    if x.rank != 2:
        raise ShapeError(f"fft_batch_real takes rows [batch, n], found {x.type}")
    return fft_real(x)


@located
def psd_real(x: Value) -> Value:
    """The powers ``|rfft(x)|^2 / n`` of real numbers along the last axis, [..., n // 2 + 1], where
    ``psd`` has SciPy's scaling. DTypeError for complex numbers."""
    _real(x, "psd_real")
    z = Rfft.build(x)
    return z.complex_norm_sq() / float(length_of(x))


@located
def ifft_spectrum(z: Value) -> Value:
    """The inverse of ``fft_real``: the real numbers of a whole spectrum, whose other half follows
    from the one. DTypeError for real numbers."""
    if not z.dtype.is_complex:
        raise DTypeError(f"ifft_spectrum takes complex numbers, found {z.dtype}")
    return Ifft.build(z).real()


@located
def split_spectrum(z: Value) -> tuple[Value, Value]:
    """The real and the imaginary parts of a complex tensor."""
    return z.real(), z.imag()


@located
def pad_last_axis_to_pow2(x: Value) -> Value:
    """x with zeros behind its last axis, whose length is the next power of two. ShapeError for a
    scalar, and a length that is not known."""
    n = length_of(x)
    return cut(x, 1 << max(n - 1, 0).bit_length())

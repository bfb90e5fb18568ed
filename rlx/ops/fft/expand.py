"""Transforms from other ops, for every length and every target.

A length n = r * m with a small factor r is Cooley's and Tukey's step: a product with the r x r
matrix of roots, a multiplication by roots, and a transform of m elements. A large prime is
Bluestein's: a convolution with a chirp, by transforms of a power of two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.ir.value import Value
from rlx.ops.fft.plan import prime_factors, roots
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.slicing import Slice

__all__ = ["inverse_real", "transformed"]

LARGEST_FACTOR = 32
"""Up to which primes a product with the matrix of roots is less work than a convolution."""

FACTOR = 16
"""Up to which factors are taken together."""


def transformed(x: Value, inverse: bool, scale: float) -> Value:
    """The transform of the last axis of a complex tensor, scaled."""
    assert is_known(x.shape[-1])
    n = int(x.shape[-1])
    primes = prime_factors(n)
    if primes and primes[-1] > LARGEST_FACTOR:
        return _convolved(x, n, inverse, scale)
    out = _stepwise(x, _grouped(primes), inverse)
    return out if scale == 1.0 else out * scale


def _grouped(primes: list[int]) -> list[int]:
    """Factors as large as ``FACTOR`` allows, from small primes."""
    out: list[int] = []
    for p in primes:
        if out and out[-1] * p <= FACTOR:
            out[-1] *= p
        else:
            out.append(p)
    return out


def _stepwise(x: Value, factors: list[int], inverse: bool) -> Value:
    if not factors:
        return x
    *batch, last = x.shape
    assert is_known(last)
    n = int(last)
    r, m = factors[0], n // factors[0]
    # Element t = m j + p: over j by a product, for each p; the result's k1 is the row.
    matrix = _constant(roots(np.outer(np.arange(r), np.arange(r)), r), x, inverse)
    y = MatMul(matrix, x.reshape((*batch, r, m))).out
    if m == 1:
        return y.reshape(x.shape)
    turned = y * _constant(roots(np.outer(np.arange(r), np.arange(m)), n), x, inverse)
    z = _stepwise(turned, factors[1:], inverse)
    # Element k = k1 + r k2.
    order = [*range(len(batch)), len(batch) + 1, len(batch)]
    return z.transpose(order).reshape(x.shape)


def _convolved(x: Value, n: int, inverse: bool, scale: float) -> Value:
    """With k t = (k**2 + t**2 - (k - t)**2) / 2: a chirp, a convolution with its conjugate, and the
    chirp again. The chirp's transform is computed here, in c128."""
    size = 1 << (2 * n - 2).bit_length()
    # Squares modulo 2 n, since the angles of halves repeat there; exact, as integers are.
    chirp = roots(np.arange(n, dtype=np.int64) ** 2 % (2 * n), 2 * n)
    kernel = np.zeros(size, np.complex128)
    kernel[:n] = np.conj(chirp)
    kernel[size - n + 1 :] = np.conj(chirp[1:])[::-1]
    spectrum = np.fft.fft(kernel)
    if inverse:
        # That of the conjugate sequence, which is symmetric, is the conjugate.
        spectrum = np.fft.fft(np.conj(kernel))
    wave = np.conj(chirp) if inverse else chirp
    a = x * _constant(wave, x)
    padded = a.pad([0] * x.rank, [*[0] * (x.rank - 1), size - n])
    product = padded.fft() * _constant(spectrum, x)
    found = product.ifft()
    first = Slice.build(found, [0] * x.rank, x.shape)
    return first * _constant(wave * scale, x)


def inverse_real(half: Value, n: int, scale: float) -> Value:
    """The real part of the inverse transform of the n // 2 + 1 elements and zeros behind them."""
    size = half.shape[-1]
    assert is_known(size)
    whole = half.pad([0] * half.rank, [*[0] * (half.rank - 1), n - size])
    return transformed(whole, True, scale).real()


def _constant(a: np.ndarray[Any, Any], like: Value, conjugate: bool = False) -> Value:
    return Constant((np.conj(a) if conjugate else a).astype(like.dtype.numpy)).out

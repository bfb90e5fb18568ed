"""Factors, roots of unity and scales of Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["NORMS", "OPPOSITE", "prime_factors", "roots", "scale_of"]

NORMS = ("backward", "ortho", "forward")
"""As NumPy: the inverse is scaled by 1/n, both by 1/sqrt(n), or the forward transform by 1/n."""

OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""The norm by which the inverse has the scale of the forward transform, and the other way."""


def scale_of(n: int, norm: str, *, inverse: bool) -> float:
    """The factor of a transform of n elements."""
    if norm == "ortho":
        return float(1.0 / np.sqrt(n))
    return 1.0 / n if inverse == (norm == "backward") else 1.0


def prime_factors(n: int) -> list[int]:
    """The primes whose product is n, ascending."""
    out: list[int] = []
    p = 2
    while p * p <= n:
        while n % p == 0:
            out.append(p)
            n //= p
        p += 1
    return [*out, n] if n > 1 else out


def roots(powers: np.ndarray[Any, Any], n: int) -> np.ndarray[Any, Any]:
    """exp(-2 pi i / n) to integer powers, in c128, each rounded from an angle below 45 degrees."""
    eighth = np.asarray(powers, np.int64) % n * 8
    octant, rest = eighth // n, eighth % n
    odd = octant % 2 == 1
    angle = np.where(odd, n - rest, rest) * (np.pi / 4 / n)
    cosine, sine = np.cos(angle), np.sin(angle)
    # An odd octant is counted back from its end, which is a multiple of 90 degrees.
    sine = np.where(odd, -sine, sine)
    quarter = (octant + 1) // 2 % 4
    x = np.choose(quarter, [cosine, -sine, -cosine, sine])
    y = np.choose(quarter, [sine, cosine, -sine, -cosine])
    return x - 1j * y

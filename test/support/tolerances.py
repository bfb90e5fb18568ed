"""How closely two computations of the same values must agree, by element type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.types import DType, bf16, c64, c128, dtype, f16, f32, f64

__all__ = [
    "EXACT",
    "STEP",
    "TOLERANCES",
    "Tolerance",
    "assert_close",
    "assert_derivative",
    "tolerance_of",
]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Tolerance:
    """``|found - expected| <= absolute + relative * |expected|``; nan equals nan."""

    relative: float
    absolute: float


# The same formula in another order of operations, or through wider intermediates: a few units in
# the last place (2**-10, 2**-7, 2**-23, 2**-52). Integers and bools are exact.
TOLERANCES: dict[DType, Tolerance] = {
    f16: Tolerance(2**-8, 2**-9),
    bf16: Tolerance(2**-6, 2**-6),
    f32: Tolerance(2e-5, 2e-6),
    f64: Tolerance(1e-11, 1e-12),
    c64: Tolerance(2e-5, 2e-6),
    c128: Tolerance(1e-11, 1e-12),
}

EXACT = Tolerance(0.0, 0.0)

STEP = 1e-5
"""Step of central differences in f64: near the cube root of the machine precision, where the
errors of the formula (step^2) and of rounding (precision / step) meet."""

DERIVATIVE = 1e-6
"""Derivatives in f64 against central differences, relative to the largest element."""


def assert_close(found: Any, expected: Any, tolerance: Tolerance | None = None) -> None:
    """Check two arrays of one dtype and shape; the default tolerance is that of the dtype."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype, f"found {found.dtype}, expected {expected.dtype}"
    assert found.shape == expected.shape, f"found {found.shape}, expected {expected.shape}"
    dt = dtype(found.dtype)
    if dt.is_float8:  # NumPy does not know their nan as one
        found, expected = found.astype(np.float32), expected.astype(np.float32)
    if dt not in TOLERANCES:
        np.testing.assert_array_equal(found, expected)
        return
    t = tolerance or TOLERANCES[dt]
    if dt.is_complex:
        _assert_close_complex(found.astype(np.complex128), expected.astype(np.complex128), t)
        return
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64), rtol=t.relative, atol=t.absolute
    )


def tolerance_of(op: str, expected: Array) -> Tolerance | None:
    """That of the type; None for exact ones. The terms of a layer (``hir.``) cancel, and what is
    left has the roundings of the largest: so there it is of the largest element."""
    t = TOLERANCES.get(dtype(expected.dtype))
    if t is None or not op.startswith("hir.") or not expected.size:
        return t
    finite = np.abs(expected[np.isfinite(expected)]).astype(np.float64)
    return Tolerance(t.relative, t.absolute * max(1.0, float(finite.max(initial=0))))


def _assert_close_complex(found: Array, expected: Array, t: Tolerance) -> None:
    """By absolute values; an element with an infinite or nan part, part by part."""
    finite = np.isfinite(expected)
    pairs = [(found[finite], expected[finite])]
    pairs += [(part(found[~finite]), part(expected[~finite])) for part in (np.real, np.imag)]
    for a, e in pairs:
        np.testing.assert_allclose(a, e, rtol=t.relative, atol=t.absolute)


def assert_derivative(found: Any, difference: Any) -> None:
    """Check a derivative against a central difference of the same function."""
    found, difference = np.asarray(found), np.asarray(difference)
    scale = max(1.0, float(np.max(np.abs(difference), initial=0.0)))
    assert_close(found, difference, Tolerance(DERIVATIVE, 0.1 * DERIVATIVE * scale))

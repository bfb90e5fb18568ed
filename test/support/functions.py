"""The elementary functions' exact values, points to take them at, and errors in units of the last
place."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
import scipy.special

from rlx.codegen.math import CPU_MATH
from rlx.types import DType, f32

__all__ = [
    "BINARY", "DECIMALS", "UNARY", "decimal_error", "decimal_points", "needs_extended", "pairs",
    "points", "powers", "reference", "worst",
]  # fmt: skip

Array = np.ndarray[Any, Any]
INF, NAN = math.inf, math.nan

BINARY = ("pow", "atan2", "rem")
UNARY = [n for n in CPU_MATH if n not in BINARY]
WIDE: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "atan": np.arctan, "erf": scipy.special.erf,
    "gelu": lambda x: np.maximum(x, -40) * scipy.special.ndtr(x),
    "asin": np.arcsin, "acos": np.arccos, "exp2": np.exp2, "expm1": np.expm1, "log2": np.log2,
    "log1p": np.log1p, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh,
    # SciPy loses the sign of -0.
    "erfinv": lambda x: np.copysign(scipy.special.erfinv(x), x),
    "pow": np.power, "atan2": np.arctan2, "rem": np.fmod,
}  # fmt: skip
"""References in a wider format; those of SciPy are good enough for f32 only."""

EXTENDED = np.finfo(np.longdouble).nmant > 60
needs_extended = pytest.mark.skipif(not EXTENDED, reason="long double is no wider than f64 here")


def reference(name: str, *xs: Array) -> Array:
    """The function in f64 of f32, and in long double of f64."""
    wider = np.float64 if xs[0].dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        return WIDE[name](*(x.astype(wider) for x in xs))


def worst(y: Array, exact: Array) -> float:
    """The largest error in units of the last place; inf where the kind of value is wrong."""
    with np.errstate(all="ignore"):
        near = exact.astype(y.dtype)
        finite = np.isfinite(near) & np.isfinite(y)
        unit = np.spacing(np.abs(np.where(finite, near, 1))).astype(exact.dtype)
        error = np.where(finite, np.abs(y.astype(exact.dtype) - exact) / unit, 0)
        same = finite | (near == y) | (np.isnan(near) & np.isnan(y))
        # Rounding to inf starts half a unit above the largest number.
        largest = np.finfo(y.dtype).max
        same |= np.isinf(near) != np.isinf(y)
        same &= ~(np.isinf(y) & (np.abs(exact) < largest)) & ~(
            np.isinf(near) & (np.abs(y) < largest)
        )
        signs = np.isnan(near) | (np.signbit(near) == np.signbit(y))
    return math.inf if not (same & signs).all() else float(error.max())


def points(dt: DType, size: int = 1 << 15) -> Array:
    """Numbers of all sizes and of several ranges, ``size`` of each, and multiples of π/2."""
    rng = np.random.default_rng(7)
    word = np.uint32 if dt is f32 else np.uint64
    anywhere = rng.integers(0, 1 << dt.bits, 4 * size, dtype=word).view(dt.numpy)
    ranges = [rng.uniform(-r, r, size) for r in (0.1, 1, 5, 25, 90, 750, 1e5, 1e15)]
    turns = (np.arange(1, size // 8) * (math.pi / 2)).astype(dt.numpy)
    parts = [anywhere, *ranges, turns, np.nextafter(turns, dt.numpy.type(0))]
    return np.concatenate([p.astype(dt.numpy) for p in parts])


def pairs(dt: DType) -> tuple[Array, Array]:
    """Numbers of all sizes, of one size, whole, and very large; every pair of special ones."""
    rng = np.random.default_rng(5)
    word = np.uint32 if dt is f32 else np.uint64
    any_ = rng.integers(0, 1 << dt.bits, (2, 1 << 16), dtype=word).view(dt.numpy)
    near = rng.standard_normal((2, 1 << 14)).astype(dt.numpy)
    whole = rng.integers(-50, 50, (2, 1 << 12)).astype(dt.numpy)
    info = np.finfo(dt.numpy)
    top = info.max * rng.uniform(0.1, 1, (2, 1 << 12)).astype(dt.numpy)
    row = [0, -0.0, 1, -1, 3, -2.5, INF, -INF, NAN, info.max, info.tiny, info.smallest_subnormal]
    special = np.stack(np.meshgrid(np.array(row, dt.numpy), np.array(row, dt.numpy)))
    x, y = np.concatenate([any_, near, whole, top, special.reshape(2, -1)], axis=1)
    return x.copy(), y.copy()


def powers(dt: DType) -> tuple[Array, Array]:
    """Bases and exponents whose powers are spread over the whole range."""
    rng = np.random.default_rng(11)
    top = 80 if dt is f32 else 700
    x = np.concatenate([np.exp(rng.uniform(-top, top, 1 << 16)), rng.uniform(0.5, 2, 1 << 16)])
    y = np.concatenate([rng.uniform(-2, 2, 1 << 16), rng.uniform(-top, top, 1 << 16)])
    return x.astype(dt.numpy), y.astype(dt.numpy)


ROOT_PI = Decimal("1.77245385090551602729816748334114518279754945612238712821380779")


def exact_erf(x: Decimal) -> Decimal:
    """The Maclaurin series (Abramowitz and Stegun, 7.1.5) in 70 digits, for |x| ≤ 6.5."""
    square, term = x**2, x
    total, n = term, 0
    while abs(term) > Decimal("1e-60") * abs(total):
        n += 1
        term *= -square / n
        total += term / (2 * n + 1)
    return total * 2 / ROOT_PI


def exact_gelu(x: Decimal) -> Decimal:
    """x (1 + erf(x/√2)) / 2; the complement for x < -4 is a continued fraction (the same, 7.1.14),
    of which 200 terms are enough."""
    t = -x / Decimal(2).sqrt()
    if x >= -4:
        return x * (1 - exact_erf(t)) / 2
    tail = t
    for n in range(200, 0, -1):
        tail = t + Decimal(n) / 2 / tail
    return x * (-t * t).exp() / (ROOT_PI * tail) / 2


def exact_erfinv(x: Decimal) -> Decimal:
    """Newton's method on erf, from SciPy's value: two steps double its digits twice."""
    y = Decimal(float(scipy.special.erfinv(float(x))))
    for _ in range(2):
        y -= (exact_erf(y) - x) * (y * y).exp() * ROOT_PI / 2
    return y


DECIMALS: dict[str, tuple[Callable[[Decimal], Decimal], float, float]] = {
    "erf": (exact_erf, -6.4, 6.4),
    "gelu": (exact_gelu, -38.4, 9.0),
    "erfinv": (exact_erfinv, -1.0, 1.0),
}
"""Functions of f64 that NumPy has not in long double, and where they change."""


def decimal_points(name: str) -> Array:
    """Numbers of f64 to take one of ``DECIMALS`` at."""
    _, low, high = DECIMALS[name]
    rng = np.random.default_rng(3)
    x = np.concatenate(
        [rng.uniform(-1.2, 1.2, 400), rng.uniform(low, high, 400), [1e-9, 5.99, 1.0]]
    )
    if name == "erfinv":
        x = np.concatenate([x[np.abs(x) < 1], 1 - 2.0 ** rng.uniform(-53, 0, 400)])
    return x


def decimal_error(name: str, x: Array, y: Array) -> float:
    """The largest error of ``y`` as one of ``DECIMALS`` of ``x``, in units of the last place."""
    exact = DECIMALS[name][0]
    with localcontext() as context:
        context.prec = 70
        errors = [
            abs(Decimal(float(b)) - exact(Decimal(float(a)))) / Decimal(float(np.spacing(abs(b))))
            for a, b in zip(x, y, strict=True)
        ]
    return float(max(errors))

"""Numpy references against oracles that share nothing with them: scipy, exact arithmetic, JAX."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special
from support import ad
from support.evaluate import call
from support.tolerances import assert_close

from rlx.ops.value import Value
from rlx.types import DTYPES, FLOATS, INTS, DType, bf16, f16, f32, f64

Array = np.ndarray[Any, Any]

NAN, INF = math.nan, math.inf
RNG = np.random.default_rng(0)
LINE = np.concatenate([np.linspace(-9, 9, 181), RNG.standard_normal(200), [-INF, INF, NAN, -0.0]])
"""Arguments over the range where the functions bend, and the special values."""


def ulps(found: Any, expected: Any) -> float:
    """The largest distance in units of the last place of ``found``'s type; nan equals nan."""
    found, expected = np.asarray(found), np.asarray(expected, np.float64)
    wide = found.astype(np.float64)
    info = ml_dtypes.finfo(found.dtype)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(expected), float(info.smallest_normal))))
        apart = np.abs(wide - expected) / (np.exp2(exponent) * float(info.eps))
    same = (wide == expected) | (np.isnan(wide) & np.isnan(expected))
    return float(np.max(np.where(same, 0.0, apart), initial=0.0))


def gelu(x: Array) -> Array:
    return x * scipy.special.ndtr(x)


def gelu_by_tanh(x: Array) -> Array:
    """The logistic form of the same formula: (1 + tanh(z)) / 2 = 1 / (1 + exp(-2z))."""
    return x * scipy.special.expit(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


# The function, its oracle in f64, and the largest distance in f64. Shorter types are half an ulp
# from the exact value, and a hair more where the oracle's own error crosses a tie.
FUNCTIONS: list[tuple[str, Callable[[Array], Array], float]] = [
    ("erf", scipy.special.erf, 2),
    ("gelu", gelu, 16),
    ("gelu_approx", gelu_by_tanh, 1e15),  # 1 + tanh cancels: see the absolute check
    ("sigmoid", scipy.special.expit, 4),
    ("silu", lambda x: x * scipy.special.expit(x), 4),
    ("tanh", lambda x: -np.expm1(-2 * x) / (1 + np.exp(-2 * x)), 1e15),
    ("exp", lambda x: np.expm1(x) + 1, 1e15),
    ("atan", lambda x: np.arctan2(x, 1.0), 2),
    ("tan", lambda x: np.sin(x) / np.cos(x), 4),
    ("sqrt", lambda x: np.sqrt(x), 0.5),
    ("rsqrt", lambda x: np.sqrt(1 / x), 2),
    ("log", lambda x: np.log2(x) * math.log(2), 4),
    ("round", lambda x: np.where(np.isfinite(x), np.array([_even(v) for v in x]), x), 0),
    ("floor", lambda x: np.where(np.isfinite(x), x - np.mod(x, 1.0), x), 0),
]

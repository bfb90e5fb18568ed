"""Operands of products, and what their results are checked against."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.types import DType

__all__ = ["check", "numbers", "values"]

Array = np.ndarray[Any, Any]
STEP = {"f32": 2.0**-24, "f64": 2.0**-53, "f16": 2.0**-11, "bf16": 2.0**-8}


def numbers(dt: DType, shape: tuple[int, ...], seed: int) -> Array:
    """Normal floats, or integers of the whole range."""
    rng = np.random.default_rng(seed)
    if dt.is_float:
        return rng.standard_normal(shape).astype(dt.numpy)
    info = np.iinfo(dt.numpy)
    return rng.integers(info.min, info.max, shape, info.dtype, endpoint=True)


def values(rng: np.random.Generator, shape: tuple[int, ...], dt: DType) -> Array:
    """Floats from -1 to 1, or integers of the whole range."""
    if dt.is_int:
        info = np.iinfo(dt.numpy)
        return rng.integers(info.min, info.max + 1, shape).astype(dt.numpy)
    return rng.uniform(-1, 1, shape).astype(dt.numpy)


def check(found: Array, a: Array, b: Array, dt: DType) -> None:
    """That a product is exact, or of floats within the bound of its sums and its rounding."""
    if not dt.is_float:
        np.testing.assert_array_equal(found, a @ b)
        return
    wide = [x.astype(np.float64) for x in (a, b)]
    sums = STEP["f64"] if dt.bits == 64 else STEP["f32"]
    room = (np.abs(wide[0]) @ np.abs(wide[1])) * (STEP[dt.name] + 8 * sums)
    assert found.dtype == a.dtype
    assert np.all(np.abs(found.astype(np.float64) - wide[0] @ wide[1]) <= room)

"""Argmax and argmin by their family, against NumPy: geometry, types, ties, nan, strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.types import DTYPES
from support.sweeps import pairwise

Array = np.ndarray[Any, Any]


def found(
    x: Array, axis: int, dtype: str, *, least: bool, last: bool, perm: list[int] | None = None
) -> Array:
    """What the family finds in ``x``, or in its transpose by ``perm``."""
    g = rlx.Graph("search")
    v = g.input("x", x.shape, dtype)
    v = v if perm is None else v.transpose(perm)
    search = v.argmin if least else v.argmax
    g.set_outputs([search(axis=axis, select_last_index=last)])
    f = rlx.Session("cpu").compile(g)
    out = f.run_slots(x)[0]
    assert "argreduce" in str(f.reports[0].compilation.dispatch.native)
    return out


def expected(x: Array, axis: int, *, least: bool, last: bool) -> Array:
    x = x.astype(np.float64) if x.dtype.kind not in "iu" else x
    search = np.argmin if least else np.argmax
    if not last:
        return search(x, axis)
    return x.shape[axis] - 1 - search(np.flip(x, axis), axis)


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Few different numbers, so that most extrema are met more than once."""
    rng = np.random.default_rng(seed)
    low = 0 if dtype.startswith("u") else -3
    return rng.integers(low, 4, shape).astype(DTYPES[dtype].numpy)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((1,), 0), ((7,), 0), ((1000,), 0), ((3, 257), 1), ((3, 64), 1), ((257, 3), 0),
        ((5, 700), 0), ((2, 21, 33, 35), 1), ((2, 3, 4, 130), 2), ((4, 1, 300), 1),
        ((600, 2, 5), 0), ((9, 5, 1), 1),
    ],
)  # fmt: skip
def test_geometry(shape: tuple[int, ...], axis: int, least: bool, last: bool) -> None:
    x = numbers(shape, "f32")
    got = found(x, axis, "f32", least=least, last=last)
    np.testing.assert_array_equal(got, expected(x, axis, least=least, last=last))


@pairwise(
    dtype=[n for n, d in DTYPES.items() if n != "bool" and not d.is_complex and not d.is_float8],
    axis=[0, 1],
    last=[False, True],
)
def test_types(dtype: str, axis: int, last: bool) -> None:
    x = numbers((37, 301), dtype)
    info: Any = np.iinfo(x.dtype) if x.dtype.kind in "iu" else None
    if info is not None:
        x[5, 7], x[6, 7], x[5, 8] = info.max, info.min, info.max
    for least in (False, True):
        got = found(x, axis, dtype, least=least, last=last)
        np.testing.assert_array_equal(got, expected(x, axis, least=least, last=last))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_first_nan_is_the_extremum(dtype: str, axis: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.choice(
        [-np.inf, -1, -0.0, 0.0, 2, np.inf, np.nan], (65, 259), p=[0.1] * 4 + [0.28] * 2 + [0.04]
    )
    x[:, 3] = np.nan
    x[4] = -np.inf
    x = x.astype(DTYPES[dtype].numpy)
    for least in (False, True):
        for last in (False, True):
            got = found(x, axis, dtype, least=least, last=last)
            np.testing.assert_array_equal(got, expected(x, axis, least=least, last=last))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_strided(axis: int) -> None:
    x = numbers((6, 33, 70), "i32")
    for perm in ([2, 1, 0], [1, 0, 2], [0, 2, 1], [2, 0, 1]):
        want = expected(x.transpose(perm), axis, least=False, last=False)
        got = found(x, axis, "i32", least=False, last=False, perm=perm)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_whose_elements_lie_apart(axis: int) -> None:
    """One column of a matrix, every third element of a row, and a row that is one element."""
    x = numbers((9, 31), "i32")
    views: dict[str, Callable[[Any], Any]] = {
        "column": lambda v: v[:, 4:5],
        "steps": lambda v: v[2:3, ::3],
        "both": lambda v: v[::2, 1::3],
        "spread": lambda v: v[:, 4:5].expand((9, 6)) if isinstance(v, rlx.Value) else v,
    }
    g = rlx.Graph("views")
    v = g.input("x", x.shape, "i32")
    g.set_outputs([view(v).argmax(axis=axis) for view in views.values()])
    compiled = rlx.Session("cpu").compile(g)
    wanted = [np.argmax(view(x), axis) for name, view in views.items() if name != "spread"]
    wanted.append(np.argmax(np.broadcast_to(x[:, 4:5], (9, 6)), axis))
    for got, want in zip(compiled.run_slots(x), wanted, strict=True):
        np.testing.assert_array_equal(got, want)

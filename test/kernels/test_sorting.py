"""Sorting by words: NumPy's stable order for every short type, length, axis and direction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.kernels.sorting import _network
from rlx.types import DTYPES

Array = np.ndarray[Any, Any]
NAMES = ("f32", "f16", "bf16", "i8", "i16", "i32", "u8", "u16", "u32", "bool", "f64", "i64", "u64")
SIZES = (1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 127, 128, 129, 255, 257, 1000, 4099)


def run(x: Array, axis: int, descending: bool) -> tuple[Array, Array]:
    """Values and indices."""
    names = {d.numpy: n for n, d in DTYPES.items()}
    g = rlx.Graph("sort")
    a = g.input("x", x.shape, names[x.dtype])
    g.set_outputs([a.sort(axis, descending), a.argsort(axis, descending)])
    values, indices = rlx.Session("cpu").compile(g).run_slots(x)
    return values, indices


def check(x: Array, axis: int = -1, descending: bool = False) -> None:
    values, indices = run(x, axis, descending)
    with np.errstate(invalid="ignore"):  # of signalling nans
        wide = x.astype(np.float64) if x.dtype.kind in "fV" else x
    if descending:
        back = np.argsort(np.flip(wide, axis), axis, kind="stable")
        want = x.shape[axis] - 1 - np.flip(back, axis)
    else:
        want = np.argsort(wide, axis, kind="stable")
    np.testing.assert_array_equal(indices, want)
    # The bits too: zeros keep their signs, and nans what is in them.
    whole = np.ascontiguousarray(np.take_along_axis(x, want, axis))
    np.testing.assert_array_equal(values.view(np.uint8), whole.view(np.uint8))


def drawn(name: str, *shape: int) -> Array:
    """Numbers with many equal ones, the greatest and the least, and nan."""
    rng = np.random.default_rng(len(shape) + shape[-1])
    dt = DTYPES[name]
    x = rng.integers(-60, 60, shape)
    if dt.is_float:
        y = (x / 8).astype(np.float64)
        y[rng.random(shape) < 0.05] = np.nan
        y[rng.random(shape) < 0.05] = np.inf
        y[rng.random(shape) < 0.05] = -np.inf
        y[rng.random(shape) < 0.1] = -0.0
        return y.astype(dt.numpy)
    if name == "bool":
        return x > 0
    info = np.iinfo(dt.numpy)
    y = x.astype(dt.numpy)
    y[rng.random(shape) < 0.1] = info.max
    y[rng.random(shape) < 0.1] = info.min
    return y


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("descending", [False, True])
def test_types(name: str, descending: bool) -> None:
    for shape in ((3, 300), (2, 40, 3)):
        for axis in range(len(shape)):
            check(drawn(name, *shape), axis, descending)


@pytest.mark.parametrize("size", SIZES)
def test_lengths(size: int) -> None:
    rng = np.random.default_rng(size)
    x = rng.standard_normal((2, size)).astype(np.float32)
    check(x)
    check(np.sort(x), descending=True)
    check(np.sort(x)[:, ::-1].copy())
    check(rng.integers(0, 3, (2, size)).astype(np.int32), descending=True)


def test_nans_with_a_payload_are_alike() -> None:
    x = np.array([0x7FC00001, 0xFFC00002, 0x7F800001, 0x3F800000, 0xFFFFFFFF], np.uint32)
    check(np.tile(x, 60).view(np.float32))


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16])
def test_networks_sort(n: int) -> None:
    """All lines of zeros and ones: so all lines."""
    lines = [(np.arange(1 << n) >> i) & 1 for i in range(n)]
    for low, high in _network(n):
        lines[low], lines[high] = np.minimum(lines[low], lines[high]), lines[low] | lines[high]
    assert (np.diff(np.stack(lines), axis=0) >= 0).all()


@pytest.mark.parametrize("k", [1, 3, 10, 33])
@pytest.mark.parametrize("size", [33, 40, 64, 100, 1001])
def test_topk_of_long_lines(size: int, k: int) -> None:
    for name in ("f32", "bf16", "i8", "u64"):
        x = drawn(name, 3, size)
        g = rlx.Graph("topk")
        a = g.input("x", x.shape, name)
        g.set_outputs([*a.topk(k)])
        values, indices = rlx.Session("cpu").compile(g).run_slots(x)
        _, want = run(x, -1, True)
        np.testing.assert_array_equal(indices, want[:, :k])
        whole = np.ascontiguousarray(np.take_along_axis(x, want[:, :k], 1))
        np.testing.assert_array_equal(values.view(np.uint8), whole.view(np.uint8))

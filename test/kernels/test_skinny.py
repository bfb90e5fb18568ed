"""Products with few columns against numpy in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.types import DTYPES
from support.products import check, numbers
from support.sweeps import pairwise

Array = np.ndarray[Any, Any]
SIZES = ((1, 64, 2), (2, 65, 3), (5, 79, 4), (4, 100, 5), (9, 1001, 7), (3, 128, 8), (17, 333, 11))
LONG = ((1, 4097, 2), (3, 8193, 4), (2, 12345, 16), (6, 9000, 13))


def turned(v: Any) -> Any:
    return v.transpose([*range(v.rank - 2), v.rank - 1, v.rank - 2])


def graph(build: Any, *arrays: Array) -> rlx.Graph:
    g = rlx.Graph("few")
    given = [g.input(f"x{n}", a.shape, rlx.types.dtype(a.dtype).name) for n, a in enumerate(arrays)]
    g.set_outputs(build(*given))
    return g


def run(build: Any, *arrays: Array, **options: Any) -> Array:
    f = rlx.Session("cpu", **options).compile(graph(build, *arrays))
    return f.run({f"x{n}": a for n, a in enumerate(arrays)})[0]


def across(b: Array) -> Array:
    """A copy that lies column by column, as its transpose."""
    return np.ascontiguousarray(b.swapaxes(-1, -2))


@pairwise(
    dtype=["f32", "f64", "f16", "bf16", "i32"],
    cpu=["x86-64-v3", "x86-64-v4", "native"],
    size=[*SIZES, *LONG],
)
def test_sizes(
    dtype: str, cpu: str, size: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if cpu != "native":
        monkeypatch.setenv("RLX_CPU", cpu)
    dt, (m, k, n) = DTYPES[dtype], size
    a, b = numbers(dt, (m, k), 0), numbers(dt, (k, n), 1)
    check(run(lambda x, y: x @ y, a, b), a, b, dt)
    check(run(lambda x, y: x @ turned(y), a, across(b)), a, b, dt)


def test_every_number_of_columns_and_of_last_steps() -> None:
    dt = DTYPES["f32"]
    for n in range(2, 17):
        a, b = numbers(dt, (6, 128 + n - 1), 0), numbers(dt, (128 + n - 1, n), 1)
        dense, along = run(lambda x, y: x @ y, a, b), run(lambda x, y: x @ turned(y), a, across(b))
        check(dense, a, b, dt)
        np.testing.assert_array_equal(dense, along)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_views_and_batches(dtype: str) -> None:
    dt = DTYPES[dtype]
    a, b = numbers(dt, (3, 2, 7, 200), 0), numbers(dt, (3, 2, 200, 6), 1)
    check(run(lambda x, y: x @ y, a, b), a, b, dt)
    check(run(lambda x, y: x @ turned(y), a, across(b)), a, b, dt)
    check(run(lambda x, y: x @ y, a, b[0, 0]), a, b[0, 0], dt)
    check(run(lambda x, y: x @ y, a[0, 0], b), a[0, 0], b, dt)
    check(run(lambda x, y: x @ turned(y), a[:1], across(b[:, :1])), a[:1], b[:, :1], dt)
    wide, rows = numbers(dt, (200, 20), 2), numbers(dt, (7, 300), 3)
    part = run(lambda x, y: x.slice([0, 50], [7, 200]) @ y.slice([0, 3], [200, 5]), rows, wide)
    check(part, rows[:, 50:250], wide[:, 3:8], dt)
    part = run(lambda x, y: x.slice([0, 50], [7, 200]) @ turned(y.slice([2, 0], [4, 200])),
               rows, across(wide))  # fmt: skip
    check(part, rows[:, 50:250], wide[:, 2:6], dt)


@pytest.mark.parametrize("k", [100, 9001])
def test_what_follows(k: int) -> None:
    f32 = DTYPES["f32"]
    a, b, row = numbers(f32, (9, k), 0), numbers(f32, (k, 5), 1), numbers(f32, (5,), 2)
    column, full = numbers(f32, (9, 1), 3), numbers(f32, (9, 5), 4)
    found = run(lambda x, y, r, c, f: ((x @ y + r) * c + f).relu(), a, b, row, column, full)
    wanted = np.maximum((a.astype(np.float64) @ b + row) * column + full, 0)
    np.testing.assert_allclose(found, wanted, atol=1e-6 * k)


@pytest.mark.parametrize("lies", ["dense", "along"])
@pytest.mark.parametrize("k", [321, 8200])
def test_bits_depend_neither_on_rows_nor_on_threads(lies: str, k: int) -> None:
    f32 = DTYPES["f32"]
    a, b = numbers(f32, (77, k), 0), numbers(f32, (k, 6), 1)
    given, build = (b, lambda x, y: x @ y) if lies == "dense" else (
        across(b), lambda x, y: x @ turned(y))  # fmt: skip
    whole = run(build, a, given)
    for count in (1, 2, 3, 16):
        np.testing.assert_array_equal(run(build, a[5 : 5 + count], given), whole[5 : 5 + count])
    for threads in (2, 3):
        np.testing.assert_array_equal(run(build, a, given, threads=threads), whole)


@pytest.mark.parametrize("k", [70, 5000])
def test_nan_and_infinity_stay_in_their_elements(k: int) -> None:
    a, b = np.ones((5, k), np.float32), np.ones((k, 3), np.float32)
    a[1, k - 1], a[2, k - 17], b[k - 5, 1] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        wanted = a @ b
    np.testing.assert_array_equal(run(lambda x, y: x @ y, a, b), wanted)
    np.testing.assert_array_equal(run(lambda x, y: x @ turned(y), a, across(b)), wanted)


def test_a_long_sum_is_accurate() -> None:
    a, b = np.full((1, 1 << 22), 0.1, np.float32), np.full((1 << 22, 2), 0.1, np.float32)
    wanted = a.astype(np.float64) @ b
    np.testing.assert_allclose(run(lambda x, y: x @ y, a, b), wanted, rtol=1e-5)


def test_what_takes_this_way() -> None:
    def families(build: Any, *arrays: Array) -> str:
        return rlx.GraphModule.of(graph(build, *arrays)).to("lir").text

    f32 = DTYPES["f32"]
    a, b = numbers(f32, (4, 100), 0), numbers(f32, (100, 3), 1)
    assert "skinny" in families(lambda x, y: x @ y, a, b)
    assert "skinny" in families(lambda x, y: x @ turned(y), a, across(b))
    assert "skinny" not in families(lambda x, y: turned(x) @ y, across(a), b)
    assert "skinny" not in families(lambda x, y: x @ y, a[:, :50].copy(), b[:50])
    assert "skinny" not in families(lambda x, y: x @ y, a, numbers(f32, (100, 40), 1))

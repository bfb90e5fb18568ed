"""Products by one column, however the matrix lies, against numpy in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.value import Value
from rlx.types import DTYPES

Array = np.ndarray[Any, Any]
Build = Callable[..., Value]
DTYPES_HERE = ["f32", "f64", "f16", "bf16", "u8", "i16", "i32", "i64"]
STEP = {"f32": 2.0**-24, "f64": 2.0**-53, "f16": 2.0**-11, "bf16": 2.0**-8}
SIZES = ((1, 1), (5, 1), (3, 17), (33, 513), (1025, 40), (2, 9000))


def turned(v: Value) -> Value:
    return v.transpose([*range(v.rank - 2), v.rank - 1, v.rank - 2])


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    rng, dt = np.random.default_rng(seed), DTYPES[dtype]
    if dt.is_float:
        return rng.standard_normal(shape).astype(dt.numpy)
    info = np.iinfo(dt.numpy)
    return rng.integers(info.min, info.max, shape, info.dtype, endpoint=True)


def run(build: Build, *arrays: Array, **options: Any) -> Array:
    g = rlx.Graph("product")
    values = [
        g.input(f"x{n}", a.shape, rlx.types.dtype(a.dtype).name) for n, a in enumerate(arrays)
    ]
    g.set_outputs(build(*values))
    f = rlx.Session("cpu", **options).compile(g)
    return f.run({f"x{n}": a for n, a in enumerate(arrays)})[0]


def check(found: Array, a: Array, b: Array, dtype: str) -> None:
    if not DTYPES[dtype].is_float:
        np.testing.assert_array_equal(found, a @ b)
        return
    wide = [x.astype(np.float64) for x in (a, b)]
    room = np.abs(wide[0]) @ np.abs(wide[1]) * (STEP[dtype] + 64 * STEP["f32"] * (dtype != "f64"))
    room += 64 * STEP["f64"] * np.abs(wide[0]) @ np.abs(wide[1])
    assert found.dtype == a.dtype
    assert np.all(np.abs(found.astype(np.float64) - wide[0] @ wide[1]) <= room)


@pytest.mark.parametrize("rows,depth", SIZES)
@pytest.mark.parametrize("dtype", DTYPES_HERE)
def test_every_way_to_lie(dtype: str, rows: int, depth: int) -> None:
    a, v = numbers(dtype, (rows, depth), 0), numbers(dtype, (depth,), 1)
    across, row = np.ascontiguousarray(a.T), v[None]
    check(run(lambda x, y: x @ y, a, v), a, v, dtype)
    check(run(lambda x, y: turned(x) @ y, across, v), a, v, dtype)
    check(run(lambda x, y: turned(x) @ turned(y), across, row), a, v[:, None], dtype)
    check(run(lambda x, y: y @ x, across, v), v, across, dtype)
    check(run(lambda x, y: y @ turned(x), a, v), v, a.T, dtype)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32"])
def test_batches(dtype: str) -> None:
    a, v = numbers(dtype, (4, 1, 700, 50), 0), numbers(dtype, (3, 700, 1), 1)
    lying = np.ascontiguousarray(a.swapaxes(2, 3))
    check(run(lambda x, y: turned(x) @ y, a, v), lying, v, dtype)
    check(run(lambda x, y: x @ y, lying, v), lying, v, dtype)
    own = numbers(dtype, (4, 1, 700, 1), 3)
    check(run(lambda x, y: turned(x) @ y, a, own), lying, own, dtype)
    strided = numbers(dtype, (700, 6), 2)
    column = run(lambda x, y: turned(x) @ y.slice([0, 2], [700, 1]), a, strided)
    check(column, lying, strided[:, 2:3], dtype)


@pytest.mark.parametrize("lies", ["along", "across"])
def test_what_follows(lies: str) -> None:
    a, v = numbers("f32", (90, 600), 0), numbers("f32", (600,), 1)
    bias, scale = numbers("f32", (90,), 2), numbers("f32", (1,), 3)

    def build(x: Value, y: Value, b: Value, s: Value) -> Value:
        return ((x if lies == "along" else turned(x)) @ y * s + b).relu()

    given = a if lies == "along" else np.ascontiguousarray(a.T)
    wanted = np.maximum(a.astype(np.float64) @ v * scale + bias, 0)
    np.testing.assert_allclose(run(build, given, v, bias, scale), wanted, atol=1e-4)


def test_nan_and_infinity_stay_in_their_rows() -> None:
    a, v = np.ones((70, 1100), np.float32), np.ones(1100, np.float32)
    a[3, 1000], a[69, 5] = np.nan, np.inf
    wanted = a @ v
    np.testing.assert_array_equal(run(lambda x, y: turned(x) @ y, a.T.copy(), v), wanted)
    np.testing.assert_array_equal(run(lambda x, y: x @ y, a, v), wanted)


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_bits_depend_neither_on_rows_nor_on_threads(dtype: str) -> None:
    a, v = numbers(dtype, (1301, 300), 0), numbers(dtype, (1301,), 1)
    whole = run(lambda x, y: turned(x) @ y, a, v)
    for count in (2, 16, 77):
        part = run(lambda x, y: turned(x) @ y, a[:, :count].copy(), v)
        np.testing.assert_array_equal(part, whole[:count])
    for threads in (2, 3):
        other = run(lambda x, y: turned(x) @ y, a, v, threads=threads)
        np.testing.assert_array_equal(other, whole)


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "i16", "i64"])
def test_other_machines(cpu: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CPU", cpu)
    a, v = numbers(dtype, (611, 83), 0), numbers(dtype, (611,), 1)
    check(run(lambda x, y: turned(x) @ y, a, v), np.ascontiguousarray(a.T), v, dtype)


def test_weights_that_are_packed_by_parts_are_not_joined_before() -> None:
    g = rlx.Graph("shared")
    x = g.input("x", [4, 96])
    g.set_outputs([x @ g.param(f"w{n}", [96, 96]) for n in range(3)])
    copies = rlx.GraphModule.of(g).to("lir").text.count('lir.family = "copy"')
    assert copies == 0

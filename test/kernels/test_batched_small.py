"""Batches of small products against numpy, and against the bits of the contraction family."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.codegen.program import Program
from rlx.kernels.matmul import batched_small
from rlx.lowering.select.matmul import batched_small as selection
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DTYPES
from support.products import check, numbers
from support.runkernel import run_launch

Array = np.ndarray[Any, Any]
SIZES = (
    (1, 2, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4), (5, 7, 6), (8, 8, 8), (9, 17, 2), (1, 16, 16),
    (16, 5, 40), (33, 33, 33), (7, 100, 11), (4, 129, 3), (21, 48, 13),
)  # fmt: skip


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i8", "u16", "i32", "i64"])
def test_sizes(dtype: str, cpu: str) -> None:
    dt, features = DTYPES[dtype], preset(cpu)
    plain = Program((dt,), (), (0,))
    for m, n, k in SIZES[:: 1 if dtype in ("f32", "i8") else 3]:
        a, b = numbers(dt, (5, m, k), 0), numbers(dt, (5, k, n), 1)
        config = batched_small.config_of(kernel_target(features), dt, plain, (), m, n)
        launch = batched_small.launch((5, m, n, k), (m * k, k, 1), (k * n, n), (m * n, n))
        out = np.full(5 * m * n + 1, 7, dt.numpy)
        run_launch(batched_small, config, launch, [a, b, out], 2, features)
        assert out[-1] == 7, "it wrote beyond the result"
        check(out[:-1].reshape(5, m, n), a, b, dt)


def run(build: Any, *arrays: Array, **options: Any) -> Array:
    g = rlx.Graph("batch")
    given = [g.input(f"x{n}", a.shape, rlx.types.dtype(a.dtype).name) for n, a in enumerate(arrays)]
    g.set_outputs(build(*given))
    f = rlx.Session("cpu", **options).compile(g)
    return f.run({f"x{n}": a for n, a in enumerate(arrays)})[0]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i16"])
def test_views_and_broadcasts(dtype: str) -> None:
    dt = DTYPES[dtype]
    a, b = numbers(dt, (4, 8, 6, 5), 0), numbers(dt, (4, 8, 5, 9), 1)
    turned = [0, 1, 3, 2]
    check(run(lambda x, y: x @ y, a, b), a, b, dt)
    across = np.ascontiguousarray(a.transpose(turned))
    check(run(lambda x, y: x.transpose(turned) @ y, across, b), a, b, dt)
    lying = np.ascontiguousarray(b.transpose(turned))
    check(run(lambda x, y: x @ y.transpose(turned), a, lying), a, b, dt)
    check(run(lambda x, y: x @ y, a[0, 0], b), a[0, 0], b, dt)
    check(run(lambda x, y: x @ y, a, b[:, :1]), a, b[:, :1], dt)
    check(run(lambda x, y: x @ y, a[:1], b[:, :1]), a[:1], b[:, :1], dt)
    heads = np.ascontiguousarray(a.transpose(0, 2, 1, 3))
    check(run(lambda x, y: x.transpose([0, 2, 1, 3]) @ y, heads, b), a, b, dt)


def test_what_follows() -> None:
    f32 = DTYPES["f32"]
    a, b = numbers(f32, (40, 6, 7), 0), numbers(f32, (40, 7, 11), 1)
    row, full = numbers(f32, (11,), 2), numbers(f32, (40, 6, 11), 3)
    column, one = numbers(f32, (40, 6, 1), 4), numbers(f32, (1,), 5)
    found = run(
        lambda x, y, r, f, c, o: ((x @ y + r) * c + f * o).tanh(), a, b, row, full, column, one
    )
    wanted = np.tanh((a.astype(np.float64) @ b + row) * column + full * one)
    np.testing.assert_allclose(found, wanted, atol=2e-6)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_bits_are_those_of_a_contraction(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dt = DTYPES[dtype]
    a, b = numbers(dt, (20, 9, 37), 0), numbers(dt, (20, 37, 50), 1)
    many = run(lambda x, y: x @ y, a, b)
    np.testing.assert_array_equal(run(lambda x, y: x @ y, a[:, 4:5].copy(), b), many[:, 4:5])
    np.testing.assert_array_equal(run(lambda x, y: x @ y, a, b, threads=2), many)
    monkeypatch.setattr(selection, "BATCH", 1 << 40)
    with rlx.knobs.cache.scoped(False):
        np.testing.assert_array_equal(run(lambda x, y: x @ y, a, b), many)


def test_nan_and_infinity_stay_in_their_elements() -> None:
    a, b = np.ones((16, 4, 3), np.float32), np.ones((16, 3, 5), np.float32)
    a[1, 2, 0], b[7, 1, 4] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(run(lambda x, y: x @ y, a, b), a @ b)

"""Products of integers by the contraction family, against numpy: sums wrap as the operands do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.types import DTYPES

Array = np.ndarray[Any, Any]
INTEGERS = [name for name, dt in DTYPES.items() if dt.is_int]
SHAPES = (
    ((1, 1), (1, 1)),
    ((7, 100), (100, 33)),
    ((9, 64), (64, 50)),
    ((70, 801), (801, 97)),
    ((1, 300), (300, 130)),
    ((130, 300), (300, 1)),
    ((5, 3, 17), (5, 17, 4)),
    ((2, 1, 9, 33), (3, 33, 51)),
    ((3, 65, 20), (20, 48)),
)


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    """Any numbers of the type, so that most products overflow."""
    info = np.iinfo(dtype.replace("i", "int").replace("u", "uint"))
    rng = np.random.default_rng(seed)
    return rng.integers(info.min, info.max, shape, info.dtype, endpoint=True)


def run(a: Array, b: Array, dtype: str, turned: bool = False, weight: bool = False) -> Array:
    g = rlx.Graph("product")
    x = g.input("a", a.shape, dtype)
    y = (g.param if weight else g.input)("b", b.shape, dtype)
    g.set_outputs(x @ (y.transpose([*range(b.ndim - 2), -1, -2]) if turned else y))
    f = rlx.Session("cpu").compile(g)
    if weight:
        f.set_param("b", b)
        return f.run({"a": a})[0]
    return f.run({"a": a, "b": b})[0]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_sums_wrap(dtype: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (numbers(dtype, s, n) for n, s in enumerate(shapes))
    found = run(a, b, dtype)
    assert found.dtype == a.dtype
    np.testing.assert_array_equal(found, a @ b)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "u64"])
def test_turned_operands_and_weights(dtype: str) -> None:
    a, b = numbers(dtype, (21, 40), 0), numbers(dtype, (70, 40), 1)
    np.testing.assert_array_equal(run(a, b, dtype, turned=True), a @ b.T)
    np.testing.assert_array_equal(run(a, b, dtype, turned=True, weight=True), a @ b.T)
    np.testing.assert_array_equal(run(a.T[:, :7].T, b, dtype, turned=True), a[:7] @ b.T)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_it_is_the_contraction_family(dtype: str) -> None:
    g = rlx.Graph("product")
    g.set_outputs(g.input("a", [32, 64], dtype) @ g.input("b", [64, 96], dtype))
    assert '"contraction"' in rlx.GraphModule.of(g).to("lir").text


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["i8", "u16", "i32", "i64"])
def test_other_machines(cpu: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CPU", cpu)
    a, b = numbers(dtype, (13, 37), 0), numbers(dtype, (37, 55), 1)
    np.testing.assert_array_equal(run(a, b, dtype), a @ b)

"""The arrays of results: aligned to cache lines, on memory that is used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError

Array = np.ndarray[Any, Any]

LEAST = 64 << 10
"""Bytes from which a result is no array of NumPy's own."""


def doubled(shape: tuple[int, ...], dtype: str = "f32") -> Callable[[Array], Array]:
    g = rlx.Graph("doubled")
    x = g.input("x", shape, dtype)
    g.set_outputs([x + x])
    f = rlx.Session().compile(g)
    return lambda a: f.run_slots(a)[0]


def address(a: Array) -> int:
    return a.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64", "bool", "c64"])
def test_large_results_start_at_a_cache_line(dtype: str) -> None:
    g = rlx.Graph("types")
    x = g.input("x", [300, 300], dtype)
    g.set_outputs([x.transpose((1, 0)), x.expand((2, 300, 300))])
    f = rlx.Session().compile(g)
    a = (np.random.default_rng(0).standard_normal((300, 300)) > 0).astype(x.dtype.numpy)
    for found, wanted in zip(f.run({"x": a}), (a.T, np.stack([a, a])), strict=True):
        assert address(found) % 64 == 0
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.flags.writeable and found.flags.c_contiguous
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("keep", [lambda y: y, lambda y: y[3:], memoryview, np.from_dlpack])
def test_memory_waits_for_the_last_that_uses_it(keep: Callable[[Array], Any]) -> None:
    """An array, a view, a buffer or another library's tensor."""
    f, size = doubled((LEAST // 4 + 77,)), LEAST // 4 + 77
    y = f(np.full(size, 1, np.float32))
    first, kept = address(y), keep(y)
    del y
    others = [f(np.full(size, n, np.float32)) for n in (2, 3)]
    assert first not in map(address, others)
    assert set(np.asarray(kept)) == {2}
    del kept
    assert address(f(np.full(size, 4, np.float32))) == first
    assert [set(o) for o in others] == [{4}, {6}]


def test_results_of_one_call_lie_apart() -> None:
    g = rlx.Graph("two")
    x = g.input("x", [LEAST], "f32")
    g.set_outputs([x + 1.0, x + 2.0])
    f, a = rlx.Session().compile(g), np.zeros(LEAST, np.float32)
    for _ in range(3):
        one, two = f.run({"x": a})
        assert not np.may_share_memory(one, two)
        assert (one == 1).all() and (two == 2).all()


def test_a_call_that_fails_gives_its_memory_back() -> None:
    f = doubled((LEAST,))
    y = f(np.zeros(LEAST, np.float32))
    first = address(y)
    del y
    with pytest.raises(GraphError):
        f(np.zeros(LEAST + 1, np.float32))
    assert address(f(np.zeros(LEAST, np.float32))) == first


def test_a_result_is_given_to_the_next_call() -> None:
    f, y = doubled((LEAST,)), np.ones(LEAST, np.float32)
    for n in range(1, 6):
        y = f(y)
        assert (y == 2**n).all()

"""Pooling with the pointwise ops behind it, against the same graph without fusion: equal bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx
from rlx.types import DTYPES
from support.sweeps import pairwise

SHAPE = (3, 5, 9, 37)
OPERANDS: dict[str, tuple[int, ...]] = {
    "whole": SHAPE, "channel": (5, 1, 1), "number": (1,), "image": (3, 1, 1, 1),
}  # fmt: skip
POOLS: dict[str, Callable[[rlx.Value], rlx.Value]] = {
    "max_pool": lambda x: x.max_pool([3, 3], padding=1, stride=1),
    "mean_pool": lambda x: x.mean_pool([3, 3], padding=1, stride=1),
}


@pairwise(pool=POOLS, operand=OPERANDS, dtype=["f32", "f16", "bf16", "f64"])
def test_bits(pool: str, operand: str, dtype: str) -> None:
    g = rlx.Graph("pool")
    x, other = g.input("x", SHAPE, dtype), g.input("other", OPERANDS[operand], dtype)
    g.set_outputs([(POOLS[pool](x) * other - x).relu()])
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.shape).astype(DTYPES[dtype].numpy) for v in (x, other)]
    results: list[Any] = []
    for fuse in (True, False):
        f = rlx.Session("cpu").compile(g, fuse=fuse)
        results.append(f.run_slots(*arrays)[0])
        native = f.reports[0].compilation.dispatch.native
        ran = {name.replace("+expand", "") for name in native}
        # One number an image is no operand that the family addresses.
        whole = fuse and operand != "image"
        assert (f"pool: {pool}+mul+sub+relu" in ran) == whole, ran
    np.testing.assert_array_equal(*results)


def test_pool_of_a_broadcast() -> None:
    g = rlx.Graph("pool")
    x = g.input("x", (1, 4, 1, 8))
    g.set_outputs([x.expand((2, 4, 6, 8)).max_pool([2, 2]).exp()])
    array = np.random.default_rng(1).standard_normal(x.shape).astype(np.float32)
    (out,) = rlx.Session("cpu").compile(g).run_slots(array)
    want = np.exp(np.maximum(array[..., ::2], array[..., 1::2]))
    np.testing.assert_allclose(out, np.broadcast_to(want, out.shape), rtol=1e-6)


def test_pool_that_others_read_is_stored() -> None:
    g = rlx.Graph("pool")
    x = g.input("x", (1, 2, 4, 4))
    pooled = x.max_pool([2, 2])
    g.set_outputs([pooled, pooled.exp()])
    array = np.random.default_rng(2).standard_normal(x.shape).astype(np.float32)
    found, grown = rlx.Session("cpu").compile(g).run_slots(array)
    np.testing.assert_array_equal(found, array.reshape(1, 2, 2, 2, 2, 2).max((3, 5)))
    np.testing.assert_allclose(grown, np.exp(found), rtol=1e-6)


@pairwise(
    width=[1, 2, 15, 16, 17, 40], taps=[(3, 3), (5, 5), (2, 3)], spread=[1, 2],
    dtype=["f32", "f64", "f16", "bf16", "i8", "i32"], indices=[False, True],
)  # fmt: skip
def test_windows_that_reach_beyond_a_row(
    width: int, taps: tuple[int, int], spread: int, dtype: str, indices: bool
) -> None:
    """Those of neighbouring elements, whose taps are masked: as the interpreter has them, with what
    is not finite in one window alone, and rows of -inf."""
    g = rlx.Graph("pool")
    x = g.input("x", (2, 3, 6, width), dtype)
    how: dict[str, Any] = {"stride": 1, "padding": [t // 2 for t in taps]}
    how["dilation"] = spread if width > 4 else 1
    pool = x.max_pool_indices if indices else x.max_pool
    g.set_outputs([pool(list(taps), **how)])
    given = np.random.default_rng(0).standard_normal(x.shape) * 40
    if dtype[0] != "i":
        given[0, 0, 1, width // 2], given[0, 1], given[1, 2, 2, -1] = np.nan, -np.inf, np.inf
    given = given.astype(DTYPES[dtype].numpy)
    f = rlx.Session("cpu").compile(g)
    assert next(iter(f.reports[0].compilation.dispatch.native)).startswith("pool")
    found, want = f.run_slots(given)[0], rlx.interpret(g, {"x": given})[0]
    np.testing.assert_array_equal(found.astype(np.float64), want.astype(np.float64))

"""Attention over pages: the same bits for a row in whatever company, and in whatever pages."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx.errors import FaultError
from rlx.kernels.attention.paged import CHUNK, FEW

Array = np.ndarray[Any, Any]

H, HK, D, LENGTH = 4, 2, 32, 700


@cache
def compiled(
    page: int, pages: int, dtype: str, window: int, softcap: float, sinks: bool, threads: int
) -> rlx.CompiledGraph:
    g = rlx.Graph("paged")
    q = g.input("q", ["rows", H * D])
    keys, values = (g.input(n, [pages * page, HK * D], dtype) for n in ("keys", "values"))
    table = g.input("table", [3, -(-LENGTH // page)], "i32")
    sequence, positions = (g.input(n, ["rows"], "i32") for n in ("sequence", "positions"))
    out = g.paged_attention(
        q, keys, values, table, sequence, positions, g.input("sinks", [H]) if sinks else None,
        num_heads=H, kv_heads=HK, page_size=page, scale=0.2, window=window, softcap=softcap,
    )  # fmt: skip
    g.set_outputs(out)
    return rlx.Session("cpu", threads=threads).compile(g)


class Case:
    """Three sequences, their rows in the pages that a table gives."""

    def __init__(self, dtype: str = "f32", seed: int = 0) -> None:
        r = np.random.default_rng(seed)
        dt = getattr(rlx, dtype).numpy
        self.dtype, self.dt = dtype, dt
        self.q = r.standard_normal((3, LENGTH, H * D)).astype(np.float32)
        self.keys, self.values = (
            r.standard_normal((3, LENGTH, HK * D)).astype(np.float32).astype(dt) for _ in "kv"
        )

    def run(
        self, rows: list[tuple[int, int]], page: int = 16, order: int = 0, threads: int = 1,
        window: int = 0, softcap: float = 0.0, sinks: bool = False,
    ) -> Array:  # fmt: skip
        count = -(-LENGTH // page)
        number = np.random.default_rng(order).permutation(3 * count + 2)[: 3 * count]
        table = number.reshape(3, count).astype(np.int32)
        cache_ = np.full((2, (3 * count + 2) * page, HK * D), np.nan, self.dt)
        for s in range(3):
            at = table[s][np.arange(LENGTH) // page] * page + np.arange(LENGTH) % page
            cache_[0, at], cache_[1, at] = self.keys[s], self.values[s]
        f = compiled(page, 3 * count + 2, self.dtype, window, softcap, sinks, threads)
        s, p = np.array(rows, np.int32).T.copy()
        return f.run({
            "q": self.q[s, p], "keys": cache_[0], "values": cache_[1], "table": table,
            "sequence": s, "positions": p, **({"sinks": SINKS} if sinks else {}),
        })[0]  # fmt: skip

    def expected(
        self, s: int, p: int, window: int = 0, softcap: float = 0.0, sinks: bool = False
    ) -> Array:
        low = max(0, p + 1 - window) if window else 0
        q = self.q[s, p].astype(np.float64).reshape(HK, H // HK, D)
        k, v = (
            x[s, low : p + 1].astype(np.float64).reshape(-1, HK, D)
            for x in (self.keys, self.values)
        )
        scores = 0.2 * np.einsum("hgd,nhd->hgn", q, k)
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        w = np.exp(scores)
        rest = np.exp(SINKS.astype(np.float64)).reshape(HK, H // HK, 1) if sinks else 0
        w /= w.sum(-1, keepdims=True) + rest
        return np.einsum("hgn,nhd->hgd", w, v).reshape(-1)


SINKS = np.array([-30.0, 0.0, 2.0, 30.0], np.float32)
PLACES = [0, 1, 15, 16, CHUNK - 1, CHUNK, CHUNK + 3, 2 * CHUNK, LENGTH - 1]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(
    ("window", "softcap", "sinks"), [(0, 0.0, False), (1, 0.0, True), (300, 1.5, True)]
)
def test_a_row_attends_to_what_is_before_it(
    dtype: str, window: int, softcap: float, sinks: bool
) -> None:
    case = Case(dtype)
    rows = [(i % 3, p) for i, p in enumerate(PLACES)]
    for page in (16, 700):
        found = case.run(rows, page, window=window, softcap=softcap, sinks=sinks)
        for row, (s, p) in zip(found, rows, strict=True):
            expected = case.expected(s, p, window, softcap, sinks)
            np.testing.assert_allclose(row, expected, rtol=2e-5, atol=2e-6)


@settings(max_examples=40)
@given(st.data())
def test_the_bits_of_a_row_are_its_own(data: st.DataObject) -> None:
    window = data.draw(st.sampled_from([0, 40, 300]))
    case = Case("f16")
    s, p = data.draw(st.integers(0, 2)), data.draw(st.integers(0, LENGTH - 1))
    sinks = window == 40
    alone = case.run([(s, p)], window=window, sinks=sinks)[0]
    before = data.draw(st.integers(0, min(p, 60)))
    after = data.draw(st.integers(0, min(LENGTH - 1 - p, 20)))
    others = [
        (data.draw(st.integers(0, 2)), data.draw(st.integers(0, LENGTH - 1)))
        for _ in range(data.draw(st.integers(0, FEW + 4)))
    ]
    rows = [*others, *((s, i) for i in range(p - before, p + after + 1))]
    found = case.run(
        rows, page=data.draw(st.sampled_from([16, 33, 700])), order=data.draw(st.integers(0, 9)),
        threads=data.draw(st.integers(1, 2)), window=window, sinks=sinks,
    )  # fmt: skip
    assert found[len(others) + before].tobytes() == alone.tobytes()


def test_a_row_without_a_position_is_zero() -> None:
    f = compiled(16, 140, "f32", 0, 0.0, False, 1)
    zeros = {n: np.full((2240, HK * D), np.nan, np.float32) for n in ("keys", "values")}
    rows = {"sequence": np.full(2, 9, np.int32), "positions": np.full(2, -1, np.int32)}
    q, table = np.ones((2, H * D), np.float32), np.full((3, 44), -5, np.int32)
    assert not f.run({"q": q, "table": table, **zeros, **rows})[0].any()


@pytest.mark.parametrize(
    ("sequence", "position", "page"), [(3, 0, 0), (-1, 0, 0), (0, 704, 0), (0, 3, 140), (0, 3, -1)]
)
def test_what_lies_outside_is_a_fault(sequence: int, position: int, page: int) -> None:
    f = compiled(16, 140, "f32", 0, 0.0, False, 1)
    data = {n: np.zeros((2240, HK * D), np.float32) for n in ("keys", "values")}
    rows = {"sequence": np.array([sequence], np.int32), "positions": np.array([position], np.int32)}
    q, table = np.ones((1, H * D), np.float32), np.full((3, 44), page, np.int32)
    with pytest.raises(FaultError, match="a row's sequence, position or page is outside"):
        f.run({"q": q, "table": table, **data, **rows})
    g = f.graph.bind({"rows": 1})
    with pytest.raises(FaultError):
        rlx.interpret(g, {"q": q, "table": table, **data, **rows})

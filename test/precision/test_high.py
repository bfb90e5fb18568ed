"""Precision "high": three products of bf16 where AMX multiplies, f32 elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.precision import Precision, Types, types_of
from rlx.precision.rewrite import with_precision
from rlx.types import bf16

Array = np.ndarray[Any, Any]

SPLIT = types_of(Precision.HIGH, {"amx-tile", "amx-bf16"})


def product(m: int, k: int, n: int) -> rlx.Graph:
    g = rlx.Graph("product")
    x, w = g.input("x", [m, k]), g.param("w", [k, n])
    g.set_outputs([(x @ w).tanh(), x @ w.T.reshape([k, n])])
    return g


def normal(*shape: int) -> Array:
    return np.random.default_rng(shape[0]).normal(size=shape).astype(np.float32)


def test_it_is_f32_where_there_is_no_amx() -> None:
    assert types_of(Precision.HIGH, {"avx512bf16", "amx-tile"}) == Types()
    assert SPLIT.compute is bf16 and SPLIT.splits
    f = rlx.Session("interpret", "high").compile(product(4, 64, 8))
    assert f.precision is None and f.graph is not None
    assert len(f.graph.nodes()) == len(product(4, 64, 8).nodes())


def test_a_product_becomes_three() -> None:
    g, report = with_precision(product(4, 64, 8), SPLIT)
    assert report.changed == {"matmul in 3 x bf16": 2}
    assert [n.short for n in g.nodes()].count("matmul") == 6
    # The left operand is split once for both products.
    assert report.casts["f32 to bf16"] == 6
    assert "products are three" in str(report)


def test_a_product_that_makes_no_whole_tiles_stays() -> None:
    g, report = with_precision(product(4, 48, 8), SPLIT)
    assert not report.changed and not report.casts
    assert [n.short for n in g.nodes()].count("matmul") == 2


@pytest.mark.parametrize("device", ["cpu", "interpret"])
def test_accuracy(device: str) -> None:
    """Between f32 and bf16, near the former: the largest error over the mean result, K = 768."""
    m, k, n = 64, 768, 64
    g = rlx.Graph("product")
    g.set_outputs([g.input("x", [m, k]) @ g.param("w", [k, n])])
    x, w = normal(m, k), normal(k, n)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    error: dict[str, float] = {}
    for name, types in (("f32", Types()), ("high", SPLIT), ("bf16", types_of(Precision.BF16))):
        f = rlx.Session(device).compile(with_precision(g, types)[0])
        f.set_param("w", w)
        error[name] = np.abs(f.run({"x": x})[0] - exact).max() / np.abs(exact).mean()
    assert error["f32"] < 1e-5 < error["high"] < 5e-5 and error["bf16"] > 1e-3, error


def test_variants_of_an_artifact_differ() -> None:
    """One artifact: split products for AMX, f32 products for the CPU at hand."""
    amx = "cpu:x86-64-v4+amx-bf16+amx-tile"
    g = product(4, 64, 8)
    artifact = rlx.compile_artifact(g, [amx, "cpu:x86-64-v3"], precision="high")
    launches = [len(v.main) for v in artifact.variants]
    assert launches[0] > launches[1] and "amx-bf16" in artifact.variants[0].features
    plain = rlx.compile_artifact(g, "cpu:x86-64-v3").variants[0]
    assert artifact.variants[1].main == plain.main

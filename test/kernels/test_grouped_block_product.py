"""Products by the experts' weights in packed blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import quant
from rlx.errors import FaultError
from rlx.types import i64, u8

Array = np.ndarray[Any, Any]


def weights(scheme: str, count: int, n: int, depth: int) -> Array:
    rows = np.random.default_rng(n).standard_normal((count, n, depth), np.float32)
    return quant.quantize(rows, scheme)


def run(x: Array, packed: Array, experts: Array, scheme: str, *, by_ops: bool = False) -> Array:
    g = rlx.Graph("experts")
    rows, w = g.input("x", x.shape), g.param("w", packed.shape, u8)
    chosen = g.input("experts", experts.shape, i64)
    if by_ops:
        matrices = w.dequantize_blocks(scheme).transpose((0, 2, 1))
        g.set_outputs(rows.grouped_matmul(matrices, chosen))
    else:
        g.set_outputs(rows.dequant_grouped_matmul(w, chosen, scheme=scheme))
    f = rlx.Session("cpu").compile(g)
    native = f.reports[0].compilation.dispatch.native
    assert native == {"grouped_block_product: dequant_grouped_matmul": 1}
    f.set_param("w", packed)
    return f.run({"x": x, "experts": experts})[0]


@pytest.mark.parametrize("by_ops", [False, True])
@pytest.mark.parametrize(("scheme", "n"), [("q4_0", 40), ("q4_k", 16), ("q6_k", 3), ("q5_1", 100)])
def test_every_row_has_its_expert(scheme: str, n: int, by_ops: bool) -> None:
    packed, depth = weights(scheme, 5, n, 512), 512
    x = np.random.default_rng(0).standard_normal((7, depth), np.float32)
    experts = np.array([4, 0, 0, 3, 1, 4, 2])
    found = run(x, packed, experts, scheme, by_ops=by_ops)
    w = quant.dequantize(packed, scheme, (5, n, depth)).astype(np.float64)
    wanted = np.einsum("ik,ink->in", x, w[experts])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    alone = run(x[3:4], packed, experts[3:4], scheme)
    np.testing.assert_array_equal(alone[0], found[3])


def test_the_bits_are_those_of_a_product() -> None:
    packed = weights("q8_0", 2, 33, 256)
    x = np.random.default_rng(1).standard_normal((2, 256), np.float32)
    found = run(x, packed, np.array([1, 0]), "q8_0")
    for row, expert in enumerate((1, 0)):
        g = rlx.Graph("one")
        w = g.param("w", packed[expert].shape, u8)
        g.set_outputs(g.input("x", [1, 256]).dequant_matmul(w, scheme="q8_0"))
        f = rlx.Session("cpu").compile(g)
        f.set_param("w", packed[expert])
        np.testing.assert_array_equal(f.run({"x": x[row : row + 1]})[0][0], found[row])


@pytest.mark.parametrize("expert", [-1, 2, 1 << 40])
def test_an_expert_that_is_not_there_is_a_fault(expert: int) -> None:
    packed = weights("q4_0", 2, 16, 32)
    with pytest.raises(FaultError, match="an expert out of range for 2 experts"):
        run(np.ones((2, 32), np.float32), packed, np.array([0, expert]), "q4_0")

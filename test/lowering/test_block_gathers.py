"""Rows of weights in packed blocks are gathered before they are decoded."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx import quant
from rlx.types import u8


@pytest.mark.parametrize("mode", ["fault", "clip", "fill"])
def test_a_table_is_not_decoded_as_a_whole(mode: str) -> None:
    rng = np.random.default_rng(0)
    packed = quant.quantize(rng.standard_normal((500, 256), np.float32), "q6_k")
    table = quant.dequantize(packed, "q6_k", (500, 256))
    x, ids = rng.standard_normal((2, 256), np.float32), np.array([3, 0, 499, 3])
    g = rlx.Graph("tied")
    w = g.param("w", packed.shape, u8).dequantize_blocks("q6_k")
    rows = w.gather(g.input("ids", [4], "i64"), mode=mode)
    g.set_outputs([rows, g.input("x", [2, 256]) @ w.transpose()])
    f = rlx.Session("cpu").compile(g)
    f.set_param("w", packed)
    rows, product = f.run({"ids": ids, "x": x})
    np.testing.assert_array_equal(rows, table[ids])
    np.testing.assert_allclose(product, x @ table.T, atol=1e-4)
    dispatch = f.reports[0].compilation.dispatch
    assert dispatch.native["block_product: dequant_matmul"] == 1
    whole = 4 * 500 * 256
    assert dispatch.decoded["q6_k"] == (whole if mode == "fill" else 4 * 4 * 256)


def test_parts_of_rows_are_gathered_after() -> None:
    packed = quant.quantize(np.arange(64, dtype=np.float32).reshape(2, 32), "q8_0")
    g = rlx.Graph("columns")
    w = g.param("w", packed.shape, u8).dequantize_blocks("q8_0")
    g.set_outputs(w.gather(g.input("ids", [3], "i64"), 1))
    f = rlx.Session("cpu").compile(g)
    f.set_param("w", packed)
    ids = np.array([31, 0, 5])
    wanted = quant.dequantize(packed, "q8_0", (2, 32))[:, ids]
    np.testing.assert_array_equal(f.run({"ids": ids})[0], wanted)

"""The op that decodes blocks: as compiled, by its expansion, and on sizes known late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import quant
from rlx.base.guards import Deciding
from rlx.ir.dim import Dim
from rlx.ops.quant.blocks import DequantizeBlocks
from rlx.quant.table import by_ggml
from rlx.types import u8

Array = np.ndarray[Any, Any]

NAMES = [s.name for s in by_ggml().values()]


def same_bits(found: Array, expected: Array) -> bool:
    number = ~np.isnan(expected)
    equal = np.array_equal(found.view(np.uint32)[number], expected.view(np.uint32)[number])
    return bool(equal and np.isnan(found[~number]).all())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", ["cpu", "interpret"])
def test_the_expansion_gives_the_decoder_s_bits(name: str, device: str) -> None:
    row = next(s for s in by_ggml().values() if s.name == name)
    raw = np.random.default_rng(0).integers(0, 256, (7, 3 * row.bytes), np.uint8)
    g = rlx.Graph()
    node = DequantizeBlocks(g.input("x", raw.shape, u8), name)
    g.set_outputs(node.expand())
    (found,) = rlx.Session(device).compile(g).run({"x": raw})
    assert same_bits(found, quant.dequantize(raw, name, (7, 3 * row.block)))


@pytest.mark.parametrize("name", ["q4_0", "q4_k", "q6_k", "q8_0", "mxfp4"])
def test_a_product_by_packed_weights(name: str) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((3, 512), np.float32), rng.standard_normal((16, 512), np.float32)
    packed = quant.quantize(w, name)
    g = rlx.Graph()
    weights = g.param("w", packed.shape, u8).dequantize_blocks(name)
    g.set_outputs(g.input("x", [3, 512]) @ weights.transpose())
    f = rlx.Session("cpu").compile(g)
    f.set_param("w", packed)
    (found,) = f.run({"x": x})
    np.testing.assert_allclose(found, x @ quant.dequantize(packed, name, w.shape).T, atol=2e-4)


@pytest.mark.parametrize("name", NAMES)
def test_the_expansion_is_for_any_number_of_rows(name: str) -> None:
    row = next(s for s in by_ggml().values() if s.name == name)
    x = rlx.Graph().input("x", [Dim("rows", 1), 3 * row.bytes], u8)
    with Deciding({"rows": 5}) as decided:
        DequantizeBlocks(x, name).expand()
    assert not [g for g in decided.guards if g.relation == "=="]

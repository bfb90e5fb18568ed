"""Op types that ONNX Runtime's optimisers write, held against what ONNX Runtime gave for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import rlx
from rlx.errors import ModelError, RlxError, ShapeError, UnsupportedError
from rlx.ops.quant.blocks import DequantizeBlocks
from rlx.ops.quant.product import DequantMatMul
from support.contrib_cases import CASES, Case, feeds_of, model_of

Array = np.ndarray[Any, Any]

FOUND = np.load(Path(__file__).parent / "fixtures" / "contrib.npz")


@pytest.mark.parametrize("name", CASES)
def test_a_node_is_what_onnx_runtime_says(name: str) -> None:
    """Integers may be one apart, where a rounding falls on a tie."""
    case = CASES[name]
    g = rlx.from_onnx(model_of(case))
    feeds = feeds_of(case)
    found = [np.asarray(a) for a in rlx.interpret(g, feeds)]
    assert len(found) == case.results
    for i, a in enumerate(found):
        expected = FOUND[f"{name}/{i}"]
        assert (a.dtype, a.shape) == (expected.dtype, expected.shape)
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, expected, rtol=1e-4, atol=1e-5)
        else:
            assert np.max(np.abs(a.astype(int) - expected.astype(int))) <= 1


PACKED = {
    "4 bits in blocks of 64": "q4_0_f32", "4 bits with scales of 16": "q4_0",
    "4 bits in whole blocks with zero points": "q4_1_f32", "8 bits in whole blocks": "q8_0_f32",
    "8 bits": "q8_1_f32", "2 bits": "q2_1_f32",
    "rows of 4 bits": "q4_0_f32", "4 bits with zero points": "",
    "rows of 4 bits with zero points": "",
}  # fmt: skip
"""Weights of few bits by the scheme of the blocks that they become; none has blocks of 16."""


@pytest.mark.parametrize("name", PACKED)
def test_weights_of_few_bits_stay_packed(name: str) -> None:
    case, scheme = CASES[name], PACKED[name]
    held = [0, 2, 3] if case.op == "GatherBlockQuantized" else [1, 2, 3]
    g = rlx.from_onnx(model_of(case, held))
    found = [op.scheme for op in g.nodes() if isinstance(op, (DequantMatMul, DequantizeBlocks))]
    assert found == [scheme] * bool(scheme)
    expected, feeds = FOUND[f"{name}/0"], feeds_of(case, held)
    for result in (rlx.interpret(g, feeds)[0], rlx.Session("cpu").compile(g).run(feeds)[0]):
        np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-4, atol=1e-5)
    if scheme:
        assert [str(v.name).split(".")[-1] for v in g.params] == [scheme]


def test_a_weight_of_few_bits_that_two_nodes_share_is_packed_once() -> None:
    case = CASES["4 bits in blocks of 64"]
    model = model_of(case, [1, 2])
    again = model.graph.node.add()
    again.CopyFrom(model.graph.node[0])
    again.output[0] = "z"
    model.graph.output.add().CopyFrom(model.graph.output[0])
    model.graph.output[1].name = "z"
    assert len(rlx.from_onnx(model).params) == 1


_A, _B = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
_X, _W = np.ones((1, 3, 8), np.float32), np.ones((8, 24), np.float32)
_T = np.ones((8, 2), np.float32)
_P = np.zeros((1, 3), np.int64)
_HEADS: dict[str, Any] = {"num_heads": 2}

_K, _PAST = np.ones((1, 3, 4), np.float32), np.ones((1, 1, 2, 4), np.float32)
_L, _N = np.array([2], np.int32), np.array(3, np.int32)
_Q = (_X, _K, _K, None, None, _L, _N, None, None)
_GROUPED: dict[str, Any] = {"num_heads": 2, "kv_num_heads": 1}

REFUSED: dict[str, tuple[Case, type[RlxError], str]] = {
    "too few": (Case("FusedMatMul", (_A,), 1, {}), ModelError, "has 1 inputs, expected 2 to 2"),
    "batch axes": (Case("FusedMatMul", (_A, _B), 1, {"transBatchA": 1}), UnsupportedError,
                   "turns batch axes"),
    "an activation": (Case("FusedGemm", (_A, _B), 1, {"activation": "Elu"}), UnsupportedError,
                      "its activation is 'Elu'"),
    "a mean": (Case("SkipLayerNormalization", (_A, _A, np.ones(3, np.float32)), 3, {}),
               UnsupportedError, "mean and deviation are results"),
    "an axis": (Case("SimplifiedLayerNormalization", (_A, _A), 1, {"axis": 0}, ""),
                UnsupportedError, "from axis 0 on"),
    "heads": (Case("MultiHeadAttention", (_X, _X, _X), 1, {"num_heads": 3}), ShapeError,
              "does not hold 3 heads"),
    "packed heads": (Case("MultiHeadAttention", (_X,), 1, _HEADS), UnsupportedError,
                     "give them apart"),
    "a sink": (Case("GroupQueryAttention", (*_Q, *[None] * 3, _T), 1, _GROUPED), UnsupportedError,
               "it has sinks"),
    "values alone": (Case("GroupQueryAttention", (_X, None, _X, None, None, _L, _N), 1, _GROUPED),
                     ModelError, "one of its pasts is not given"),
    "no total": (Case("GroupQueryAttention", (_X, _K, _K, _PAST, _PAST, _L), 1, _GROUPED),
                 ModelError, "its total length is not given"),
    "no angles": (Case("GroupQueryAttention", _Q[:7], 1, {**_GROUPED, "do_rotary": 1}), ModelError,
                  "cosines or sines are not given"),
    "scores": (Case("MultiHeadAttention", (_X, _X, _X), 4, _HEADS), UnsupportedError,
               "the scores are a result"),
    "widths": (Case("MultiHeadAttention", (_X, _X, _X[..., :4]), 1, _HEADS), UnsupportedError,
               "of different widths"),
    "a mask": (Case("Attention", (_X, _W, None, np.ones((1, 3, 3), np.int32)), 1, _HEADS),
               UnsupportedError, r"one of \[batch, keys\]"),
    "turned queries": (Case("Attention", (_X, _W), 1, {**_HEADS, "do_rotary": 1}),
                       UnsupportedError, "turns its queries"),
    "packed batches": (Case("RotaryEmbedding", (_X, _P, _T, _T), 1, {"is_packed_batching": 1}),
                       UnsupportedError, "packs sequences"),
    "an order": (Case("MatMulNBits", (
        _X[0], np.ones((4, 1, 8), np.uint8), _B[0], None, np.zeros(8, np.int32)), 1,
        {"K": 8, "N": 4, "block_size": 16}), UnsupportedError, "in another order"),
    "3 bits": (Case("MatMulNBits", (_X[0], np.ones((4, 1, 6), np.uint8), _B[0]), 1,
                    {"K": 8, "N": 4, "bits": 3, "block_size": 16}), UnsupportedError,
               "its weight has 3 bits in blocks of 16"),
    "a weight": (Case("MatMulNBits", (_X[0], np.ones((4, 1, 9), np.uint8), _B[0]), 1,
                      {"K": 8, "N": 4, "block_size": 16}), ShapeError,
                 r"expected \[4, 1, 8\] and 4 scales"),
    "columns": (Case("GatherBlockQuantized", (
        np.ones((4, 8), np.uint8), _L, np.ones((4, 1), np.float32)), 1,
        {"gather_axis": 1, "block_size": 16}), UnsupportedError, "it gathers along axis 1"),
    "gathered in blocks of 8": (Case("GatherBlockQuantized", (
        np.ones((4, 8), np.uint8), _L, np.ones((4, 1), np.float32)), 1, {"block_size": 8}),
        UnsupportedError, "its weight has 4 bits in blocks of 8"),
    "scales of rows": (Case("GatherBlockQuantized", (
        np.ones((4, 8), np.uint8), _L, np.ones((4, 2), np.float32)), 1, {"block_size": 16}),
        ShapeError, r"expected scales of the shape \[4, 1\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    case, error, match = REFUSED[name]
    with pytest.raises(error, match=match):
        rlx.from_onnx(model_of(case))


def test_an_op_type_of_the_domain_without_a_row_is_missing() -> None:
    with pytest.raises(UnsupportedError, match=r"com\.microsoft\.SparseAttention x 1"):
        rlx.from_onnx(model_of(Case("SparseAttention", (_X, _X, _X), 1, _HEADS)))

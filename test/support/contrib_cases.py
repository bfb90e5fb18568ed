"""Nodes of the domain com.microsoft with operands, for ``tools/make_contrib_fixtures.py``, which
runs them by ONNX Runtime, and for the test that holds RLX against what it gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, helper, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype

__all__ = ["CASES", "Case", "feeds_of", "model_of"]

Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    """A node: its op type, operands (None for one that is left out), results and attributes."""

    op: str
    operands: tuple[Array | None, ...]
    results: int
    attributes: dict[str, Any]
    domain: str = "com.microsoft"


def _named(case: Case, *, literal: bool) -> dict[str, Array]:
    """The operands that are inputs, or those that the model holds: integers without dims."""
    named = {f"x{i}": a for i, a in enumerate(case.operands) if a is not None}
    return {n: a for n, a in named.items() if literal == (a.dtype == np.int32 and not a.shape)}


def feeds_of(case: Case, held: Sequence[int] = ()) -> dict[str, Array]:
    """The inputs of a model of the node, which holds the operands of some numbers itself."""
    named = _named(case, literal=False)
    return {n: a for n, a in named.items() if n not in {f"x{i}" for i in held}}


def model_of(case: Case, held: Sequence[int] = ()) -> ModelProto:
    """A model of the one node, which holds the operands of some numbers."""
    named = feeds_of(case, held).items()
    inputs = [
        helper.make_tensor_value_info(n, np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in named
    ]
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(case.operands)]
    results = [f"y{i}" for i in range(case.results)]
    kind = np_dtype_to_tensor_dtype(_result(case))
    outputs = [helper.make_tensor_value_info(n, kind, None) for n in results]
    skipped = case.op.startswith("Skip") and case.results == 2
    listed = [results[0], "", "", results[1]] if skipped else results
    node = helper.make_node(case.op, names, listed, domain=case.domain, **case.attributes)
    own = _named(case, literal=True)
    own |= {n: a for n, a in _named(case, literal=False).items() if n not in feeds_of(case, held)}
    arrays = [numpy_helper.from_array(a, n) for n, a in own.items()]
    graph = helper.make_graph([node], case.op, inputs, outputs, arrays)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _result(case: Case) -> Any:
    first = next(a for a in case.operands if a is not None)
    integer = case.op.startswith("QLinear") or (case.op == "QGemm" and len(case.operands) > 7)
    return first.dtype if integer else np.dtype(np.float32)


_RNG = np.random.default_rng(0)


def _f(*shape: int) -> Array:
    return _RNG.standard_normal(shape).astype(np.float32)


def _codes(*shape: int, signed: bool = False) -> Array:
    low = -128 if signed else 0
    return _RNG.integers(low, low + 256, shape).astype(np.int8 if signed else np.uint8)


def _s(value: float) -> Array:
    return np.array(value, np.float32)


_U = np.array(120, np.uint8)
_MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
_HEADS: dict[str, Any] = {"num_heads": 2}
_COS = np.cos(np.outer(np.arange(8), [1.0, 0.1])).astype(np.float32)
_SIN = np.sin(np.outer(np.arange(8), [1.0, 0.1])).astype(np.float32)

_GROUPS: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2}
_ANGLES = np.arange(8)[:, None] / 10.0 ** np.linspace(0, 2, 8)
_TURN = np.cos(_ANGLES).astype(np.float32), np.sin(_ANGLES).astype(np.float32)


def _lengths(*last: int) -> Array:
    return np.array(last, np.int32)


def _total(n: int) -> Array:
    return np.array(n, np.int32)


CASES: dict[str, Case] = {
    "matmul": Case("FusedMatMul", (_f(2, 4, 3), _f(2, 5, 4)), 1,
                   {"alpha": 0.5, "transA": 1, "transB": 1}),
    "gemm": Case("FusedGemm", (_f(3, 4), _f(4, 5), _f(5)), 1,
                 {"activation": "LeakyRelu", "activation_alpha": 0.1, "alpha": 2.0}),
    "conv": Case("FusedConv", (_f(1, 2, 5, 5), _f(3, 2, 3, 3), _f(3)), 1, {"activation": "Relu"}),
    "conv, clipped": Case("FusedConv", (_f(1, 2, 5), _f(3, 2, 3), _f(3)), 1,
                          {"activation": "Clip", "activation_params": [-0.5, 0.7]}),
    "gelu": Case("Gelu", (_f(3, 4),), 1, {}),
    "bias gelu": Case("BiasGelu", (_f(3, 4), _f(4)), 1, {}),
    "fast gelu": Case("FastGelu", (_f(3, 4), _f(4)), 1, {}),
    "quick gelu": Case("QuickGelu", (_f(3, 4),), 1, {"alpha": 1.5}),
    "skip norm": Case("SkipLayerNormalization", (_f(2, 3, 8), _f(2, 3, 8), _f(8), _f(8), _f(8)), 2,
                      {"epsilon": 1e-3}),
    "skip rms": Case("SkipSimplifiedLayerNormalization", (_f(2, 3, 8), _f(2, 3, 8), _f(8)), 2, {}),
    "rms": Case("SimplifiedLayerNormalization", (_f(2, 3, 8), _f(8)), 1, {"epsilon": 1e-3}, ""),
    "integers": Case("MatMulIntegerToFloat", (
        _codes(3, 4), _codes(4, 5), _s(0.02), _s(0.01), _U, np.array(7, np.uint8), _f(5)), 1, {}),
    "rows as integers": Case("DynamicQuantizeMatMul", (
        _f(3, 4), _codes(4, 5), _s(0.01), np.array(99, np.uint8), _f(5)), 1, {}),
    "gemm of integers": Case("QGemm", (
        _codes(3, 4), _s(0.02), _U, _codes(4, 5), _s(0.01), _U,
        np.arange(5, dtype=np.int32), _s(0.05), _U), 1, {}),
    "gemm of integers, as floats": Case("QGemm", (
        _codes(3, 4), _s(0.02), _U, _codes(5, 4), _s(0.01), _U), 1, {"transB": 1, "alpha": 2.0}),
    "sum of integers": Case("QLinearAdd", (
        _codes(3, 4), _s(0.02), _U, _codes(3, 4), _s(0.03), _U, _s(0.05), _U), 1, {}),
    "product of integers": Case("QLinearMul", (
        _codes(3, 4), _s(0.02), _U, _codes(4), _s(0.03), _U, _s(0.05), _U), 1, {}),
    "sigmoid of integers": Case("QLinearSigmoid", (
        _codes(3, 4), _s(0.02), _U, _s(1 / 256), np.array(0, np.uint8)), 1, {}),
    "leaky relu of integers": Case("QLinearLeakyRelu", (
        _codes(3, 4), _s(0.02), _U, _s(0.02), _U), 1, {"alpha": 0.2}),
    "attention": Case("Attention", (_f(2, 4, 8), _f(8, 24), _f(24), _MASK), 1, _HEADS),
    "attention, causal": Case("Attention", (_f(2, 4, 8), _f(8, 24), _f(24)), 1,
                              {**_HEADS, "unidirectional": 1}),
    "attention with a past": Case("Attention", (
        _f(2, 1, 8), _f(8, 24), _f(24), None, _f(2, 2, 2, 3, 4)), 2, _HEADS),
    "heads": Case("MultiHeadAttention", (_f(2, 3, 8), _f(2, 4, 8), _f(2, 4, 8), _f(24), _MASK), 1,
                  _HEADS),
    "heads with a bias": Case("MultiHeadAttention", (
        _f(2, 3, 8), _f(2, 4, 8), _f(2, 4, 8), None, None, _f(2, 2, 3, 4)), 1,
        {**_HEADS, "scale": 0.3}),
    "heads with a past": Case("MultiHeadAttention", (
        _f(2, 1, 8), _f(2, 1, 8), _f(2, 1, 8), None, None, None, _f(2, 2, 3, 4), _f(2, 2, 3, 4)), 3,
        _HEADS),
    "turned halves": Case("RotaryEmbedding", (
        _f(2, 3, 8), np.array([[0, 1, 2], [3, 4, 5]]), _COS, _SIN), 1, {}),
    "turned pairs of heads": Case("RotaryEmbedding", (
        _f(2, 2, 3, 4), np.array([2]), _COS, _SIN), 1, {"interleaved": 1}),
    "4 bits": Case("MatMulNBits", (_f(2, 3, 40), _codes(5, 2, 16), _f(10)), 1,
                   {"K": 40, "N": 5, "bits": 4, "block_size": 32}),
    "4 bits with zero points": Case("MatMulNBits", (
        _f(3, 48), _codes(5, 3, 8), _f(5, 3), _codes(10), None, _f(5)), 1,
        {"K": 48, "N": 5, "bits": 4, "block_size": 16}),
    "4 bits with zero points that are floats": Case("MatMulNBits", (
        _f(3, 32), _codes(5, 2, 8), _f(10), _f(5, 2) + 8), 1,
        {"K": 32, "N": 5, "bits": 4, "block_size": 16}),
    "8 bits": Case("MatMulNBits", (_f(3, 64), _codes(5, 2, 32), _f(10) / 16, _codes(10)), 1,
                   {"K": 64, "N": 5, "bits": 8, "block_size": 32}),
    "2 bits": Case("MatMulNBits", (_f(3, 64), _codes(6, 2, 8), _f(12), _codes(6)), 1,
                   {"K": 64, "N": 6, "bits": 2, "block_size": 32}),
    "grouped heads": Case("GroupQueryAttention", (
        _f(2, 3, 64), _f(2, 3, 32), _f(2, 3, 32), None, None, _lengths(2, 2), _total(3)), 1,
        _GROUPS),
    "grouped heads in one": Case("GroupQueryAttention", (
        _f(2, 3, 128), None, None, None, None, _lengths(2, 2), _total(3), _TURN[0], _TURN[1]), 3,
        {**_GROUPS, "do_rotary": 1, "softcap": 2.0}),
    "grouped heads with a past": Case("GroupQueryAttention", (
        _f(2, 1, 64), _f(2, 1, 32), _f(2, 1, 32), _f(2, 2, 4, 16), _f(2, 2, 4, 16), _lengths(4, 4),
        _total(5), _TURN[0], _TURN[1]), 3, {**_GROUPS, "do_rotary": 1, "rotary_interleaved": 1}),
    "grouped heads with pasts in a buffer": Case("GroupQueryAttention", (
        _f(2, 1, 64), _f(2, 1, 32), _f(2, 1, 32), _f(2, 2, 6, 16), _f(2, 2, 6, 16), _lengths(4, 2),
        _total(5), _TURN[0], _TURN[1]), 3, {**_GROUPS, "do_rotary": 1}),
    "grouped heads in a window": Case("GroupQueryAttention", (
        _f(2, 5, 64), _f(2, 5, 32), _f(2, 5, 32), None, None, _lengths(4, 4), _total(5)), 1,
        {**_GROUPS, "local_window_size": 2, "scale": 0.3}),
    "grouped heads in a window over a past": Case("GroupQueryAttention", (
        _f(1, 1, 64), _f(1, 1, 32), _f(1, 1, 32), _f(1, 2, 4, 16), _f(1, 2, 4, 16), _lengths(4),
        _total(5)), 3, {**_GROUPS, "local_window_size": 3}),
    "4 bits in blocks of 64": Case("MatMulNBits", (_f(3, 128), _codes(6, 2, 32), _f(12)), 1,
                                   {"K": 128, "N": 6, "bits": 4, "block_size": 64}),
    "4 bits with scales of 16": Case("MatMulNBits", (
        _f(3, 64), _codes(6, 2, 16), _f(12).astype(np.float16).astype(np.float32)), 1,
        {"K": 64, "N": 6, "bits": 4, "block_size": 32}),
    "4 bits in whole blocks with zero points": Case("MatMulNBits", (
        _f(2, 96), _codes(6, 3, 16), _f(6, 3), _codes(12), None, _f(6)), 1,
        {"K": 96, "N": 6, "bits": 4, "block_size": 32}),
    "8 bits in whole blocks": Case("MatMulNBits", (_f(3, 64), _codes(5, 2, 32), _f(10) / 16), 1,
                                   {"K": 64, "N": 5, "bits": 8, "block_size": 32}),
    "rows of 4 bits": Case("GatherBlockQuantized", (
        _codes(7, 32), np.array([[0, 6], [3, 3]]), _f(7, 2)), 1,
        {"bits": 4, "block_size": 32, "gather_axis": 0, "quantize_axis": 1}),
    "rows of 4 bits with zero points": Case("GatherBlockQuantized", (
        _codes(7, 32), np.array([2, 6]), _f(7, 4), _codes(7, 2)), 1,
        {"bits": 4, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}),
}  # fmt: skip

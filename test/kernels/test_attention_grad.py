"""The gradients of attention: blocks and tails of queries, keys and head dims, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.autodiff import gradients
from rlx.ir.value import Value
from rlx.ops.nn.attention_grad import AttentionGrad
from rlx.types import TensorType, dtype
from support.samples import additive_mask, least

Array = np.ndarray[Any, Any]

# batch, heads, key heads, queries, keys, head dim
SHAPES = [(2, 2, 2, 33, 40, 32), (1, 4, 2, 70, 100, 20), (1, 2, 1, 5, 3, 7), (2, 1, 1, 64, 17, 1)]
MASKS: list[dict[str, Any]] = [
    {"mask_kind": "none"},
    {"mask_kind": "causal"},
    {"mask_kind": "causal", "softcap": 1.5},
    {"mask_kind": "sliding_window", "window": 9},
    {"mask_kind": "custom"},
    {"mask_kind": "bias", "softcap": 2.0},
]


def given(
    shape: tuple[int, ...], layout: str, dt: str, mask: str, rng: np.random.Generator
) -> list[Array | None]:
    """q, k, v, the mask or None, and g."""
    b, h, hk, queries, keys, dim = shape

    def array(heads: int, rows: int) -> Array:
        sizes = (b, rows, heads * dim) if layout == "bshd" else (b, heads, rows, dim)
        return rng.standard_normal(sizes).astype(dtype(dt).numpy)

    masks = {
        "custom": rng.random((b, keys)) > 0.4,
        "bias": rng.standard_normal((h, 1, keys)).astype(np.float32),
    }
    masks["custom"][0] = False  # queries that see nothing
    return [array(h, queries), array(hk, keys), array(hk, keys), masks.get(mask), array(h, queries)]


def check(
    shape: tuple[int, ...], layout: str, dt: str, mask: dict[str, Any], at: float,
    bias: Array | None = None,
) -> None:  # fmt: skip
    arrays = given(shape, layout, dt, mask["mask_kind"], np.random.default_rng(5))
    arrays[3] = arrays[3] if bias is None else bias
    g = rlx.Graph("grad")
    values = [
        None if a is None else g.input(n, list(a.shape), dtype(a.dtype))
        for n, a in zip("qkvmg", arrays, strict=True)
    ]
    names = ("q", "k", "v", "mask", "g")
    operands: dict[str, Any] = dict(zip(names, values, strict=True))
    node = AttentionGrad(
        **operands, num_heads=shape[1], kv_heads=shape[2], scale=0.3, layout=layout, **mask
    )
    g.set_outputs(list(node.results))
    with knobs.cache.scoped(False):
        f = rlx.Session("cpu").compile(g)
    assert [n.partition(":")[0] for n in f.reports[0].compilation.dispatch.native] == [
        "attention_grad"
    ]
    found = f.run({n: a for n, a in zip("qkvmg", arrays, strict=True) if a is not None})
    wide = [a if a is None or a.dtype == bool else a.astype(np.float64) for a in arrays]
    exact = [None if a is None else Value(TensorType.of(a.shape, a.dtype)) for a in wide]
    judge: Any = node.with_operands(exact)
    for one, want in zip(found, judge.reference(*wide), strict=True):
        limit = at * max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(one.astype(np.float64), want, rtol=0, atol=limit)


@pytest.mark.parametrize("mask", MASKS, ids=lambda m: "-".join(map(str, m.values())))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_block_and_tail(shape: tuple[int, ...], mask: dict[str, Any]) -> None:
    check(shape, "bshd", "f32", mask, 4e-6)


@pytest.mark.parametrize("dt", ["f16", "bf16", "f64"])
def test_every_type(dt: str) -> None:
    limit = {"f16": 2e-3, "bf16": 1.6e-2, "f64": 1e-14}[dt]
    for mask in (MASKS[2], MASKS[5]):
        check(SHAPES[1], "bhsd", dt, mask, limit)


@pytest.mark.parametrize("dt", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_that_a_bias_hides(shape: tuple[int, ...], dt: str) -> None:
    """By -inf, whose gradients are 0, and by the least number, whose gradients flow."""
    rng = np.random.default_rng(6)
    bias = additive_mask((shape[0], 1, *shape[3:5]), dtype("f32"), rng)
    bias[-1] = least(dtype("f32"))
    check(
        shape,
        "bshd",
        dt,
        {"mask_kind": "bias"},
        {"f32": 4e-6, "bf16": 1.6e-2, "f64": 1e-14}[dt],
        bias,
    )


def test_the_definition_is_pytorchs() -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    if not hasattr(torch, "nn"):
        pytest.skip("torch is a part of torch-mlir here")
    rng = np.random.default_rng(0)
    q, k, v, w = (rng.standard_normal((2, 4, 50, 16)) for _ in range(4))
    leaves = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
    (out * torch.tensor(w)).sum().backward()
    g = rlx.Graph()
    values = [g.input(n, [2, 4, 50, 16], "f64") for n in "qkvw"]
    result = g.attention(*values[:3], layout="bhsd", mask_kind="causal")
    g.set_outputs(gradients((result * values[3]).sum(), values[:3]))
    found = rlx.interpret(g, dict(zip("qkvw", (q, k, v, w), strict=True)))
    for one, leaf in zip(found, leaves, strict=True):
        np.testing.assert_allclose(one, leaf.grad.numpy(), rtol=0, atol=1e-13)

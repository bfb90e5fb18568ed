"""Weights whose rounding errors make up for one another, and inputs that are scaled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.ptq.awq import input_scales
from rlx.ptq.feedback import FEEDBACK, loss, with_feedback
from rlx.quant import dequantize, quantize
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named

Array = np.ndarray[Any, Any]


def drawn(inputs: int) -> tuple[Array, Array, Array]:
    """A weight, inputs that depend on one another and are of many sizes, and other such inputs."""
    rng = np.random.default_rng(0)
    mix = rng.standard_normal((inputs // 4, inputs)) * np.exp(rng.standard_normal(inputs))
    x, held = (
        rng.standard_normal((n, inputs // 4)) @ mix + 0.1 * rng.standard_normal((n, inputs))
        for n in (512, 256)
    )
    w = rng.standard_normal((24, inputs)).astype(np.float32)
    return w, x.astype(np.float32), held.astype(np.float32)


def scheme(name: str) -> BlockScheme:
    found = scheme_named(name)
    assert isinstance(found, BlockScheme)
    return found


@pytest.mark.parametrize("name", FEEDBACK)
def test_errors_make_up_for_one_another(name: str) -> None:
    row = scheme(name)
    w, x, held = drawn(row.block * 2)
    packed = with_feedback(w, x.T @ x, row)
    assert packed.shape == (24, 2 * row.bytes)
    plain, fed = (dequantize(p, row, w.shape) for p in (quantize(w, row), packed))
    for rows, most in ((x, 0.6), (held, 0.7)):
        lost = [float(np.sum((rows @ (q - w).T) ** 2)) for q in (plain, fed)]
        assert lost[1] < most * lost[0]


def test_without_a_tie_between_inputs_a_code_is_the_nearest() -> None:
    w, row = drawn(64)[0], scheme("q4_0")
    packed = with_feedback(w, np.eye(64), row)
    np.testing.assert_allclose(dequantize(packed, row, w.shape),
                               dequantize(quantize(w, row), row, w.shape), atol=1e-6)  # fmt: skip


def test_an_input_that_is_always_0_has_no_say() -> None:
    w, x, _ = drawn(64)
    x[:, 5] = 0
    row = scheme("q4_1")
    fed = dequantize(with_feedback(w, x.T @ x, row), row, w.shape)
    plain = dequantize(quantize(w, row), row, w.shape)
    assert np.isfinite(fed).all()
    assert loss(fed - w, x.T @ x) < 0.7 * loss(plain - w, x.T @ x)


def test_large_inputs_lose_less_by_scales() -> None:
    w, x, held = drawn(64)
    row = scheme("q4_0")

    def rounded(v: Array) -> Array:
        return dequantize(quantize(v, row), row, v.shape)

    s = input_scales([w, w[:8]], np.abs(x).mean(0), x.T @ x, rounded)
    assert s.shape == (64,)
    assert (s > 0).all()
    lost = [float(np.sum((held @ (q - w).T) ** 2)) for q in (rounded(w), rounded(w * s) / s)]
    assert lost[1] < 0.9 * lost[0]

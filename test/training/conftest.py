"""A small regression that trains in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx

RNG = np.random.default_rng(11)
W, B = RNG.standard_normal((6, 4)).astype(np.float32), np.zeros(4, np.float32)


def regression(dtype: str = "f32", rows: int | str = "batch") -> rlx.Graph:
    """The mean square error of a dense layer, with its largest error as a metric."""
    g = rlx.Graph("regression")
    x, y = g.input("x", [rows, 6], dtype), g.input("y", [rows, 4], dtype)
    kind = rlx.types.DTYPES[dtype].numpy
    out = (x @ g.param("w", value=W.astype(kind)) + g.param("b", value=B.astype(kind))).tanh()
    error = out - y
    g.set_outputs([(error * error).mean(), error.abs().max()])
    return g


def batch(n: int, rows: int = 8, dtype: str = "f32") -> dict[str, Any]:
    rng = np.random.default_rng(n)
    x = rng.standard_normal((rows, 6)).astype(np.float32)
    y = np.tanh(x @ np.full((6, 4), 0.3, np.float32))
    kind = rlx.types.DTYPES[dtype].numpy
    return {"x": x.astype(kind), "y": y.astype(kind)}


@pytest.fixture
def make_step() -> Callable[..., rlx.training.TrainStep]:
    def make(optimizer: Any = None, dtype: str = "f32", **settings: Any) -> Any:
        chosen = optimizer or rlx.optim.Adam(lr=1e-2)
        return rlx.compile_training(regression(dtype), chosen, metrics=["worst"], **settings)

    return make

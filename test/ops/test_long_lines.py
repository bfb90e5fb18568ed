"""argmax and argmin of lines that vectors search: ties, nans, and a rest behind whole vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.types import dtype
from support.compiled import agrees

KINDS = ("f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64", "bool")


def lines(dt: str, n: int) -> np.ndarray[Any, Any]:
    """Few different numbers, so that there are ties, the extremes in any lane."""
    rng = np.random.default_rng(n)
    x = rng.integers(0, 2 if dt == "bool" else 9, (12, n)).astype(dtype(dt).numpy)
    x[0], x[1, -1], x[2, n // 2] = 0, 1, 1
    if dtype(dt).is_float:
        x[3, [5, n - 1]] = x[4] = np.nan
        x[5, n - 2 :], x[6, 0], x[7] = np.nan, np.nan, -np.inf
        x[8, ::7], x[9, ::5] = -np.inf, np.inf
    return x


@pytest.mark.parametrize("n", [256, 259, 1030])
@pytest.mark.parametrize("dt", KINDS)
def test_places(dt: str, n: int) -> None:
    g = rlx.Graph("places")
    x = g.input("x", (12, n), dt)
    found = [f(-1, select_last_index=s) for f in (x.argmax, x.argmin) for s in (False, True)]
    g.set_outputs([*found, x.argmax(), x.transpose((1, 0)).argmax(0)])
    agrees(g, {"x": lines(dt, n)})

"""matmul_integer: products of 8-bit integers less their zero points, against NumPy in i64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, RlxError, ShapeError
from rlx.types import dtype

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize(
    "a_shape, b_shape, rows, columns",
    [
        ((3, 4), (4, 5), (3,), (5,)),
        ((4,), (4, 5), (), (5,)),
        ((2, 3, 4), (4,), (3,), ()),
        ((4,), (4,), (), (1,)),
        ((2, 3, 4), (2, 4, 5), (2, 3, 1), (2, 1, 5)),
    ],
    ids=str,
)
@pytest.mark.parametrize("dt", ["i8", "u8"])
def test_shapes(a_shape: Any, b_shape: Any, rows: Any, columns: Any, dt: str) -> None:
    rng = np.random.default_rng(0)
    ends = np.iinfo(dtype(dt).numpy)
    a, b, za, zb = (
        rng.integers(ends.min, ends.max + 1, s).astype(ends.dtype)
        for s in (a_shape, b_shape, rows, columns)
    )
    g = rlx.Graph("integers")
    x, y = g.input("x", a_shape, dt), g.input("y", b_shape, dt)
    g.set_outputs([x.matmul_integer(y, g.constant(za), g.constant(zb)), x.matmul_integer(y)])
    spread = za[:, None] if za.ndim == 1 and len(a_shape) > 1 else za
    want = (a.astype(np.int64) - spread) @ (b.astype(np.int64) - zb)
    for device in ("interpret", "cpu"):
        found, plain = rlx.Session(device).compile(g).run({"x": a, "y": b})
        assert found.dtype == np.int32 and np.array_equal(found, want.reshape(found.shape))
        assert np.array_equal(plain, a.astype(np.int64) @ b.astype(np.int64))


def test_what_is_refused() -> None:
    g = rlx.Graph("bad")
    a, b = g.input("a", [3, 4], "i8"), g.input("b", [4, 5], "u8")
    cases: list[tuple[type[RlxError], str, tuple[Any, ...]]] = [
        (DTypeError, "found b of f32", (g.input("f", [4, 5]),)),
        (DTypeError, "a_zero is u8, and its operand i8", (b, g.constant(np.uint8(1)))),
        (ShapeError, r"b_zero is 4xu8, expected", (b, None, g.constant(np.zeros(4, np.uint8)))),
        (ShapeError, "inner dims 4 and 3", (a,)),
    ]
    for error, match, args in cases:
        with pytest.raises(error, match=match):
            a.matmul_integer(*args)

"""Rows of ATen ops against NumPy, without PyTorch: what a row makes of given arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import UnsupportedError
from rlx.frontends.torch.node import Node
from rlx.frontends.torch.rows import FAMILIES, ROWS
from rlx.types import TensorType, dtype

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(np.float32)
Y = RNG.standard_normal((3, 4)).astype(np.float32)
AT = np.array([[2, 0, 1, 2]])

Case = tuple[str, tuple[Any, ...], Callable[..., Any]]

CASES: list[Case] = [
    ("add.Tensor", (X, Y, 2), lambda x, y, a: x + a * y),
    ("add.Tensor", (X > 0, Y > 0), lambda x, y: x | y),
    ("rsub.Scalar", (X, 2.0), lambda x, s: s - x),
    ("div.Tensor_mode", (X, Y, "floor"), lambda x, y, _: np.floor(x / y)),
    ("div.Tensor_mode", (X, Y, "trunc"), lambda x, y, _: np.trunc(x / y)),
    ("pow.Tensor_Scalar", (AT, 3), lambda x, p: x**p),
    ("clamp", (X, -0.5, None), lambda x, low, _: np.maximum(x, low)),
    ("softplus", (X * 20, 1, 5), lambda x, b, t: np.where(x > t, x, np.log1p(np.exp(x)))),
    ("fmax", (np.array([np.nan, 1], np.float32), np.array([2, np.nan], np.float32)), np.fmax),
    ("sum.dim_IntList", (X, [-1], True), lambda x, d, k: x.sum(-1, keepdims=True)),
    ("var.correction", (X, [0], 2), lambda x, d, c: x.var(0, ddof=2)),
    ("argmax", (X,), lambda x: np.asarray(x.argmax())),
    ("cumsum", (X, -1), lambda x, d: x.cumsum(-1)),
    ("repeat", (X, [2, 1, 3]), np.tile),
    ("slice.Tensor", (X, 1, -3, 1 << 62, 2), lambda x, *_: x[:, -3::2]),
    ("select.int", (X, 0, -1), lambda x, *_: x[-1]),
    ("tril", (X, -1), lambda x, k: np.tril(x, -1)),
    ("unfold", (X, 1, 2, 2), lambda x, *_: np.stack([x[:, :2], x[:, 2:]], 1)),
    ("constant_pad_nd", (X, [1, -2], 7.0), lambda x, *_: np.pad(
        x[:, :2], [(0, 0), (1, 0)], constant_values=7)),
    ("gather", (X, 0, AT), lambda x, d, i: np.take_along_axis(x, i, 0)),
    ("index.Tensor", (X, [AT[0, :3], AT[0, 1:]]), lambda x, i: x[i[0], i[1]]),
    ("index.Tensor", (X, [None, AT]), lambda x, i: x[:, i[1]]),
    ("index_select", (X, 1, AT[0]), lambda x, d, i: x[:, i]),
    ("slice_scatter", (X, Y[:, :2], 1, 1, 3), lambda x, y, *_: np.hstack([x[:, :1], y, x[:, 3:]])),
    ("select_scatter", (X, Y[0], 0, -1), lambda x, y, *_: np.vstack([x[:-1], y[None]])),
    ("linear", (X, Y), lambda x, w: x @ w.T),
    ("addmm", (X[:, :3], X, Y.T, 0.5, 2), lambda b, x, y, beta, a: beta * b + a * (x @ y)),
    ("native_layer_norm", (X, [4], None, None, 1e-5), lambda x, *_: (
        x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)),
    ("_safe_softmax", (np.full((1, 3), -np.inf, np.float32), -1), lambda x, d: np.zeros_like(x)),
    ("adaptive_avg_pool1d", (X, [3]), lambda x, s: np.stack(
        [x[:, :2].mean(1), x[:, 1:3].mean(1), x[:, 2:].mean(1)], 1)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args", "theirs"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)]
)
def test_a_row_is_what_numpy_says(
    name: str, args: tuple[Any, ...], theirs: Callable[..., Any]
) -> None:
    expected = np.asarray(theirs(*args))
    g = rlx.Graph()
    feeds: dict[str, Any] = {}

    def given(a: Any) -> Any:
        if isinstance(a, list) and any(isinstance(v, np.ndarray) for v in a):
            return [given(v) for v in a]
        if not isinstance(a, np.ndarray):
            return a
        feeds[f"x{len(feeds)}"] = a
        return g.input(f"x{len(feeds) - 1}", a.shape, dtype(a.dtype))

    row = ROWS.get(name) or ROWS[name.split(".", maxsplit=1)[0]]
    n = Node(name, [TensorType(expected.shape, dtype(expected.dtype))], lambda: dtype("f32"))
    found = row(n, *[given(a) for a in args])
    g.set_outputs([found[0] if isinstance(found, tuple) else found])
    np.testing.assert_allclose(rlx.interpret(g, feeds)[0], expected, rtol=1e-5, atol=1e-6)


def test_no_op_has_two_rows() -> None:
    assert sum(len(family.ROWS) for family in FAMILIES) == len(ROWS)


def test_a_form_without_counterpart_is_refused() -> None:
    n = Node("add", [TensorType((), dtype("f32"))], lambda: dtype("f32"))
    with pytest.raises(UnsupportedError, match="no such form"):
        n.refuse("no such form")

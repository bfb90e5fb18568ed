"""Means of windows by vectors: torch's pooling for every geometry, type and number of axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.types import DTYPES

torch = pytest.importorskip("torch")
Array = np.ndarray[Any, Any]


def run(x: Array, **how: Any) -> tuple[Array, dict[str, int]]:
    """The result, and which family ran what how often."""
    names = {d.numpy: n for n, d in DTYPES.items()}
    g = rlx.Graph("pool")
    a = g.input("x", x.shape, names[x.dtype])
    g.set_outputs([a.mean_pool(**how)])
    f = rlx.Session("cpu").compile(g)
    out = f.run_slots(x)[0]
    return out, dict(f.reports[0].compilation.dispatch.native)


def peer(x: Array, **how: Any) -> Array:
    pool = (torch.nn.functional.avg_pool1d, torch.nn.functional.avg_pool2d,
            torch.nn.functional.avg_pool3d)[x.ndim - 3]  # fmt: skip
    kernel = how.pop("kernel")
    return pool(torch.from_numpy(x.astype(np.float64)), kernel, **how).numpy()


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding"),
    [
        ((2, 3, 100), (2,), (2,), (0,)),
        ((1, 2, 37), (5,), (3,), (2,)),
        ((2, 3, 17, 61), (3, 3), (1, 1), (1, 1)),
        ((1, 5, 8, 75), (2, 2), (2, 2), (1, 0)),
        ((1, 2, 9, 50), (4, 3), (3, 4), (2, 1)),
        ((1, 1, 1, 1), (1, 1), (1, 1), (0, 0)),
        ((1, 2, 2, 3), (2, 3), (1, 1), (0, 0)),
        ((1, 2, 5, 6, 40), (2, 2, 3), (1, 2, 2), (1, 0, 1)),
    ],
)
def test_geometry(
    shape: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...],
    padding: tuple[int, ...], ceil: bool, include: bool,
) -> None:  # fmt: skip
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    how = {"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil,
           "count_include_pad": include}  # fmt: skip
    out, families = run(x, **how)
    assert families == {"pool: mean_pool": 1}
    np.testing.assert_allclose(out, peer(x, **how), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "eps"), [("f16", 1e-3), ("bf16", 8e-3), ("f64", 1e-14)])
def test_types(name: str, eps: float) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 12, 45)).astype(DTYPES[name].numpy)
    for stride in ((1, 1), (2, 2), (1, 3)):
        out, families = run(x, kernel=(3, 2), stride=stride)
        assert families == {"pool: mean_pool": 1}
        want = peer(x, kernel=(3, 2), stride=stride)
        np.testing.assert_allclose(out.astype(np.float64), want, rtol=eps, atol=eps)


def test_what_is_not_finite_stays_in_its_windows() -> None:
    x = np.ones((1, 1, 4, 40), np.float32)
    x[0, 0, 1, 5], x[0, 0, 2, 20] = np.nan, np.inf
    how = {"kernel": (2, 2), "stride": (1, 1), "padding": (1, 1), "count_include_pad": False}
    np.testing.assert_array_equal(run(x, **how)[0], peer(x, **how).astype(np.float32))


def test_many_taps_take_the_common_way() -> None:
    x = np.random.default_rng(2).standard_normal((1, 2, 9, 9)).astype(np.float32)
    out, families = run(x, kernel=(9, 9))
    assert families == {}
    np.testing.assert_allclose(out, peer(x, kernel=(9, 9)), rtol=1e-5, atol=1e-6)

"""Sparse matrices against dense ones, and against SciPy's solver."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import sparse
from rlx.errors import DTypeError, FaultError, RlxError, ShapeError
from rlx.types import dtype
from support import ad
from support.tolerances import assert_derivative

Array = np.ndarray[Any, Any]


def random_matrix(rows: int, cols: int, density: float = 0.3, dt: str = "f64") -> Array:
    rng = np.random.default_rng([rows, cols])
    full = rng.standard_normal((rows, cols)).astype(dtype(dt).numpy)
    return np.where(rng.random((rows, cols)) < density, full, 0).astype(full.dtype)


def csr(g: rlx.Graph, a: Array) -> tuple[sparse.CSR, dict[str, Array]]:
    """The matrix as inputs of a graph, and what to feed them with."""
    names = ["data", "indices", "indptr"]
    feeds = dict(zip(names, sparse.from_dense(a), strict=True))
    values = [g.input(name, list(v.shape), v.dtype) for name, v in feeds.items()]
    return sparse.CSR(*values, shape=a.shape), feeds


def both(g: rlx.Graph, feeds: dict[str, Array]) -> list[Array]:
    """What the graph gives compiled, which is what it means."""
    found = rlx.Session("cpu", threads=2).compile(g).run(feeds)
    meant = rlx.Session("interpret").compile(g).run(feeds)
    for a, b in zip(found, meant, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return list(found)


@pytest.mark.parametrize("dt", ["f32", "f64"])
@pytest.mark.parametrize(
    ("rows", "cols", "width"), [(30, 20, 3), (1, 1, 1), (300, 40, None), (5, 7, None), (4, 0, 2)]
)
def test_products(rows: int, cols: int, width: int | None, dt: str) -> None:
    a = random_matrix(rows, cols, dt=dt)
    g = rlx.Graph("product")
    m, feeds = csr(g, a)
    shape = [cols] if width is None else [cols, width]
    x = g.input("x", shape, dt)
    g.set_outputs([sparse.matmul(m, x), sparse.to_dense(m)])
    feeds["x"] = np.random.default_rng(0).standard_normal(shape).astype(a.dtype)
    y, dense = both(g, feeds)
    np.testing.assert_allclose(y, a @ feeds["x"], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(dense, a)


def test_entries_at_one_place_are_added() -> None:
    g = rlx.Graph("twice")
    values = [g.input("d", [3]), g.input("i", [3], "i64"), g.input("p", [3], "i64")]
    g.set_outputs([sparse.to_dense(sparse.CSR(*values, shape=(2, 2)))])
    i, p = np.array([1, 0, 1]), np.array([0, 3, 3])
    (dense,) = both(g, {"d": np.array([1, 2, 4], np.float32), "i": i, "p": p})
    np.testing.assert_array_equal(dense, [[2, 5], [0, 0]])


def test_derivatives_to_the_second_order() -> None:
    a = random_matrix(6, 5)
    g = rlx.Graph("derivatives")
    m, feeds = csr(g, a)
    x = g.input("x", [5, 2], "f64")
    y = sparse.matmul(m, x)
    loss = (y * y * y).sum()
    first = ad.grad(loss, [m.data, x])
    inner = sum((f * f).sum() for f in first)
    assert isinstance(inner, rlx.Value)
    second = ad.grad(inner, [m.data, x])
    tangent = ad.jvp([inner], [m.data, x], [m.data, x])
    assert tangent[0] is not None
    g.set_outputs([loss, *first, inner, *second, tangent[0]])
    feeds["x"] = np.random.default_rng(1).standard_normal((5, 2))
    f = rlx.Session("cpu").compile(g)
    base = f.run(feeds)
    for name, outs in (("data", (0, 1, 3, 4)), ("x", (0, 2, 3, 5))):
        for value, slope in ((outs[0], outs[1]), (outs[2], outs[3])):
            difference = np.zeros_like(feeds[name])
            for at in np.ndindex(difference.shape):
                ends = []
                for step in (1e-5, -1e-5):
                    moved = {**feeds, name: feeds[name].copy()}
                    moved[name][at] += step
                    ends.append(f.run(moved)[value])
                difference[at] = (ends[0] - ends[1]) / 2e-5
            assert_derivative(base[slope], difference)
    along = (base[4] * feeds["data"]).sum() + (base[5] * feeds["x"]).sum()
    np.testing.assert_allclose(base[6], along, rtol=1e-10)


@pytest.mark.parametrize("transposed", [False, True])
def test_solvers(transposed: bool) -> None:
    a = random_matrix(25, 25)
    a = a @ a.T + 5 * np.eye(25)
    b = np.random.default_rng(2).standard_normal(25)
    g = rlx.Graph("solve")
    m, feeds = csr(g, a)
    v = g.input("b", [25], "f64")
    x, rounds = sparse.cg(m, v, tol=1e-10)
    z = sparse.lu_solve(m, v, method="superlu")
    weight = g.input("w", [25], "f64")
    slopes = ad.grad((z * weight).sum(), [m.data, v])
    tangent = ad.jvp([z], [m.data, v], [m.data, v])[0]
    assert tangent is not None
    g.set_outputs([x, rounds, z, *slopes, tangent])
    feeds |= {"b": b, "w": np.random.default_rng(3).standard_normal(25)}
    x, rounds, z, slope_a, slope_b, moved = both(g, feeds)
    want = np.linalg.solve(a, b)
    np.testing.assert_allclose(x, want, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(z, want, rtol=1e-10)
    assert 1 <= rounds <= 25
    u = np.linalg.solve(a.T, feeds["w"])
    rows, cols = np.nonzero(a)
    np.testing.assert_allclose(slope_b, u, rtol=1e-9)
    np.testing.assert_allclose(slope_a, -u[rows] * want[cols], rtol=1e-9)
    np.testing.assert_allclose(moved, want - want, atol=1e-10)  # a and b grow alike


def test_a_singular_matrix_is_a_fault() -> None:
    g = rlx.Graph("singular")
    m, feeds = csr(g, np.eye(4))
    g.set_outputs([sparse.lu_solve(m, g.input("b", [4], "f64"), method="superlu")])
    feeds |= {"b": np.ones(4), "data": np.array([1.0, 0, 1, 1])}
    for device in ("cpu", "interpret"):
        with pytest.raises(FaultError, match="singular"):
            rlx.Session(device).compile(g).run(feeds)


@pytest.mark.parametrize("device", ["cpu", "interpret"])
@pytest.mark.parametrize(
    ("name", "at", "value"),
    [("indices", 1, 4), ("indices", 0, -1), ("indptr", 0, 1), ("indptr", 4, 99), ("indptr", 4, 3),
     ("indptr", 2, -7), ("indptr", 2, 4)],
)  # fmt: skip
def test_a_wrong_pattern_is_a_fault(name: str, at: int, value: int, device: str) -> None:
    g = rlx.Graph("wrong")
    m, feeds = csr(g, np.eye(4))
    y = sparse.matmul(m, g.input("x", [4, 2], "f64"))
    g.set_outputs([y, *ad.grad((y * y).sum(), [m.data])])
    feeds["x"] = np.ones((4, 2))
    f = rlx.Session(device).compile(g)
    f.run(feeds)
    feeds[name] = feeds[name].copy()
    feeds[name][at] = value
    with pytest.raises(FaultError, match="the pattern of a sparse matrix is wrong"):
        f.run(feeds)


def test_what_does_not_fit() -> None:
    g = rlx.Graph("bad")
    m, _ = csr(g, random_matrix(4, 3))
    v, wide = g.input("v", [3], "f64"), g.input("wide", [9, 2], "f64")
    half, deep = g.input("half", [3], "f16"), g.input("deep", [3, 1, 1], "f64")
    cases: list[tuple[Any, type[RlxError], str]] = [
        (lambda: sparse.matmul(m, wide), ShapeError, "expected 3 rows"),
        (lambda: sparse.matmul(m, deep), ShapeError, "takes a vector or a matrix"),
        (lambda: sparse.matmul(m, half), DTypeError, "takes f32 or f64, found f16"),
        (lambda: sparse.matmul(m._replace(shape=(5, 3)), v), ShapeError, "expected 6"),
        (lambda: sparse.matmul(m._replace(indices=m.data), v), DTypeError, "expected a vector of"),
        (lambda: sparse.matmul(m._replace(data=v), v), ShapeError, "data is"),
        (lambda: sparse.matmul(m._replace(shape=(0, 3), indptr=m.indices[:1]), v), ShapeError,
         "a matrix of 0 x 3 has no"),
        (lambda: sparse.lu_solve(m, v), ShapeError, "square matrix, found 4 x 3"),
        (lambda: sparse.cg(m, v), ShapeError, "square matrix and a vector, found 4 x 3"),
        (lambda: sparse.from_dense(np.ones(3)), ShapeError, "takes a matrix"),
    ]  # fmt: skip
    for make, error, match in cases:
        with pytest.raises(error, match=match):
            make()


def test_operands_of_the_pattern_s_product_that_do_not_fit() -> None:
    from rlx.sparse.ops import at

    g = rlx.Graph("at")
    m, _ = csr(g, random_matrix(4, 3))
    y, x = g.input("y", [4, 2], "f64"), g.input("x", [3, 5], "f64")
    with pytest.raises(ShapeError, match="do not fit each other"):
        at(m.indices, m.indptr, y, x, rows=4, cols=3)


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    g = rlx.Graph("no scipy")
    m, feeds = csr(g, np.eye(2))
    g.set_outputs([sparse.lu_solve(m, g.input("b", [2], "f64"), method="superlu")])
    with pytest.raises(RlxError, match="pip install scipy"):
        rlx.Session("interpret").compile(g).run({**feeds, "b": np.ones(2)})

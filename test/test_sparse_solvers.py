"""Solvers of sparse systems and what computes with patterns, against SciPy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import sparse
from rlx.errors import DTypeError, FaultError, GraphError, RlxError, ShapeError, UnsupportedError
from support import ad

sp: Any = importlib.import_module("scipy.sparse")
spl: Any = importlib.import_module("scipy.sparse.linalg")

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
N = 24


def matrix(rows: int, cols: int, density: float = 0.2, seed: int = 0) -> Array:
    rng = np.random.default_rng([rows, cols, seed])
    return np.where(rng.random((rows, cols)) < density, rng.standard_normal((rows, cols)), 0)


GENERAL = matrix(N, N) + 3 * np.eye(N)
SYMMETRIC = GENERAL @ GENERAL.T
METHODS: dict[str, Array] = {
    "cg": SYMMETRIC, "pcg": SYMMETRIC, "ilu_pcg": SYMMETRIC, "bicgstab": GENERAL, "gmres": GENERAL,
}  # fmt: skip


def csr(g: rlx.Graph, a: Array, name: str = "") -> tuple[sparse.CSR, dict[str, Array]]:
    """The matrix as inputs of a graph, and what to feed them with."""
    names = [name + n for n in ("data", "indices", "indptr")]
    feeds = dict(zip(names, sparse.from_dense(a), strict=True))
    values = [g.input(n, list(v.shape), v.dtype) for n, v in feeds.items()]
    return sparse.CSR(*values, shape=a.shape), feeds


def both(g: rlx.Graph, feeds: dict[str, Array], tolerance: float = 1e-8) -> list[Array]:
    """What the graph gives compiled, which is what it means."""
    found = rlx.Session("cpu").compile(g).run(feeds)
    meant = rlx.Session("interpret").compile(g).run(feeds)
    for a, b in zip(found, meant, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    return list(found)


@pytest.mark.parametrize("method", METHODS)
def test_iterative_methods_and_their_derivatives(method: str) -> None:
    a = METHODS[method]
    g = rlx.Graph(method)
    m, feeds = csr(g, a)
    b, w, t = (g.input(n, [N], "f64") for n in ("b", "w", "t"))
    x, rounds = getattr(sparse, method)(m, b, tol=1e-12)
    slopes = ad.grad((x * w).sum(), [m.data, b])
    (tangent,) = ad.jvp([x], [m.data, b], [m.data, t])
    assert tangent is not None
    g.set_outputs([x, rounds, *slopes, tangent])
    feeds |= {n: RNG.standard_normal(N) for n in "bwt"}
    x, rounds, slope_a, slope_b, moved = both(g, feeds)
    want = np.linalg.solve(a, feeds["b"])
    np.testing.assert_allclose(x, want, rtol=1e-8, atol=1e-9)
    # A cycle of gmres is a whole number of products; the others need at most one a dimension.
    assert 1 <= rounds <= 2 * N
    u = np.linalg.solve(a.T, feeds["w"])
    rows, cols = np.nonzero(a)
    np.testing.assert_allclose(slope_b, u, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(slope_a, -u[rows] * want[cols], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(moved, np.linalg.solve(a, feeds["t"] - a @ want), atol=1e-8)


def test_a_second_derivative_through_a_loop_is_refused() -> None:
    g = rlx.Graph("twice")
    m, _ = csr(g, SYMMETRIC)
    b = g.input("b", [N], "f64")
    x, _ = sparse.cg(m, b)
    (first,) = ad.grad((x * x).sum(), [m.data])
    with pytest.raises(UnsupportedError, match="while_loop"):
        ad.grad((first * first).sum(), [m.data])


def test_preconditioners_need_fewer_rounds() -> None:
    """An ill-conditioned matrix: five points on a grid, of rows with very different scales."""
    side = 12
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    grid = sp.kronsum(line, line).toarray()
    scale = np.diag(10.0 ** np.linspace(0, 2, side * side))
    a = scale @ grid @ scale
    g = rlx.Graph("rounds")
    m, feeds = csr(g, a)
    b = g.input("b", [side * side], "f64")
    solved = [f(m, b, tol=1e-6) for f in (sparse.cg, sparse.pcg, sparse.ilu_pcg)]
    g.set_outputs([v for pair in solved for v in pair])
    feeds["b"] = np.ones(side * side)
    _, plain, x, jacobi, y, incomplete = rlx.Session("cpu").compile(g).run(feeds)
    assert plain > 10 * jacobi > 10 * incomplete > 0
    for found in (x, y):
        assert np.linalg.norm(a @ found - feeds["b"]) <= 1.01e-6 * np.linalg.norm(feeds["b"])


def test_gmres_begins_anew_and_ends_at_its_limit() -> None:
    g = rlx.Graph("restarts")
    m, feeds = csr(g, GENERAL)
    b = g.input("b", [N], "f64")
    pairs = [sparse.gmres(m, b, tol=1e-9, restart=8), sparse.gmres(m, b, tol=0, restart=4, limit=8),
             sparse.bicgstab(m, b, tol=0, limit=3)]  # fmt: skip
    zero = sparse.gmres(m, b * 0.0)
    g.set_outputs([v for pair in [*pairs, zero] for v in pair])
    feeds["b"] = RNG.standard_normal(N)
    x, rounds, _, limited, _, three, nothing, none = both(g, feeds)
    want, info = spl.gmres(sp.csr_array(GENERAL), feeds["b"], rtol=1e-9, restart=8)
    assert info == 0 and rounds % 8 == 0 and rounds > 8
    np.testing.assert_allclose(x, want, rtol=1e-6, atol=1e-7)
    assert (limited, three, none) == (8, 3, 0)
    assert not nothing.any()


def test_an_exhausted_space_ends_gmres_early() -> None:
    """The Krylov space of a multiple of the identity has one dimension."""
    g = rlx.Graph("breakdown")
    m, feeds = csr(g, 2 * np.eye(9))
    x, _ = sparse.gmres(m, g.input("b", [9], "f64"), tol=1e-12)
    g.set_outputs([x])
    feeds["b"] = RNG.standard_normal(9)
    np.testing.assert_allclose(both(g, feeds)[0], feeds["b"] / 2, rtol=1e-12)


@pytest.mark.parametrize(("rows", "cols"), [(14, 8), (8, 14)])
def test_least_squares(rows: int, cols: int) -> None:
    a = matrix(rows, cols, 0.5) + np.eye(rows, cols)
    r, c = np.nonzero(a)
    g = rlx.Graph("lsqr")
    m, feeds = csr(g, a)
    b, w, t = (g.input(n, [k], "f64") for n, k in (("b", rows), ("w", cols), ("t", rows)))
    x, rounds = sparse.lsqr(m, b, tol=1e-13)
    slopes = ad.grad((x * w).sum(), [m.data, b])
    (tangent,) = ad.jvp([x], [m.data, b], [m.data * m.data, t])
    assert tangent is not None
    g.set_outputs([x, rounds, *slopes, tangent])
    feeds |= {"b": RNG.standard_normal(rows), "w": RNG.standard_normal(cols)}
    feeds["t"] = RNG.standard_normal(rows)
    x, rounds, slope_a, slope_b, moved = both(g, feeds)
    want, _, taken, *_ = spl.lsqr(sp.csr_array(a), feeds["b"], atol=1e-13, btol=1e-13)
    np.testing.assert_allclose(x, want, rtol=1e-8, atol=1e-9)
    assert abs(int(rounds) - taken) <= 2

    def loss(data: Array, b: Array) -> Any:
        dense = np.zeros_like(a)
        dense[r, c] = data
        return np.linalg.lstsq(dense, b)[0]

    def slope(data: Array, b: Array) -> Array:
        ends = [loss(feeds["data"] + s * data, feeds["b"] + s * b) for s in (1e-6, -1e-6)]
        return (ends[0] - ends[1]) / 2e-6

    units = [slope(e, feeds["b"] * 0) @ feeds["w"] for e in np.eye(len(r))]
    np.testing.assert_allclose(slope_a, units, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slope_b, np.linalg.pinv(a).T @ feeds["w"], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(moved, slope(feeds["data"] ** 2, feeds["t"]), rtol=1e-5, atol=1e-6)


def test_incomplete_factors_of_a_band_are_those_of_superlu() -> None:
    """A band of three has no fill-in, so that its incomplete factors are complete."""
    from rlx.sparse.incomplete import ilu_solve, incomplete_lu

    a = np.diag(np.full(9, 4.0)) + np.diag(RNG.random(8), 1) + np.diag(RNG.random(8), -1)
    g = rlx.Graph("band")
    m, feeds = csr(g, a)
    factors, place = incomplete_lu(m.data, m.indices, m.indptr, n=9)
    b = g.input("b", [9], "f64")
    g.set_outputs([factors, ilu_solve(factors, place, m.indices, m.indptr, b)])
    feeds["b"] = RNG.standard_normal(9)
    found, x = both(g, feeds, 1e-12)
    lu = spl.splu(sp.csc_array(a), permc_spec="NATURAL", diag_pivot_thresh=0)
    want = (lu.L - sp.eye_array(9) + lu.U).toarray()
    np.testing.assert_allclose(found, want[np.nonzero(a)], rtol=1e-12)
    np.testing.assert_allclose(x, np.linalg.solve(a, feeds["b"]), rtol=1e-12)


def test_incomplete_factors_agree_with_the_matrix_on_its_pattern() -> None:
    from rlx.sparse.incomplete import incomplete_lu

    r, c = np.nonzero(SYMMETRIC * (matrix(N, N, 0.4, 7) + np.eye(N)))
    a = np.zeros((N, N))
    a[r, c] = SYMMETRIC[r, c]
    g = rlx.Graph("ilu")
    m, feeds = csr(g, a)
    g.set_outputs([incomplete_lu(m.data, m.indices, m.indptr, n=N)[0]])
    (found,) = both(g, feeds, 1e-10)
    full = np.zeros((N, N))
    full[r, c] = found
    product = (np.tril(full, -1) + np.eye(N)) @ np.triu(full)
    np.testing.assert_allclose(product[r, c], a[r, c], rtol=1e-9, atol=1e-10)
    assert np.abs(product - a).max() > 1e-3  # beside the pattern they need not


@pytest.mark.parametrize("device", ["cpu", "interpret"])
@pytest.mark.parametrize(
    ("data", "indices", "indptr", "match"),
    [([1, 2, 3], [1, 0, 1], [0, 2, 3], "rows are in order"),
     ([1, 2, 3], [0, 1, 0], [0, 2, 3], "one on the diagonal"),
     ([1, 1, 1, 1], [0, 1, 0, 1], [0, 2, 4], "a 0 on the diagonal"),
     ([1, 2, 3], [0, 1, 9], [0, 2, 3], "pattern of a sparse matrix is wrong"),
     ([1, 2, 3], [0, 1, 1], [0, 9, 3], "pattern of a sparse matrix is wrong")],
)  # fmt: skip
def test_incomplete_factors_refuse_patterns(
    data: list[float], indices: list[int], indptr: list[int], match: str, device: str
) -> None:
    g = rlx.Graph("refused")
    d, i, p = (
        g.input(n, [k], t)
        for n, k, t in (("d", len(data), "f64"), ("i", len(data), "i64"), ("p", 3, "i64"))
    )
    m = sparse.CSR(d, i, p, (2, 2))
    g.set_outputs([sparse.ilu_pcg(m, g.input("b", [2], "f64"))[0]])
    feeds = {"d": np.array(data, float), "i": np.array(indices), "p": np.array(indptr)}
    with pytest.raises(FaultError, match=match):
        rlx.Session(device).compile(g).run({**feeds, "b": np.ones(2)})


def test_direct_methods_and_their_derivatives() -> None:
    g = rlx.Graph("direct")
    m, feeds = csr(g, SYMMETRIC)
    b = g.input("b", [N, 2], "f64")
    v, w = b[:, 0], g.input("w", [N], "f64")
    x, y = sparse.lu_solve(m, b), sparse.cholesky_solve(m, v)
    z = sparse.lu_solve(m, v)
    slopes = [ad.grad((s * w).sum(), [m.data])[0] for s in (y, z)]
    theirs = sparse.lu_solve(m, v, method="superlu")
    g.set_outputs([x, y, z, theirs, sparse.cholesky(m), sparse.cholesky_solve(m, b), *slopes])
    feeds |= {"b": RNG.standard_normal((N, 2)), "w": RNG.standard_normal(N)}
    x, y, z, theirs, low, wide, *slopes = both(g, feeds)
    want = np.linalg.solve(SYMMETRIC, feeds["b"])
    np.testing.assert_allclose(x, want, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(wide, want, rtol=1e-8, atol=1e-9)
    for one in (y, z, theirs):
        np.testing.assert_allclose(one, want[:, 0], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(low, np.linalg.cholesky(SYMMETRIC), rtol=1e-8, atol=1e-9)
    u, (rows, cols) = np.linalg.solve(SYMMETRIC, feeds["w"]), np.nonzero(SYMMETRIC)
    np.testing.assert_allclose(slopes[1], -u[rows] * want[cols, 0], rtol=1e-7, atol=1e-9)
    # That of a factored symmetric matrix is shared by the two entries of a pair.
    full = np.zeros((2, N, N))
    full[:, rows, cols] = slopes
    ours, theirs = (np.tril(f + f.T) - np.diag(np.diag(f)) for f in full)
    np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


def test_transposes_diagonals_and_products_of_patterns() -> None:
    a, b = matrix(7, 9, 0.4), matrix(9, 5, 0.4)
    g = rlx.Graph("patterns")
    m, feeds = csr(g, a)
    t = sparse.transpose(m)
    parts = [
        t.data,
        t.indices,
        t.indptr,
        sparse.to_dense(t),
        sparse.diagonal(csr(g, GENERAL, "s")[0]),
    ]
    y, x = g.input("y", [7, 2], "f64"), g.input("x", [9, 2], "f64")
    g.set_outputs([*parts, sparse.values_grad(m, y, x), sparse.values_grad(m, y[:, 0], x[:, 0])])
    feeds |= csr(rlx.Graph("s"), GENERAL, "s")[1]
    feeds |= {"y": RNG.standard_normal((7, 2)), "x": RNG.standard_normal((9, 2))}
    data, indices, indptr, dense, diagonal, entries, outer = both(g, feeds)
    want = sp.csr_array(a).T.tocsr()
    for found, theirs in ((data, want.data), (indices, want.indices), (indptr, want.indptr)):
        np.testing.assert_array_equal(found, theirs)
    np.testing.assert_array_equal(dense, a.T)
    np.testing.assert_allclose(diagonal, np.diag(GENERAL))
    r, c = np.nonzero(a)
    np.testing.assert_allclose(entries, (feeds["y"] @ feeds["x"].T)[r, c])
    np.testing.assert_allclose(outer, feeds["y"][r, 0] * feeds["x"][c, 0])
    cols, rows, order = sparse.csr_transpose_pattern(feeds["indices"], feeds["indptr"], 9)
    np.testing.assert_array_equal(cols, want.indices)
    np.testing.assert_array_equal(rows, want.indptr)
    np.testing.assert_array_equal(feeds["data"][order], want.data)
    _products(a, b)


def _products(a: Array, b: Array) -> None:
    g = rlx.Graph("spgemm")
    left, right = (sparse.SparseTensor.from_dense(v) for v in (a, b))
    u, v = g.input("u", left.values.shape, "f64"), g.input("v", right.values.shape, "f64")
    product = sparse.spgemm(left.csr._replace(data=u), right.csr._replace(data=v))
    w = g.input("w", product.data.shape, "f64")
    slopes = ad.grad((product.data * w).sum(), [u, v])
    g.set_outputs([*product[:3], *slopes])
    (ad_, *_), (bd, *_) = sparse.from_dense(a), sparse.from_dense(b)
    feeds = {"u": ad_, "v": bd, "w": RNG.standard_normal(product.data.shape)}
    data, indices, indptr, du, dv = both(g, feeds)
    want = sp.csr_array(a) @ sp.csr_array(b)
    want.sort_indices()
    np.testing.assert_allclose(data, want.data, rtol=1e-12)
    np.testing.assert_array_equal(indices, want.indices)
    np.testing.assert_array_equal(indptr, want.indptr)
    weight = sp.csr_array((feeds["w"], want.indices, want.indptr), shape=want.shape).toarray()
    np.testing.assert_allclose(du, (weight @ b.T)[np.nonzero(a)], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(dv, (a.T @ weight)[np.nonzero(b)], rtol=1e-9, atol=1e-12)


def test_the_object() -> None:
    g = rlx.Graph("object")
    data, indices, indptr = sparse.from_dense(SYMMETRIC)
    values = g.input("values", [data.size], "f64")
    a = sparse.SparseTensor.from_csr(values, indices.astype(np.int32), indptr, N)
    b = g.input("b", [N], "f64")
    solved = [
        a.solve(b), a.solve_general(b), a.cholesky_solve(b), a.cg_solve(b, tol=1e-10),
        a.pcg_solve(b, tol=1e-10), a.ilu_pcg_solve(b, tol=1e-10), a.bicgstab_solve(b, tol=1e-10),
        a.gmres_solve(b, tol=1e-10), a.lsqr_solve(b, tol=1e-13),
    ]  # fmt: skip
    eye = sparse.SparseTensor.from_dense(np.eye(N))
    moved = [a @ b, a.mat_vec(b), a.transpose() @ b, (a @ eye) @ b]
    g.set_outputs([*solved, *moved, a.transpose_values(), a.to_dense()])
    assert a.shape == (N, N) and "24 x 24" in repr(a)
    feeds = {"values": data, "b": RNG.standard_normal(N)}
    *found, flipped, dense = rlx.Session("cpu").compile(g).run(feeds)
    want = np.linalg.solve(SYMMETRIC, feeds["b"])
    for x in found[: len(solved)]:
        np.testing.assert_allclose(x, want, rtol=1e-6, atol=1e-7)
    for y in found[len(solved) :]:
        np.testing.assert_allclose(y, SYMMETRIC @ feeds["b"], rtol=1e-9)
    np.testing.assert_array_equal(flipped, sp.csr_array(SYMMETRIC).T.tocsr().data)
    np.testing.assert_array_equal(dense, SYMMETRIC)


def test_small_and_empty_systems() -> None:
    g = rlx.Graph("small")
    m, feeds = csr(g, np.zeros((0, 0)))
    b = g.input("b", [0], "f64")
    g.set_outputs([sparse.diagonal(m), sparse.cg(m, b)[0], sparse.gmres(m, b)[0]])
    assert [v.size for v in both(g, {**feeds, "b": np.ones(0)})] == [0, 0, 0]


def test_what_is_refused() -> None:
    g = rlx.Graph("bad")
    m, _ = csr(g, matrix(4, 3), "m")
    s, _ = csr(g, np.eye(4), "s")
    v, half = g.input("v", [4], "f64"), g.input("half", [4], "f32")
    eye = sparse.SparseTensor.from_dense(np.eye(3))
    single = sparse.SparseTensor.from_dense(np.eye(3, dtype=np.float32))
    of = sparse.SparseTensor.from_csr
    cases: list[tuple[Callable[[], Any], type[RlxError], str]] = [
        (lambda: sparse.gmres(m, v), ShapeError, "gmres takes a square matrix and a vector"),
        (lambda: sparse.pcg(s, half), ShapeError, "pcg: data is"),
        (lambda: sparse.bicgstab(s, v, tol=-1), GraphError, "tol is a part of the length"),
        (lambda: sparse.cg(s, v, limit=-1), GraphError, "limit is a number of rounds"),
        (lambda: sparse.gmres(s, v, restart=0), GraphError, "restart is 1 or more"),
        (lambda: sparse.lsqr(m, g.input("w", [3], "f64")), ShapeError, "a vector of 4 elements"),
        (lambda: sparse.lu_solve(s, v, method="qr"), GraphError, '"dense" or "superlu"'),
        (lambda: sparse.cholesky(m), ShapeError, "cholesky takes a square matrix"),
        (lambda: sparse.diagonal(m), ShapeError, "diagonal takes a square matrix"),
        (lambda: sparse.spgemm(s, m), GraphError, "must be constants, found indices"),
        (lambda: sparse.spgemm(m, m), ShapeError, "4 x 3 and 4 x 3 do not fit"),
        (lambda: eye @ single, ShapeError, "are of different types"),
        (lambda: of(np.ones(2), [0, 1], [0, 1, 1], 2), ShapeError, "this is no pattern of 2 x 2"),
        (lambda: of(np.ones(2), [0, 5], [0, 1, 2], 2), ShapeError, "every index must be below 2"),
        (lambda: of(np.ones(3), [0, 1], [0, 1, 2], 2), ShapeError, "values are"),
        (lambda: of(np.ones(2), [0.0, 1.0], [0, 1, 2], 2), DTypeError, "expected a vector of ints"),
        (lambda: sparse.SparseTensor(np.eye(2)), DTypeError, "takes a sparse.CSR"),  # pyright: ignore[reportArgumentType]
        (lambda: sparse.csr_transpose_pattern([0, 3], [0, 1, 2], 2), ShapeError, "no pattern"),
    ]  # fmt: skip
    for make, error, match in cases:
        with pytest.raises(error, match=match):
            make()

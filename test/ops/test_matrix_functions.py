"""Functions of matrices against SciPy and NumPy, their derivatives against differences and JAX."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, FaultError, GraphError, RlxError, ShapeError
from support import ad

sl: Any = importlib.import_module("scipy.linalg")
Array = np.ndarray[Any, Any]
la = rlx.linalg
RNG = np.random.default_rng(11)
SQUARE = RNG.standard_normal((2, 5, 5))
ROOTED = SQUARE @ SQUARE.swapaxes(-1, -2) + SQUARE - SQUARE.swapaxes(-1, -2)
"""Matrices whose symmetric part is positive definite have no negative real eigenvalue."""
GRAM = SQUARE @ SQUARE.swapaxes(-1, -2)


def both(f: Callable[..., Any], *arrays: Array, tolerance: float = 1e-9) -> list[Array]:
    """The results of a function on Values compiled, which are those of the interpreter."""
    g = rlx.Graph("functions of matrices")
    values = [g.input(f"x{i}", list(a.shape), a.dtype) for i, a in enumerate(arrays)]
    out = f(*values)
    g.set_outputs(list(out) if isinstance(out, tuple | list) else [out])
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    found = rlx.Session("cpu").compile(g).run(feeds)
    meant = rlx.Session("interpret").compile(g).run(feeds)
    for a, b in zip(found, meant, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    return list(found)


def slopes(f: Callable[..., Any], x: Array) -> tuple[list[Array], list[Array]]:
    """Cotangents of random weights and tangents along a random direction, with the same from
    central differences of the compiled function."""
    rng = np.random.default_rng(3)
    g = rlx.Graph("slopes")
    v, t = g.input("x", list(x.shape), "f64"), g.input("t", list(x.shape), "f64")
    many = f(v)
    many = many if isinstance(many, tuple) else (many,)
    weights = [rng.standard_normal([int(d) for d in m.shape]) for m in many]
    loss = sum((m * g.constant(w)).sum() for m, w in zip(many, weights, strict=True))
    assert isinstance(loss, rlx.Value)
    tangents = ad.jvp(list(many), [v], [t])
    g.set_outputs([*many, *ad.grad(loss, [v]), *[u for u in tangents if u is not None]])
    compiled = rlx.Session("cpu").compile(g)
    n, direction = len(many), rng.standard_normal(x.shape)
    outs = compiled.run({"x": x, "t": direction})

    def along(d: Array) -> list[Array]:
        ends = [compiled.run({"x": x + s * d, "t": d})[:n] for s in (1e-6, -1e-6)]
        return [(a - b) / 2e-6 for a, b in zip(*ends, strict=True)]

    moved = along(direction)
    total = sum((m * w).sum() for m, w in zip(moved, weights, strict=True))
    return [np.asarray((outs[n] * direction).sum()), *outs[n + 1 :]], [np.asarray(total), *moved]


def test_exponentials() -> None:
    x = np.concatenate([SQUARE * scale for scale in (1e-3, 0.3, 1.0, 40.0)])
    (found,) = both(la.expm, x)
    for a, b in zip(found, sl.expm(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12 * np.abs(b).max())


def test_exponentials_in_f32_of_little_and_of_too_much() -> None:
    x = np.stack([np.eye(3), np.zeros((3, 3)), np.diag([1e9, 0, 0])]).astype(np.float32)
    (found,) = both(la.expm, x, tolerance=1e-5)
    np.testing.assert_allclose(found[:2], sl.expm(x[:2]), rtol=1e-5)
    assert np.isnan(found[2]).all()
    assert both(la.expm, np.zeros((2, 0, 0)))[0].shape == (2, 0, 0)
    (plain,) = both(lambda v: la.expm(v, max_squarings=0), SQUARE)
    np.testing.assert_allclose(plain, sl.expm(SQUARE), rtol=1e-9)


def test_square_roots() -> None:
    general, symmetric = both(lambda x, y: (la.sqrtm(x), la.sqrtm(y, symmetric=True)), ROOTED, GRAM)
    for a, x in zip((*general, *symmetric), (*ROOTED, *GRAM), strict=True):
        np.testing.assert_allclose(a, sl.sqrtm(x), rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(a @ a, x, rtol=1e-8, atol=1e-8)
    low = np.diag([4.0, 0.0, 9.0])
    (found,) = both(lambda x: la.sqrtm(x, symmetric=True), low)
    np.testing.assert_allclose(found, np.sqrt(low), atol=1e-12)
    graded = np.diag([1e-8, 1.0, 1e8]) + np.diag([1e-4, 1e3], 1)
    (found,) = both(la.sqrtm, graded)
    np.testing.assert_allclose(found, sl.sqrtm(graded), rtol=1e-6, atol=1e-12)
    assert both(la.sqrtm, np.zeros((0, 0)))[0].shape == (0, 0)


def test_matrices_without_a_root() -> None:
    (found,) = both(la.sqrtm, np.stack([np.diag([1.0, -4.0]), 4 * np.eye(2)]))
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1], 2 * np.eye(2), atol=1e-12)
    with pytest.raises(FaultError, match="singular"):
        both(la.sqrtm, np.ones((2, 2)))


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6)])
def test_polar_factors(shape: tuple[int, int], side: Any) -> None:
    x = RNG.standard_normal((2, *shape))
    u, p = both(lambda v: la.polar(v, side), x)
    for i in range(2):
        want_u, want_p = sl.polar(x[i], side)
        np.testing.assert_allclose(u[i], want_u, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(p[i], want_p, rtol=1e-8, atol=1e-9)


DERIVATIVES: dict[str, tuple[Callable[..., Any], Array]] = {
    "expm": (la.expm, SQUARE * 2),
    "sqrtm": (la.sqrtm, ROOTED),
    "sqrtm symmetric": (lambda x: la.sqrtm(x, symmetric=True), GRAM),
    "polar": (la.polar, SQUARE),
    "polar tall": (la.polar, SQUARE[:, :, :3]),
    "polar wide": (la.polar, SQUARE[:, :3]),
    "polar left": (lambda x: la.polar(x, "left"), SQUARE[:, :3]),
    # Equal singular values, at which svd itself has no derivative.
    "polar of a rotation": (la.polar, np.linalg.qr(SQUARE)[0]),
    "logdet": (la.logdet, GRAM),
    "kron": (lambda x: la.kron(x, x.mT), SQUARE),
    "diag_set": (lambda x: la.diag_set(x, la.diagonal(x) * la.trace(x).unsqueeze(-1)), SQUARE),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives(name: str) -> None:
    f, x = DERIVATIVES[name]
    for a, b in zip(*slopes(f, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6 * max(1, np.abs(b).max()))


def test_second_derivatives_of_exponentials() -> None:
    def first(x: rlx.Value) -> rlx.Value:
        return ad.grad((la.expm(x) ** 2).sum(), [x])[0]

    for a, b in zip(*slopes(first, SQUARE * 0.5), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max())


def test_exponentials_and_their_gradient_are_jax_s() -> None:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    want = jax.grad(lambda x: (jax.scipy.linalg.expm(x) ** 2).sum())(SQUARE)
    (found,) = both(lambda x: ad.grad((la.expm(x) ** 2).sum(), [x])[0], SQUARE)
    np.testing.assert_allclose(found, want, rtol=1e-8)


def test_batches_by_vmap() -> None:
    def f(x: rlx.Value) -> Any:
        return la.expm(x), la.sqrtm(x), la.logdet(x)

    g = rlx.Graph("one")
    g.set_outputs(list(f(g.input("x", [5, 5], "f64"))))
    batched = rlx.Session("cpu").compile(rlx.autodiff.vmap(g, {"x": 0}, axis_size=2))
    for a, b in zip(batched.run({"x": ROOTED}), both(f, ROOTED), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_kronecker_products() -> None:
    a, b = RNG.standard_normal((3, 2, 4)), RNG.standard_normal((3, 5))
    u, v = RNG.standard_normal(3), RNG.standard_normal(4)
    found, vectors = both(lambda a, b, u, v: (la.kron(a, b), la.kron(u, v)), a, b, u, v)
    for one, left in zip(found, a, strict=True):
        np.testing.assert_allclose(one, np.kron(left, b))
    np.testing.assert_allclose(vectors, np.kron(u, v))


def test_logarithms_of_determinants() -> None:
    x = np.stack([np.diag([2.0, 3.0]), np.diag([2.0, -3.0]), np.zeros((2, 2))])
    np.testing.assert_allclose(both(la.logdet, x)[0], [np.log(6), np.nan, -np.inf])


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2)])
def test_diagonals(shape: tuple[int, int]) -> None:
    x, v = RNG.standard_normal((2, *shape)), RNG.standard_normal((2, min(shape)))
    own, total, each, number = both(
        lambda x, v: (la.diagonal(x), la.trace(x), la.diag_set(x, v), la.diag_set(x, 7)), x, v
    )
    np.testing.assert_array_equal(own, np.diagonal(x, axis1=1, axis2=2))
    np.testing.assert_allclose(total, np.trace(x, axis1=1, axis2=2), rtol=1e-12)
    for found, given in ((each, v), (number, np.full(v.shape, 7.0))):
        for a, b, d in zip(found, x.copy(), given, strict=True):
            np.fill_diagonal(b[: len(d), : len(d)], d)
            np.testing.assert_array_equal(a, b)


def test_what_is_refused() -> None:
    g = rlx.Graph("bad")
    x, v, half = g.input("x", [3, 4], "f64"), g.input("v", [3], "f64"), g.input("h", [2, 2], "f16")
    cases: list[tuple[Callable[[], Any], type[RlxError], str]] = [
        (lambda: la.expm(x), ShapeError, "expm takes square matrices, found 3 rows and 4"),
        (lambda: la.sqrtm(v), ShapeError, "sqrtm takes matrices: rank 2 or more"),
        (lambda: la.expm(half), DTypeError, "expm takes f32 or f64, found f16"),
        (lambda: la.expm(x[:, :3], max_squarings=-1), GraphError, "max_squarings is 0 or more"),
        (lambda: la.polar(x, "up"), GraphError, 'side is "right" or "left"'),  # pyright: ignore[reportArgumentType]
        (lambda: la.polar(v), ShapeError, "polar takes matrices"),
        (lambda: la.kron(x, v), ShapeError, "two vectors or two matrices"),
        (lambda: la.diag_set(x, v[:2]), ShapeError, "diag_set: the diagonal is"),
        (lambda: la.diag_set(v, 1), ShapeError, "diag_set takes matrices"),
        (lambda: la.trace(v), ShapeError, "diagonal takes matrices"),
    ]
    for make, error, match in cases:
        with pytest.raises(error, match=match):
            make()

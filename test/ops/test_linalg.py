"""Linear algebra, compiled: residuals, SciPy and NumPy as judges, faults, determinism, refusals.

Derivatives and batching are tested by the generated tests, and against JAX in
``test_linalg_jax``. Residuals are held to a small multiple of sqrt(n) eps times the norm.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import rlx
from rlx.errors import DTypeError, FaultError, GraphError, RlxError, ShapeError, UnsupportedError
from rlx.ir.interpreter import evaluate
from rlx.ir.op import op_class, placeholders, type_of
from rlx.kernels.fallback import emit as common
from rlx.kernels.fallback.emit import CommonConfig
from rlx.linalg import matrix_norm, norm, vector_norm
from rlx.targets.cpu.target import kernel_target
from rlx.targets.cuda import make_target
from support import ad
from support.jit import host, jit

Array = np.ndarray[Any, Any]
la = rlx.linalg

SIZES = [*((n, np.float64) for n in (1, 2, 5, 33, 70)), (5, np.float32), (70, np.float32)]
"""Below a vector, and more than one and two panels of columns."""

SHAPES = [
    *((m, n, np.float64) for m, n in ((1, 1), (5, 5), (12, 5), (5, 12), (70, 70), (40, 80))),
    (12, 5, np.float32),
    (80, 40, np.float32),
]
"""Square, tall and wide."""


def compiled(f: Callable[..., Any], *arrays: Array, threads: int = 1) -> list[Array]:
    """The results of a function on Values, compiled and run."""
    g = rlx.Graph("linalg")
    values = [
        g.input(f"x{i}", a.shape, a.dtype.name.replace("float", "f")) for i, a in enumerate(arrays)
    ]
    out = f(*values)
    g.set_outputs(list(out) if isinstance(out, tuple) else [out])
    session = rlx.Session("cpu", threads=threads)
    return session.compile(g).run({f"x{i}": a for i, a in enumerate(arrays)})


def matrices(kind: str, m: int, n: int, dtype: Any, seed: int = 0) -> Array:
    """One matrix, by kind."""
    x = np.random.default_rng([seed, m, n]).standard_normal((m, n))
    if kind == "tiny":
        x *= 1e-290 if dtype == np.float64 else 1e-34
    elif kind == "huge":
        x *= 1e290 if dtype == np.float64 else 1e34
    elif kind == "graded":
        x *= 10.0 ** -np.arange(m)[:, None] * 10.0 ** -np.arange(n)
    elif kind == "rank one":
        x = np.outer(x[:, 0], x[0])
    elif kind == "zero column":
        x[:, n // 2] = 0
    elif kind == "zero":
        x[:] = 0
    elif kind == "shift":  # every eigenvalue is 0
        x = np.eye(m, n, 1)
    elif kind == "identity":
        x = np.eye(m, n)
    return x.astype(dtype)


KINDS = ("normal", "tiny", "huge", "graded", "rank one", "zero column", "zero", "shift", "identity")


def error(found: Array, expected: Array, scale: Array, dtype: Any) -> float:
    """The norm of a difference in units of sqrt(n) eps times that of ``scale``."""
    top = float(np.abs(scale).max(initial=0.0)) or 1.0
    size = np.linalg.norm(np.float64(scale) / top) or 1.0
    unit = math.sqrt(max(1, *found.shape)) * float(np.finfo(dtype).eps)
    return float(np.linalg.norm((np.float64(found) - np.float64(expected)) / top) / size / unit)


def orthogonality(q: Array, dtype: Any) -> float:
    """How far qᵀ q is from the identity, in units of n eps."""
    q = q.astype(np.float64)
    n = max(q.shape)
    return float(np.linalg.norm(q.T @ q - np.eye(q.shape[1])) / n / np.finfo(dtype).eps)


@pytest.mark.parametrize(("n", "dtype"), SIZES)
class TestSquare:
    def test_cholesky(self, n: int, dtype: Any) -> None:
        x = matrices("normal", n, n, np.float64)
        a = (x @ x.T + 0.1 * np.eye(n)).astype(dtype)
        (found,) = compiled(lambda v: la.cholesky(v, symmetrize=False), a)
        assert np.array_equal(found, np.tril(found))
        assert error(found.astype(float) @ found.T.astype(float), a, a, dtype) < 1

    def test_lu(self, n: int, dtype: Any) -> None:
        a = np.stack([matrices(k, n, n, dtype) for k in KINDS if k not in ("huge",)])
        packed, pivots, order = compiled(la.lu, a)
        for x, f, p, rows in zip(a, packed, pivots, order, strict=True):
            low = np.tril(f.astype(float), -1) + np.eye(n)
            assert np.abs(low).max() <= 1
            assert error(low @ np.triu(f.astype(float)), x[rows], x, dtype) < 2
            own = np.arange(n)
            for i, j in enumerate(p):
                own[[i, j]] = own[[j, i]]
            assert np.array_equal(own, rows)

    def test_solve(self, n: int, dtype: Any) -> None:
        # The last is singular but for rounding errors.
        a = np.stack([matrices("normal", n, n, dtype, s) for s in range(3)])
        if n > 2:
            a[2, -1] = a[2, :-1].sum(axis=0)
        b = np.random.default_rng(1).standard_normal((3, n, 3)).astype(dtype)
        (found,) = compiled(la.solve, a, b)
        for x, y, z in zip(a, b, found, strict=True):
            scale = np.linalg.norm(x.astype(float)) * np.linalg.norm(z.astype(float))
            residual = np.linalg.norm(x.astype(float) @ z - y)
            assert residual < 2 * math.sqrt(n) * np.finfo(dtype).eps * scale

    def test_eigh(self, n: int, dtype: Any) -> None:
        a = np.stack([matrices(k, n, n, dtype) for k in KINDS])
        a = (a + np.swapaxes(a, 1, 2)) / 2
        both = compiled(lambda x: (*la.eigh(x), la.eigvalsh(x)), a)
        for x, values, vectors, others in zip(a, *both, strict=True):
            top = np.abs(x).max() or 1
            unit = np.float64(vectors)
            assert (np.diff(values) >= 0).all()
            assert orthogonality(vectors, dtype) < 3
            assert error((x / top) @ unit, unit * (values / top), x / top, dtype) < 6
            expected = np.linalg.eigvalsh(np.float64(x / top))
            assert error(values / top, expected, x / top, dtype) < 6
            assert error(others / top, expected, x / top, dtype) < 6


@pytest.mark.parametrize(("m", "n", "dtype"), SHAPES)
class TestAnyShape:
    @pytest.mark.parametrize("mode", ["reduced", "complete"])
    def test_qr(self, m: int, n: int, dtype: Any, mode: Any) -> None:
        a = np.stack([matrices(k, m, n, dtype) for k in KINDS])
        q, r = compiled(lambda v: la.qr(v, mode), a)
        for x, y, z in zip(a, q, r, strict=True):
            top = np.abs(x).max() or 1
            assert np.array_equal(z, np.triu(z))
            assert orthogonality(y, dtype) < 3
            assert error(y.astype(float) @ (z / top), x / top, x / top, dtype) < 2

    @pytest.mark.parametrize("full", [False, True])
    def test_svd(self, m: int, n: int, dtype: Any, full: bool) -> None:
        if full and m == n:
            pytest.skip("the same")
        a = np.stack([matrices(k, m, n, dtype) for k in KINDS])
        # The values alone go another way: their kernel keeps no vectors.
        both = compiled(lambda v: (*la.svd(v, full), la.svdvals(v)), a)
        for x, left, values, right, others in zip(a, *both, strict=True):
            top = np.abs(x).max() or 1
            k = min(m, n)
            assert (np.diff(values) <= 0).all()
            assert (values >= 0).all()
            assert max(orthogonality(left, dtype), orthogonality(right.T, dtype)) < 3
            made = left[:, :k].astype(float) * (values / top) @ right[:k]
            assert error(made, x / top, x / top, dtype) < 6
            expected = np.linalg.svd(np.float64(x / top), compute_uv=False)
            assert error(values / top, expected, x / top, dtype) < 6
            assert error(others / top, expected, x / top, dtype) < 6


# -- other judges ------------------------------------------------------------------------------


A = matrices("normal", 6, 6, np.float64) + 4 * np.eye(6)
S = A @ A.T
TALL, WIDE = matrices("normal", 7, 4, np.float64), matrices("normal", 3, 5, np.float64)
DEFICIENT = TALL @ matrices("rank one", 4, 4, np.float64)
B = np.random.default_rng(2).standard_normal((6, 2))


def triangle(a: Array, b: Array, **options: Any) -> Array:
    return scipy.linalg.solve_triangular(a, b, **options)


JUDGED: list[tuple[str, Callable[..., Any], Callable[..., Any], tuple[Array, ...]]] = [
    ("cholesky", la.cholesky, lambda a: scipy.linalg.cholesky(a, lower=True), (S,)),
    ("lu", lambda a: la.lu(a)[:2], scipy.linalg.lu_factor, (A,)),
    ("qr", la.qr, lambda a: scipy.linalg.qr(a, mode="economic"), (TALL,)),
    ("qr complete", lambda a: la.qr(a, "complete"), scipy.linalg.qr, (TALL,)),
    ("eigvalsh", la.eigvalsh, scipy.linalg.eigvalsh, (S,)),
    ("svdvals", la.svdvals, scipy.linalg.svdvals, (WIDE,)),
    ("solve", la.solve, scipy.linalg.solve, (A, B)),
    ("solve vector", la.solve, scipy.linalg.solve, (A, B[:, 0])),
    ("solve broadcast", la.solve, np.linalg.solve, (np.stack([A, S]), B)),
    ("solve vectors", la.solve, lambda a, b: np.linalg.solve(a, b[..., None])[..., 0],
     (np.stack([A, S]), B.T.copy())),
    ("triangular", la.triangular_solve, lambda a, b: triangle(a, b, lower=True), (A, B)),
    ("triangular upper vector", lambda a, b: la.triangular_solve(a, b, lower=False), triangle,
     (A, B[:, 1])),
    ("triangular unit transposed",
     lambda a, b: la.triangular_solve(a, b, transpose=True, unit_diagonal=True),
     lambda a, b: triangle(a, b, lower=True, trans=1, unit_diagonal=True), (A / 9, B)),
    ("triangular right", lambda a, b: la.triangular_solve(a, b, left_side=False),
     lambda a, b: triangle(a.T, b.T).T, (A, B.T.copy())),
    ("triangular right vector", lambda a, b: la.triangular_solve(a, b, left_side=False),
     lambda a, b: triangle(a.T, b), (A, B[:, 0].copy())),
    ("inv", la.inv, scipy.linalg.inv, (A,)),
    ("det", la.det, scipy.linalg.det, (A,)),
    ("det of a singular matrix", la.det, scipy.linalg.det, (np.ones((3, 3)),)),
    ("slogdet", la.slogdet, np.linalg.slogdet, (np.stack([A, -A, S[::-1].copy()]),)),
    ("slogdet of a singular matrix", la.slogdet, np.linalg.slogdet, (np.zeros((3, 3)),)),
    ("pinv", la.pinv, scipy.linalg.pinv, (TALL,)),
    ("pinv of low rank", la.pinv, scipy.linalg.pinv, (DEFICIENT,)),
    ("lstsq", la.lstsq, lambda a, b: scipy.linalg.lstsq(a, b)[0], (TALL, np.ones((7, 2)))),
    ("lstsq wide vector", la.lstsq, lambda a, b: scipy.linalg.lstsq(a, b)[0], (WIDE, np.ones(3))),
    ("lstsq of low rank", la.lstsq, lambda a, b: scipy.linalg.lstsq(a, b)[0],
     (DEFICIENT, np.ones(7))),
    ("matrix_rank", la.matrix_rank, lambda a: np.asarray(np.linalg.matrix_rank(a)),
     (np.stack([TALL, DEFICIENT, 0 * TALL]),)),
    ("matrix_rank of nothing", la.matrix_rank, lambda a: np.asarray(np.linalg.matrix_rank(a)),
     (np.zeros((2, 3, 0)),)),
    *((f"power {n}", lambda a, n=n: la.matrix_power(a, n),
       lambda a, n=n: np.linalg.matrix_power(a, n), (A,)) for n in (-2, -1, 0, 1, 2, 3, 7)),
    *((f"vector_norm {o}", lambda a, o=o: la.vector_norm(a, o, -1),
       lambda a, o=o: np.linalg.norm(a, o, -1), (np.round(TALL),))
      for o in (0, 1, 2, 3, 0.5, math.inf, -math.inf)),
    *((f"norm {o}", lambda a, o=o: la.norm(a, o, (0, 2), True),
       lambda a, o=o: np.linalg.norm(a, o, (0, 2), True), (np.stack([TALL, -DEFICIENT]),))
      for o in (None, "fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)),
    ("norm", la.norm, np.linalg.norm, (np.stack([A, S]),)),
    ("norm of a matrix", lambda a: la.norm(a, 1), lambda a: np.linalg.norm(a, 1), (A,)),
    ("norm of a vector", lambda a: la.norm(a, 1), lambda a: np.linalg.norm(a, 1), (A[0],)),
    ("norm along an axis", lambda a: la.norm(a, axis=0), lambda a: np.linalg.norm(a, axis=0), (A,)),
    ("matrix_norm", lambda a: la.matrix_norm(a, 2, True),
     lambda a: np.linalg.norm(a, 2, (0, 1), True), (A,)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("f", "judge", "arrays"), [j[1:] for j in JUDGED], ids=[j[0] for j in JUDGED]
)
def test_scipy_agrees(f: Any, judge: Any, arrays: tuple[Array, ...]) -> None:
    expected = judge(*arrays)
    many = expected if isinstance(expected, tuple) else (expected,)
    for found, wanted in zip(compiled(f, *arrays), many, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-11)


def test_vectors_agree_up_to_sign() -> None:
    _, v = compiled(la.eigh, S)
    np.testing.assert_allclose(np.abs(v), np.abs(scipy.linalg.eigh(S)[1]), atol=1e-12)
    u, _, vt = compiled(la.svd, A)
    for found, expected in zip((u, vt), scipy.linalg.svd(A)[::2], strict=True):
        np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-12)
    assert (np.abs(v).argmax(axis=0) == v.argmax(axis=0)).all()
    assert (np.abs(u).argmax(axis=0) == u.argmax(axis=0)).all()


# -- faults ------------------------------------------------------------------------------------

ONES, NEGATIVE = np.ones((3, 3)), -np.eye(3)
FAULTS: list[tuple[str, Callable[..., Any], tuple[Array, ...], str]] = [
    ("solve", la.solve, (ONES, ONES), "singular"),
    ("inv", la.inv, (ONES,), "singular"),
    ("triangular_solve", lambda a: la.triangular_solve(a, a), (0 * ONES,), "singular"),
    ("cholesky", la.cholesky, (NEGATIVE,), "not positive definite"),
    ("cholesky of a large one", la.cholesky, (np.diag([1.0] * 60 + [-1.0]),), "not positive"),
    ("one of a batch", la.cholesky, (np.stack([-NEGATIVE, NEGATIVE]),), "not positive definite"),
]


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize(
    ("f", "arrays", "match"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS]
)
def test_what_has_no_result_is_a_fault(
    f: Any, arrays: tuple[Array, ...], match: str, interpreted: bool
) -> None:
    g = rlx.Graph("fault")
    values = [g.input(f"x{i}", a.shape, "f64") for i, a in enumerate(arrays)]
    g.set_outputs([f(*values)])
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    run = (lambda f: rlx.interpret(g, f)) if interpreted else rlx.Session("cpu").compile(g).run
    with pytest.raises(FaultError) as fault:
        run(feeds)
    assert re.match(re.escape(__file__) + r":\d+: ", str(fault.value)), str(fault.value)
    assert re.search(match, str(fault.value))


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_gives_nan_in_its_own_matrix(n: int, bad: float) -> None:
    x = np.stack([np.eye(n), np.eye(n)])
    x[1, n - 1, 0] = bad
    for f in (la.qr, la.eigh, la.eigvalsh, la.svd, la.svdvals):
        for found in compiled(f, x):
            assert np.isfinite(found[0]).all()
            assert np.isnan(found[1]).any()
    if np.isnan(bad):
        for f in (lambda a: la.cholesky(a, symmetrize=False), la.inv, la.det):
            (found,) = compiled(f, x)
            assert np.isfinite(found[0]).all()
            assert np.isnan(found[1]).any()


def test_threads_do_not_change_the_bits() -> None:
    x = np.random.default_rng(0).standard_normal((16, 40, 40)).astype(np.float32)

    def all_of(a: Any) -> tuple[Any, ...]:
        spd = a @ a.mT + 1.0
        return (*la.svd(a), *la.eigh(a), *la.qr(a), *la.lu(a), la.inv(a), la.cholesky(spd))

    one, two = (compiled(all_of, x, threads=t) for t in (1, 2))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one, two, strict=True))


def test_a_gpu_kernel_has_its_work_memory_among_its_arguments() -> None:
    node = op_class("mir.cholesky")(*placeholders([type_of("7x5x5xf32")]))
    config = CommonConfig.of(node)
    text = common.emit("k", config, make_target().kernels)
    rooms = common.workspaces(config, "gpu")
    assert [dt.name for dt in text.buffers] == ["f32", "f32", *(t.dtype.name for t in rooms), "i32"]
    assert rooms[0].shape[0] == 7 and rooms[0].shape[1] >= 25
    assert not text.scratch


# -- refusals ----------------------------------------------------------------------------------

REFUSED: list[tuple[Callable[..., Any], tuple[str, ...], type[RlxError], str]] = [
    (lambda a: la.qr(a, "raw"), ("3x3xf32",), GraphError, 'mode is "reduced" or "complete"'),
    (lambda a: la.matrix_power(a, 0.5), ("3x3xf32",), GraphError, "exponent is an int"),
    (lambda a: la.matrix_power(a, 2), ("3x2xf32",), ShapeError, "square matrices"),
    (lambda a: vector_norm(a, "fro"), ("3xf32",), GraphError, "ord is a number"),
    (matrix_norm, ("3xf32",), ShapeError, "rank 2 or more"),
    (lambda a: matrix_norm(a, 3), ("3x3xf32",), GraphError, '"fro", "nuc", 1'),
    (lambda a: norm(a, 1), ("2x3x3xf32",), ShapeError, "give the axis"),
    (lambda a: norm(a, 1, (1, -1)), ("3x3xf32",), ShapeError, "are the same"),
    (la.solve, ("3xf32", "3xf32"), ShapeError, "matrices and a right-hand side"),
    (la.solve, ("2x3x3xf32", "3x3x1xf32"), ShapeError, "broadcast"),
    (la.pinv, ("nx3xf32",), ShapeError, "default rtol depends"),
    (la.pinv, ("3xf32",), ShapeError, "rank 2 or more"),
    (la.inv, ("3x3xbf16",), DTypeError, "16 bits are too few"),
    (la.cholesky, ("3x3xf16",), DTypeError, 'x.cast(to="f32")'),
]


@pytest.mark.parametrize(("f", "types", "kind", "match"), REFUSED)
def test_refusals_are_located(
    f: Any, types: tuple[str, ...], kind: type[RlxError], match: str
) -> None:
    g = rlx.Graph("bad")
    values = [g.input(f"x{i}", type_of(t).shape, type_of(t).dtype) for i, t in enumerate(types)]
    with pytest.raises(kind) as refusal:
        f(*values)
    assert re.match(re.escape(__file__) + r":\d+: ", str(refusal.value)), str(refusal.value)
    assert match in str(refusal.value)


@pytest.mark.parametrize(
    ("f", "shape", "match"),
    [
        (lambda a: la.qr(a)[0], (2, 3), "m = 2 < n = 3"),
        (lambda a: la.qr(a, "complete")[0], (3, 2), "a complete q of 3 rows"),
        (lambda a: la.svd(a)[0], (3, 2), "full_matrices of 3 rows and 2 columns"),
    ],
)
def test_derivatives_that_there_are_not(f: Any, shape: tuple[int, int], match: str) -> None:
    x = rlx.Graph("bad").input("x", shape, "f64")
    y = f(x).sum()
    with pytest.raises(UnsupportedError, match=match):
        ad.grad(y, [x])
    with pytest.raises(UnsupportedError, match=match):
        ad.jvp([y], [x], [x])


@pytest.mark.parametrize("name", ["cholesky", "lu", "qr", "eigh", "svd"])
@pytest.mark.parametrize("vector_bytes", [0, 32])
def test_every_width_of_vectors(name: str, vector_bytes: int) -> None:
    """Without vectors, as a GPU's thread runs, and with those of AVX2."""
    target = replace(kernel_target(host()), vector_bytes=vector_bytes, registers=16)
    node = op_class(f"mir.{name}")(*placeholders([type_of("2x40x40xf64")]))
    x = np.stack([matrices("normal", 40, 40, np.float64, seed) for seed in range(2)])
    x = x @ np.swapaxes(x, 1, 2) + np.diag(np.arange(40.0)) if name in ("cholesky", "eigh") else x
    config = CommonConfig.of(node)
    launch = common.launch(config)
    outs = [np.zeros(v.type.static_shape, v.dtype.numpy) for v in node.results]
    fault = [np.zeros(2, np.int64)] if common.faults(config) else []
    call = jit(common.emit("k", config, target))
    call(0, launch.range, [x, *outs, *fault], launch.sizes, launch.scratch)
    for found, expected in zip(outs, evaluate(node, [x]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)

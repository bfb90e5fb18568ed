"""NumPy's functions on Values against themselves on arrays: every row, traced and interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.xp.numpy_functions import _ROWS
from support.numpy_programs import Program, difference

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4))
Y = RNG.standard_normal((3, 4))
F = X.astype(np.float32)
I = RNG.integers(-5, 6, (3, 4))  # noqa: E741
B = X > 0
V = RNG.standard_normal(4)
W = RNG.standard_normal((2, 4, 5))
M = RNG.standard_normal((4, 4)) + 4 * np.eye(4)
N = np.array([1.0, np.nan, np.inf, -np.inf])
SPD = M @ M.T
Z = np.array([complex(1, np.nan), complex(np.inf, -np.inf), complex(np.nan, 2)])

Case = tuple[tuple[Any, ...], dict[str, Any]]


def call(*args: Any, **kwargs: Any) -> Case:
    return args, kwargs


REDUCED = [call(X), call(X, 0), call(X, axis=1, keepdims=True), call(I, (0, 1))]
FOURIER = [call(X), call(X, 6)]
CASES: dict[Any, list[Case]] = {
    np.all: [call(B), call(B, 1)],
    np.any: [call(B), call(B, 0, keepdims=True)],
    np.allclose: [call(X, X + 1e-9), call(X, Y), call(N, N, equal_nan=True)],
    np.isclose: [call(X, X + 1e-6), call(N, N), call(N, 1.0, atol=3.0), call(X, np.inf)],
    np.amax: REDUCED, np.max: REDUCED, np.amin: REDUCED, np.min: REDUCED,
    np.sum: [*REDUCED, call(I.astype(np.int8), dtype=np.int32)],
    np.prod: REDUCED, np.mean: REDUCED, np.ptp: REDUCED,
    np.std: [*REDUCED[:3], call(X, axis=0, ddof=1)],
    np.var: [*REDUCED[:3], call(X, axis=0, ddof=1), call(X, correction=1)],
    np.argmax: [call(X), call(X, 1), call(X, axis=0, keepdims=True)],
    np.argmin: [call(X), call(X, 1)],
    np.sort: [call(X), call(X, 0), call(X, stable=True)],
    np.argsort: [call(I, 1, stable=True)],
    np.count_nonzero: [call(I), call(B, axis=1)],
    np.cumsum: [call(X), call(X, 1), call(I.astype(np.int8), 0)],
    np.cumprod: [call(X), call(V, axis=0)],
    np.diff: [call(X), call(X, 2), call(X, axis=0)],
    np.clip: [call(X, -0.5, 0.5), call(X, None, 0.1), call(I, 0, None), call(X, min=0.0, max=V)],
    np.round: [call(X), call(X, 2), call(X * 100, -1), call(I), call(I * 9, -1)],
    np.around: [call(X, 1)],
    np.real: [call(X)], np.imag: [call(X)],
    np.nan_to_num: [call(N), call(N, nan=3.0, posinf=1.0), call(I), call(Z, nan=2.0)],
    np.where: [call(B, X, Y), call(B, X, 0.0), call(B, 0, I)],
    np.concatenate: [call([X, Y]), call((X, F), 1), call([X, I], axis=None)],
    np.stack: [call([X, Y]), call([X, Y], axis=-1)],
    np.vstack: [call([V, X])], np.hstack: [call([X, Y]), call([V, V])],
    np.split: [
        call(X, 2, 1), call(X, [1, 3], axis=1), call(X, [2, 9], 0), call(V, [-1]),
        call(V, np.int64(2)),
    ],
    np.atleast_1d: [call(X), call(np.float64(2.0) * np.ones(()), V)],
    np.atleast_2d: [call(V), call(X)],
    np.broadcast_to: [call(V, (3, 4))], np.broadcast_arrays: [call(X, V)],
    np.meshgrid: [call(V, X[0]), call(V, X[0], indexing="ij")],
    np.reshape: [call(X, (4, 3)), call(X, -1)], np.ravel: [call(X)], np.copy: [call(X)],
    np.transpose: [call(X), call(W, (1, 0, 2))], np.swapaxes: [call(W, 0, 2)],
    np.moveaxis: [call(W, 0, -1)], np.squeeze: [call(X[:, None]), call(X[None], 0)],
    np.expand_dims: [call(X, 1), call(X, (0, 3))],
    np.flip: [call(X), call(X, 1)], np.roll: [call(X, 2), call(X, 1, axis=0)],
    np.tile: [call(X, (2, 1))], np.repeat: [call(X, 2), call(X, 3, axis=1)],
    np.pad: [
        call(X, 1), call(X, (1, 2)), call(X, ((1, 0), (0, 2))), call(X, 1, constant_values=7.0),
        call(X, 1, "edge"), call(X, ((1, 1), (2, 0)), mode="reflect"),
    ],
    np.diag: [call(V), call(X), call(X, 1)], np.diagonal: [call(X), call(W, 1, 1, 2)],
    np.trace: [call(M), call(I[:, :3])],
    np.tril: [call(X), call(X, 1)], np.triu: [call(X), call(X, k=-1)],
    np.take: [call(X, [1, 0, 2]), call(X, np.array([[1, 0]]), axis=1)],
    np.take_along_axis: [call(X, np.argsort(X), 1)],
    np.searchsorted: [call(np.sort(V), V), call(np.sort(V), X, "right")],
    np.zeros_like: [call(X), call(X, np.int32)], np.ones_like: [call(X)],
    np.full_like: [call(X, 2.5)], np.empty_like: [],
    np.shape: [call(X)], np.ndim: [call(X)], np.size: [call(X), call(X, 1)],
    np.result_type: [],
    np.dot: [call(X, V), call(V, V), call(X, Y.T), call(V, W), call(X, 2.0)],
    np.inner: [call(X, Y), call(V, V), call(W, np.ones(5)), call(X, 2.0)],
    np.outer: [call(V, X)], np.vdot: [call(X, Y), call(X + 1j * Y, Y + 2j * X)],
    np.kron: [call(X, M)],
    np.einsum: [call("ij,kj->ik", X, Y), call("ii", M), call("...j,j", W, np.ones(5))],
    np.tensordot: [call(X, Y.T, 1), call(X, Y, axes=([0, 1], [0, 1]))],
    np.linalg.norm: [call(X), call(X, axis=1), call(X, 1), call(V, np.inf)],
    np.linalg.det: [call(M)], np.linalg.inv: [call(M)], np.linalg.qr: [call(SPD)],
    np.linalg.slogdet: [call(M)], np.linalg.matrix_power: [call(M, 3)],
    np.linalg.solve: [call(M, V), call(M, X.T)],
    np.linalg.cholesky: [call(SPD), call(np.tril(SPD))],
    np.linalg.eigh: [call(SPD)], np.linalg.eigvalsh: [call(SPD), call(np.tril(SPD))],
    np.linalg.svd: [call(M), call(X, compute_uv=False)],
    **{getattr(np.fft, n): FOURIER for n in ("fft", "ifft", "rfft", "irfft")},
    **{getattr(np.fft, n): [call(X)] for n in ("fft2", "ifft2", "fftn", "ifftn")},
    **{getattr(np.fft, n): [call(X)] for n in ("rfftn", "irfftn")},
    np.fft.fftshift: [call(X), call(X, 1)], np.fft.ifftshift: [call(X)],
    np.fft.hfft: [call(X + 1j * Y)], np.fft.ihfft: [call(X)],
    np.linalg.matrix_rank: [call(M)], np.linalg.pinv: [call(X)],
}  # fmt: skip


def _place(name: str) -> tuple[Any, str]:
    """The module of a function, and its name there."""
    *within, last = name.split(".")
    return (getattr(np, within[0]) if within else np), last


LATER = {
    name: cases
    for name, cases in {
        "astype": [call(X, np.float32)],
        "matrix_transpose": [call(W)],
        "unstack": [call(X), call(X, axis=1)],
        "linalg.cross": [call(X[:, :3], Y[:, :3])],
        "linalg.diagonal": [call(W), call(M, offset=1)],
        "linalg.matmul": [call(X, Y.T)],
        "linalg.matrix_norm": [call(X), call(W, ord=1, keepdims=True)],
        "linalg.matrix_transpose": [call(W)],
        "linalg.outer": [call(V, V)],
        "linalg.svdvals": [call(X)],
        "linalg.tensordot": [call(X, Y.T, axes=1)],
        "linalg.trace": [call(M), call(W)],
        "linalg.vecdot": [call(X, Y)],
        "linalg.vector_norm": [call(X), call(X, axis=1, ord=1)],
    }.items()
    if hasattr(*_place(name))
}
"""Functions that NumPy 1 lacks."""
CASES |= {getattr(*_place(name)): cases for name, cases in LATER.items()}
REFUSED = {np.nonzero, np.argwhere, np.flatnonzero, np.unique}
FACTORS = {np.linalg.qr, np.linalg.eigh, np.linalg.svd}
"""Functions whose factors are unique up to signs, which their absolute values leave out."""

ALL = [(f, *case) for f, cases in CASES.items() for case in cases]


@pytest.mark.parametrize(
    ("f", "args", "kwargs"), ALL, ids=[f"{f.__name__}{i}" for i, (f, *_) in enumerate(ALL)]
)
def test_as_on_arrays(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    wanted = f(*args, **kwargs)
    flat: list[Any] = []

    def spelled(x: Any) -> Any:
        """The argument with a place for each array that is traced."""
        if isinstance(x, np.ndarray) and x.dtype.kind in "fcib":
            flat.append(x)
            return len(flat) - 1, "traced"
        if isinstance(x, list | tuple) and any(isinstance(v, np.ndarray) for v in x):
            return [spelled(v) for v in x]
        return x

    places, named = [spelled(a) for a in args], {k: spelled(v) for k, v in kwargs.items()}

    def with_values(values: tuple[Any, ...], x: Any) -> Any:
        if isinstance(x, tuple) and len(x) == 2 and x[1] == "traced":
            return values[x[0]]
        return [with_values(values, v) for v in x] if isinstance(x, list) and places else x

    static: list[Any] = []

    def traced(*values: Any) -> Any:
        found = f(
            *(with_values(values, p) for p in places),
            **{k: with_values(values, v) for k, v in named.items()},
        )
        if f in (np.shape, np.ndim, np.size):
            static.append(found)
            return values[0]
        return found

    found = rlx.jit(traced, device="interpret")(*flat)
    if static:
        assert static[0] == wanted
        return
    many = isinstance(wanted, list | tuple)
    pairs = zip(found, wanted, strict=True) if many else [(found, wanted)]
    for one, other in pairs:
        other_type = np.asarray(other).dtype
        assert one.shape == np.shape(other)
        assert one.dtype == other_type or f in (np.argmax, np.argmin, np.argsort, np.searchsorted)
        a, b = (np.abs(one), np.abs(other)) if f in FACTORS else (one, other)
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_every_row_has_a_case() -> None:
    assert {*_ROWS} == {*CASES} | REFUSED


def test_types_and_empty_arrays() -> None:
    x = rlx.Graph("g").input("x", [3, 4])
    assert np.result_type(x, np.float64) == np.float64
    assert np.empty_like(x).shape == (3, 4)


def test_refusals() -> None:
    g = rlx.Graph("g")
    x, s = g.input("x", [3, 4]), g.input("s", ["n", 4])
    for name in ("nonzero", "argwhere", "flatnonzero", "unique"):
        with pytest.raises(GraphError, match="shape depends on the elements"):
            getattr(np, name)(x)
    with pytest.raises(GraphError, match=r"np.where of a Value needs condition, x, y: without"):
        np.where(x > 0)
    with pytest.raises(GraphError, match=r"np.sum of a Value takes a, axis, .*; found where"):
        np.sum(x, where=x > 0)
    with pytest.raises(GraphError, match=r"np.linalg.cond computes on arrays, .*rlx.xp"):
        np.linalg.cond(x)
    with pytest.raises(GraphError, match=r"np.pad of a Value takes one number .*\[1, 2\]"):
        np.pad(x, 1, constant_values=[1, 2])
    with pytest.raises(ShapeError, match=r"4 elements are not 3 equal parts"):
        np.split(x, 3, axis=1)
    with pytest.raises(ShapeError, match=r"np.split along an axis of the dim n needs a known"):
        np.split(s, 3)
    with pytest.raises(ShapeError, match=r"np.diag takes a vector or a matrix, found 3x4x1xf32"):
        np.diag(x.unsqueeze(2))
    with pytest.raises(GraphError, match=r"diff: n is how often, 0 or more, found -1"):
        np.diff(x, -1)
    for name in ("fabs", "rint"):
        with pytest.raises(DTypeError, match=rf"np.{name} takes floats, found i32; cast it to f64"):
            getattr(np, name)(x.cast("i32"))


@pytest.mark.parametrize("seeds", [range(0, 60), range(60, 120)], ids=str)
def test_programs_give_what_numpy_gives(seeds: range) -> None:
    """A few of the programs that ``tools/soak.py --numpy`` runs compiled, interpreted."""
    for seed in seeds:
        found = difference(Program.of(seed), "interpret")
        assert found is None, f"seed {seed}: {found}"

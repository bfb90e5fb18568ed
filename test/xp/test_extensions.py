"""The extensions of the array API standard against NumPy's: linear algebra, Fourier transforms."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import xp
from rlx.errors import DTypeError, GraphError, ShapeError

RNG = np.random.default_rng(0)
A = RNG.standard_normal((2, 4, 3))
B = RNG.standard_normal((2, 3))
S = A[:, :3] @ A[:, :3].swapaxes(-1, -2) + 2 * np.eye(3)
Z = A + 1j * RNG.standard_normal(A.shape)
I = RNG.integers(-5, 6, (4, 3))  # noqa: E741

Case = tuple[str, tuple[Any, ...], dict[str, Any]]
LINALG: list[Case] = [
    ("cholesky", (S,), {}), ("cholesky", (S,), {"upper": True}),
    ("cross", (A, A[::-1]), {}), ("cross", (A.swapaxes(1, 2), I.T), {"axis": -2}),
    ("det", (S,), {}), ("diagonal", (A,), {}), ("diagonal", (A,), {"offset": -1}),
    ("eigh", (S,), {}), ("eigvalsh", (S,), {}), ("inv", (S.astype(np.float32),), {}),
    ("matmul", (A, S), {}), ("matrix_norm", (A,), {}),
    ("matrix_norm", (A,), {"ord": "nuc", "keepdims": True}),
    *[("matrix_norm", (A,), {"ord": o}) for o in (1, -1, 2, -2, np.inf, -np.inf)],
    *[("matrix_power", (S, n), {}) for n in (0, 3, -2)],
    ("matrix_rank", (A,), {}), ("matrix_rank", (np.ones((3, 3)),), {}),
    ("matrix_transpose", (Z,), {}), ("outer", (B[0], I[:, 0]), {}), ("outer", (Z[0, 0], B[0]), {}),
    ("pinv", (A,), {}), ("qr", (A,), {}), ("qr", (A,), {"mode": "complete"}),
    ("slogdet", (S,), {}), ("solve", (S, A.swapaxes(1, 2)), {}), ("solve", (S[0], B[0]), {}),
    ("svd", (A,), {"full_matrices": False}), ("svdvals", (A,), {}),
    ("tensordot", (A, S[0]), {"axes": 1}), ("trace", (A,), {}), ("trace", (I,), {"offset": 1}),
    ("trace", (I,), {"dtype": np.float32}), ("vecdot", (Z, Z), {}), ("vector_norm", (A,), {}),
    *[("vector_norm", (A,), {"ord": o, "axis": 1}) for o in (1, 3, 0, np.inf, -np.inf)],
    ("vector_norm", (Z,), {"axis": (0, 2), "keepdims": True}),
]  # fmt: skip
FFT: list[Case] = [
    *[(n, (Z,), {}) for n in ("fft", "ifft", "irfft", "hfft", "fftn", "ifftn", "irfftn")],
    *[(n, (A,), {}) for n in ("fft", "rfft", "ihfft", "rfftn", "fftn")],
    ("fft", (I,), {"axis": 0}), ("rfft", (I,), {"n": 6}), ("fft", (Z,), {"n": 5, "norm": "ortho"}),
    ("irfft", (Z,), {"n": 7, "axis": 1, "norm": "forward"}),
    ("fftn", (Z,), {"s": (3, 5), "axes": (0, -1)}), ("irfftn", (Z,), {"axes": (1, 2)}),
    ("rfftn", (A,), {"norm": "ortho"}), ("fft", (Z.astype(np.complex64),), {}),
    ("fftfreq", (5,), {}), ("fftfreq", (6,), {"d": 0.5}), ("rfftfreq", (6,), {"d": 2.0}),
    ("fftshift", (A,), {}), ("ifftshift", (A,), {"axes": 1}), ("fftshift", (I,), {"axes": (0, 1)}),
]  # fmt: skip


def check(found: Any, name: str, expected: Any) -> None:
    if name in ("qr", "svd", "eigh"):  # vectors have a sign
        parts = [np.abs(p) for p in expected]
        assert type(found)._fields == type(expected)._fields
        found = [np.abs(p) for p in found]
        expected = parts
    for one, other in zip(*((v if isinstance(v, tuple | list) else [v]) for v in (found, expected)),
                          strict=True):  # fmt: skip
        assert np.asarray(one).dtype == np.asarray(other).dtype
        exact = np.asarray(other).dtype in (np.float64, np.complex128, np.int64)
        np.testing.assert_allclose(one, other, *((1e-9, 1e-11) if exact else (1e-4, 1e-5)))


PLACES = {"linalg": LINALG, "fft": FFT}
ALL = [(place, *case) for place, cases in PLACES.items() for case in cases]


@pytest.mark.parametrize(("place", "name", "args", "kwargs"), ALL,
                         ids=[f"{p}.{n}{i}" for i, (p, n, _, _) in enumerate(ALL)])  # fmt: skip
def test_a_function_is_numpys(
    place: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    function = getattr(getattr(xp, place), name)
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    rest = args[len(arrays) :]
    if arrays:
        found = rlx.jit(lambda *a: function(*a, *rest, **kwargs), device="interpret")(*arrays)
    else:
        found = function(*args, **kwargs)
    check(found, name, getattr(getattr(np, place), name)(*args, **kwargs))


@pytest.mark.parametrize("place", PLACES)
def test_every_function_has_a_case_and_numpys_parameters(place: str) -> None:
    module = getattr(xp, place)
    assert {case[0] for case in PLACES[place]} == {*module.__all__}
    assert {*module.__all__} <= {*dir(getattr(np, place))}
    for name in module.__all__:
        kinds = [p.kind for p in inspect.signature(getattr(module, name)).parameters.values()]
        assert kinds[0] is inspect.Parameter.POSITIONAL_ONLY, name


def test_at_once() -> None:
    np.testing.assert_allclose(xp.linalg.inv(S), np.linalg.inv(S), 1e-9)
    found = xp.linalg.slogdet(S)
    assert found.logabsdet.shape == (2,)
    np.testing.assert_allclose(xp.fft.fft(A), np.fft.fft(A), 1e-9, 1e-12)


def test_refusals() -> None:
    with pytest.raises(ShapeError, match=r"cross takes vectors of 3 along axis -1, found"):
        xp.linalg.cross(S[..., :2], S[..., :2])
    with pytest.raises(ShapeError, match=r"outer takes two vectors, found"):
        xp.linalg.outer(S, B)
    with pytest.raises(GraphError, match=r'qr: mode is "reduced" or "complete", found \'r\''):
        xp.linalg.qr(A, mode="r")
    with pytest.raises(DTypeError, match=r"inv takes f32 or f64, found c128"):
        xp.linalg.inv(Z[:, :3])

"""Linear algebra in f64 against numpy.linalg (LAPACK)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench.case import Array, Case, Run, Tensor

SIZES = ((1, 4), (1, 32), (1, 128), (1, 512), (4096, 4), (64, 32))
"""Batch and order of the matrices."""

NUMPY: dict[str, Callable[..., Any]] = {
    "cholesky": lambda a, s: np.linalg.cholesky(s),
    "solve": np.linalg.solve,
    "inv": lambda a, s: np.linalg.inv(a),
    "slogdet": lambda a, s: np.linalg.slogdet(a)[1],
    "qr": lambda a, s: np.linalg.qr(a)[1],
    "eigh": lambda a, s: np.linalg.eigh(s)[0],
    "eigvalsh": lambda a, s: np.linalg.eigvalsh(s),
    "svd": lambda a, s: np.linalg.svd(a)[1],
    "svdvals": lambda a, s: np.linalg.svd(a, compute_uv=False),
}
"""Of each function, the result that is compared; all of them are computed."""


class Matrices(Case):
    """A case on a general and a symmetric positive definite matrix."""

    def feeds(self) -> dict[str, Array]:
        """Both of them."""
        a = self.inputs["a"].draw("a")
        return {"a": a, "s": a @ np.swapaxes(a, 1, 2) + a.shape[1] * np.eye(a.shape[1])}


def numpy_call(name: str, case: Case, threads: int) -> Run:
    """The function of numpy.linalg."""
    feeds = case.feeds().values()
    return lambda: NUMPY[name](*feeds)


def numpy_result(name: str, case: Case) -> Array:
    """The reference."""
    return NUMPY[name](*case.feeds().values())


def rlx_call(name: str, case: Case, threads: int) -> Run:
    """The compiled function of rlx.linalg."""
    from bench.runtimes.rlx import compiled

    f, feeds = compiled(case, threads), tuple(case.feeds().values())
    return lambda: f.run_slots(*feeds)


def values_first(u: Any, values: Any, vt: Any) -> tuple[Any, ...]:
    """The vectors, which are free in part, after the values."""
    return values, u, vt


def build(name: str, f: Any, a: Any, s: Any) -> Any:
    """The results in rlx.linalg, the compared one first."""
    from rlx import linalg

    found: dict[str, Callable[[], Any]] = {
        "cholesky": lambda: linalg.cholesky(s, False),
        "solve": lambda: linalg.solve(a, s),
        "eigh": lambda: linalg.eigh(s, False),
        "eigvalsh": lambda: linalg.eigvalsh(s, False),
        "slogdet": lambda: linalg.slogdet(a)[::-1],
        "qr": lambda: linalg.qr(a)[::-1],
        "svd": lambda: values_first(*linalg.svd(a)),
    }
    out = found[name]() if name in found else getattr(linalg, name)(a)
    return tuple(out) if isinstance(out, list | tuple) else out


def cases() -> list[Case]:
    """Every function at every size."""
    return [
        Matrices(
            f"{name} {batch}x{n}", partial(build, name),
            {x: Tensor((batch, n, n), dtype="float64") for x in "as"}, tolerance=1e-8,
            own={
                "numpy": partial(numpy_call, name), "reference": partial(numpy_result, name),
                "rlx": partial(rlx_call, name),
            },
            runtimes=("rlx", "numpy"), quick=(name, n) in (("solve", 32), ("eigh", 128)),
        )
        for name in NUMPY
        for batch, n in SIZES
    ]  # fmt: skip

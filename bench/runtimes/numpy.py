"""NumPy and SciPy with their OpenBLAS; in f64, the reference of every case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.case import Array, Case, Run
from bench.runtimes.base import Formulas


class NumpyOps(Formulas):
    """The formulas on NumPy's arrays."""

    xp = np

    def gelu(self, x: Any) -> Any:
        from scipy.special import erf

        return x * 0.5 * (1 + erf(x * 0.5**0.5))

    def attention(self, q: Any, k: Any, v: Any, causal: bool = False) -> Any:
        # A key head at a time, so that the scores of many long heads are not all in memory.
        group = q.shape[1] // k.shape[1]
        parts = [
            super(NumpyOps, self).attention(
                q[:, i * group : (i + 1) * group], k[:, i : i + 1], v[:, i : i + 1], causal
            )
            for i in range(k.shape[1])
        ]
        return np.concatenate(parts, 1)

    def conv2d(self, x: Any, w: Any, b: Any, stride: int, padding: int, groups: int) -> Any:
        edge = (padding, padding)
        x = np.pad(x, ((0, 0), (0, 0), edge, edge))
        windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
        windows = windows[:, :, ::stride, ::stride]
        parts = [
            np.tensordot(a, b, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
            for a, b in zip(np.split(windows, groups, 1), np.split(w, groups), strict=True)
        ]
        return np.concatenate(parts, 1) + b[:, None, None]


def _wide(a: Array) -> Array:
    kinds = {"f": np.float64, "c": np.complex128, "V": np.float64}  # of bfloat16
    return a.astype(kinds[a.dtype.kind]) if a.dtype.kind in kinds else a


def reference(case: Case) -> Array:
    """The result in f64."""
    tensors = {name: _wide(a) for name, a in {**case.feeds(), **case.values()}.items()}
    return case.build(NumpyOps(), **tensors)


def prepare(case: Case, threads: int, folder: Path) -> Run:
    """The formulas in the case's own types."""
    tensors = {**case.feeds(), **case.values()}
    return lambda: case.build(NumpyOps(), **tensors)

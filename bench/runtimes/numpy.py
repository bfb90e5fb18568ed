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

    def copied_transpose(self, x: Any) -> Any:
        return np.ascontiguousarray(x.T)

    def scatter_add(self, x: Any, ids: Any) -> Any:
        out = np.zeros_like(x)
        np.add.at(out, ids, x)
        return out

    def topk(self, x: Any, k: int) -> Any:
        best = np.partition(x, x.shape[-1] - k, -1)[..., -k:]
        return np.sort(best, -1)[..., ::-1]

    def resize(self, x: Any, sizes: tuple[int, int]) -> Any:
        for axis, new in enumerate(sizes, 2):
            old = x.shape[axis]
            place = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
            first = place.astype(np.intp)
            shape = (new, *[1] * (x.ndim - axis - 1))
            part = (place - first).reshape(shape).astype(x.dtype)
            after = np.take(x, np.minimum(first + 1, old - 1), axis)
            x = np.take(x, first, axis) * (1 - part) + after * part
        return x

    def mean_pool(self, x: Any, size: int, stride: int) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))
        return windows[:, :, ::stride, ::stride].mean((-2, -1))

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
    """The (first) result in f64."""
    tensors = {name: _wide(a) for name, a in {**case.feeds(), **case.values()}.items()}
    result = case.build(NumpyOps(), **tensors)
    return result[0] if isinstance(result, tuple) else result


def prepare(case: Case, threads: int, folder: Path) -> Run:
    """The formulas in the case's own types."""
    tensors = {**case.feeds(), **case.values()}
    return lambda: case.build(NumpyOps(), **tensors)

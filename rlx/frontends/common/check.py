"""A graph against the model that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.errors import ModelError

__all__ = ["check_results"]

Array = np.ndarray[Any, Any]


def check_results(found: Mapping[str, Array], expected: Mapping[str, Array], within: float) -> None:
    """ModelError naming the output whose elements differ by more than ``within`` of the largest one
    expected, or that is nan or infinite elsewhere."""
    for name, b in expected.items():
        a = found[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            raise _differs(
                name, f"it is {a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}"
            )
        error = relative_error(a, b)
        if not error <= within:
            raise _differs(name, f"the largest error is {error:.3g} of the largest element")


def relative_error(a: Array, b: Array) -> float:
    """The largest difference over the largest element of ``b``; infinite where one is finite and
    the other is not."""
    if not b.size:
        return 0.0
    if b.dtype.kind in "biu":
        a, b = a.astype(np.float64), b.astype(np.float64)
    wide = np.complex128 if b.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not _same_specials(a[~finite], b[~finite]):
        return float("inf")
    if not finite.any():
        return 0.0
    a, b = a[finite], b[finite]
    return float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1e-6))


def _same_specials(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b, equal_nan=True))


def _differs(name: str, how: str) -> ModelError:
    return ModelError(
        f"the graph differs from the model in the output {name!r}: {how}. This is a defect of the"
        " import; check=False imports it all the same"
    )

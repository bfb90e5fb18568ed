"""Arrays of real numbers that a user gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError
from rlx.ir.attrs import to_array

__all__ = ["reals"]


def reals(value: Any, what: str, kind: Any = np.float32) -> np.ndarray[Any, Any]:
    """Real numbers as an array of f32, or of another type of NumPy's; DTypeError for what holds
    none, such as text."""
    a = to_array(value, what)
    try:
        if a.dtype.kind in "biufV":
            return np.asarray(a, kind)
    except (TypeError, ValueError):  # a record, and no float of ml_dtypes
        pass
    raise DTypeError(f"{what} holds {a.dtype}, expected real numbers")

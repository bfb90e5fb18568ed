"""What reductions start from, and how they take one more element."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from rlx.kernels.builder import Kernel
from rlx.kernels.reg import Reg
from rlx.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from rlx.types import DType, bool_

__all__ = ["REDUCTIONS", "ReduceKind", "combine", "identity"]

ReduceKind = Literal["sum", "mean", "max", "min", "prod"]

REDUCTIONS: dict[str, ReduceKind] = {
    ReduceSum.name: "sum",
    ReduceMean.name: "mean",
    ReduceProd.name: "prod",
    ReduceMax.name: "max",
    ReduceMin.name: "min",
}
"""The reductions by the names of their ops."""


def identity(kind: ReduceKind, dt: DType) -> float | int | bool:
    """What a reduction in ``dt`` starts from."""
    if kind in ("sum", "mean"):
        return 0
    if kind == "prod":
        return 1
    if dt is bool_:
        return kind == "min"
    if dt.is_float:
        return -math.inf if kind == "max" else math.inf
    info = np.iinfo(dt.numpy)
    return int(info.min if kind == "max" else info.max)


def combine(k: Kernel, kind: ReduceKind, total: Reg, x: Reg) -> Reg:
    """A reduction with one more element; the mean is a sum until its end."""
    if kind in ("max", "min"):
        return (k.maximum if kind == "max" else k.minimum)(total, x)
    return total * x if kind == "prod" else total + x

"""Elementary functions as polynomials over registers: f32 and f64, any number of lanes.

No call of a C library stands behind them, and every value is handled: infinities, nan, -0,
subnormal numbers, huge angles. The square root is the hardware's, correctly rounded.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.kernels.math.error_function import erf, gelu
from rlx.kernels.math.exponential import exp, tanh
from rlx.kernels.math.inverse_error import erfinv
from rlx.kernels.math.logarithm import log
from rlx.kernels.math.power import power
from rlx.kernels.math.trigonometric import atan, cos, sin, tan
from rlx.kernels.reg import Reg

__all__ = ["BOUNDS", "CPU_MATH"]

CPU_MATH: dict[str, Callable[..., Reg]] = {
    "exp": exp,
    "log": log,
    "tanh": tanh,
    "erf": erf,
    "erfinv": erfinv,
    "gelu": gelu,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "atan": atan,
    "pow": power,
}
"""The math table of a CPU's KernelTarget."""

BOUNDS: dict[str, tuple[float, float]] = {
    "exp": (1.0, 1.0),
    "log": (1.0, 1.0),
    "tanh": (2.5, 2.5),
    "erf": (5.5, 2.0),
    "erfinv": (3.0, 2.5),
    "gelu": (7.0, 5.0),
    "sin": (1.75, 1.75),
    "cos": (1.75, 1.75),
    "tan": (3.5, 3.5),
    "atan": (2.0, 2.0),
    "pow": (1.0, 1.5),
}
"""The largest error of each function in f32 and f64, in units of the last place of the result."""

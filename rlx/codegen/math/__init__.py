"""Elementary functions as polynomials over registers: f32 and f64, any number of lanes.

No call of a C library stands behind them, and every value is handled: infinities, nan, -0,
subnormal numbers, huge angles. The square root is the hardware's, correctly rounded.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.codegen.math.error_function import erf, gelu
from rlx.codegen.math.exponential import exp, exp2, expm1, tanh
from rlx.codegen.math.hyperbolic import acosh, asinh, atanh, cosh, sinh
from rlx.codegen.math.inverse_error import erfinv
from rlx.codegen.math.logarithm import log, log1p, log2
from rlx.codegen.math.power import power
from rlx.codegen.math.remainder import remainder
from rlx.codegen.math.trigonometric import acos, asin, atan, atan2, cos, sin, tan
from rlx.codegen.reg import Reg

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
    "asin": asin,
    "acos": acos,
    "atan2": atan2,
    "exp2": exp2,
    "expm1": expm1,
    "log2": log2,
    "log1p": log1p,
    "sinh": sinh,
    "cosh": cosh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "pow": power,
    "rem": remainder,
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
    "asin": (2.75, 2.75),
    "acos": (1.75, 1.75),
    "atan2": (2.0, 2.0),
    "exp2": (1.25, 1.25),
    "expm1": (2.25, 2.25),
    "log2": (1.25, 1.25),
    "log1p": (1.25, 1.25),
    "sinh": (2.0, 2.0),
    "cosh": (1.75, 1.75),
    "asinh": (2.0, 2.0),
    "acosh": (3.0, 3.0),
    "atanh": (2.25, 2.25),
    "pow": (1.0, 1.5),
    "rem": (0.0, 0.0),
}
"""The largest error of each function in f32 and f64, in units of the last place of the result."""

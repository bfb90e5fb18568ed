"""Elementary functions in terms of a system's own exp, log, sin, cos, sqrt and atan2.

RLX's kernels round by adding and taking away a large constant, and keep what roundings lose in sums
of two. A compiler for whole graphs may fold such constants, and reorder such sums, so that what it
is given is written plainly, and in a form that stays good where digits would cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from rlx.targets.graph.tensor import Tensor
from rlx.types import f64

__all__ = ["FUNCTIONS"]

_LN2 = math.log(2.0)
_LARGE = 2.0**60
"""From here on the square roots of x² + 1 and x² - 1 are x; below it x² does not overflow."""


def _signed(size: Tensor, like: Tensor) -> Tensor:
    """A size with the sign of another number; zeros and nan as they are in that one."""
    k = size.k
    found = k.select(like < 0.0, -size, size)
    return k.select((like < 0.0) | (like > 0.0), found, like)


def _exp2(x: Tensor) -> Tensor:
    return x.k.pow(x.k.literal(2, x.dtype, x.shape), x)


def _log2(x: Tensor) -> Tensor:
    return x.k.log(x) * (1.0 / _LN2)


def _half_exp(t: Tensor) -> Tensor:
    """exp(t) / 2, which overflows only where that does."""
    root = t.k.exp(t * 0.5)
    return (root * 0.5) * root


def _sinh(x: Tensor) -> Tensor:
    k, t = x.k, x.k.abs(x)
    grown = k.expm1(k.minimum(t, 1.0))
    near = (grown + grown / (grown + 1.0)) * 0.5
    half = _half_exp(t)
    return _signed(k.select(t < 1.0, near, half - 0.25 / half), x)


def _cosh(x: Tensor) -> Tensor:
    half = _half_exp(x.k.abs(x))
    return half + 0.25 / half


def _asin(x: Tensor) -> Tensor:
    return x.k.atan2(x, x.k.sqrt((1.0 - x) * (x + 1.0)))


def _acos(x: Tensor) -> Tensor:
    return x.k.atan2(x.k.sqrt((1.0 - x) * (x + 1.0)), x)


def _atan(x: Tensor) -> Tensor:
    return x.k.atan2(x, 1.0)


def _atan2(y: Tensor, x: Tensor) -> Tensor:
    """By the arc tangent of the smaller over the larger size: 45 degrees for two infinities."""
    k, a, b = y.k, y.k.abs(x), y.k.abs(y)
    steep, both = b > a, k.compare("eq", a, b)
    large = k.select(steep, b, a)
    ratio = k.select(steep, a, b) / k.select(k.compare("eq", large, 0.0), 1.0, large)
    acute = k.atan(k.select(both & (large > 0.0), 1.0, ratio))
    acute = k.select(steep, math.pi / 2 - acute, acute)
    wide = k.select(_negative(x), math.pi - acute, acute)
    return k.select(_negative(y), -wide, wide)


def _negative(x: Tensor) -> Tensor:
    """Whether the sign is set, of zeros too: one over them is infinite."""
    k = x.k
    zero = k.compare("eq", x, 0.0)
    return (x < 0.0) | (zero & (1.0 / k.select(zero, x, 1.0) < 0.0))


def _tan(x: Tensor) -> Tensor:
    return x.k.sin(x) / x.k.cos(x)


def _log1p_or_log(t: Tensor, argument: Tensor) -> Tensor:
    """log(1 + argument); log(2t) where the square in it is no longer right."""
    k, large = t.k, t > _LARGE
    result = k.log1p(k.select(large, t, argument))
    return k.select(large, result + _LN2, result)


def _asinh(x: Tensor) -> Tensor:
    k, t = x.k, x.k.abs(x)
    z = t * t
    return _signed(_log1p_or_log(t, t + z / (k.sqrt(z + 1.0) + 1.0)), x)


def _acosh(x: Tensor) -> Tensor:
    k, u = x.k, x - 1.0
    return k.select(x < 1.0, math.nan, _log1p_or_log(x, u + k.sqrt(u * (u + 2.0))))


def _atanh(x: Tensor) -> Tensor:
    t = x.k.abs(x)
    return _signed(x.k.log1p(t * 2.0 / (1.0 - t)) * 0.5, x)


def _erf(x: Tensor) -> Tensor:
    from rlx.codegen.math.error_function import erf

    found: Tensor = erf(x, x.k.exp)  # pyright: ignore -- a formula is on tensors as on registers
    return found


def _gelu(x: Tensor) -> Tensor:
    k, least = x.k, -38.6 if x.dtype is f64 else -14.6
    found = x * 0.5 * (k.erf(x * math.sqrt(0.5)) + 1.0)
    return k.select(x < least, -0.0, found)


def _sigmoid(x: Tensor) -> Tensor:
    return 1.0 / (x.k.exp(-x) + 1.0)


FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "exp2": _exp2, "log2": _log2, "sinh": _sinh, "cosh": _cosh, "asin": _asin, "acos": _acos,
    "atan": _atan, "atan2": _atan2, "tan": _tan, "asinh": _asinh, "acosh": _acosh,
    "atanh": _atanh, "erf": _erf, "gelu": _gelu, "sigmoid": _sigmoid,
}  # fmt: skip
"""By the names that formulas have for them, of functions that a system may lack."""

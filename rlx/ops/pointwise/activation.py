"""Activation functions of neural networks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.ir.op import Array
from rlx.ir.value import Value
from rlx.ops.pointwise.base import Analytic, Unary
from rlx.ops.pointwise.cast import in_double, widened
from rlx.ops.pointwise.unary import FLOATS_ONLY, samples

__all__ = ["Erf", "ErfInv", "Gelu", "GeluApprox", "Sigmoid", "Silu", "Tanh"]

SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
GELU_CUBIC = 0.044715
"""The coefficient of x^3 in the tanh form of gelu (D. Hendrycks, K. Gimpel, "Gaussian Error
Linear Units", arXiv:1606.08415)."""


def _vectorized(f: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of the math module over an f64 array; NumPy has no erf."""
    each = np.frompyfunc(f, 1, 1)
    return lambda x: np.asarray(each(x), np.float64)


_erf = _vectorized(math.erf)
_erfc = _vectorized(math.erfc)


def _erfinv(x: Array) -> Array:
    """The inverse of erf for f64, by Halley's method on erf near 0 and on its complement beyond;
    the start is S. Winitzki's, a few thousandths off."""
    t = np.abs(x)
    known = t < 1.0
    t = np.where(known, t, 0.0)
    w = np.log1p(-t * t)
    b = 2.0 / (math.pi * 0.147) + 0.5 * w
    y = np.sqrt(np.sqrt(b * b - w / 0.147) - b)
    for _ in range(4):
        over = np.where(t < 0.5, _erf(y) - t, (1.0 - t) - _erfc(y))
        step = over * np.exp(y * y) / TWO_OVER_SQRT_PI
        y = y - step / (1.0 + y * step)
    end = np.where(np.abs(x) == 1.0, np.inf, np.nan)
    return np.copysign(np.where(known, y, end), x)


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) with no overflow, for f64."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1.0 + small)


def _gelu(x: Array) -> Array:
    """x times the normal distribution function, for f64; at -40 it has rounded to -0."""
    x = np.maximum(x, -40.0)
    return 0.5 * x * _erfc(-x * SQRT_HALF)


class Activation(Unary):
    """A float function whose derivative takes several steps: 16-bit floats compute it in f32."""

    samples = samples()
    bads = FLOATS_ONLY

    slope: Callable[[Value, Value], Value]
    """``slope(self, x, y)``: the derivative at x, where the result is y."""

    def vjp(self, g: Value) -> tuple[Value]:
        return (self.jvp(g),)

    def jvp(self, t: Value) -> Value:
        product = widened(t) * self.slope(widened(self.x), widened(self.out))
        return product.cast(to=self.x.dtype)


class Erf(Activation, name="mir.erf"):
    """The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x."""

    def reference(self, x: Array) -> Array:
        return in_double(_erf, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.erf(x)

    def slope(self, x: Value, y: Value) -> Value:
        return (-(x * x)).exp() * TWO_OVER_SQRT_PI


class ErfInv(Activation, name="mir.erfinv"):
    """The inverse of the error function: ±inf at ±1, nan beyond."""

    samples = samples("unit")

    def reference(self, x: Array) -> Array:
        return in_double(_erfinv, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.erfinv(x)

    def slope(self, x: Value, y: Value) -> Value:
        return (y * y).exp() * (1.0 / TWO_OVER_SQRT_PI)


class Tanh(Activation, Analytic, name="mir.tanh"):
    """Hyperbolic tangent."""

    def reference(self, x: Array) -> Array:
        return in_double(np.tanh, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.tanh(x)

    def slope(self, x: Value, y: Value) -> Value:
        return 1.0 - y * y


class Sigmoid(Activation, Analytic, name="mir.sigmoid"):
    """``1 / (1 + exp(-x))``."""

    def reference(self, x: Array) -> Array:
        return in_double(_sigmoid, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.sigmoid(x)

    def slope(self, x: Value, y: Value) -> Value:
        return y * (1.0 - y)


class Silu(Activation, name="mir.silu"):
    """``x * sigmoid(x)``, also called swish."""

    def reference(self, x: Array) -> Array:
        return in_double(lambda v: v * _sigmoid(v), x)

    def scalar(self, k: Any, x: Any) -> Any:
        return x / (k.exp(-x) + 1.0)

    def slope(self, x: Value, y: Value) -> Value:
        s = x.sigmoid()
        return s * (x * (1.0 - s) + 1.0)


class Gelu(Activation, name="mir.gelu"):
    """``x * Phi(x)``, with Phi the distribution function of the standard normal.

    -inf gives -0, the limit.
    """

    def reference(self, x: Array) -> Array:
        # erfc keeps the relative precision where 1 + erf cancels, for large negative x.
        return in_double(_gelu, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.gelu(x)

    def slope(self, x: Value, y: Value) -> Value:
        density = (x * x * -0.5).exp() * (0.5 * SQRT_2_OVER_PI)
        return ((x * SQRT_HALF).erf() + 1.0) * 0.5 + x * density


class GeluApprox(Activation, name="mir.gelu_approx"):
    """Gelu by tanh: ``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))``."""

    # All below is in terms of sigmoid(2 z), which is (1 + tanh(z)) / 2: nothing cancels in it for
    # large negative x.

    def reference(self, x: Array) -> Array:
        return in_double(
            lambda v: v * _sigmoid(2.0 * SQRT_2_OVER_PI * (v + GELU_CUBIC * v * v * v)), x
        )

    def scalar(self, k: Any, x: Any) -> Any:
        z = x * (x * x * GELU_CUBIC + 1.0) * (2.0 * SQRT_2_OVER_PI)
        return x / (k.exp(-z) + 1.0)

    def slope(self, x: Value, y: Value) -> Value:
        square = x * x
        s = (x * (square * GELU_CUBIC + 1.0) * (2.0 * SQRT_2_OVER_PI)).sigmoid()
        inner_slope = (square * (3.0 * GELU_CUBIC) + 1.0) * (2.0 * SQRT_2_OVER_PI)
        return s + x * s * (1.0 - s) * inner_slope

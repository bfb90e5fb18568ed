"""Activations made of pieces: smooth or linear on either side of a bend."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import GraphError
from rlx.ir.lift import lift
from rlx.ir.op import Array, attr, bad
from rlx.ir.value import Value
from rlx.ops.pointwise.activation import Activation
from rlx.ops.pointwise.cast import in_double
from rlx.ops.pointwise.elementary import two_samples
from rlx.ops.pointwise.unary import FLOATS_ONLY
from rlx.types import TensorType

__all__ = [
    "Celu",
    "Elu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Mish",
    "Relu6",
    "Selu",
    "Softplus",
    "Softsign",
]

SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
"""With these, activations tend to mean 0 and variance 1 (G. Klambauer et al., "Self-Normalizing
Neural Networks", arXiv:1706.02515)."""


class Bent(Activation):
    """An activation with two samples."""

    samples = two_samples()


class Softplus(Bent, name="mir.softplus"):
    """``log(1 + exp(x))``, a smooth relu."""

    def reference(self, x: Array) -> Array:
        return in_double(lambda v: np.logaddexp(v, 0.0), x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.maximum(x, 0) + k.log1p(k.exp(-k.abs(x)))

    def slope(self, x: Value, y: Value) -> Value:
        return x.sigmoid()


class Mish(Bent, name="mir.mish"):
    """``x * tanh(softplus(x))``."""

    def reference(self, x: Array) -> Array:
        return in_double(lambda v: v * np.tanh(np.logaddexp(v, 0.0)), x)

    def scalar(self, k: Any, x: Any) -> Any:
        # tanh(log(1 + w)) is n / (n + 2) with n = w (w + 2); from 40 on it has rounded to 1.
        w = k.exp(k.select(x > 40.0, 40.0, x))
        n = w * (w + 2.0)
        return x * (n / (n + 2.0))

    def slope(self, x: Value, y: Value) -> Value:
        t = x.softplus().tanh()
        return t + x * x.sigmoid() * (1.0 - t * t)


class Softsign(Bent, name="mir.softsign"):
    """``x / (1 + |x|)``."""

    def reference(self, x: Array) -> Array:
        return in_double(lambda v: v / (1.0 + np.abs(v)), x)

    def scalar(self, k: Any, x: Any) -> Any:
        return x / (k.abs(x) + 1.0)

    def slope(self, x: Value, y: Value) -> Value:
        d = x.abs() + 1.0
        return 1.0 / (d * d)


class Elu(Bent, name="mir.elu"):
    """x, and below 0 ``alpha * (exp(x) - 1)``. Derivatives at 0 are those of below."""

    alpha: float = attr(1.0, "minus the limit at -inf")

    def reference(self, x: Array) -> Array:
        return in_double(lambda v: np.where(v < 0, self.alpha * np.expm1(np.minimum(v, 0)), v), x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.select(x < 0, k.expm1(x) * self.alpha, x)

    def slope(self, x: Value, y: Value) -> Value:
        return x.gt(0).where(1.0, y + self.alpha)


class Celu(Bent, name="mir.celu"):
    """x, and below 0 ``alpha * (exp(x / alpha) - 1)``: an elu without a bend at 0.

    Derivatives at 0 are those of below."""

    alpha: float = attr(1.0, "minus the limit at -inf, above 0")

    bads = (*FLOATS_ONLY, bad("2xf32", match="alpha is 0.0", error=GraphError, alpha=0.0))

    def infer(self) -> TensorType:
        if not self.alpha > 0:
            raise GraphError(f"celu: alpha is {self.alpha}, expected a number above 0")
        return super().infer()

    def reference(self, x: Array) -> Array:
        def celu(v: Array) -> Array:
            return np.where(v < 0, self.alpha * np.expm1(np.minimum(v, 0) / self.alpha), v)

        return in_double(celu, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.select(x < 0, k.expm1(x / self.alpha) * self.alpha, x)

    def slope(self, x: Value, y: Value) -> Value:
        return x.gt(0).where(1.0, y / self.alpha + 1.0)


class Selu(Bent, name="mir.selu"):
    """An elu with fixed scales, for networks that normalise themselves.

    Derivatives at 0 are those of below."""

    def reference(self, x: Array) -> Array:
        def selu(v: Array) -> Array:
            return SELU_SCALE * np.where(v < 0, SELU_ALPHA * np.expm1(np.minimum(v, 0)), v)

        return in_double(selu, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.select(x < 0, k.expm1(x) * (SELU_SCALE * SELU_ALPHA), x * SELU_SCALE)

    def slope(self, x: Value, y: Value) -> Value:
        return x.gt(0).where(SELU_SCALE, y + SELU_SCALE * SELU_ALPHA)


class LeakyRelu(Bent, name="mir.leaky_relu"):
    """x, and below 0 ``alpha * x``. The derivative at 0 is 1."""

    alpha: float = attr(0.01, "the slope below 0")

    def reference(self, x: Array) -> Array:
        return in_double(lambda v: np.where(v < 0, self.alpha * v, v), x)

    def scalar(self, k: Any, x: Any) -> Any:
        return k.select(x < 0, x * self.alpha, x)

    def slope(self, x: Value, y: Value) -> Value:
        return x.ge(0).where(1.0, lift(self.alpha, x))


class HardSigmoid(Bent, name="mir.hard_sigmoid"):
    """``alpha * x + beta`` within 0 and 1. PyTorch's alpha is 1/6, that of ONNX 0.2."""

    alpha: float = attr(1 / 6, "the slope")
    beta: float = attr(0.5, "the value at 0")

    def reference(self, x: Array) -> Array:
        return in_double(lambda v: np.clip(self.alpha * v + self.beta, 0.0, 1.0), x)

    def scalar(self, k: Any, x: Any) -> Any:
        return _within(k, k.fma(x, self.alpha, self.beta), 1.0)

    def slope(self, x: Value, y: Value) -> Value:
        return y.gt(0).logical_and(y.lt(1)).where(lift(self.alpha, x), 0.0)


class HardSwish(Bent, name="mir.hard_swish"):
    """``x * hard_sigmoid(x)``."""

    def reference(self, x: Array) -> Array:
        return in_double(lambda v: v * np.clip(v / 6 + 0.5, 0.0, 1.0), x)

    def scalar(self, k: Any, x: Any) -> Any:
        return x * _within(k, k.fma(x, 1 / 6, 0.5), 1.0)

    def slope(self, x: Value, y: Value) -> Value:
        return x.le(-3).where(0.0, x.ge(3).where(1.0, x / 3.0 + 0.5))


class Relu6(Bent, name="mir.relu6"):
    """x within 0 and 6. The derivative at both ends is 0."""

    def reference(self, x: Array) -> Array:
        return in_double(lambda v: np.clip(v, 0.0, 6.0), x)

    def scalar(self, k: Any, x: Any) -> Any:
        return _within(k, x, 6.0)

    def slope(self, x: Value, y: Value) -> Value:
        return x.gt(0).logical_and(x.lt(6)).where(lift(1.0, x), 0.0)


def _within(k: Any, x: Any, top: float) -> Any:
    """x within 0 and ``top``; nan stays."""
    x = k.select(x < 0.0, 0.0, x)
    return k.select(x > top, top, x)

"""The gradients of layer norm and RMS norm by their tensor: composites, one row kernel each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, attr, bad, operand, optional, sample
from rlx.ir.value import Value
from rlx.ops.movement.movement import listed
from rlx.ops.nn.normalization import AlongAxis
from rlx.ops.pointwise.cast import in_double, widened
from rlx.types import TensorType, check_one_type

__all__ = ["LayerNormGrad", "NormGrad", "RmsNormGrad"]


class NormGrad(AlongAxis):
    """The cotangent of the normalised tensor x, from that of the norm's result, g.

    With line = c / s, c the line (less its mean if it is centered) and s its scale, and t = g times
    gamma: (t - mean(t) - line * mean(t * line)) / s, without mean(t) if it is not centered.
    """

    x: Value = operand("any float tensor")
    g: Value = operand("the cotangent of the result, of the same type")
    gamma: Value | None = optional("factors [C] of the norm, C the size of the axis")
    axis: int = attr(doc="the axis that is normalised")
    eps: float = attr(1e-5, "what is added to the mean square")

    centered: ClassVar[bool]
    flops_per_element = 12
    samples = (
        sample("2x3xT", "2x3xT", "3xT", axis=1),
        sample("2x3x4xT", "2x3x4xT", None, axis=1, eps=1e-3),
        sample("0x3xT", "0x3xT", "3xT", axis=1),
    )
    bads = (
        bad("2x3xi32", "2x3xi32", match="found i32. Cast the operand", error=DTypeError, axis=0),
        bad("2x3xf32", "2x4xf32", match="of the type of x", error=ShapeError, axis=1),
        bad("2x3xf32", "2x3xf32", "2xf32", match=r"gamma has shape \[3\]", error=ShapeError,
            axis=1),
        bad("2x3xf32", "2x3xf32", "3xf64", match="of one type", error=DTypeError, axis=1),
    )  # fmt: skip

    def infer(self) -> TensorType:
        out, size = super().infer(), self.x.shape[self.axis]
        check_one_type(self.short, *(v.dtype for v in self.present))
        if self.g.shape != self.x.shape:
            raise ShapeError(
                f"{self.short}: g is of the type of x, found {self.g.type} and {self.x.type}"
            )
        if self.gamma is not None and self.gamma.shape != (size,):
            raise ShapeError(
                f"{self.short}: gamma has shape [{size}], the size of axis {self.axis} of"
                f" {self.x.type}; found {listed(self.gamma.shape)}"
            )
        return out

    def reference(self, x: Array, g: Array, gamma: Array | None = None) -> Array:
        def cotangent(x: Array, g: Array, *gamma: Array) -> Array:
            def mean(v: Array) -> Array:
                return np.sum(v, self.axis, keepdims=True) / x.shape[self.axis]

            for factors in gamma:
                g = g * factors.reshape((-1, *[1] * (x.ndim - self.axis - 1)))
            if self.centered:
                x = x - mean(x)
            inverse = 1.0 / np.sqrt(mean(x * x) + self.eps)
            line = x * inverse
            return inverse * (g - (mean(g) if self.centered else 0.0) - line * mean(g * line))

        return in_double(cotangent, x, g, *([] if gamma is None else [gamma]))

    def expand(self) -> Value:
        x, t = widened(self.x), widened(self.g)
        if self.gamma is not None:
            tail = [1] * (self.x.rank - self.axis - 1)
            t = t * widened(self.gamma).reshape((self.gamma.shape[0], *tail))
        if self.centered:
            x = x - self.mean(x)
        inverse = (self.mean(x * x) + self.eps).rsqrt()
        line = x * inverse
        along = line * self.mean(t * line)
        found = inverse * (t - self.mean(t) - along if self.centered else t - along)
        return found.cast(to=self.x.dtype)

    def batch(self, operands: Sequence[Value | None], batched: Sequence[bool]) -> Value:
        x, g, gamma = operands
        assert x is not None and g is not None
        count = next(
            v.shape[0] for v, has in zip(operands, batched, strict=True) if v is not None and has
        )
        if gamma is not None and batched[2]:
            # The op takes one [C] only, so the factors are applied before.
            tail = [1] * (self.x.rank - self.axis - 1)
            g, gamma = g * gamma.reshape((count, *[1] * self.axis, gamma.shape[1], *tail)), None
            g = g.expand((count, *self.x.shape))
        wide = [v if v.rank > self.x.rank else v.expand((count, *v.shape)) for v in (x, g)]
        return self.with_operands([*wide, gamma], axis=self.axis + 1).out


class LayerNormGrad(NormGrad, name="mir.layer_norm_grad"):
    """The gradient of layer norm by its tensor x, for the cotangent g of the result:
    ``(t - mean(t) - line * mean(t * line)) / scale`` with ``t = g * gamma`` and line the normalised
    tensor. Statistics of f16 and bf16 are in f32, and the result is rounded once.
    """

    centered = True


class RmsNormGrad(NormGrad, name="mir.rms_norm_grad"):
    """The gradient of RMS norm by its tensor x, for the cotangent g of the result:
    ``(t - line * mean(t * line)) / scale`` with ``t = g * gamma`` and line the normalised tensor.
    Statistics of f16 and bf16 are in f32, and the result is rounded once.
    """

    centered = False

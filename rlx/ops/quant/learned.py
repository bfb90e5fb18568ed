"""Rounding to few bits by scales that are learned (LSQ: Esser et al., Learned Step Size
Quantization, 2020)."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.op import Array, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.cast import converted, widened
from rlx.ops.quant.fake import LEAST, Rounding
from rlx.ops.quant.scales import axis_from, operand_of, wide_of
from rlx.types import FLOATS, TensorType

__all__ = ["FakeQuantizeLsq", "FakeQuantizeLsqBackwardScale", "FakeQuantizeLsqBackwardX"]


class FakeQuantizeLsq(Rounding, name="mir.fake_quantize_lsq"):
    """Numbers rounded to a few bits of a scale that is learned (LSQ).

    With a scale s, of 1e-12 at least, it is ``clamp(round(x / s), -top, top) * s``, with 127, 7 or
    1 as top by ``bits``. The derivative of x passes where ``|x / s| <= top``. That of s is
    ``round(x / s) - x / s`` there, and -top or top outside.
    """

    scale: Value = operand("the scales, one number or [C] along the axis")

    dtypes = FLOATS
    flops_per_element = 4
    samples = (
        sample("2x3xT", "T", data={1: "positive"}),
        sample("2x3x4xT", "3xT", bits=2, axis=(1,), data={1: "positive"}),
        sample("3xT", "1xT", bits=4, data={1: "positive"}),
        sample("0x3xT", "3xT", axis=(1,), data={1: "positive"}),
    )
    bads = (
        bad("2x3xi32", "f32", match="takes floats for x", error=DTypeError),
        bad("2x3xf32", "i32", match="takes floats for scale", error=DTypeError),
        bad("2x3xf32", "3xf32", match="say which by axis", error=ShapeError),
        bad("2x3xf32", "f32", match="8, 4 or 2 bits", error=GraphError, bits=1),
    )

    @classmethod
    def build(cls, x: Value, scale: Any, bits: int = 8, axis: int | None = None) -> Value:
        """Numbers rounded to ``bits`` (8, 4 or 2) of a scale that is learned (LSQ), one for the
        whole or for each place along ``axis``."""
        given = operand_of("scale", scale, x.dtype)
        return cls(x=x, scale=given, bits=bits, axis=axis_from(axis, x.rank)).out

    def infer(self) -> TensorType:
        self.check_floats(x=self.x, scale=self.scale)
        _ = self.top
        self.check_scale("scale", self.scale, self.x)
        return self.x.type

    def reference(self, x: Array, scale: Array) -> Array:
        wide, kind = self.wide_array(x), wide_of(self.x.dtype).numpy.type
        s = self.spread_array(np.maximum(self.wide_array(scale), kind(LEAST)), x)
        return converted((self.code_array(wide / s) * s).astype(kind), self.x.dtype)

    def expand(self) -> Value:
        s = self.wide_scale(self.scale)
        return (self.code(self.ratio(s)) * s).cast(to=self.x.dtype)

    def _by_x(self, g: Value) -> Value:
        return FakeQuantizeLsqBackwardX(
            x=self.x, scale=self.scale, g=g, bits=self.bits, axis=self.axis
        ).out

    def vjp(self, *cotangents: Value | None) -> list[Value | None]:
        (g,) = cotangents
        assert g is not None
        by_scale = FakeQuantizeLsqBackwardScale(
            x=self.x, scale=self.scale, g=g, bits=self.bits, axis=self.axis
        ).out
        return [self._by_x(g), by_scale]

    def jvp(self, *tangents: Value | None) -> Value:
        tx, ts = tangents
        parts = [] if tx is None else [self._by_x(tx)]
        if ts is not None:
            ratio = self.ratio(self.wide_scale(self.scale))
            along = self.spread(ts.cast(to=wide_of(self.x.dtype)), self.x)
            parts.append((along * psi(self, ratio)).cast(to=self.x.dtype))
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def psi(op: Rounding, ratio: Value) -> Value:
    """The derivative of what is rounded by its scale."""
    code = op.code(ratio)
    return abs(ratio).le(op.top).where(code - ratio, code)


class _Backward(Rounding):
    """What the two cotangents share."""

    scale: Value = operand("the scales, one number or [C] along the axis")
    g: Value = operand("the cotangent of the result, of the type of x")

    dtypes = FLOATS
    flops_per_element = 4
    samples = (
        sample("2x3xT", "T", "2x3xT", data={1: "positive"}),
        sample("2x3x4xT", "3xT", "2x3x4xT", bits=2, axis=(1,), data={1: "positive"}),
        sample("3xT", "1xT", "3xT", bits=4, data={1: "positive"}),
        sample("0x3xT", "3xT", "0x3xT", axis=(1,), data={1: "positive"}),
    )
    bads = (
        bad("2x3xi32", "f32", "2x3xi32", match="takes floats for x", error=DTypeError),
        bad("2x3xf32", "f32", "3xf32", match="g is of the type of x", error=ShapeError),
        bad("2x3xf32", "3xf32", "2x3xf32", match="say which by axis", error=ShapeError),
        bad("2x3xf32", "f32", "2x3xf32", match="8, 4 or 2 bits", error=GraphError, bits=0),
    )

    def check(self) -> None:
        """Raise for operands that do not fit."""
        self.check_floats(x=self.x, scale=self.scale)
        _ = self.top
        self.check_scale("scale", self.scale, self.x)
        self.check_like_x(self.g)

    def ratio_array(self, x: Array, scale: Array) -> Array:
        """x in scales."""
        kind = wide_of(self.x.dtype).numpy.type
        return self.wide_array(x) / self.spread_array(
            np.maximum(self.wide_array(scale), kind(LEAST)), x
        )


class FakeQuantizeLsqBackwardX(_Backward, name="mir.fake_quantize_lsq_backward_x"):
    """The cotangent of what ``fake_quantize_lsq`` rounds.

    It is that of its result, g, where ``|x / s| <= top``, and 0 elsewhere.
    """

    def infer(self) -> TensorType:
        self.check()
        return self.x.type

    def reference(self, x: Array, scale: Array, g: Array) -> Array:
        inside = np.abs(self.ratio_array(x, scale)) <= self.top
        return np.where(inside, g, np.zeros((), g.dtype))

    def expand(self) -> Value:
        ratio = self.ratio(self.wide_scale(self.scale))
        return abs(ratio).le(self.top).where(self.g, 0.0)


class FakeQuantizeLsqBackwardScale(_Backward, name="mir.fake_quantize_lsq_backward_scale"):
    """The cotangent of the scale of ``fake_quantize_lsq``.

    It is the sum of g times ``round(x / s) - x / s`` where ``|x / s| <= top``, and times -top or
    top outside.
    """

    def infer(self) -> TensorType:
        self.check()
        return self.scale.type

    def reference(self, x: Array, scale: Array, g: Array) -> Array:
        ratio = self.ratio_array(x, scale)
        code = self.code_array(ratio)
        slope = np.where(np.abs(ratio) <= self.top, code - ratio, code)
        axes = None if not self.axis else tuple(a for a in range(x.ndim) if a != self.axis[0])
        found = np.sum((self.wide_array(g) * slope).astype(np.float64), axes)
        return converted(found, self.scale.dtype).reshape(scale.shape)

    def expand(self) -> Value:
        ratio = self.ratio(self.wide_scale(self.scale))
        total = (widened(self.g) * psi(self, ratio)).sum(axes=self.others(self.x))
        return total.cast(to=self.scale.dtype).reshape(self.scale.shape)

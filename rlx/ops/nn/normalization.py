"""Softmax, layer norm and RMS norm: composites, whole until a kernel family takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.factors import Factors, lines
from rlx.ir.lift import lift
from rlx.ir.op import Array, Bad, Op, attr, bad, operand, optional, sample
from rlx.ir.value import Value
from rlx.ops.movement.movement import axis_of, listed
from rlx.ops.pointwise.cast import in_double, widened
from rlx.types import FLOATS, TensorType

__all__ = ["Exponentials", "LayerNorm", "RmsNorm", "Softmax"]

AXIS: tuple[Bad, ...] = (
    bad("2x3xf32", match="axis 2 is out of range", error=ShapeError, axis=2),
    bad("2x3xf32", match="not negative", error=ShapeError, axis=-1),
    bad("2x3xi32", match="found i32. Cast the operand", error=DTypeError, axis=0),
)


class AlongAxis(Op):
    """An op of one tensor of floats that treats every line along an axis alike.

    16-bit floats are computed in f32 and the result is rounded once.
    """

    dtypes = FLOATS
    x: Value
    axis: int

    def infer(self) -> TensorType:
        if self.x.dtype not in self.dtypes:
            takes = ", ".join(d.name for d in self.dtypes)
            raise DTypeError(
                f"{self.short} takes {takes}; found {self.x.dtype}. Cast the operand first"
            )
        axis_of(self.axis, self.x.rank, self.short)
        if self.axis < 0:
            raise ShapeError(f"{self.short}: the stored axis is not negative, found {self.axis}")
        return self.x.type

    def mean(self, v: Value) -> Value:
        """The mean along the axis, which is kept with size 1."""
        return v.reduce_mean(axes=self.axis, keepdims=True)

    def factors(self) -> Factors:
        return lines(self, self.axis)


class Exponentials(AlongAxis):
    """An op on the exponentials of a line over their sum."""

    x: Value = operand("any float tensor")
    axis: int = attr(doc="the axis along which the exponentials are summed")

    flops_per_element = 5
    samples = (
        sample("2x3xT", axis=1),
        sample("2x3x4xT", axis=0),
        sample("2x3x4xT", axis=1),
        sample("2x1xT", axis=1),
        sample("0x3xT", axis=1),
        sample("2x0xT", axis=1),
    )
    bads = AXIS

    @classmethod
    def build(cls, x: Value, axis: int = -1) -> Value:
        """A negative axis counts from the end."""
        return cls(x, axis_of(axis, x.rank, cls.name.split(".")[1])).out

    def expand(self) -> Value:
        if self.x.shape[self.axis] == 0:
            return self.x  # the lines are empty: there is no maximum, and nothing to compute
        x = widened(self.x)
        shifted = x - x.reduce_max(axes=self.axis, keepdims=True)
        return self.of_shifted(shifted).cast(to=self.x.dtype)

    def of_shifted(self, x: Value) -> Value:
        """The result for lines whose largest element is 0."""
        raise AssertionError(f"{self.name} defines no of_shifted")

    def _sum(self, v: Value) -> Value:
        return v.reduce_sum(axes=self.axis, keepdims=True)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands, axis=self.axis + 1).out


class Softmax(Exponentials, name="mir.softmax"):
    """``exp(x) / sum(exp(x))`` along an axis, shifted by the maximum so that nothing overflows.

    A line that holds nan or inf, or only -inf, is nan.
    """

    def reference(self, x: Array) -> Array:
        def softmax(v: Array) -> Array:
            if v.size == 0:
                return v
            e = np.exp(v - np.max(v, self.axis, keepdims=True))
            return e / np.sum(e, self.axis, keepdims=True)

        return in_double(softmax, x)

    def of_shifted(self, x: Value) -> Value:
        e = x.exp()
        # The sum is 1 at least, or nan: its reciprocal is exact to a rounding, and a product is
        # several times as fast as a division.
        return e * (1.0 / self._sum(e))

    def vjp(self, g: Value) -> tuple[Value]:
        return (self.jvp(g),)  # the Jacobian is symmetric

    def jvp(self, t: Value) -> Value:
        y, wide = widened(self.out), widened(t)
        return (y * (wide - self._sum(y * wide))).cast(to=t.dtype)


class Normalization(AlongAxis):
    """The shared part of layer norm and RMS norm: a line over its scale, times gamma plus beta.

    ``centered`` says whether the mean is taken from the line first.
    """

    x: Value = operand("any float tensor")
    gamma: Value | None = optional("factors [C], C the size of the axis")
    beta: Value | None = optional("offsets [C]")
    axis: int = attr(doc="the axis that is normalised")
    eps: float = attr(1e-5, "what is added to the mean square")

    centered: ClassVar[bool]
    samples = (
        sample("2x3xT", "3xT", "3xT", axis=1),
        sample("2x3x4xT", "3xT", None, axis=1, eps=1e-3),
        sample("3x2xT", None, "3xT", axis=0),
        sample("2x5xT", None, None, axis=1),
        sample("4xT", "4xT", "4xT", axis=0),
        sample("0x3xT", "3xT", "3xT", axis=1),
    )
    bads = (
        *AXIS,
        bad("2x3xf32", "2xf32", match=r"gamma has shape \[3\]", error=ShapeError, axis=1),
        bad("2x3xf32", None, "3x1xf32", match=r"beta has shape \[3\]", error=ShapeError, axis=1),
        bad("2x3xf32", "3xf64", match="gamma is f32", error=DTypeError, axis=1),
        bad("2x3xf32", match="eps is -1.0", error=GraphError, axis=1, eps=-1.0),
    )

    @classmethod
    def build(
        cls, x: Value, gamma: Any = None, beta: Any = None, axis: int = -1, eps: float = 1e-5
    ) -> Value:
        """A negative axis counts from the end; gamma and beta may be arrays."""
        at = axis_of(axis, x.rank, cls.name.split(".")[1])
        factors, offsets = (None if v is None else lift(v, x) for v in (gamma, beta))
        return cls(x, gamma=factors, beta=offsets, axis=at, eps=eps).out

    def infer(self) -> TensorType:
        out = super().infer()
        if not self.eps >= 0:
            raise GraphError(f"{self.short}: eps is {self.eps}, expected a number that is >= 0")
        size = self.x.shape[self.axis]
        for name, v in (("gamma", self.gamma), ("beta", self.beta)):
            if v is None:
                continue
            if v.shape != (size,):
                raise ShapeError(
                    f"{self.short}: {name} has shape [{size}], the size of axis {self.axis} of"
                    f" {self.x.type}; found {listed(v.shape)}"
                )
            if v.dtype is not self.x.dtype:
                raise DTypeError(
                    f"{self.short}: {name} is {self.x.dtype} as the tensor; found {v.dtype}."
                    " Cast one of them first"
                )
        return out

    def reference(self, x: Array, gamma: Array | None = None, beta: Array | None = None) -> Array:
        def normalise(x: Array, *affine: Array) -> Array:
            parts = iter(self._placed(a) for a in affine)
            if self.centered:
                x = x - np.sum(x, self.axis, keepdims=True) / x.shape[self.axis]
            square = np.sum(x * x, self.axis, keepdims=True) / x.shape[self.axis]
            y = x / np.sqrt(square + self.eps)
            y = y if gamma is None else y * next(parts)
            return y if beta is None else y + next(parts)

        return in_double(normalise, x, *(a for a in (gamma, beta) if a is not None))

    def expand(self) -> Value:
        line, _ = self._normalised()
        return self._affine(line, self.gamma, self.beta).cast(to=self.x.dtype)

    def _placed(self, v: Any) -> Any:
        """A vector [C], array or Value, in a shape that broadcasts along the axis."""
        return v.reshape((v.shape[0], *[1] * (self.x.rank - self.axis - 1)))

    def _normalised(self) -> tuple[Value, Value]:
        """The line before gamma and beta, and the inverse of its scale, in f32 or wider."""
        x = widened(self.x)
        if self.centered:
            x = x - self.mean(x)
        inverse = (self.mean(x * x) + self.eps).rsqrt()
        return x * inverse, inverse

    def _affine(self, line: Value, gamma: Value | None, beta: Value | None) -> Value:
        if gamma is not None:
            line = line * self._placed(widened(gamma))
        return line if beta is None else line + self._placed(widened(beta))

    def _line_jvp(self, t: Value, line: Value, inverse: Value) -> Value:
        """The tangent of the normalised line.

        With line = c / s: (t - mean(t) - line * mean(t * line)) / s, without mean(t) if the line
        is not centered.
        """
        along = line * self.mean(t * line)
        return inverse * (t - self.mean(t) - along if self.centered else t - along)

    def vjp(self, g: Value) -> tuple[Value | None, ...]:
        from rlx.ops.nn.normalization_grad import LayerNormGrad, RmsNormGrad

        kind = LayerNormGrad if self.centered else RmsNormGrad
        dx = kind(x=self.x, g=g, gamma=self.gamma, axis=self.axis, eps=self.eps).out
        g = widened(g)
        others = [a for a in range(self.x.rank) if a != self.axis]
        factors = offsets = None
        if self.gamma is not None:
            plain = dict[str, Any](x=widened(self.x), axis=self.axis, eps=self.eps)
            line = type(self)(**plain).out
            factors = (g * line).reduce_sum(axes=others).cast(to=self.x.dtype)
        if self.beta is not None:
            offsets = g.reduce_sum(axes=others).cast(to=self.x.dtype)
        return dx, factors, offsets

    def jvp(self, tx: Value | None, tg: Value | None = None, tb: Value | None = None) -> Value:
        line, inverse = self._normalised()
        parts: list[Value] = []
        if tx is not None:
            parts.append(self._affine(self._line_jvp(widened(tx), line, inverse), self.gamma, None))
        if tg is not None:
            parts.append(line * self._placed(widened(tg)))
        if tb is not None:
            parts.append(self._placed(widened(tb)))
        total = parts[0]
        for p in parts[1:]:
            total = total + p
        return total.expand(self.out.shape).cast(to=self.x.dtype)

    def batch(self, operands: Sequence[Value | None], batched: Sequence[bool]) -> Value:
        x, gamma, beta = operands
        assert x is not None
        if not any(batched[1:]):
            return self.with_operands(operands, axis=self.axis + 1).out
        # Batched factors: the op takes one [C] only, so they are applied apart, still in f32.
        axis = self.axis + 1 if batched[0] else self.axis
        line = self.with_operands([widened(x), None, None], axis=axis).out
        tail = self.x.rank - self.axis - 1

        def placed(v: Value, has: bool) -> Value:
            lead = (v.shape[0], *[1] * self.axis) if has else ()
            return widened(v).reshape((*lead, v.shape[-1], *[1] * tail))

        if gamma is not None:
            line = line * placed(gamma, batched[1])
        if beta is not None:
            line = line + placed(beta, batched[2])
        return line.cast(to=self.x.dtype)


class LayerNorm(Normalization, name="mir.layer_norm"):
    """``(x - mean) / sqrt(variance + eps) * gamma + beta`` along an axis.

    The variance is the mean square of ``x - mean`` (biased). Statistics of f16 and bf16 are in
    f32, and the result is rounded once.
    """

    centered = True
    flops_per_element = 8


class RmsNorm(Normalization, name="mir.rms_norm"):
    """``x / sqrt(mean(x^2) + eps) * gamma + beta`` along an axis.

    Statistics of f16 and bf16 are in f32, and the result is rounded once.
    """

    centered = False
    flops_per_element = 5

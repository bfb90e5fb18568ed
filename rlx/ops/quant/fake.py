"""Rounding to few bits in floats, for training that knows of it: fake quantisation.

The value is rounded, and the derivative is one that is chosen (a straight-through estimator): as
that of rounding is 0 wherever it is defined, it would teach nothing.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlx.errors import DTypeError, GraphError, ShapeError, did_you_mean
from rlx.ir.op import Array, attr, bad, operand, optional, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.cast import converted, widened
from rlx.ops.pointwise.unary import Round
from rlx.ops.quant.scales import Scaled, axis_from, operand_of, wide_of
from rlx.types import FLOATS, TensorType, f32

__all__ = ["SCALE_MODES", "STE", "TOPS", "FakeQuantize", "FakeQuantizeBackward", "Rounding"]

TOPS = {8: 127.0, 4: 7.0, 2: 1.0}
"""The greatest code of so many bits; the least is its negative."""

STE = ("identity", "clipped_identity", "tanh", "hard_tanh")
SCALE_MODES = ("per_batch", "ema", "fixed")

LEAST = 1e-12
"""The least scale."""


class Rounding(Scaled):
    """What roundings in floats share: they are to ``bits``, and of ``x`` by scales."""

    x: Value = operand("any float tensor")
    bits: int = attr(8, "8, 4 or 2")
    axis: tuple[int, ...] = attr((), "the axis that has a scale for each place, if one has")

    @property
    def top(self) -> float:
        """The greatest code."""
        if self.bits not in TOPS:
            raise GraphError(f"{self.short} rounds to 8, 4 or 2 bits, found {self.bits}")
        return TOPS[self.bits]

    def ratio(self, s: Value) -> Value:
        """x in scales."""
        return widened(self.x) / s

    def code(self, ratio: Value) -> Value:
        """The nearest code."""
        return Round.build(ratio).maximum(-self.top).minimum(self.top)

    def code_array(self, ratio: Array) -> Array:
        """The same of arrays."""
        return np.clip(np.round(ratio), -self.top, self.top)

    def wide_array(self, x: Array) -> Array:
        """Numbers in the type in which they are divided."""
        return x.astype(wide_of(self.x.dtype).numpy)

    def wide_scale(self, v: Value) -> Value:
        """Scales in the type in which x is divided, none below the least one, to meet x."""
        wide = v.cast(to=wide_of(self.x.dtype))
        return self.spread(wide.maximum(LEAST), self.x)

    def check_like_x(self, g: Value) -> None:
        """Raise unless a cotangent is of the type of the result."""
        if g.type != self.x.type:
            raise ShapeError(f"{self.short}: g is of the type of x, found {g.type}, {self.x.type}")


class FakeQuantize(Rounding, name="mir.fake_quantize"):
    """Numbers rounded to a few bits of a scale, and the scales, f32 (of f64, f64).

    With a scale s it is ``clamp(round(x / s), -top, top) * s``, with 127, 7 or 1 as top by
    ``bits``. ``scale_mode`` says what s is: "per_batch", ``max|x| / top``; "fixed", ``state``;
    "ema", the moving average of the former with ``decay`` from ``state`` on, where 0 and less is
    none yet.
    It is 1e-12 at least. The derivative of x, by ``ste``, is that of the result times 1
    ("identity"), 1 where ``|x| <= top * s`` and else 0 ("clipped_identity"),
    ``1 - tanh(x / s) ** 2`` ("tanh"), or ``max(0, 1 - |x / (top * s)|)`` ("hard_tanh"). The scale
    and the state have none.
    """

    state: Value | None = optional("the scales so far, one or [C] along the axis; with ema, fixed")
    ste: str = attr("identity", f"the derivative: {', '.join(STE)}")
    scale_mode: str = attr("per_batch", f"where the scale is from: {', '.join(SCALE_MODES)}")
    decay: float = attr(0.99, "of the moving average")

    result_count: ClassVar[int] = 2
    dtypes = FLOATS
    flops_per_element = 5
    samples = (
        sample("2x3xT"),
        sample("2x3x4xT", bits=4, axis=(1,), ste="clipped_identity"),
        sample("2x3xT", "f32", bits=4, scale_mode="fixed", ste="clipped_identity",
               data={1: "positive"}),
        sample("2x3xT", "3xT", bits=2, axis=(1,), scale_mode="ema", ste="tanh", decay=0.75,
               data={1: "positive"}),
        sample("4xT", "1xf32", scale_mode="fixed", ste="hard_tanh", data={1: "positive"}),
    )  # fmt: skip
    bads = (
        bad("2x3xi32", match="takes floats for x", error=DTypeError),
        bad("2x3xf32", "i32", match="floats for state", error=DTypeError, scale_mode="fixed"),
        bad("2x3xf32", match="8, 4 or 2 bits, found 3", error=GraphError, bits=3),
        bad("2x3xf32", match="did you mean 'tanh'", error=GraphError, ste="tanhh"),
        bad("2x3xf32", match="did you mean 'per_batch'", error=GraphError, scale_mode="batch"),
        bad("2x3xf32", match="takes a state", error=GraphError, scale_mode="ema"),
        bad("2x3xf32", "f32", match="takes no state", error=GraphError),
        bad("2x3xf32", "2xf32", match="state must have", error=ShapeError, scale_mode="ema",
            axis=(1,)),
        bad("2x0xf32", match="no elements", error=ShapeError),
    )  # fmt: skip

    @classmethod
    def build(
        cls,
        x: Value,
        bits: int = 8,
        axis: int | None = None,
        ste: str = "identity",
        scale_mode: str = "per_batch",
        state: Any = None,
        decay: float = 0.99,
    ) -> Any:
        """Numbers rounded to ``bits`` of a scale, with a derivative that is chosen. The moving
        average ("ema") gives a pair with the new state."""
        given = None if state is None else operand_of("state", state, f32)
        along = axis_from(axis, x.rank)
        node = cls(
            x=x, state=given, bits=bits, axis=along, ste=ste, scale_mode=scale_mode, decay=decay
        )
        return node.results if scale_mode == "ema" else node.out

    def infer(self) -> tuple[TensorType, TensorType]:
        self.check_floats(x=self.x, state=self.state)
        _ = self.top
        _one_of("ste", self.ste, STE)
        _one_of("scale_mode", self.scale_mode, SCALE_MODES)
        if (self.scale_mode == "per_batch") != (self.state is None):
            takes = "no state" if self.state is not None else "a state"
            raise GraphError(f"fake_quantize: scale_mode {self.scale_mode!r} takes {takes}")
        self.check_scale("state", self.state, self.x)
        if self.scale_mode != "fixed" and self.x.type.size == 0:
            raise ShapeError(f"fake_quantize: {self.x.type} has no elements to take a scale of")
        return self.x.type, TensorType(self.scale_shape(self.x), wide_of(self.x.dtype))

    def reference(self, x: Array, state: Array | None = None) -> tuple[Array, Array]:
        wide = self.wide_array(x)
        old = None if state is None else self.wide_array(state).reshape(self._flat(x))
        kind = wide.dtype.type
        if self.scale_mode == "fixed":
            assert old is not None
            scale = old
        else:
            axes = None if not self.axis else tuple(a for a in range(x.ndim) if a != self.axis[0])
            scale = np.max(np.abs(wide), axes) / kind(self.top)
        if self.scale_mode == "ema":
            assert old is not None
            mixed = old * kind(self.decay) + scale * kind(1.0 - self.decay)
            scale = np.where(old > 0, mixed, scale)
        s = self.spread_array(np.maximum(np.asarray(scale, kind), kind(LEAST)), x)
        found = converted((self.code_array(wide / s) * s).astype(kind), self.x.dtype)
        return found, np.asarray(scale, kind)

    def _flat(self, x: Array) -> tuple[int, ...]:
        return (x.shape[self.axis[0]],) if self.axis else ()

    def _scale(self) -> Value:
        """The scales, before the least one."""
        kind = wide_of(self.x.dtype)
        old = None
        if self.state is not None:
            old = self.state.cast(to=kind).reshape(self.scale_shape(self.x))
        if self.scale_mode == "fixed":
            assert old is not None
            return old
        scale = abs(widened(self.x)).reduce_max(axes=self.others(self.x)) / self.top
        if old is None:
            return scale
        return old.gt(0.0).where(old * self.decay + scale * (1.0 - self.decay), scale)

    def expand(self) -> tuple[Value, Value]:
        scale = self._scale()
        s = self.wide_scale(scale)
        found = self.code(self.ratio(s)) * s
        return found.cast(to=self.x.dtype), scale

    def _pulled(self, g: Value) -> Value:
        return FakeQuantizeBackward(
            x=self.x, scale=self.results[1], g=g, bits=self.bits, axis=self.axis, ste=self.ste
        ).out

    def vjp(self, *cotangents: Value | None) -> list[Value | None]:
        g = cotangents[0]
        return [None if g is None else self._pulled(g), None]

    def jvp(self, *tangents: Value | None) -> tuple[Value | None, None]:
        tx = tangents[0]
        return None if tx is None else self._pulled(tx), None


class FakeQuantizeBackward(Rounding, name="mir.fake_quantize_backward"):
    """The cotangent of what ``fake_quantize`` rounds, from that of its result, g.

    It is g times a slope at x, which the estimator ``ste`` says; g or 0 of "clipped_identity".
    """

    scale: Value = operand("the scales, one number or [C] along the axis")
    g: Value = operand("the cotangent of the result, of the type of x")
    ste: str = attr("identity", f"the derivative: {', '.join(STE)}")

    dtypes = FLOATS
    flops_per_element = 4
    samples = (
        sample("2x3xT", "f32", "2x3xT", data={1: "positive"}),
        sample("2x3x4xT", "3xT", "2x3x4xT", bits=2, axis=(1,), ste="clipped_identity",
               data={1: "positive"}),
        sample("2x3xT", "1xT", "2x3xT", ste="tanh", data={1: "positive"}),
        sample("2x3xT", "3xT", "2x3xT", bits=2, ste="hard_tanh", axis=(1,), data={1: "positive"}),
        sample("0x3xT", "3xf32", "0x3xT", axis=(1,), data={1: "positive"}),
    )  # fmt: skip
    bads = (
        bad("2x3xi32", "f32", "2x3xi32", match="takes floats for x", error=DTypeError),
        bad("2x3xf32", "f32", "2xf32", match="g is of the type of x", error=ShapeError),
        bad("2x3xf32", "3xf32", "2x3xf32", match="say which by axis", error=ShapeError),
        bad("2x3xf32", "f32", "2x3xf32", match="ste is 'no'", error=GraphError, ste="no"),
        bad("2x3xf32", "f32", "2x3xf32", match="found 5", error=GraphError, bits=5),
    )

    def infer(self) -> TensorType:
        self.check_floats(x=self.x, scale=self.scale)
        _ = self.top
        _one_of("ste", self.ste, STE)
        self.check_scale("scale", self.scale, self.x)
        self.check_like_x(self.g)
        return self.x.type

    def reference(self, x: Array, scale: Array, g: Array) -> Array:
        wide, kind = self.wide_array(x), wide_of(self.x.dtype).numpy.type
        s = self.spread_array(np.maximum(self.wide_array(scale), kind(LEAST)), x)
        ratio, one = wide / s, kind(1)
        if self.ste == "clipped_identity":  # g is no factor: 0 where it is not taken, also of nan
            return np.where(np.abs(ratio) <= self.top, g, np.zeros((), g.dtype))
        slope = {
            "identity": lambda: one,
            "tanh": lambda: one - np.tanh(ratio) ** 2,
            "hard_tanh": lambda: np.maximum(one - np.abs(ratio) / kind(self.top), 0),
        }[self.ste]()
        return converted((g.astype(kind) * slope).astype(kind), self.x.dtype)

    def expand(self) -> Value:
        if self.ste == "identity":
            return self.g
        ratio = self.ratio(self.wide_scale(self.scale))
        if self.ste == "clipped_identity":
            return abs(ratio).le(self.top).where(self.g, 0.0)
        if self.ste == "tanh":
            slope = 1.0 - ratio.tanh() ** 2
        else:
            slope = (1.0 - abs(ratio) / self.top).maximum(0.0)
        return (widened(self.g) * slope).cast(to=self.x.dtype)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = did_you_mean(value, known)
        raise GraphError(f"fake_quantize: {name} is {value!r}{hint}; there are {', '.join(known)}")

"""Rounding to few bits in floats, for training that knows of it: fake quantisation.

The value is rounded, and the derivative is one that is chosen (a straight-through estimator): as
that of rounding is 0 wherever it is defined, it would teach nothing.
"""

from __future__ import annotations

from typing import Any

from rlx.errors import DTypeError, GraphError, did_you_mean
from rlx.ir.value import Value
from rlx.ops.movement.movement import axis_of
from rlx.ops.movement.stop_gradient import StopGradient
from rlx.ops.pointwise.unary import Round
from rlx.ops.quant.affine import along
from rlx.types import f32

__all__ = ["SCALE_MODES", "STE", "fake_quantize", "fake_quantize_lsq"]

TOPS = {8: 127.0, 4: 7.0, 2: 1.0}
"""The greatest code of so many bits; the least is its negative."""

STE = ("identity", "clipped_identity", "tanh", "hard_tanh")
SCALE_MODES = ("per_batch", "ema", "fixed")

_LEAST = 1e-12
"""The least scale."""


def fake_quantize(
    x: Value,
    bits: int = 8,
    axis: int | None = None,
    ste: str = "identity",
    scale_mode: str = "per_batch",
    state: Value | None = None,
    decay: float = 0.99,
) -> Any:
    """Numbers rounded to ``bits`` (8, 4 or 2) of a scale s, which the whole or each place along
    ``axis`` has: ``clamp(round(x / s), -top, top) * s`` with 127, 7 or 1 as top.

    ``scale_mode`` says what s is: "per_batch", ``max|x| / top``; "fixed", ``state``; "ema", the
    moving average of the former with ``decay`` from ``state`` on, where 0 and less is none yet, and
    the result is a pair with the new state. The derivative of x, by ``ste``, is that of the result
    times 1 ("identity"), 1 where ``|x| <= top * s`` and else 0 ("clipped_identity"),
    ``1 - tanh(x / s) ** 2`` ("tanh"), or ``max(0, 1 - |x / (top * s)|)`` ("hard_tanh"). The scale
    and the state have none.
    """
    top = _top("fake_quantize", x, bits)
    _one_of("ste", ste, STE)
    _one_of("scale_mode", scale_mode, SCALE_MODES)
    if (scale_mode == "per_batch") != (state is None):
        raise GraphError(f"fake_quantize: scale_mode {scale_mode!r} takes {_STATES[scale_mode]}")
    wide = StopGradient(x.cast(to=f32)).out
    if scale_mode == "fixed":
        assert state is not None
        scale = StopGradient(state.cast(to=f32)).out
    else:
        others = (
            None
            if axis is None
            else [a for a in range(x.rank) if a != axis_of(axis, x.rank, "axis")]
        )
        scale = abs(wide).reduce_max(axes=others) / top
    if scale_mode == "ema":
        assert state is not None
        old = StopGradient(state.cast(to=f32)).out
        scale = old.gt(0.0).where(old * decay + scale * (1.0 - decay), scale)
    s = along("state", scale, x, axis).maximum(_LEAST)
    ratio = wide / s
    value = Round.build(ratio).maximum(-top).minimum(top) * s
    if ste == "identity":
        slope = None
    elif ste == "clipped_identity":
        slope = abs(ratio).le(top).cast(to=f32)
    elif ste == "tanh":
        slope = 1.0 - ratio.tanh() ** 2
    else:
        slope = (1.0 - abs(ratio) / top).maximum(0.0)
    out = _with_slope(value, x.cast(to=f32), slope).cast(to=x.dtype)
    return (out, scale) if scale_mode == "ema" else out


def fake_quantize_lsq(x: Value, scale: Value, bits: int = 8, axis: int | None = None) -> Value:
    """Numbers rounded to ``bits`` (8, 4 or 2) of a scale that is learned (LSQ), one for the whole
    or for each place along ``axis``: ``clamp(round(x / s), -top, top) * s``.

    The derivative of x passes where ``|x / s| <= top``. That of s is ``round(x / s) - x / s``
    there, and -top or top outside.
    """
    top = _top("fake_quantize_lsq", x, bits)
    s = along("scale", scale, x, axis)
    wide = x.cast(to=f32)
    fixed = StopGradient(s).out
    ratio = StopGradient(wide).out / fixed
    inside = abs(ratio).le(top)
    code = Round.build(ratio).maximum(-top).minimum(top)
    out = _with_slope(code * fixed, wide, inside.cast(to=f32))
    return _with_slope(out, s, inside.where(code - ratio, code)).cast(to=x.dtype)


_STATES = {"per_batch": "no state", "ema": "a state", "fixed": "a state"}


def _with_slope(value: Value, x: Value, slope: Value | None) -> Value:
    """A value that has a derivative with respect to x: what is added is 0, where x is finite."""
    moved = x if slope is None else x * StopGradient(slope).out
    return value + (moved - StopGradient(moved).out)


def _top(what: str, x: Value, bits: int) -> float:
    if not x.dtype.is_float:
        raise DTypeError(f"{what} takes floats, found {x.dtype}")
    if bits not in TOPS:
        raise GraphError(f"{what} rounds to 8, 4 or 2 bits, found {bits}")
    return TOPS[bits]


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = did_you_mean(value, known)
        raise GraphError(f"fake_quantize: {name} is {value!r}{hint}; there are {', '.join(known)}")

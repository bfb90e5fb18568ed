"""Numbers as integers with scales, and roundings whose derivative is chosen."""

from __future__ import annotations

from typing import Any

from support.jax_ops.peer import Table, jnp, lax

__all__ = ["OPS"]

_TOPS = {8: 127, 4: 7, 2: 1}


def _spread(n: Any, v: Any, x: Any) -> Any:
    """Scales as they meet x."""
    return v.reshape([-1, *[1] * (x.ndim - n.axis[0] - 1)] if n.axis else [])


def _dequantize(n: Any, q: Any, scale: Any, zero: Any) -> Any:
    whole = q.astype(jnp.int32)
    whole = whole if zero is None else whole - _spread(n, zero, q).astype(jnp.int32)
    return whole * _spread(n, scale, q)


def _rows(n: Any, x: Any) -> Any:
    blocks = x.reshape(*x.shape[:-1], -1, n.block or x.shape[-1])
    scale = jnp.max(jnp.abs(blocks), -1).astype(jnp.float32) / 127
    codes = jnp.round(blocks / jnp.where(scale > 0, scale, 1)[..., None])
    return lax.stop_gradient(codes).astype(jnp.int8).reshape(x.shape), scale


def _slope(n: Any, ratio: Any) -> Any:
    top = _TOPS[n.bits]
    return {
        "identity": lambda: jnp.ones_like(ratio),
        "clipped_identity": lambda: (jnp.abs(ratio) <= top) * 1.0,
        "tanh": lambda: 1 - jnp.tanh(ratio) ** 2,
        "hard_tanh": lambda: jnp.maximum(0, 1 - jnp.abs(ratio) / top),
    }[n.ste]()


def _passing(value: Any, x: Any, slope: Any) -> Any:
    """A value with the derivative ``slope`` by x, which a second derivative goes through."""
    moved = (x - lax.stop_gradient(x)) * slope
    return lax.stop_gradient(value) + moved


def _code(n: Any, ratio: Any) -> Any:
    return jnp.clip(jnp.round(ratio), -_TOPS[n.bits], _TOPS[n.bits])


def _fake(n: Any, x: Any, state: Any) -> Any:
    axes = tuple(a for a in range(x.ndim) if a != n.axis[0]) if n.axis else None
    old: Any = None if state is None else state.reshape(-1) if n.axis else state.reshape(())
    now = jnp.max(jnp.abs(x), axes) / _TOPS[n.bits] if n.scale_mode != "fixed" else None
    if n.scale_mode == "ema":
        now = jnp.where(old > 0, old * n.decay + now * (1 - n.decay), now)
    scale = lax.stop_gradient(old if now is None else now)
    s = jnp.maximum(_spread(n, scale, x), 1e-12)
    return _passing(_code(n, x / s) * s, x, _slope(n, x / s)), scale


def _fake_backward(n: Any, x: Any, scale: Any, g: Any) -> Any:
    return g * _slope(n, x / jnp.maximum(_spread(n, scale, x), 1e-12))


def _learned(n: Any, x: Any, scale: Any) -> Any:
    s = jnp.maximum(_spread(n, scale, x), 1e-12)
    ratio = x / s
    inside = jnp.abs(ratio) <= _TOPS[n.bits]
    code = lax.stop_gradient(_code(n, ratio))
    by_scale = (s - lax.stop_gradient(s)) * jnp.where(inside, code - ratio, code)
    return _passing(code * s, x, inside * 1.0) + by_scale


def _learned_x(n: Any, x: Any, scale: Any, g: Any) -> Any:
    ratio = x / jnp.maximum(_spread(n, scale, x), 1e-12)
    return jnp.where(jnp.abs(ratio) <= _TOPS[n.bits], g, 0)


def _learned_scale(n: Any, x: Any, scale: Any, g: Any) -> Any:
    ratio = x / jnp.maximum(_spread(n, scale, x), 1e-12)
    code = lax.stop_gradient(_code(n, ratio))
    slope = jnp.where(jnp.abs(ratio) <= _TOPS[n.bits], code - ratio, code)
    axes = tuple(a for a in range(x.ndim) if a != n.axis[0]) if n.axis else None
    return jnp.sum(g * slope, axes).reshape(scale.shape)


def _number(v: Any) -> Any:
    return v.reshape(()) if v.shape == (1,) else v


def _less(v: Any, zero: Any, more: int = 0) -> Any:
    """Integers less zero points, in i32."""
    wide = v.astype(jnp.int32)
    if zero is None:
        return wide
    zero = _number(zero).astype(jnp.int32)
    return wide - (zero.reshape(-1, *[1] * more) if zero.ndim and more else zero)


def _matmul(n: Any, x: Any, w: Any, xs: Any, ws: Any, xz: Any, wz: Any) -> Any:
    return jnp.matmul(_less(x, xz), _less(w, wz)) * (_number(xs) * _number(ws))


def _conv(n: Any, x: Any, w: Any, xs: Any, ws: Any, xz: Any, wz: Any) -> Any:
    pads = list(zip(n.low, n.high, strict=True))
    sums = lax.conv_general_dilated(
        _less(x, xz).astype(jnp.float64), _less(w, wz, w.ndim - 1).astype(jnp.float64), n.stride,
        pads, rhs_dilation=n.dilation, feature_group_count=n.groups,
    )  # fmt: skip
    by = _number(xs) * _number(ws)
    return sums * (by.reshape(-1, *[1] * (w.ndim - 2)) if by.ndim else by)


OPS: Table = {
    "mir.dequantize": _dequantize,
    "mir.quantize_rows": _rows,
    "mir.fake_quantize": _fake,
    "mir.fake_quantize_backward": _fake_backward,
    "mir.fake_quantize_lsq": _learned,
    "mir.fake_quantize_lsq_backward_x": _learned_x,
    "mir.fake_quantize_lsq_backward_scale": _learned_scale,
    "mir.scaled_matmul": _matmul,
    "mir.scaled_conv": _conv,
}

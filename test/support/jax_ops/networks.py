"""What neural networks are made of: norms, attention, embeddings of places, recurrences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from support.jax_ops.peer import Table, jax, jnp, lax, nn

__all__ = ["OPS", "attention", "layer_norm", "merged_heads", "rms_norm", "rotated", "split_heads"]


# -- norms ---------------------------------------------------------------------------------


def _normalised(x: Any, axes: Any, eps: float, centred: bool = True) -> Any:
    """Elements less their mean, if ``centred``, over the root of their mean square."""
    x = x - jnp.mean(x, axes, keepdims=True) if centred else x
    return x / jnp.sqrt(jnp.mean(x * x, axes, keepdims=True) + eps)


def _affine(x: Any, axis: int, gamma: Any, beta: Any) -> Any:
    shape = [1] * x.ndim
    shape[axis] = -1
    x = x if gamma is None else x * gamma.reshape(shape)
    return x if beta is None else x + beta.reshape(shape)


def layer_norm(x: Any, gamma: Any, beta: Any, eps: float, axis: int = -1) -> Any:
    return _affine(_normalised(x, axis, eps), axis, gamma, beta)


def rms_norm(x: Any, gamma: Any, beta: Any, eps: float, axis: int = -1) -> Any:
    return _affine(_normalised(x, axis, eps, centred=False), axis, gamma, beta)


def _by_x(norm: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a norm by its tensor."""

    def gradient(n: Any, x: Any, g: Any, gamma: Any) -> Any:
        return jax.vjp(lambda x: norm(x, gamma, None, n.eps, n.axis), x)[1](g)[0]

    return gradient


def _group_norm(n: Any, x: Any, gamma: Any, beta: Any) -> Any:
    groups = x.reshape(x.shape[0], n.num_groups, -1)
    return _affine(_normalised(groups, 2, n.eps).reshape(x.shape), 1, gamma, beta)


def _batch_norm(n: Any, x: Any, mean: Any, variance: Any, gamma: Any, beta: Any) -> Any:
    x, variance = jnp.moveaxis(x, 1, -1), variance + n.eps
    return _affine(jnp.moveaxis((x - mean) / jnp.sqrt(variance), -1, 1), 1, gamma, beta)


def _batch_norm_train(n: Any, x: Any, gamma: Any, beta: Any) -> Any:
    others = tuple(a for a in range(x.ndim) if a != 1)
    y = _affine(_normalised(x, others, n.eps), 1, gamma, beta)
    return y, jnp.mean(x, others), jnp.var(x, others)


# -- attention -----------------------------------------------------------------------------


def split_heads(x: Any, heads: int) -> Any:
    """[B, S, H D] as [B, H, S, D]."""
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)


def merged_heads(x: Any) -> Any:
    """[B, H, S, D] as [B, S, H D]."""
    b, h, s, d = x.shape
    return x.swapaxes(1, 2).reshape(b, s, h * d)


def _seen(n: Any, mask: Any, queries: int, keys: int) -> Any:
    """Which keys each query sees, or None for all."""
    if n.mask_kind == "custom":
        return (mask >= 0.5)[:, None, None, :]
    if n.mask_kind in ("causal", "sliding_window"):
        back = np.arange(queries)[:, None] + keys - queries - np.arange(keys)
        return (back >= 0) & ((back <= n.window) | (n.mask_kind == "causal"))
    return None


def attention(n: Any, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """``n`` has the attributes of the op."""
    if n.layout == "bshd":
        q, k, v = (
            split_heads(x, heads)
            for x, heads in ((q, n.num_heads), (k, n.kv_heads), (v, n.kv_heads))
        )
    k, v = (jnp.repeat(x, n.num_heads // n.kv_heads, axis=1) for x in (k, v))
    scores = n.scale * jnp.einsum("bhqd,bhkd->bhqk", q, k)
    if n.softcap:
        scores = n.softcap * jnp.tanh(scores / n.softcap)
    empty = False
    if n.mask_kind == "bias":
        scores = scores + mask
        empty = jnp.max(scores, -1, keepdims=True) == -jnp.inf
        scores = jnp.where(empty, 0.0, scores)
    seen = _seen(n, mask, q.shape[2], k.shape[2])
    if seen is not None:
        scores = jnp.where(seen, scores, -1e9)
    p = jnp.where(empty, 0.0, nn.softmax(scores))
    y = jnp.einsum("bhqk,bhkd->bhqd", p, v)
    return y if n.layout == "bhsd" else merged_heads(y)


def _attention_grad(n: Any, q: Any, k: Any, v: Any, mask: Any, g: Any) -> Any:
    return jax.vjp(lambda q, k, v: attention(n, q, k, v, mask), q, k, v)[1](g)


# -- embeddings of places ------------------------------------------------------------------


def rotated(x: Any, cos: Any, sin: Any, n_rot: int) -> Any:
    """Heads [..., S, D], of which the two halves of the first ``n_rot`` elements turn: as complex
    numbers."""
    h = n_rot // 2
    turned = lax.complex(x[..., :h], x[..., h:n_rot]) * lax.complex(cos[:, :h], sin[:, :h])
    return jnp.concatenate([jnp.real(turned), jnp.imag(turned), x[..., n_rot:]], -1)


def _rope(n: Any, x: Any, cos: Any, sin: Any) -> Any:
    if n.layout == "bhsd":
        return rotated(x, cos, sin, n.n_rot)
    return merged_heads(rotated(split_heads(x, x.shape[2] // n.head_dim), cos, sin, n.n_rot))


def _axial_rope(n: Any, x: Any) -> Any:
    token = np.arange(x.shape[1]) % (n.end_x * n.end_y)
    speed = n.theta ** (-4 * np.arange(n.head_dim // 4) / n.head_dim)
    places = np.stack([token % n.end_x, token // n.end_x], 1)
    angles = (places[:, :, None] * speed).reshape(len(token), 1, -1)
    pairs = x.reshape(*x.shape[:2], -1, n.head_dim // 2, 2)
    turned = lax.complex(pairs[..., 0], pairs[..., 1]) * np.exp(1j * angles)
    return jnp.stack([jnp.real(turned), jnp.imag(turned)], -1).reshape(x.shape)


# -- recurrences ---------------------------------------------------------------------------


def _recurrence(n: Any, a: Any, x: Any) -> Any:
    a, x = (jnp.moveaxis(jnp.flip(v, n.axis) if n.reverse else v, n.axis, 0) for v in (a, x))
    _, y = lax.scan(lambda c, e: (e[0] * c + e[1],) * 2, jnp.zeros(x.shape[1:], x.dtype), (a, x))
    y = jnp.moveaxis(y, 0, n.axis)
    return jnp.flip(y, n.axis) if n.reverse else y


def _selective_scan(n: Any, x: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, state: Any) -> Any:
    """With no recurrence: each input decays by the sum of the steps after it."""
    state = jnp.zeros((x.shape[0], *a.shape)) if state is None else state
    passed = jnp.concatenate([jnp.zeros((len(x), 1, x.shape[2])), jnp.cumsum(delta, 1)], 1)
    spans = passed[:, :, None] - passed[:, None, :]
    # What enters is the state before the first step, then every input.
    entered = jnp.concatenate([state[:, None], (delta * x)[..., None] * b[:, :, None, :]], 1)
    past = np.tril(np.ones(spans.shape[1:3]))[:, :, None, None]
    decays = jnp.exp(jnp.where(past, spans[..., None] * a, 0)) * past
    states = jnp.einsum("btjhn,bjhn->bthn", decays, entered)
    y = jnp.einsum("bthn,btn->bth", states[:, 1:], c)
    return y if d is None else y + d * x, states[:, -1]


def _gated_delta_net(n: Any, q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
    b, steps, h, size = k.shape
    s = jnp.zeros((b, h, size, v.shape[-1])) if state is None else state
    rows: list[Any] = []
    for t in range(steps):
        # S e^g + k (beta (v - k S e^g)), as one product with 1 - beta k kT.
        share = beta[:, t, :, None, None]
        column = k[:, t, :, :, None]
        s = s * jnp.exp(g[:, t, :, None, None])
        s = (jnp.eye(size) - share * column * column.mT) @ s + share * column * v[:, t, :, None, :]
        rows.append((q[:, t, :, None, :] @ s)[:, :, 0] / np.sqrt(size))
    return (jnp.stack(rows, 1) if rows else jnp.zeros(v.shape)), s


OPS: Table = {
    "mir.layer_norm": lambda n, x, gamma, beta: layer_norm(x, gamma, beta, n.eps, n.axis),
    "mir.rms_norm": lambda n, x, gamma, beta: rms_norm(x, gamma, beta, n.eps, n.axis),
    "mir.layer_norm_grad": _by_x(layer_norm),
    "mir.rms_norm_grad": _by_x(rms_norm),
    "hir.batch_norm": _batch_norm,
    "hir.batch_norm_train": _batch_norm_train,
    "hir.group_norm": _group_norm,
    "mir.attention": attention,
    "mir.attention_grad": _attention_grad,
    "mir.rope": _rope,
    "hir.axial_rope2d": _axial_rope,
    "mir.linear_recurrence": _recurrence,
    "mir.selective_scan": _selective_scan,
    "mir.gated_delta_net": _gated_delta_net,
}

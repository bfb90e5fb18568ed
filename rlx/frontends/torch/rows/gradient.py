"""Derivatives, of the backward passes that AOTAutograd traces: those of the op that each belongs
to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.autodiff import gradients
from rlx.frontends.torch.node import Node, Row, Rows
from rlx.frontends.torch.rows import attention, image, movement, window
from rlx.ir.value import Value
from rlx.types import Dim, f32

__all__ = ["ROWS"]

Ints = Sequence[int]


def pulled(y: Value, g: Value, wrt: Sequence[Value | None]) -> list[Value | None]:
    """The gradients of a result by some operands, for that of the result; None for None."""
    given = [v for v in wrt if v is not None]
    found = iter(gradients((y * g).sum(), given))
    return [None if v is None else next(found) for v in wrt]


def _masked(wanted: Sequence[bool], *values: Value | None) -> list[Value | None]:
    return [v if want else None for v, want in zip(values, wanted, strict=True)]


def convolution(
    n: Node, g: Value, x: Value, weight: Value, bias_sizes: Any, stride: Ints, padding: Ints,
    dilation: Ints, transposed: bool, output_padding: Ints, groups: int,
    output_mask: Sequence[bool],
) -> list[Value | None]:  # fmt: skip
    y = window.convolution(
        n, x, weight, None, stride, padding, dilation, transposed, output_padding, groups
    )
    dx, dw = pulled(y, g, _masked(output_mask[:2], x, weight))
    db = g.sum([0, *range(2, g.rank)]) if output_mask[2] else None
    return [dx, dw, db]


def max_pool(rank: int) -> Row:
    """The gradient of each window goes to the element that was greatest."""

    def row(
        n: Node, g: Value, x: Value, kernel_size: Ints, stride: Ints, padding: Ints,
        dilation: Ints, ceil_mode: bool, indices: Value,
    ) -> Value:  # fmt: skip
        return _to_places(g, x, indices, rank)

    return row


def adaptive_max_pool(rank: int) -> Row:
    """Likewise, of windows whose sizes follow from the result's."""
    return lambda n, g, x, indices: _to_places(g, x, indices, rank)


def fractional_max_pool(rank: int) -> Row:
    """Likewise, of windows whose places were drawn."""

    def row(
        n: Node, g: Value, x: Value, kernel_size: Ints, output_size: Ints, indices: Value
    ) -> Value:
        return _to_places(g, x, indices, rank)

    return row


def _to_places(g: Value, x: Value, indices: Value, rank: int) -> Value:
    """Gradients added up at places in the planes of a tensor."""
    lead = x.shape[: x.rank - rank]
    size: Dim = 1
    for d in x.shape[-rank:]:
        size = size * d
    lines = [*lead, -1]
    at = indices.reshape(lines)
    out = g.reshape(lines).scatter_add(at, size, len(lead), batch_dims=len(lead))
    return out.reshape(x.shape)


def mean_pool(rank: int) -> Row:
    """The derivative of the mean of each window."""

    def row(
        n: Node, g: Value, x: Value, kernel_size: Ints, stride: Ints, padding: Ints,
        ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
    ) -> Value:  # fmt: skip
        y = window.mean_pool(rank)(
            n, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        )
        return _only(pulled(y, g, [x]))

    return row


def _only(found: Sequence[Value | None]) -> Value:
    assert found[0] is not None, "it was asked for"
    return found[0]


def adaptive_mean_pool(rank: int) -> Row:
    """The derivative of the means of as many windows as there are gradients."""

    def row(n: Node, g: Value, x: Value) -> Value:
        like = Node(n.name, [g.type], lambda: g.dtype)
        return _only(pulled(window.adaptive_mean_pool(rank)(like, x, ()), g, [x]))

    return row


def resized(row_of: Row) -> Row:
    """The derivative of a resize, whose operand's values play no part in it."""

    def row(n: Node, g: Value, output_size: Any, input_size: Sequence[Dim], *rest: Any) -> Value:
        like = Node(n.name, [g.type], lambda: g.dtype)
        x = n.full(0)
        return _only(pulled(row_of(like, x, output_size, *rest), g, [x]))

    return row


def layer_norm(
    n: Node, g: Value, x: Value, shape: Ints, mean: Value, rstd: Value, weight: Value | None,
    bias: Value | None, output_mask: Sequence[bool],
) -> list[Value | None]:  # fmt: skip
    """From the moments that the forward pass has kept."""
    axes = list(range(x.rank - len(shape), x.rank))
    lead = list(range(x.rank - len(shape)))
    line = (x.cast(mean.dtype) - mean) * rstd
    wide = g.cast(mean.dtype)
    scaled = wide if weight is None else wide * weight.cast(mean.dtype)
    off = scaled - scaled.mean(axes, True) - line * (scaled * line).mean(axes, True)
    dx = (rstd * off).cast(x.dtype)
    dw = (wide * line).sum(lead).cast(x.dtype) if output_mask[1] else None
    db = wide.sum(lead).cast(x.dtype) if output_mask[2] else None
    return [dx if output_mask[0] else None, dw, db]


def group_norm(
    n: Node, g: Value, x: Value, mean: Value, rstd: Value, weight: Value | None, batch: Dim,
    channels: Dim, size: Dim, group: int, output_mask: Sequence[bool],
) -> list[Value | None]:  # fmt: skip
    wide = (x.shape[0], group, -1)
    line = ((x.reshape(wide) - mean.unsqueeze(-1)) * rstd.unsqueeze(-1)).reshape(x.shape)
    scaled = g
    if weight is not None:
        scaled = g * weight.reshape([weight.shape[0], *[1] * (x.rank - 2)])
    s, h = scaled.reshape(wide), line.reshape(wide)
    off = s - s.mean([2], True) - h * (s * h).mean([2], True)
    dx = (rstd.unsqueeze(-1) * off).reshape(x.shape)
    lead = [0, *range(2, x.rank)]
    dw = (g * line).sum(lead) if output_mask[1] else None
    db = g.sum(lead) if output_mask[2] else None
    return [dx if output_mask[0] else None, dw, db]


def scaled_attention(
    n: Node, g: Value, q: Value, k: Value, v: Value, out: Value, logsumexp: Value,
    dropout_p: float, is_causal: bool, *, attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[Value | None]:  # fmt: skip
    like = Node(n.name, [g.type], lambda: g.dtype)
    y = attention.attention(like, q, k, v, attn_mask, dropout_p, is_causal, scale=scale)
    return pulled(y, g, [q, k, v])


def sampled(
    n: Node, g: Value, x: Value, grid: Value, interpolation_mode: int, padding_mode: int,
    align_corners: bool, output_mask: Sequence[bool],
) -> list[Value | None]:  # fmt: skip
    y = image.sampled(n, x, grid, interpolation_mode, padding_mode, align_corners)
    return pulled(y, g, _masked(output_mask, x, grid))


def batch_norm(
    n: Node, g: Value, x: Value, weight: Value | None, running_mean: Value | None,
    running_var: Value | None, save_mean: Value | None, save_invstd: Value | None, train: bool,
    eps: float, output_mask: Sequence[bool],
) -> list[Value | None]:  # fmt: skip
    shape = [x.shape[1], *[1] * (x.rank - 2)]
    lead = [0, *range(2, x.rank)]
    dt = x.dtype
    if dt.bits < 32:  # statistics and sums are in f32
        g, x, weight = g.cast(f32), x.cast(f32), None if weight is None else weight.cast(f32)
    if train:
        assert save_mean is not None and save_invstd is not None, "the forward pass keeps them"
        mean, rstd = save_mean, save_invstd
    else:
        assert running_mean is not None and running_var is not None, "inference has them"
        mean, rstd = running_mean, (running_var.cast(x.dtype) + eps).rsqrt()
    mean, rstd = mean.cast(x.dtype), rstd.cast(x.dtype)
    line = (x - mean.reshape(shape)) * rstd.reshape(shape)
    scaled = g if weight is None else g * weight.reshape(shape)
    off = scaled
    if train:
        off = scaled - scaled.mean(lead, True) - line * (scaled * line).mean(lead, True)
    dx = (off * rstd.reshape(shape)).cast(dt) if output_mask[0] else None
    found = [
        (g * line).sum(lead) if output_mask[1] else None,
        g.sum(lead) if output_mask[2] else None,
    ]
    return [dx, *[v if t is None or v is None else v.cast(t.dtype)
                  for v, t in zip(found, n.types[1:], strict=True)]]  # fmt: skip


def padded(row_of: Row) -> Row:
    """The derivative of padding by elements that are there."""

    def row(n: Node, g: Value, x: Value, padding: Sequence[Dim]) -> Value:
        return _only(pulled(row_of(n, x, padding), g, [x]))

    return row


def by_formula(function: Callable[..., Value]) -> Row:
    """A derivative that is a formula of the gradient and an operand."""
    return lambda n, g, x: function(n.cast(g), n.cast(x))


def softmax(n: Node, g: Value, y: Value, dim: int, input_dtype: Any = None) -> Value:
    axis = [dim % max(y.rank, 1)] if y.rank else []
    return n.cast(y * (g - (g * y).sum(axis, True)))


def log_softmax(n: Node, g: Value, y: Value, dim: int, input_dtype: Any = None) -> Value:
    axis = [dim % max(y.rank, 1)] if y.rank else []
    return n.cast(g - y.exp() * g.sum(axis, True))


ROWS: Rows = {
    "convolution_backward": convolution,
    **{f"max_pool{d}d_with_indices_backward": max_pool(d) for d in (2, 3)},
    **{f"avg_pool{d}d_backward": mean_pool(d) for d in (2, 3)},
    **{f"_adaptive_avg_pool{d}d_backward": adaptive_mean_pool(d) for d in (2, 3)},
    **{f"{name}_backward": resized(image.ROWS[name]) for name in image.ROWS
       if "upsample" in name},
    "native_layer_norm_backward": layer_norm, "native_group_norm_backward": group_norm,
    "native_batch_norm_backward": batch_norm,
    "_scaled_dot_product_flash_attention_for_cpu_backward": scaled_attention,
    "grid_sampler_2d_backward": sampled, "grid_sampler_3d_backward": sampled,
    **{f"{name}_backward": padded(row) for name, row in movement.ROWS.items()
       if name.startswith(("reflection_pad", "replication_pad"))},
    **{f"adaptive_max_pool{d}d_backward": adaptive_max_pool(d) for d in (2, 3)},
    **{f"fractional_max_pool{d}d_backward": fractional_max_pool(d) for d in (2, 3)},
    "tanh_backward": by_formula(lambda g, y: g * (1.0 - y * y)),
    "sigmoid_backward": by_formula(lambda g, y: g * y * (1.0 - y)),
    "_softmax_backward_data": softmax, "_log_softmax_backward_data": log_softmax,
}  # fmt: skip

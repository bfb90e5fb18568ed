"""The norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.frontends.common.values import constant
from rlx.frontends.torch.node import Node, Rows
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.nn.normalization import LayerNorm, RmsNorm
from rlx.ops.nn.norms import BatchNorm, BatchNormTrain, GroupNorm
from rlx.types import Dim, f32

__all__ = ["ROWS", "moments"]

EPSILON = {"f32": 1.1920929e-07, "f64": 2.220446049250313e-16, "f16": 0.0009765625,
           "bf16": 0.0078125}  # fmt: skip
"""What torch's rms_norm adds where nothing is said: the distance from 1 to the next number, in the
type that it computes in."""


def _line_norm(
    op: type[Op], x: Value, shape: Sequence[Dim], factors: Sequence[Value | None], eps: float
) -> Value:
    """A norm over the last axes, as one axis."""
    lead = x.shape[: x.rank - len(shape)]
    size = x.type.with_shape(tuple(x.shape[len(lead) :])).size
    flat = x.reshape([*lead, size])
    vectors = [None if v is None else v.reshape([size]) for v in factors]
    return op.build(flat, *vectors, flat.rank - 1, eps).reshape(x.shape)


def layer_norm(
    n: Node, x: Value, shape: Sequence[Dim], weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enable: Any = None,
) -> Value:  # fmt: skip
    return _line_norm(LayerNorm, x, shape, (weight, bias), eps)


def moments(x: Value, axes: Sequence[int], eps: float) -> tuple[Value, Value]:
    """The mean along axes, and the inverse of the deviation; axes stay."""
    wide = x.cast(f32) if x.dtype.bits < 32 else x
    mean = wide.mean(axes, True)
    off = wide - mean
    return mean, ((off * off).mean(axes, True) + eps).rsqrt()


def layer_norm_with_moments(
    n: Node, x: Value, shape: Sequence[Dim], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    axes = list(range(x.rank - len(shape), x.rank))
    return (_line_norm(LayerNorm, x, shape, (weight, bias), eps), *moments(x, axes, eps))


def rms_norm(
    n: Node, x: Value, shape: Sequence[Dim], weight: Value | None = None, eps: float | None = None
) -> Value:
    eps = EPSILON["f32" if x.dtype.bits < 32 else x.dtype.name] if eps is None else eps
    if weight is not None and weight.dtype is not x.dtype:
        return n.cast(_line_norm(RmsNorm, x, shape, (None, None), eps).cast(weight.dtype) * weight)
    return _line_norm(RmsNorm, x, shape, (weight, None), eps)


def rms_norm_with_moment(
    n: Node, x: Value, shape: Sequence[Dim], weight: Value | None, eps: float | None
) -> tuple[Value, Value]:
    axes = list(range(x.rank - len(shape), x.rank))
    added = EPSILON["f32" if x.dtype.bits < 32 else x.dtype.name] if eps is None else eps
    wide = x.cast(f32) if x.dtype.bits < 32 else x
    return rms_norm(n, x, shape, weight, eps), ((wide * wide).mean(axes, True) + added).rsqrt()


def group_norm(
    n: Node, x: Value, num_groups: int, weight: Value | None = None, bias: Value | None = None,
    eps: float = 1e-5, cudnn_enabled: Any = None,
) -> Value:  # fmt: skip
    return GroupNorm.build(x, weight, bias, num_groups=num_groups, eps=eps)


def group_norm_with_moments(
    n: Node, x: Value, weight: Value | None, bias: Value | None, batch: Dim, channels: Dim,
    size: Dim, group: int, eps: float,
) -> tuple[Value, Value, Value]:  # fmt: skip
    lines = x.reshape([batch, group, -1])
    mean, rstd = (v.reshape([batch, group]) for v in moments(lines, [2], eps))
    return GroupNorm.build(x, weight, bias, num_groups=group, eps=eps), mean, rstd


def instance_norm(
    n: Node, x: Value, weight: Value | None, bias: Value | None, running_mean: Value | None,
    running_var: Value | None, use_input_stats: bool, momentum: Any, eps: float,
    cudnn_enabled: Any = None,
) -> Value:  # fmt: skip
    if not use_input_stats and running_mean is not None and running_var is not None:
        return BatchNorm.build(x, running_mean, running_var, weight, bias, eps)
    return x.instance_norm(weight, bias, eps)


def batch_norm(
    n: Node, x: Value, weight: Value | None, bias: Value | None, running_mean: Value | None,
    running_var: Value | None, training: bool, momentum: Any, eps: float,
    cudnn_enabled: Any = None,
) -> Value:  # fmt: skip
    if training or running_mean is None or running_var is None:
        return BatchNormTrain.build(x, weight, bias, eps)[0]
    return BatchNorm.build(x, running_mean, running_var, weight, bias, eps)


def batch_norm_inference(
    n: Node, x: Value, weight: Value | None, bias: Value | None, running_mean: Value,
    running_var: Value, momentum: Any, eps: float,
) -> tuple[Value, Value, Value]:  # fmt: skip
    none = constant([], f32)
    return BatchNorm.build(x, running_mean, running_var, weight, bias, eps), none, none


def batch_norm_of_batch(
    n: Node, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: Any,
    eps: float,
) -> tuple[Value, ...]:  # fmt: skip
    y, mean, spread = BatchNormTrain.build(x, weight, bias, eps)
    return _of_types(n, y, mean, (spread + eps).rsqrt())


def batch_norm_functional(
    n: Node, x: Value, weight: Value | None, bias: Value | None, running_mean: Value,
    running_var: Value, training: bool, momentum: float, eps: float,
) -> tuple[Value, ...]:  # fmt: skip
    """With the running statistics as results; that of the variance is the unbiased one's."""
    if not training:
        found = batch_norm_inference(n, x, weight, bias, running_mean, running_var, momentum, eps)
        return (*found, running_mean, running_var)
    y, mean, spread = BatchNormTrain.build(x, weight, bias, eps)
    dt = mean.dtype
    count = n.cast(x.type.size // x.shape[1], dt)
    unbiased = spread * (count * momentum / (count - 1).maximum(1))
    new_mean = running_mean.cast(dt) * (1 - momentum) + mean * momentum
    new_spread = running_var.cast(dt) * (1 - momentum) + unbiased
    return _of_types(n, y, mean, (spread + eps).rsqrt(), new_mean, new_spread)


def _of_types(n: Node, *results: Value) -> tuple[Value, ...]:
    """Results in the types that torch gives them: f32 of few bits is theirs again."""
    return tuple([
        v if t is None else v.cast(t.dtype) for v, t in zip(results, n.types, strict=True)
    ])  # fmt: skip


def native_batch_norm(
    n: Node, x: Value, weight: Value | None, bias: Value | None, running_mean: Value | None,
    running_var: Value | None, training: bool, momentum: float, eps: float,
) -> tuple[Value, ...]:  # fmt: skip
    """As torch's kernel has it, whose schema does not say that it writes."""
    if running_mean is None or running_var is None:
        return batch_norm_of_batch(n, x, weight, bias, training, momentum, eps)
    if training:
        n.refuse(
            "it writes its running statistics where these lie, and a graph has no state; call"
            " .eval() on the module, or import it by from_torch or torch.compile, which make them"
            " results"
        )
    return batch_norm_inference(n, x, weight, bias, running_mean, running_var, momentum, eps)


ROWS: Rows = {
    "layer_norm": layer_norm, "native_layer_norm": layer_norm_with_moments, "rms_norm": rms_norm,
    "_fused_rms_norm": rms_norm_with_moment, "group_norm": group_norm,
    "native_group_norm": group_norm_with_moments, "instance_norm": instance_norm,
    "batch_norm": batch_norm, "native_batch_norm": native_batch_norm,
    "_native_batch_norm_legit_no_training": batch_norm_inference,
    "_native_batch_norm_legit.no_stats": batch_norm_of_batch,
    "_native_batch_norm_legit_functional": batch_norm_functional,
}  # fmt: skip

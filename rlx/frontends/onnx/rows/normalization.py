"""Softmax and its kin, and the norms."""

from __future__ import annotations

import math

from rlx.errors import UnsupportedError
from rlx.frontends.common.values import full, scalar
from rlx.frontends.onnx.node import Node, Result, Rows
from rlx.frontends.onnx.rows.reduction import log_sum_exp
from rlx.ir.value import Value
from rlx.ops.nn.normalization import LayerNorm, RmsNorm, Softmax
from rlx.ops.pointwise.compare import Eq, Where
from rlx.ops.pointwise.unary import Abs, Rsqrt, Sqrt
from rlx.ops.reduction.reduce import ReduceMean, ReduceSum
from rlx.types import f32

__all__ = ["ROWS"]


def _lines(n: Node) -> tuple[Value, int]:
    """The operand of a softmax and its axis. Before opset 13 the axes from ``axis`` on are one."""
    x, axis = n[0], n.axis(-1 if n.version >= 13 else 1)
    if n.version >= 13:
        return x, axis
    return x.reshape([*x.shape[:axis], math.prod(x.type.static_shape[axis:])]), axis


def softmax(n: Node) -> Value:
    x, axis = _lines(n)
    return Softmax.build(x, axis).reshape(n[0].shape)


def log_softmax(n: Node) -> Value:
    x, axis = _lines(n)
    return (x - log_sum_exp(x, [axis], True)).reshape(n[0].shape)


def _norm(n: Node, op: type[LayerNorm] | type[RmsNorm]) -> Value:
    """A norm over the axes from ``axis`` on, as one axis, with its scale and offset."""
    n.ignore("stash_type")  # 16-bit floats are computed in f32 here
    x, axis = n[0], n.axis(-1)
    lead, last = x.shape[:axis], x.shape[axis:]
    flat = x.reshape([*lead, x.type.with_shape(last).size])
    factors = [n.optional(i) for i in (1, 2)]
    whole = all(v is None or v.shape == last for v in factors)
    if whole:
        gamma, beta = (None if v is None else v.reshape([v.type.size]) for v in factors)
        return op.build(flat, gamma, beta, axis, n.attr("epsilon", 1e-5)).reshape(x.shape)
    out = op.build(flat, None, None, axis, n.attr("epsilon", 1e-5)).reshape(x.shape)
    out = out if factors[0] is None else out * factors[0]
    return out if factors[1] is None else out + factors[1]


def layer_norm(n: Node) -> list[Result]:
    """The norm, and the mean and the inverse deviation if they are used."""
    out: list[Result] = [_norm(n, LayerNorm)]
    if n.wants(1) or n.wants(2):
        x = n[0].cast(f32) if n[0].dtype.bits < 32 else n[0]
        axes = list(range(n.axis(-1), x.rank))
        mean = ReduceMean.build(x, axes, True)
        variance = ReduceMean.build((x - mean) * (x - mean), axes, True)
        out += [mean, Rsqrt.build(variance + scalar(n.attr("epsilon", 1e-5), x))]
    return out


def rms_norm(n: Node) -> Value:
    return _norm(n, RmsNorm)


def _by_channel(v: Value, x: Value) -> Value:
    """A value per channel, as it meets a tensor whose axis 1 is the channels."""
    return v.reshape([*v.shape, *[1] * (x.rank - 2)])


def batch_norm(n: Node) -> list[Result]:
    x, gamma, beta, mean, variance = (n[i] for i in range(5))
    results: list[Result] = []
    keep = n.attr("momentum", 0.9)
    if n.attr("training_mode", 0):
        axes = [i for i in range(x.rank) if i != 1]
        wide = x.cast(mean.dtype)
        found = ReduceMean.build(wide, axes)
        off = wide - _by_channel(found, x)
        spread = ReduceMean.build(off * off, axes)
        results = [mean * keep + found * (1 - keep), variance * keep + spread * (1 - keep)]
        mean, variance = found, spread
    factor = gamma.cast(mean.dtype) * Rsqrt.build(variance + scalar(n.attr("epsilon", 1e-5), mean))
    offset = beta.cast(mean.dtype) - mean * factor
    out = x.cast(mean.dtype) * _by_channel(factor, x) + _by_channel(offset, x)
    return [out.cast(x.dtype), *results]


def instance_norm(n: Node) -> Value:
    x, gamma, beta = n[0], n[1], n[2]
    flat = x.reshape([*x.shape[:2], x.type.with_shape(x.shape[2:]).size])
    out = LayerNorm.build(flat, None, None, 2, n.attr("epsilon", 1e-5)).reshape(x.shape)
    return out * _by_channel(gamma, x) + _by_channel(beta, x)


def group_norm(n: Node) -> Value:
    """Norms over groups of channels; the scale is per channel, before opset 21 per group."""
    x, gamma, beta = n[0], n[1], n[2]
    groups = int(n.need("num_groups"))
    n.ignore("stash_type")
    channels = x.shape[1]
    flat = x.reshape([x.shape[0], groups, x.type.with_shape(x.shape[1:]).size // groups])
    out = LayerNorm.build(flat, None, None, 2, n.attr("epsilon", 1e-5)).reshape(x.shape)
    if gamma.shape != (channels,):
        size = channels // groups
        gamma, beta = (v.reshape([groups, 1]).expand([groups, size]).reshape([channels])
                       for v in (gamma, beta))  # fmt: skip
    return out * _by_channel(gamma, x) + _by_channel(beta, x)


def lp_norm(n: Node) -> Value:
    """A line over its 1-norm or 2-norm; a line of zeros stays."""
    x, axis = n[0], n.axis(-1)
    if n.attr("p", 2) == 1:
        size = ReduceSum.build(Abs.build(x), [axis], True)
    else:
        size = Sqrt.build(ReduceSum.build(x * x, [axis], True))
    zero = scalar(0, x)
    return Where.build(Eq.build(size, zero), zero, x / size)


def local_response(n: Node) -> Value:
    """Each element over a power of the squares around it along the channels."""
    x, size = n[0], int(n.need("size"))
    before = (size - 1) // 2
    squares = (x * x).pad(
        [0, before] + [0] * (x.rank - 2), [0, size - 1 - before] + [0] * (x.rank - 2)
    )
    total = full(x.shape, 0, x.dtype)
    n.spend(ops=size)
    for i in range(size):
        total = total + squares.narrow(1, i, _static(x.shape[1]))
    scale = total * (n.attr("alpha", 1e-4) / size) + n.attr("bias", 1.0)
    return x / scale ** n.attr("beta", 0.75)


def _static(d: object) -> int:
    if not isinstance(d, int):
        raise UnsupportedError(f"its channels are the symbolic dim {d}; bind it with dims={{...}}")
    return d


ROWS: Rows = {
    "BatchNormalization": batch_norm,
    "GroupNormalization": group_norm,
    "InstanceNormalization": instance_norm,
    "LRN": local_response,
    "LayerNormalization": layer_norm,
    "LogSoftmax": log_softmax,
    "LpNormalization": lp_norm,
    "RMSNormalization": rms_norm,
    "Softmax": softmax,
}

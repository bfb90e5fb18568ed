"""Losses of logits and classes; the others are written out by torch."""

from __future__ import annotations

from rlx.frontends.common.values import constant
from rlx.frontends.torch.node import Node, Rows
from rlx.ir.value import Value
from rlx.ops.indexing.along import take_along_axis
from rlx.ops.indexing.gather import Gather
from rlx.ops.nn.likelihood import SoftmaxCrossEntropy
from rlx.ops.pointwise.compare import Where

__all__ = ["ROWS"]

NONE, MEAN, SUM = range(3)
"""torch's numbers for what becomes of the losses of many elements."""


def cross_entropy(
    n: Node, x: Value, target: Value, weight: Value | None = None, reduction: int = MEAN,
    ignore_index: int = -100, label_smoothing: float = 0.0,
) -> Value:  # fmt: skip
    x = _classes_last(x)
    if target.dtype.is_float:
        return _of_probabilities(x, _classes_last(target), weight, reduction, label_smoothing)
    kept = target.ne(ignore_index)
    if weight is None and not label_smoothing:
        losses, factors = SoftmaxCrossEntropy.build(x, target, ignore_index), kept.cast(x.dtype)
    else:
        losses, factors = _weighed(x, target, kept, weight, label_smoothing)
    if reduction == NONE:
        return losses
    return losses.sum() if reduction == SUM else losses.sum() / factors.sum()


def _classes_last(x: Value) -> Value:
    """Logits [N, C, ...] as [N, ..., C]."""
    return x.transpose([0, *range(2, x.rank), 1]) if x.rank > 2 else x


def _weighed(
    x: Value, target: Value, kept: Value, weight: Value | None, smoothing: float
) -> tuple[Value, Value]:
    """The losses, and by what their sum is divided: the weights of the classes."""
    logs = x.log_softmax(-1)
    safe = Where.build(kept, target, constant(0, target.dtype))
    own = -take_along_axis(logs, safe.unsqueeze(-1), logs.rank - 1).squeeze(-1)
    zero = constant(0, x.dtype)
    if weight is None:
        factors, spread = kept.cast(x.dtype), -logs.sum([logs.rank - 1])
    else:
        factors = Where.build(kept, Gather.build(weight, safe, 0), zero)
        spread = -(logs * weight).sum([logs.rank - 1])
    spread = Where.build(kept, spread, zero)
    if smoothing:
        own = own * factors * (1 - smoothing) + spread * (smoothing / int(x.shape[-1]))
        return own, factors
    return own * factors, factors


def _of_probabilities(
    x: Value, target: Value, weight: Value | None, reduction: int, smoothing: float
) -> Value:
    classes = int(x.shape[-1])
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    parts = x.log_softmax(-1) * target
    parts = parts if weight is None else parts * weight
    losses = -parts.sum([x.rank - 1])
    if reduction == NONE:
        return losses
    total = losses.sum()
    return total if reduction == SUM else total / float(int(losses.type.size))


ROWS: Rows = {"cross_entropy_loss": cross_entropy}

"""Transforms of all gradients, or all params, at once: clipping, averaging, the search for nan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from rlx.base.frozen import frozen
from rlx.errors import GraphError
from rlx.ir.builders import located, public
from rlx.ir.value import Value
from rlx.optim.base import check_float, check_part, matching
from rlx.types import f32

__all__ = ["ClipNorm", "ClipValue", "all_finite", "ema", "global_norm", "sum_of_squares"]


@public
@frozen
class ClipNorm:
    """Scales all gradients down together, so that their global norm is at most ``limit``; as
    PyTorch's ``clip_grad_norm_``, which divides by the norm plus 1e-6."""

    limit: float

    def __post_init__(self) -> None:
        located(check_float)("limit", self.limit, above=0)

    def __call__(self, grads: Mapping[str, Value]) -> dict[str, Value]:
        return self.scaled(grads, global_norm(grads))

    def scaled(self, grads: Mapping[str, Value], norm: Value) -> dict[str, Value]:
        """The gradients, some of those whose global norm is ``norm``, a scalar."""
        scale = (self.limit / (norm + 1e-6)).minimum(1.0)
        return {name: g * scale.cast(g.dtype) for name, g in grads.items()}


@public
@frozen
class ClipValue:
    """Puts every element of every gradient between ``-limit`` and ``limit``."""

    limit: float

    def __post_init__(self) -> None:
        located(check_float)("limit", self.limit, above=0)

    def __call__(self, grads: Mapping[str, Value]) -> dict[str, Value]:
        return {n: g.minimum(self.limit).maximum(-self.limit) for n, g in grads.items()}


@located
def global_norm(grads: Mapping[str, Value]) -> Value:
    """The root of the sum of the squares of all elements, a scalar of f32 or of f64."""
    if not grads:
        raise GraphError("a norm of no gradients at all")
    return sum_of_squares(list(grads.values())).sqrt()


def sum_of_squares(values: Sequence[Value]) -> Value:
    """The sum of the squares of all elements of one tensor or more, in f32 or f64."""
    wide = [v if v.dtype.bits > 32 else v.cast(f32) for v in values]
    return reduce(_add, [(v * v).sum() for v in wide])


@located
def all_finite(values: Mapping[str, Value]) -> Value:
    """Whether no element is nan or infinite, a bool scalar."""
    if not values:
        raise GraphError("nothing was given that could be finite")
    # A product with 0 is nan for what is not finite, and no sum of zeros overflows.
    return reduce(_add, [(v * 0.0).sum() for v in values.values()]).isfinite()


@located
def ema(
    averages: Mapping[str, Value], params: Mapping[str, Value], decay: float
) -> dict[str, Value]:
    """Exponential moving averages of params after one more update: ``decay`` of the old average
    and the rest of the param."""
    check_part("decay", decay)
    matching("average", averages, {name: p.type for name, p in params.items()})
    return {name: averages[name] + (p - averages[name]) * (1 - decay) for name, p in params.items()}


def _add(a: Value, b: Value) -> Value:
    return a + b if a.dtype == b.dtype else a.cast("f64") + b.cast("f64")

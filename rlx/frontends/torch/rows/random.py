"""Random numbers, drawn from keys that are made of a key which the graph takes as an input."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rlx.frontends.common.values import full
from rlx.frontends.torch.node import Node, Rows, static
from rlx.ir.value import Value
from rlx.ops.pointwise.compare import Where
from rlx.ops.random import distributions as draw
from rlx.ops.reduction.topk import TopK
from rlx.types import Dim, bool_

__all__ = ["ROWS", "dropped"]

ALPHA = 1.7580993408473766
"""The least value of SELU, with its sign turned (Klambauer et al., 2017)."""


# -- dropout -------------------------------------------------------------------------------


def _kept(n: Node, shape: Sequence[Dim], p: float) -> Value:
    """Which elements stay: each with the probability ``1 - p``."""
    return draw.bernoulli(n.key(), 1.0 - p, shape)


def _scaled(x: Value, kept: Value, p: float) -> Value:
    """The elements that stay, larger by what the others would have added."""
    return x * (kept.cast(x.dtype) * (1.0 / (1.0 - p) if p < 1 else 0.0))


def dropped(n: Node, x: Value, p: float) -> Value:
    """Some elements as 0, each with the probability ``p``."""
    return _scaled(x, _kept(n, x.shape, p), p)


def dropout(n: Node, x: Value, p: float, train: bool) -> Value:
    return dropped(n, x, p) if train and p > 0 else x


def native_dropout(n: Node, x: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    if not p or train is False:
        return x, full(x.shape, True, bool_)
    kept = _kept(n, x.shape, p)
    return _scaled(x, kept, p), kept


def feature_dropout(n: Node, x: Value, p: float, train: bool) -> Value:
    """Whole channels as 0."""
    if not train or p <= 0:
        return x
    return _scaled(x, _kept(n, (*x.shape[:2], *[1] * (x.rank - 2)), p), p)


def alpha_dropout(n: Node, x: Value, p: float, train: bool) -> Value:
    """Elements as the least value of SELU, then scaled and shifted so that mean and deviation
    stay."""
    if not train or p <= 0:
        return x
    if p >= 1:
        return x * 0.0
    a = 1.0 / math.sqrt((ALPHA * ALPHA * p + 1.0) * (1.0 - p))
    kept = _kept(n, x.shape, p).cast(x.dtype)
    return x * (kept * a) + ((kept - 1.0) * (ALPHA * a) + ALPHA * a * p)


# -- distributions -------------------------------------------------------------------------


def uniform(n: Node, *args: Any) -> Value:
    return draw.uniform(n.key(), n.shape, n.dtype)


def uniform_between(n: Node, x: Value, low: float = 0.0, high: float = 1.0) -> Value:
    return draw.uniform(n.key(), n.shape, n.dtype, low, high)


def normal(n: Node, *args: Any) -> Value:
    return draw.normal(n.key(), n.shape, n.dtype)


def normal_about(
    n: Node, mean: Value | float = 0.0, std: Value | float = 1.0, size: Any = None
) -> Value:
    """``normal``, of which each of mean and deviation is a number or a tensor."""
    return draw.normal(n.key(), n.shape, n.dtype) * n.cast(std) + n.cast(mean)


def normal_like(n: Node, x: Value, mean: float = 0.0, std: float = 1.0) -> Value:
    return normal_about(n, mean, std)


def log_normal(n: Node, x: Value, mean: float = 1.0, std: float = 2.0) -> Value:
    return normal_about(n, mean, std).exp()


def cauchy(n: Node, x: Value, median: float = 0.0, sigma: float = 1.0) -> Value:
    angle = (draw.uniform(n.key(), n.shape, n.dtype) - 0.5) * math.pi
    return angle.tan() * sigma + median


def exponential(n: Node, x: Value, lambd: float = 1.0) -> Value:
    return draw.exponential(n.key(), n.shape, n.dtype) / lambd


def geometric(n: Node, x: Value, p: float) -> Value:
    """How many trials are made until the first success."""
    wide = draw.exponential(n.key(), n.shape, "f32")
    trials = wide / -math.log1p(-p) if p < 1 else wide * 0.0
    return n.cast(trials.ceil().maximum(1.0))


def bernoulli(n: Node, x: Value) -> Value:
    return n.cast(draw.bernoulli(n.key(), x))


def bernoulli_of(n: Node, x: Value, p: Value | float = 0.5) -> Value:
    return n.cast(draw.bernoulli(n.key(), p, n.shape))


def _between(n: Node, low: Any, high: Any) -> Value:
    whole = n.dtype if n.dtype.is_int else "i64"
    least, end = (static(n, v, "a bound") for v in (low, high))
    return n.cast(draw.randint(n.key(), n.shape, least, end, whole))


def integers_below(n: Node, high: Dim, size: Any) -> Value:
    return _between(n, 0, high)


def integers_between(n: Node, low: Dim, high: Dim, size: Any) -> Value:
    return _between(n, low, high)


def integers_like_below(n: Node, x: Value, high: Dim) -> Value:
    return _between(n, 0, high)


def integers_like_between(n: Node, x: Value, low: Dim, high: Dim | None) -> Value:
    return _between(n, low, _end_of(n) if high is None else high)


def integers_of_type(n: Node, x: Value) -> Value:
    return _between(n, 0, _end_of(n))


def _end_of(n: Node) -> int:
    """One more than the largest integer up to which the type holds all."""
    if n.dtype.is_float:
        return (1 << {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}[n.dtype.name]) + 1
    return 2 if n.dtype is bool_ else 1 << n.dtype.bits - (n.dtype.kind == "int")


def permutation(n: Node, count: Dim) -> Value:
    return n.cast(draw.permutation(n.key(), static(n, count, "how many numbers there are")))


def multinomial(n: Node, x: Value, num_samples: int, replacement: bool = False) -> Value:
    """Indices along the last axis, by the weights there. Without replacement those of the largest
    of their logarithms and Gumbel noise (Yellott, 1977)."""
    logs = x.log()
    if replacement:
        shape = [num_samples, *x.shape[:-1]]
        found = draw.categorical(n.key(), logs, -1, shape)
        return n.cast(found.transpose([*range(1, len(shape)), 0]))
    noisy = logs + draw.gumbel(n.key(), x.shape, x.dtype)
    return n.cast(TopK.build(noisy, num_samples, x.rank - 1)[1])


def rrelu(
    n: Node, x: Value, noise: Value, lower: float = 0.125, upper: float = 1 / 3,
    training: bool = False,
) -> tuple[Value, Value]:  # fmt: skip
    """The result, and what each element was multiplied with."""
    if not training:
        return Where.build(x.gt(0), x, x * ((lower + upper) / 2)), noise
    slope = draw.uniform(n.key(), x.shape, x.dtype, lower, upper)
    factor = Where.build(x.gt(0), full(x.shape, 1, x.dtype), slope)
    return x * factor, factor


def _written(row: Callable[..., Any]) -> Callable[..., Any]:
    """The row of an op whose result is also written to its noise."""
    return lambda n, *args, **more: row(n, *args, **more)[0]


ROWS: Rows = {
    "rand": uniform, "rand_like": uniform, "uniform": uniform_between,
    "randn": normal, "randn_like": normal, "normal": normal_about,
    "normal_functional": normal_like, "log_normal": log_normal, "cauchy": cauchy,
    "exponential": exponential, "geometric": geometric, "bernoulli": bernoulli,
    "bernoulli.p": bernoulli_of, "bernoulli.Tensor": bernoulli_of,
    "randint": integers_below, "randint.low": integers_between,
    "randint_like": integers_like_below, "randint_like.low_dtype": integers_like_between,
    "random": integers_of_type, "random.to": integers_like_below,
    "random.from": integers_like_between,
    "randperm": permutation, "multinomial": multinomial,
    "rrelu_with_noise": _written(rrelu), "rrelu_with_noise_functional": rrelu,
    "dropout": dropout, "feature_dropout": feature_dropout, "alpha_dropout": alpha_dropout,
    "native_dropout": native_dropout,
}  # fmt: skip

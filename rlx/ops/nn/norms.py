"""Norms over groups and batches, and of vectors.

Group and batch norm are blocks: whole in the graph, differentiated and batched by what they expand
to. Channels are axis 1 throughout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from rlx.base.dims import is_known, surely_differ
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.op import attr, bad, operand, optional, sample
from rlx.ir.value import Value
from rlx.ops.movement.movement import listed
from rlx.ops.nn.blocks import Block
from rlx.ops.nn.heads import check_floats, compute_type
from rlx.ops.nn.normalization import LayerNorm
from rlx.ops.pointwise.cast import widened
from rlx.types import TensorType

__all__ = [
    "BatchNorm",
    "BatchNormTrain",
    "GroupNorm",
    "instance_norm",
    "layer_norm2d",
    "local_response_norm",
    "norm",
    "normalize",
]


class Channels(Block):
    """A norm whose factors and offsets are [C], one for every channel (axis 1).

    They have x's type, or f32 beside a 16-bit x; all is computed in f32 or wider, and rounded once.
    """

    x: Value = operand("[N, C, ...]")
    eps: float

    def check_channels(self, **vectors: Value | None) -> None:
        """Refuse an x without channels, and vectors that do not fit it."""
        check_floats(self.short, (self.x,))
        self.check_rank("x", 2, or_more=True)
        if not self.eps >= 0:
            raise GraphError(f"{self.short}: eps is {self.eps}, expected a number that is >= 0")
        for name, v in vectors.items():
            if v is None:
                continue
            self.check((name, (self.x.shape[1],)))
            if v.dtype not in (self.x.dtype, compute_type(self.x.dtype)):
                raise DTypeError(
                    f"{self.short}: {name} is {v.dtype} with x of {self.x.dtype}; cast it first"
                )

    def placed(self, v: Value) -> Value:
        """A vector [C] in a shape that broadcasts with x, in the type that is computed in."""
        wide = v.cast(to=compute_type(self.x.dtype))
        return wide.reshape([v.shape[0], *[1] * (self.x.rank - 2)])

    def affine(self, y: Value, gamma: Value | None, beta: Value | None) -> Value:
        """``y * gamma + beta`` in x's type."""
        y = y if gamma is None else y * self.placed(gamma)
        y = y if beta is None else y + self.placed(beta)
        return y.cast(to=self.x.dtype)


class GroupNorm(Channels, name="hir.group_norm"):
    """Channels in groups, each group of a sample normalised by its own mean and variance.

    Then come gamma and beta, as in layer norm.
    """

    gamma: Value | None = optional("factors [C]")
    beta: Value | None = optional("offsets [C]")
    num_groups: int = attr(doc="how many groups; divides C")
    eps: float = attr(1e-5, "added to the variance")

    samples = (
        sample("2x4x3xT", "4xT", "4xT", num_groups=2),
        sample("2x6xT", None, "6xT", num_groups=3, eps=1e-3),
        sample("1x2x2x2xT", num_groups=1),
    )
    bads = (
        bad("2x4x3xf32", match="4 channels make no 3 groups", error=ShapeError, num_groups=3),
        bad("2x4x3xf32", match="4 channels make no 0 groups", error=ShapeError, num_groups=0),
        bad("4xf32", match="rank 2 or more", error=ShapeError, num_groups=2),
        bad("2x4xf32", "2xf32", match="gamma must be", error=ShapeError, num_groups=2),
        bad("2x4xf32", None, "4xf64", match="beta is f64", error=DTypeError, num_groups=2),
        bad("2x4xf32", match="eps is -1.0", error=GraphError, num_groups=2, eps=-1.0),
    )

    def infer(self) -> TensorType:
        self.check_channels(gamma=self.gamma, beta=self.beta)
        channels, groups = self.x.shape[1], self.num_groups
        if groups < 1 or surely_differ(channels % groups, 0):
            raise ShapeError(f"group_norm: {channels} channels make no {groups} groups")
        return self.x.type

    def expand(self) -> Value:
        x = widened(self.x)
        n, c, *rest = x.shape
        size = c // self.num_groups * x.type.with_shape(rest).size
        line = LayerNorm.build(x.reshape([n, self.num_groups, size]), eps=self.eps)
        return self.affine(line.reshape(x.shape), self.gamma, self.beta)


def instance_norm(
    x: Value, gamma: Value | None = None, beta: Value | None = None, eps: float = 1e-5
) -> Value:
    """Every channel of every sample normalised by itself: group norm with a group a channel."""
    channels = x.shape[1] if x.rank > 1 else None
    if not is_known(channels):
        raise ShapeError(f"instance_norm takes [N, C, ...] with a static C, found {x.type}")
    return GroupNorm.build(x, gamma, beta, num_groups=channels, eps=eps)


def layer_norm2d(
    x: Value, gamma: Value | None = None, beta: Value | None = None, eps: float = 1e-6
) -> Value:
    """The channels at each place of images ``[N, C, H, W]`` normalised: layer norm along axis 1."""
    if x.rank != 4:
        raise ShapeError(f"layer_norm2d takes images [N, C, H, W], found {x.type}")
    return LayerNorm.build(x, gamma, beta, axis=1, eps=eps)


class BatchNorm(Channels, name="hir.batch_norm"):
    """``(x - mean) / sqrt(variance + eps) * gamma + beta`` by given statistics of each channel."""

    mean: Value = operand("[C]")
    variance: Value = operand("[C]")
    gamma: Value | None = optional("factors [C]")
    beta: Value | None = optional("offsets [C]")
    eps: float = attr(1e-5, "added to the variance")

    samples = (
        sample("2x3x2xT", "3xT", "3xT", "3xT", "3xT", data={2: "positive"}),
        sample("4x2xT", "2xT", "2xT", eps=1e-3, data={2: "positive"}),
    )
    bads = (
        bad("2x3xf32", "3xf32", "2xf32", match="variance must be", error=ShapeError),
        bad("2x3xf32", "3xf32", "3xi32", match="variance is i32", error=DTypeError),
        bad("3xf32", "3xf32", "3xf32", match="rank 2 or more", error=ShapeError),
        bad("2x3xf32", "3xf32", "3xf32", match="eps is", error=GraphError, eps=-1.0),
    )

    def infer(self) -> TensorType:
        self.check_channels(
            mean=self.mean, variance=self.variance, gamma=self.gamma, beta=self.beta
        )
        return self.x.type

    def expand(self) -> Value:
        # A product and a sum an element: the rest is done once a channel, and of params beforehand.
        factor = (self.placed(self.variance) + self.eps).rsqrt()
        factor = factor if self.gamma is None else self.placed(self.gamma) * factor
        offset = -self.placed(self.mean) * factor
        offset = offset if self.beta is None else self.placed(self.beta) + offset
        return (widened(self.x) * factor + offset).cast(to=self.x.dtype)


class BatchNormTrain(Channels, name="hir.batch_norm_train"):
    """Batch norm by the batch's own statistics, which are the second and third result.

    They are the mean and the biased variance of each channel over all other axes, in f32 or wider:
    what running statistics are made of.
    """

    gamma: Value | None = optional("factors [C]")
    beta: Value | None = optional("offsets [C]")
    eps: float = attr(1e-5, "added to the variance")

    result_count = 3
    samples = (
        sample("2x3x2xT", "3xT", "3xT"),
        sample("4x2xT", None, None, eps=1e-3),
    )
    bads = (
        bad("2x3xf32", "2xf32", match="gamma must be", error=ShapeError),
        bad("2x3xi32", match="takes f16", error=DTypeError),
        bad("3xf32", match="rank 2 or more", error=ShapeError),
        bad("0x3xf32", match="no elements", error=ShapeError),
    )

    def infer(self) -> tuple[TensorType, ...]:
        self.check_channels(gamma=self.gamma, beta=self.beta)
        if self.x.type.size == 0:
            raise ShapeError(f"batch_norm_train: {self.x.type} has no elements to have statistics")
        statistic = TensorType((self.x.shape[1],), compute_type(self.x.dtype))
        return self.x.type, statistic, statistic

    def expand(self) -> tuple[Value, ...]:
        x = widened(self.x)
        others = [a for a in range(x.rank) if a != 1]
        mean = x.mean(axes=others)
        centered = x - self.placed(mean)
        variance = (centered * centered).mean(axes=others)
        line = centered * (self.placed(variance) + self.eps).rsqrt()
        return self.affine(line, self.gamma, self.beta), mean, variance


# -- of vectors ----------------------------------------------------------------------------


def norm(
    x: Value,
    p: float = 2.0,
    axes: Iterable[int] | int | None = None,
    keepdims: bool = False,
) -> Value:
    """The p-norm of the elements along axes, ``sum(|x|^p)^(1/p)``, as ``torch.linalg.vector_norm``:
    p may be inf, -inf and 0, which counts what is not 0. It is real. 16-bit floats are rounded
    once."""
    wide = widened(x)
    size = wide.abs()
    if math.isinf(p):
        fold = (
            size.max(axes=axes, keepdims=keepdims)
            if p > 0
            else size.min(axes=axes, keepdims=keepdims)
        )
    elif p == 0:
        fold = size.ne(0).cast(to=size.dtype).sum(axes=axes, keepdims=keepdims)
    elif p == 1:
        fold = size.sum(axes=axes, keepdims=keepdims)
    else:
        if p == 2:
            powers = wide.complex_norm_sq() if wide.dtype.is_complex else wide * wide
        else:
            powers = size**p
        fold = _root(powers.sum(axes=axes, keepdims=keepdims), p)
    return fold if x.dtype.is_complex else fold.cast(to=x.dtype)


def _root(total: Value, p: float) -> Value:
    """total^(1/p), whose derivative at 0 is taken for 0 and not for inf."""
    empty = total.eq(0)
    safe = empty.where(1.0, total)
    return empty.where(0.0 if p > 0 else math.inf, safe.sqrt() if p == 2 else safe ** (1.0 / p))


def normalize(
    x: Value, p: float = 2.0, axes: Iterable[int] | int = -1, eps: float = 1e-12
) -> Value:
    """The tensor over its p-norm along axes, or over eps if that is larger, as PyTorch's
    ``normalize``."""
    wide = widened(x)
    size = norm(wide, p, axes, keepdims=True)
    return (wide / size.maximum(eps)).cast(to=x.dtype)


def local_response_norm(
    x: Value, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Value:
    """``x / (k + alpha / size * s)^beta``, s the sum of the squares of ``size`` channels around
    each one, as PyTorch has it."""
    if x.rank < 2 or size < 1:
        raise ShapeError(
            f"local_response_norm takes [N, C, ...] and a size of 1 or more, found"
            f" {listed(x.shape)} and {size}"
        )
    wide = widened(x)
    before, after = size // 2, (size - 1) // 2
    if is_known(channels := x.shape[1]):  # those beyond the ends are zeros
        before, after = min(before, channels), min(after, channels)
    low, high = ([n if a == 1 else 0 for a in range(x.rank)] for n in (before, after))
    squares = (wide * wide).pad(low, high)
    total = squares.narrow(1, 0, x.shape[1])
    for n in range(1, before + after + 1):
        total = total + squares.narrow(1, n, x.shape[1])
    return (wide / (total * (alpha / size) + k) ** beta).cast(to=x.dtype)

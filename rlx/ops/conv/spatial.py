"""Builder methods of convolution and pooling that say their rank, and short combinations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeVar, cast

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.value import Value
from rlx.ops.conv.conv import Conv, ConvTranspose
from rlx.ops.conv.max_pool import MaxPool
from rlx.ops.conv.pool import MeanPool
from rlx.ops.conv.window import Numbers, Padding, each
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import listed
from rlx.ops.pointwise.cast import widened
from rlx.ops.reduction.reduce import ReduceMean

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "pool",
]

F = TypeVar("F", bound=Callable[..., Value])


def _of_rank(name: str, rank: int, build: F) -> F:
    """The same for tensors of ``rank`` spatial axes alone."""

    @wraps(build)
    def method(x: Value, *args: object, **kwargs: object) -> Value:
        if isinstance(x, Value | np.ndarray) and len(x.shape) != rank + 2:
            axes = "[N, C, L]" if rank == 1 else "[N, C, H, W]" if rank == 2 else "[N, C, D, H, W]"
            raise ShapeError(f"{name} takes x {axes}, found {listed(x.shape)}")
        return build(x, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    return cast(F, method)


conv1d = _of_rank("conv1d", 1, Conv.build)
conv2d = _of_rank("conv2d", 2, Conv.build)
conv3d = _of_rank("conv3d", 3, Conv.build)
conv_transpose1d = _of_rank("conv_transpose1d", 1, ConvTranspose.build)
conv_transpose2d = _of_rank("conv_transpose2d", 2, ConvTranspose.build)
conv_transpose3d = _of_rank("conv_transpose3d", 3, ConvTranspose.build)
max_pool1d = _of_rank("max_pool1d", 1, MaxPool.build)
max_pool2d = _of_rank("max_pool2d", 2, MaxPool.build)
max_pool3d = _of_rank("max_pool3d", 3, MaxPool.build)
avg_pool1d = _of_rank("avg_pool1d", 1, MeanPool.build)
avg_pool2d = _of_rank("avg_pool2d", 2, MeanPool.build)
avg_pool3d = _of_rank("avg_pool3d", 3, MeanPool.build)


def pool(
    x: Value, kind: str, kernel: Numbers, stride: Numbers | None = None, padding: Padding = 0
) -> Value:
    """Pooling by the name of its kind, "max" or "mean"; padding counts in the mean."""
    if kind not in ("max", "mean"):
        raise GraphError(f'pool: kind is "max" or "mean", found {kind!r}')
    build = MaxPool.build if kind == "max" else MeanPool.build
    return build(x, kernel, stride, padding)


def _adaptive_avg_pool(x: Value, output_size: Numbers | Sequence[int | None]) -> Value:
    """As ``torch.nn.functional.adaptive_avg_pool2d``: ``output_size`` windows of about equal size
    along each spatial axis, from one number or one an axis; None keeps an axis."""
    given = output_size if isinstance(output_size, Sequence) else [output_size] * (x.rank - 2)
    sizes = [n for n in given if n is not None]
    each(sizes, len(sizes), "adaptive_avg_pool: output_size")
    if len(given) != x.rank - 2 or any(n < 1 for n in sizes):
        raise ShapeError(
            f"adaptive_avg_pool: output_size has {x.rank - 2} sizes of at least 1, found {given}"
        )
    if all(n == 1 for n in given):
        return ReduceMean(x, tuple(range(2, x.rank)), True).out
    out = widened(x)
    for axis, count in enumerate(given, start=2):
        if count is not None:
            out = _averaged(out, axis, count)
    return out.cast(to=x.dtype)


def _averaged(x: Value, axis: int, count: int) -> Value:
    """The means of ``count`` windows along an axis, as a product with their weights."""
    size = x.type.static_shape[axis]
    weights = np.zeros((size, count), x.dtype.numpy)
    for i in range(count):
        start, end = i * size // count, -(-(i + 1) * size // count)
        weights[start:end, i] = 1 / (end - start)
    out = x.dot_general(Constant(weights).out, axis, 0)
    return out.transpose([*range(axis), x.rank - 1, *range(axis, x.rank - 1)])


adaptive_avg_pool1d = _of_rank("adaptive_avg_pool1d", 1, _adaptive_avg_pool)
adaptive_avg_pool2d = _of_rank("adaptive_avg_pool2d", 2, _adaptive_avg_pool)
adaptive_avg_pool3d = _of_rank("adaptive_avg_pool3d", 3, _adaptive_avg_pool)

"""Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.frontends.torch.node import Node, Rows
from rlx.ir.value import Value
from rlx.ops.fft.axes import fftn, ifftn, irfftn, rfftn

__all__ = ["ROWS"]

FORWARD = ("backward", "ortho", "forward")
"""Names for torch's numbers of what a transform is divided by: nothing, the square root of the
size, the size."""
BACKWARD = ("forward", "ortho", "backward")
"""The same for an inverse transform."""


def of_reals(n: Node, x: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Value:
    axes = [d % x.rank for d in dim]
    if onesided:
        return rfftn(x, axes=axes, norm=FORWARD[normalization])
    return fftn(n.cast(x), axes=axes, norm=FORWARD[normalization])


def of_complex(n: Node, x: Value, dim: Sequence[int], normalization: int, forward: bool) -> Value:
    axes = [d % x.rank for d in dim]
    if not axes:
        return x
    if forward:
        return fftn(x, axes=axes, norm=FORWARD[normalization])
    return ifftn(x, axes=axes, norm=BACKWARD[normalization])


def to_reals(
    n: Node, x: Value, dim: Sequence[int], normalization: int, last_dim_size: int
) -> Value:
    axes = [d % x.rank for d in dim]
    sizes = [int(n.shape[a]) for a in axes]
    return irfftn(x, s=sizes, axes=axes, norm=BACKWARD[normalization])


ROWS: Rows = {"_fft_r2c": of_reals, "_fft_c2c": of_complex, "_fft_c2r": to_reals}

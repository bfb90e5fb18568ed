"""Products, convolutions, linear algebra and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx import linalg
from rlx.frontends.common.values import constant
from rlx.frontends.stablehlo.node import Node, Result, as_type, ranked, row
from rlx.frontends.stablehlo.rows.movement import trimmed
from rlx.ir.builders import builder
from rlx.ir.value import Value
from rlx.ops.linalg.triangular import TriangularSolve
from rlx.ops.matmul.contraction import DotGeneral
from rlx.types import bool_, f32

__all__: list[str] = []


@row("dot_general")
def _dot_general(n: Node) -> Result:
    d, dt = n.numbers("dot_dimension_numbers"), n.dtype
    a, b = (as_type(x, f32 if dt is bool_ else dt) for x in n.xs)
    axes = (
        d.lhs_contracting_dimensions, d.rhs_contracting_dimensions, d.lhs_batching_dimensions,
        d.rhs_batching_dimensions,
    )  # fmt: skip
    # Of bools: whether any pair is of two that are true.
    found = DotGeneral.build(a, b, *([int(i) for i in found] for found in axes))
    return found.ne(0.0) if dt is bool_ else found


@row("dot")
def _dot(n: Node) -> Result:
    a, b = (as_type(x, n.dtype) for x in n.xs)
    return a.matmul(b)


def _feature_groups(x: Value, groups: int, rank: int) -> Value:
    """Groups of examples as groups of channels: [g·N, C, ...] as [N, g·C, ...]."""
    size, channels, *space = x.type.static_shape
    split = x.reshape([groups, size // groups, channels, *space])
    order = [1, 0, *range(2, rank + 3)]
    return split.transpose(order).reshape([size // groups, groups * channels, *space])


@row("convolution")
def _convolution(n: Node) -> Result:
    d, dt = n.numbers("dimension_numbers"), n.dtype
    if 0 in list(ranked(n.op.results[0].type).shape):
        return constant(0, dt).expand(n.shape)
    rank = len(d.input_spatial_dimensions)
    x, w = (as_type(v, dt) for v in n.xs)
    x = x.transpose(
        [d.input_batch_dimension, d.input_feature_dimension, *d.input_spatial_dimensions]
    )
    w = w.transpose(
        [d.kernel_output_feature_dimension, d.kernel_input_feature_dimension,
         *d.kernel_spatial_dimensions]
    )  # fmt: skip
    ones = [1] * rank
    reversed_axes = [i + 2 for i, turned in enumerate(n.flags("window_reversal")) if turned]
    w = w.flip(reversed_axes) if reversed_axes else w
    spread = n.ints("lhs_dilation", ones)
    pads = n.pairs("padding", rank)
    if spread != ones or min((p for pair in pads for p in pair), default=0) < 0:
        low, high = ([0, 0, *(p[i] for p in pads)] for i in (0, 1))
        between = [0, 0, *(s - 1 for s in spread)]
        x, pads = trimmed(x, x.zeros_like().flatten()[0], low, high, between), [(0, 0)] * rank
    groups, batches = n.int("feature_group_count"), n.int("batch_group_count")
    if batches > 1:
        x, groups = _feature_groups(x, batches, rank), batches
    y = _conv(n, x, w, pads, groups)
    order = [0] * (rank + 2)
    order[d.output_batch_dimension], order[d.output_feature_dimension] = 0, 1
    for i, at in enumerate(d.output_spatial_dimensions):
        order[at] = i + 2
    return y.transpose(order)


def _conv(n: Node, x: Value, w: Value, pads: Sequence[tuple[int, int]], groups: int) -> Value:
    ones = [1] * len(pads)
    if not pads:  # no window: a product of channels
        size, many = x.type.static_shape
        parts = x.reshape([size, groups, many // groups])
        filters = w.reshape([groups, -1, many // groups])
        found = DotGeneral.build(parts, filters, [2], [2], [1], [0])
        return found.transpose([1, 0, 2]).reshape([size, w.type.static_shape[0]])
    return x.conv(
        w, None, stride=n.ints("window_strides", ones), padding=list(pads),
        dilation=n.ints("rhs_dilation", ones), groups=groups,
    )  # fmt: skip


@row("cholesky")
def _cholesky(n: Node) -> Result:
    lower = n.flag("lower")
    found = linalg.cholesky(n.x if lower else n.x.mT, symmetrize=False)
    return found if lower else found.mT


@row("triangular_solve")
def _triangular_solve(n: Node) -> Result:
    a, b = n.xs
    way = n.word("transpose_a")
    if way == "ADJOINT" and a.dtype.is_complex:
        a = a.conj()
    transposed = way != "NO_TRANSPOSE"
    lower, unit = n.flag("lower"), n.flag("unit_diagonal")
    if n.flag("left_side"):
        return TriangularSolve.build(a, b, lower, transposed, unit)
    return TriangularSolve.build(a, b.mT, lower, not transposed, unit).mT


@row("fft")
def _fft(n: Node) -> Result:
    kind, lengths = n.word("fft_type"), n.ints("fft_length")
    axes = list(range(n.x.rank - len(lengths), n.x.rank))
    name = {"FFT": "fftn", "IFFT": "ifftn", "RFFT": "rfftn", "IRFFT": "irfftn"}[kind]
    found: Any = builder(name)
    return found(n.x, lengths, axes)

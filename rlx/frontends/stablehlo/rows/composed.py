"""Ops that are written out: batch norms, Einstein sums, the numbers of the one device."""

from __future__ import annotations

import numpy as np

from rlx._mlir import ir
from rlx.frontends.common.values import constant
from rlx.frontends.stablehlo.node import Node, Result, row
from rlx.ir.value import Value
from rlx.ops.matmul.einsum import einsum
from rlx.types import Dim, u32

__all__: list[str] = []


class _Features:
    """A tensor whose features lie along an axis, and what is computed of all other axes."""

    def __init__(self, n: Node) -> None:
        self.x, self.axis = n.x, n.int("feature_index")
        self.epsilon = float(ir.FloatAttr(n.op.attributes["epsilon"]).value)
        self.others = [i for i in range(self.x.rank) if i != self.axis]

    def along(self, v: Value) -> Value:
        """A number for each feature, beside the tensor."""
        shape: list[Dim] = [1] * self.x.rank
        shape[self.axis] = self.x.shape[self.axis]
        return v.reshape(shape)

    def normalized(self, mean: Value, variance: Value) -> Value:
        """The tensor with its features' means taken away, over their deviations."""
        spread = (variance + self.epsilon).sqrt()
        return (self.x - self.along(mean)) / self.along(spread)


@row("batch_norm_inference")
def _inference(n: Node) -> Result:
    f = _Features(n)
    scale, offset, mean, variance = n.xs[1:]
    return f.normalized(mean, variance) * f.along(scale) + f.along(offset)


@row("batch_norm_training")
def _training(n: Node) -> Result:
    f = _Features(n)
    scale, offset = n.xs[1:]
    mean = n.x.mean(f.others)
    apart = n.x - f.along(mean)
    variance = (apart * apart).mean(f.others)
    out = f.normalized(mean, variance) * f.along(scale) + f.along(offset)
    return [out, mean, variance]


@row("batch_norm_grad")
def _grad(n: Node) -> Result:
    f = _Features(n)
    scale, mean, variance, g = n.xs[1:]
    y = f.normalized(mean, variance)
    of_offset, of_scale = g.sum(f.others), (g * y).sum(f.others)
    means = f.along(g.mean(f.others)), f.along((g * y).mean(f.others))
    factor = f.along(scale / (variance + f.epsilon).sqrt())
    return [factor * (g - means[0] - y * means[1]), of_scale, of_offset]


@row("einsum", "unary_einsum")
def _einsum(n: Node) -> Result:
    return einsum(n.text("einsum_config"), *n.xs)


@row("torch_index_select")
def _index_select(n: Node) -> Result:
    x, index, axis, batches = n.xs[0], n.xs[1], n.int("dim"), n.int("batch_dims")
    if batches:
        raise n.refuse(f"along {batches} batch axes, expected none")
    return x.gather(index, axis=axis)


@row("replica_id", "partition_id")
def _number(n: Node) -> Result:
    """Of the one device that there is."""
    module = n.importer.module.operation.attributes
    word = f"mhlo.num_{n.op.name.split('.')[1].removesuffix('_id')}s"
    count = int(ir.IntegerAttr(module[word]).value) if word in module else 1
    if count != 1:
        raise n.refuse(f"of {count} devices; rlx.shard spreads a graph over devices")
    return constant(np.zeros((), u32.numpy))

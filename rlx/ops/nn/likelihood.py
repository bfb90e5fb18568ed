"""Logarithms of sums of exponentials: logsumexp, log_softmax, and the cross entropy of logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, FaultError, ShapeError
from rlx.ir.factors import Factors
from rlx.ir.lift import lift
from rlx.ir.op import Array, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.movement import listed
from rlx.ops.nn.heads import check_floats
from rlx.ops.nn.normalization import Exponentials
from rlx.ops.pointwise.cast import in_double, widened
from rlx.ops.reduction.reduce import AXES, Folding
from rlx.types import FLOATS, TensorType, i32, i64, u32, u64

__all__ = ["LogSoftmax", "LogSumExp", "SoftmaxCrossEntropy"]


class LogSumExp(Folding, name="mir.logsumexp"):
    """``log(sum(exp(x)))`` along axes, shifted by the maximum so that nothing overflows.

    Of -inf alone it is -inf; inf gives inf.
    """

    dtypes = FLOATS
    flops_per_element = 4
    samples = (
        sample("2x3x4xT", axes=(1,)),
        sample("2x3xT", axes=(0, 1), keepdims=True),
        sample("2x3xT", axes=()),
        sample("0x3xT", axes=(1,)),
    )
    bads = (
        *AXES,
        bad("2x0xf32", match="empty axis 1", error=ShapeError, axes=(1,)),
        bad("2xi32", match="found i32. Cast the operand", error=DTypeError, axes=(0,)),
    )

    def infer(self) -> TensorType:
        out = super().infer()
        for a in self.axes:
            if self.x.shape[a] == 0:
                raise ShapeError(f"logsumexp: the empty axis {a} of {self.x.type} has no maximum")
        return out

    def reference(self, x: Array) -> Array:
        def logsumexp(v: Array) -> Array:
            top = np.max(v, self.axes, keepdims=True)
            top = np.where(np.isfinite(top), top, 0.0)
            total = np.log(np.sum(np.exp(v - top), self.axes, keepdims=True)) + top
            return total.reshape(self.out.type.static_shape)

        return in_double(logsumexp, x)

    def expand(self) -> Value:
        x = widened(self.x)
        top = x.reduce_max(axes=self.axes, keepdims=True)
        top = top.isfinite().where(top, 0.0)
        total = (x - top).exp().reduce_sum(axes=self.axes, keepdims=True).log() + top
        return total.reshape(self.out.shape).cast(to=self.x.dtype)

    def _shares(self) -> Value:
        """The softmax; 0 in a fold that holds -inf alone."""
        out = self.spread(widened(self.out))
        return out.eq(-np.inf).where(0.0, (widened(self.x) - out).exp())

    def factors(self) -> Factors:
        kept = [None if i in self.axes else i for i in range(self.x.rank)]
        out = kept if self.keepdims else [i for i in kept if i is not None]
        return Factors(self, [range(self.x.rank)], [out], whole=self.axes)

    def vjp(self, g: Value) -> tuple[Value]:
        return ((self.spread(widened(g)) * self._shares()).cast(to=g.dtype),)

    def jvp(self, t: Value) -> Value:
        product = widened(t) * self._shares()
        return product.reduce_sum(axes=self.axes, keepdims=self.keepdims).cast(to=t.dtype)


class LogSoftmax(Exponentials, name="mir.log_softmax"):
    """``log(softmax(x))`` along an axis, precise where the softmax is tiny."""

    samples = Exponentials.samples[2:]

    def reference(self, x: Array) -> Array:
        def log_softmax(v: Array) -> Array:
            if v.size == 0:
                return v
            v = v - np.max(v, self.axis, keepdims=True)
            return v - np.log(np.sum(np.exp(v), self.axis, keepdims=True))

        return in_double(log_softmax, x)

    def of_shifted(self, x: Value) -> Value:
        return x - self._sum(x.exp()).log()

    def vjp(self, g: Value) -> tuple[Value]:
        wide = widened(g)
        return ((wide - widened(self.out).exp() * self._sum(wide)).cast(to=g.dtype),)

    def jvp(self, t: Value) -> Value:
        wide = widened(t)
        return (wide - self._sum(widened(self.out).exp() * wide)).cast(to=t.dtype)


class SoftmaxCrossEntropy(Op, name="mir.softmax_cross_entropy"):
    """The negative logarithm of the softmax of logits ``[..., C]`` at the class of each label.

    A label that is ``ignore_index`` has a loss of 0 and no gradient. Any other outside 0 .. C - 1
    is a fault of the run.
    """

    logits: Value = operand("[..., C], floats")
    labels: Value = operand("[...], integers: the class of each row")
    ignore_index: int = attr(-100, "the label that does not count")

    dtypes = FLOATS
    flops_per_element = 5
    samples = (
        sample("2x3xT", "2xi64", data={1: "index:3"}),
        sample("2x2x4xT", "2x2xi32", ignore_index=0, data={1: "index:4"}),
        sample("3xT", "u8", data={1: "index:3"}),
        sample("2x3xT", "2xi32", ignore_index=2**31 + 1, data={1: "index:3"}),
        sample("0x3xT", "0xi64", data={1: "index:3"}),
    )
    bads = (
        bad("2x3xf32", "2xf32", match="cast them to i64", error=DTypeError),
        bad("2x3xi32", "2xi64", match="takes f16", error=DTypeError),
        bad("2x3xf32", "3xi64", match=r"labels must be \[2\]", error=ShapeError),
        bad("f32", "i64", match="rank 1 or more", error=ShapeError),
        bad("2x0xf32", "2xi64", match="no class", error=ShapeError),
    )

    @classmethod
    def build(cls, logits: Value, labels: Any, ignore_index: int = -100) -> Value:
        """The labels may be an array or a list."""
        return cls(logits, lift(labels, logits), ignore_index).out

    def infer(self) -> TensorType:
        logits, labels = self.logits, self.labels
        check_floats(self.short, (logits,))
        if not labels.dtype.is_int:
            raise DTypeError(
                f"softmax_cross_entropy takes integer labels, found {labels.dtype}; cast them to"
                " i64 first"
            )
        if not logits.rank:
            raise ShapeError(
                f"softmax_cross_entropy: logits have rank 1 or more, found {logits.type}"
            )
        if labels.shape != logits.shape[:-1]:
            raise ShapeError(
                f"softmax_cross_entropy: labels must be {listed(logits.shape[:-1])}, one for every"
                f" row of {logits.type}; found {listed(labels.shape)}"
            )
        if logits.shape[-1] == 0 and labels.type.size != 0:
            raise ShapeError(f"softmax_cross_entropy: {logits.type} has no class for a label")
        return logits.type.with_shape(labels.shape)

    def reference(self, logits: Array, labels: Array) -> Array:
        counted = labels != self.ignore_index
        classes = np.where(counted, labels, 0).astype(np.int64)
        if ((classes < 0) | (classes >= logits.shape[-1])).any():
            wrong = classes[(classes < 0) | (classes >= logits.shape[-1])].flat[0]
            raise FaultError(
                f"softmax_cross_entropy: a label is out of range for {logits.shape[-1]} classes:"
                f" found {wrong}",
                self.location,
            )

        def loss(v: Array) -> Array:
            if not v.size:
                return np.zeros(labels.shape)
            top = np.max(v, -1, keepdims=True)
            top = np.where(np.isinf(top), 0.0, top)  # an infinite logit makes an infinite sum
            total = np.log(np.sum(np.exp(v - top), -1)) + top[..., 0]
            own = np.take_along_axis(v, classes[..., None], -1)[..., 0]
            return np.where(counted, total - own, 0.0)

        return in_double(loss, logits)

    def expand(self) -> Value:
        logits, last = widened(self.logits), self.logits.rank - 1
        counted, classes = self._counted()
        own = Gather(logits, classes, last, "fault", last).out
        loss = logits.logsumexp(axes=last) - own
        return counted.where(loss, 0.0).cast(to=self.logits.dtype)

    def _counted(self) -> tuple[Value, Value]:
        """Which labels count, and the labels with 0 for the others, without sign: a negative one
        is then out of range, and does not count from the end. They have 32 bits where the labels
        are no wider: some devices have no wider integers."""
        given = self.labels.dtype
        signed, unsigned = (i64, u64) if given.bits == 64 else (i32, u32)
        labels = self.labels.cast(to=signed if given.kind == "int" else unsigned)
        least, most = np.iinfo(labels.dtype.numpy).min, np.iinfo(labels.dtype.numpy).max
        if not least <= self.ignore_index <= most:
            return labels.eq(labels), labels.cast(to=unsigned)  # none can be the one left out
        counted = labels.ne(self.ignore_index)
        return counted, counted.where(labels, 0).cast(to=unsigned)

    def _slope(self, rows: Value) -> Value:
        """The softmax less 1 at each label, times ``rows``, which has one number for each."""
        logits = widened(self.logits)
        counted, classes = self._counted()
        shape, last = logits.shape, logits.rank - 1
        here = Iota(shape, last, classes.dtype).out.eq(classes.unsqueeze(-1))
        # From the sum that the loss has made already: nothing is folded again.
        soft = (logits - logits.logsumexp(axes=last).unsqueeze(-1)).exp()
        factor = counted.where(widened(rows), 0.0).unsqueeze(-1)
        return here.where(soft - 1.0, soft) * factor

    def factors(self) -> Factors:
        rows = range(self.labels.rank)
        return Factors(self, [[*rows, "class"], rows], [rows], whole=["class"])

    def vjp(self, g: Value) -> tuple[Value, None]:
        return self._slope(g).cast(to=self.logits.dtype), None

    def jvp(self, tx: Value | None, tl: Value | None) -> Value | None:
        if tx is None:
            return None
        ones = lift(1.0, self.out).expand(self.out.shape)
        return (self._slope(ones) * widened(tx)).sum(axes=-1).cast(to=tx.dtype)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        count = next(v.shape[0] for v, has in zip(operands, batched, strict=True) if has)
        ready = [
            v if has else v.expand((count, *v.shape))
            for v, has in zip(operands, batched, strict=True)
        ]
        return self.with_operands(ready).out

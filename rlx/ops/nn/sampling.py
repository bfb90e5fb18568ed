"""Random draws of models: dropout, and the next token of a language model."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx.base.dims import is_known
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.op import Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.indexing.index_modes import same_batch
from rlx.ops.movement.movement import listed, zeros
from rlx.ops.nn.normalization import Softmax
from rlx.ops.pointwise.cast import widened
from rlx.ops.random.distributions import gumbel, uniform
from rlx.ops.random.random import check_key
from rlx.ops.reduction.argreduce import ArgMax
from rlx.ops.reduction.cumulative import Cumsum
from rlx.ops.reduction.reduce import ReduceMin
from rlx.ops.reduction.sort import Sort
from rlx.ops.reduction.topk import TopK
from rlx.types import FLOATS, Shape, TensorType, i64

__all__ = ["COLDEST", "Dropout", "Sample"]

COLDEST = 1e-30
"""Temperatures below it are 0: logits divided by them would overflow, and then be equal."""


class Drawing(Op):
    """The shared part: one draw under a key, or one for each key of [*lead, 2], whose leading axes
    are those of the tensor."""

    dtypes = FLOATS

    def check(self, x: Value, key: Value, rank: int) -> Shape:
        """What of x's shape belongs to one key, of ``rank`` axes or more."""
        if x.dtype not in FLOATS:
            raise DTypeError(f"{self.short} takes floats; found {x.dtype}. Cast the operand first")
        check_key(key, self.short)
        lead = key.rank - 1
        if x.rank < rank:
            raise ShapeError(f"{self.short} takes a tensor of rank {rank} or more, found {x.type}")
        if lead > x.rank - rank or key.shape[:-1] != x.shape[:lead]:
            raise ShapeError(
                f"{self.short}: one key, or keys for the first axes of {listed(x.shape)}, found a"
                f" key of shape {listed(key.shape)}"
            )
        return x.shape[lead:]


class Dropout(Drawing, name="mir.dropout"):
    """Every element with probability ``1 - rate``, divided by that; 0 otherwise.

    N. Srivastava et al., 2014. An element stays where a uniform f32 under the key is below
    ``1 - rate``. The gradient draws the same mask again instead of keeping it.
    """

    x: Value = operand("any float tensor")
    key: Value = operand("the key, u32[2], or keys for the first axes, u32[..., 2]")
    rate: float = attr(doc="the probability of 0, from 0 to 1")

    samples = (
        sample("3x5xT", "2xu32", rate=0.25),
        sample("2x3x4xT", "2x2xu32", rate=0.5),
        sample("4xT", "2xu32", rate=0.0),
        sample("4xT", "2xu32", rate=1.0),
        sample("0x2xT", "2xu32", rate=0.5),
    )
    bads = (
        bad("2xi32", "2xu32", match="takes floats; found i32", error=DTypeError, rate=0.5),
        bad("2xf32", "2xf32", match="key is u32", error=DTypeError, rate=0.5),
        bad("2x3xf32", "3x2xu32", match="keys for the first axes", error=ShapeError, rate=0.5),
        bad("2xf32", "2xu32", match="from 0 to 1, found 1.5", error=GraphError, rate=1.5),
        bad("2xf32", "2xu32", match="from 0 to 1, found nan", error=GraphError, rate=math.nan),
    )

    def infer(self) -> TensorType:
        self.check(self.x, self.key, 0)
        if not 0.0 <= self.rate <= 1.0:
            raise GraphError(f"dropout: rate is from 0 to 1, found {self.rate}")
        return self.x.type

    def expand(self) -> Value:
        keep = 1.0 - self.rate
        if keep == 1.0:
            return self.x
        if keep == 0.0:
            return zeros(self.x.shape, self.x.dtype)
        kept = uniform(self.key, self.check(self.x, self.key, 0)).lt(keep)
        return kept.where(self.x / keep, 0.0)

    def vjp(self, g: Value) -> tuple[Value, None]:
        return self.with_operands([g, self.key]).out, None

    def jvp(self, t: Value | None, _: Value | None = None) -> Value | None:
        return None if t is None else self.with_operands([t, self.key]).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(same_batch(operands, batched)).out


class Sample(Drawing, name="mir.sample"):
    """An index for every row of logits, drawn with the probabilities of a filtered softmax, as i64.

    In this order: the logits are divided by ``temperature``; of them the ``top_k`` greatest stay
    (0: all); of the softmax over these the greatest stay whose sum first reaches ``top_p`` (1:
    all). What is as great as the last that stays, stays too. Temperature 0 takes the greatest logit
    whatever the key, the first among equals.
    """

    logits: Value = operand("[..., V]")
    key: Value = operand("the key, u32[2], or keys for the first axes, u32[..., 2]")
    top_k: int = attr(0, "how many of the greatest logits may be drawn; 0 is all")
    top_p: float = attr(1.0, "the probability that the greatest share which may be drawn")
    temperature: float = attr(1.0, "the logits are divided by it; 0 is the greatest")

    differentiable = False
    samples = (
        sample("3x7xT", "2xu32"),
        sample("2x2x5xT", "2x2xu32", top_k=2, temperature=0.5),
        sample("3x9xT", "2xu32", top_p=0.7),
        sample("3x9xT", "2xu32", top_k=4, top_p=0.5, temperature=2.0),
        sample("2x5xT", "2xu32", temperature=0.0),
        sample("0x5xT", "2xu32"),
    )
    bads = (
        bad("2x3xi32", "2xu32", match="takes floats; found i32", error=DTypeError),
        bad("2x3xf32", "2xi32", match="key is u32", error=DTypeError),
        bad("f32", "2xu32", match="rank 1 or more", error=ShapeError),
        bad("2x3xf32", "2x3x2xu32", match="keys for the first axes", error=ShapeError),
        bad("2x0xf32", "2xu32", match="no logits to choose from", error=ShapeError),
        bad("3xf32", "2xu32", match="top_k=-1", error=GraphError, top_k=-1),
        bad("3xf32", "2xu32", match="top_p=0.0", error=GraphError, top_p=0.0),
        bad("3xf32", "2xu32", match="temperature=-1", error=GraphError, temperature=-1.0),
    )

    def infer(self) -> TensorType:
        self.check(self.logits, self.key, 1)
        if self.logits.shape[-1] == 0:
            raise ShapeError(f"sample: {self.logits.type} has no logits to choose from")
        wrong = [
            f"{name}={value} is not {what}"
            for name, value, fits, what in (
                ("top_k", self.top_k, self.top_k >= 0, "0 or more"),
                ("top_p", self.top_p, 0.0 < self.top_p <= 1.0, "above 0 and at most 1"),
                ("temperature", self.temperature, 0.0 <= self.temperature < math.inf,
                 "a number of 0 or more"),
            )
            if not fits
        ]  # fmt: skip
        if wrong:
            raise GraphError(f"sample: {wrong[0]}")
        return TensorType(self.logits.shape[:-1], i64)

    def expand(self) -> Value:
        x = widened(self.logits)
        if self.temperature < COLDEST:
            return ArgMax.build(x, -1)
        if self.temperature != 1.0:
            x = x / self.temperature
        x = self._nucleus(self._greatest(x))
        noise = gumbel(self.key, self.check(self.logits, self.key, 1), x.dtype)
        return ArgMax.build(x + noise, -1)

    def _greatest(self, x: Value) -> Value:
        count = x.shape[-1]
        if self.top_k == 0 or (is_known(count) and self.top_k >= count):
            return x
        least = TopK.build(x, self.top_k)[0][..., -1:]
        return x.lt(least).where(-math.inf, x)

    def _nucleus(self, x: Value) -> Value:
        if self.top_p == 1.0:
            return x
        p = Softmax.build(x, axis=-1)
        ordered = Sort.build(p, -1, descending=True)
        before = Cumsum.build(ordered, -1, exclusive=True)
        least = ReduceMin.build(before.lt(self.top_p).where(ordered, 2.0), axes=-1, keepdims=True)
        return p.lt(least).where(-math.inf, x)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(same_batch(operands, batched)).out

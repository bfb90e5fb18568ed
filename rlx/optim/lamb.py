"""LAMB: Adam with steps in proportion to each param."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.ir.builders import public
from rlx.ir.value import Value
from rlx.optim.adam import Adam, bias
from rlx.optim.base import At, Slots

__all__ = ["Lamb"]


@public
@dataclass(frozen=True, kw_only=True)
class Lamb(Adam):
    """You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020.

        r = m / (1 - beta1**t) / (sqrt(v / (1 - beta2**t)) + eps) + weight_decay * p
        p = p - lr * |p| / |r| * r          (the ratio is 1 where one of the norms is 0)

    m and v are Adam's; the norms are of the whole param.
    """

    eps: float = 1e-6
    weight_decay: float = 1e-2

    def shared(self, t: Value, lr: Value) -> Slots:
        return {"first": bias(self.beta1, t), "root": bias(self.beta2, t).sqrt()}

    def apply(self, name: str, p: Value, g: Value, slots: Slots, at: At) -> tuple[Value, Slots]:
        m = slots["mean"] + (g - slots["mean"]) * (1 - self.beta1)
        v = slots["square"] * self.beta2 + g * g * (1 - self.beta2)
        r = m / at.shared["first"] / (v.sqrt() / at.shared["root"] + self.eps)
        if self.weight_decay:
            r = r + p * self.weight_decay
        size, length = _norm(p), _norm(r)
        there = (size > 0.0) & (length > 0.0)
        ratio = there.where(size / there.where(length, 1.0), 1.0)
        return p - r * (at.lr * ratio), {"mean": m, "square": v}


def _norm(x: Value) -> Value:
    return (x * x).sum().sqrt()

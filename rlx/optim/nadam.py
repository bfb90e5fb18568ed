"""Adam with Nesterov's momentum, and Adam whose first rates are rectified."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlx.ir.builders import public
from rlx.ir.value import Value
from rlx.optim.adam import Adam, AdamW, bias
from rlx.optim.base import At, Slots, check_float
from rlx.types import TensorType

__all__ = ["NAdamW", "RAdam"]


@public
@dataclass(frozen=True, kw_only=True)
class NAdamW(AdamW):
    """Dozat, "Incorporating Nesterov Momentum into Adam", 2016, with the weight decay of AdamW; as
    PyTorch's NAdam with ``decoupled_weight_decay``.

    The momentum of update t is ``beta1 * (1 - 0.5 * 0.96 ** (t * momentum_decay))``.
    """

    momentum_decay: float = 4e-3

    def check(self) -> None:
        super().check()
        check_float("momentum_decay", self.momentum_decay)

    def slots(self, name: str, param: TensorType) -> dict[str, TensorType]:
        # The product of the momenta, as its logarithm: like all state it is 0 at first.
        return {**super().slots(name, param), "product": TensorType((), param.dtype)}

    def shared(self, t: Value, lr: Value) -> Slots:
        return {
            "root": bias(self.beta2, t).sqrt(), "keep": 1.0 - lr * self.weight_decay,
            "now": self._momentum(t), "next": self._momentum(t + 1.0),
        }  # fmt: skip

    def _momentum(self, t: Value) -> Value:
        fall = (t * (self.momentum_decay * math.log(0.96))).exp() * 0.5
        return (1.0 - fall) * self.beta1

    def apply(self, name: str, p: Value, g: Value, slots: Slots, at: At) -> tuple[Value, Slots]:
        p, g = self.decay(p, g, at)
        now, following = at.shared["now"], at.shared["next"]
        product = slots["product"] + now.log()
        m = slots["mean"] + (g - slots["mean"]) * (1 - self.beta1)
        v = slots["square"] * self.beta2 + g * g * (1 - self.beta2)
        scale = v.sqrt() / at.shared["root"] + self.eps
        of_gradient = at.lr * (1.0 - now) / (1.0 - product.exp())
        of_mean = at.lr * following / (1.0 - product.exp() * following)
        step = g / scale * of_gradient + m / scale * of_mean
        return p - step, {"mean": m, "square": v, "product": product}


@public
@dataclass(frozen=True, kw_only=True)
class RAdam(Adam):
    """Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", 2020, as
    PyTorch's RAdam.

    While too few gradients are known for their variance to be bounded, the step is that of momentum
    alone; then it is Adam's, times a factor that goes to 1. With ``decoupled`` the weight decay is
    AdamW's, else a part of the gradient.
    """

    decoupled: bool = False

    def shared(self, t: Value, lr: Value) -> Slots:
        b2 = self.beta2
        first, second = bias(self.beta1, t), bias(b2, t)
        longest = 2 / (1 - b2) - 1
        length = longest - t * (1.0 - second) * 2.0 / second
        known = length > 5.0
        some = known.where(length, 6.0)  # of what has no root nothing is used
        over = (some - 4.0) * (some - 2.0) * longest / (some * ((longest - 4) * (longest - 2)))
        return {
            "step": lr / first, "known": known, "factor": over.sqrt() * second.sqrt(),
            "keep": 1.0 - lr * self.weight_decay,
        }  # fmt: skip

    def apply(self, name: str, p: Value, g: Value, slots: Slots, at: At) -> tuple[Value, Slots]:
        if self.decoupled:
            p = p * at.shared["keep"] if self.weight_decay else p
        else:
            p, g = self.decay(p, g, at)
        m = slots["mean"] + (g - slots["mean"]) * (1 - self.beta1)
        v = slots["square"] * self.beta2 + g * g * (1 - self.beta2)
        scaled = m * at.shared["factor"] / (v.sqrt() + self.eps)
        step = at.shared["known"].where(scaled, m)
        return p - step * at.shared["step"], {"mean": m, "square": v}

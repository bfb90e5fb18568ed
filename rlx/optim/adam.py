"""Adam, and AdamW with decoupled weight decay."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlx.ir.builders import public
from rlx.ir.value import Value
from rlx.optim.base import At, Optimizer, Slots, check_float, check_part
from rlx.types import TensorType

__all__ = ["Adam", "AdamW", "bias"]


@public
@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, as PyTorch's Adam.

    g = grad + weight_decay * p
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    p = p - lr * (m / (1 - beta1**t)) / (sqrt(v / (1 - beta2**t)) + eps)
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def check(self) -> None:
        super().check()
        check_part("beta1", self.beta1)
        check_part("beta2", self.beta2)
        check_float("eps", self.eps)
        check_float("weight_decay", self.weight_decay)

    def slots(self, name: str, param: TensorType) -> dict[str, TensorType]:
        return {"mean": param, "square": param}

    def shared(self, t: Value, lr: Value) -> Slots:
        first, second = bias(self.beta1, t), bias(self.beta2, t)
        return {"step": lr / first, "root": second.sqrt(), "keep": 1.0 - lr * self.weight_decay}

    def apply(self, name: str, p: Value, g: Value, slots: Slots, at: At) -> tuple[Value, Slots]:
        p, g = self.decay(p, g, at)
        m = slots["mean"] + (g - slots["mean"]) * (1 - self.beta1)
        v = slots["square"] * self.beta2 + g * g * (1 - self.beta2)
        scale = v.sqrt() / at.shared["root"] + self.eps
        return p - m / scale * at.shared["step"], {"mean": m, "square": v}

    def decay(self, p: Value, g: Value, at: At) -> tuple[Value, Value]:
        """The param and the gradient with weight decay in one of them."""
        return p, g + p * self.weight_decay if self.weight_decay else g


@public
@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, as PyTorch's AdamW:
    Adam, but a param is multiplied by ``1 - lr * weight_decay`` first, and its gradient is not
    changed."""

    weight_decay: float = 1e-2

    def decay(self, p: Value, g: Value, at: At) -> tuple[Value, Value]:
        return p * at.shared["keep"] if self.weight_decay else p, g


def bias(beta: float, t: Value) -> Value:
    """1 - beta**t, exact to an ulp or two where beta is near 1: there the power would cancel."""
    return -(t * math.log(beta)).expm1() if beta else t * 0.0 + 1.0

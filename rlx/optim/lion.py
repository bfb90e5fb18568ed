"""Lion: the sign of an average of gradients."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.ir.builders import public
from rlx.ir.value import Value
from rlx.optim.base import At, Optimizer, Slots, check_float, check_part
from rlx.optim.schedules import Schedule
from rlx.types import TensorType

__all__ = ["Lion"]


@public
@dataclass(frozen=True, kw_only=True)
class Lion(Optimizer):
    """Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2.

        u = sign(beta1 * m + (1 - beta1) * grad)
        p = p - lr * (u + weight_decay * p)
        m = beta2 * m + (1 - beta2) * grad

    Every element moves by ``lr``: take a rate 3 to 10 times smaller than for AdamW, and a weight
    decay as many times larger.
    """

    lr: float | Schedule = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0

    def check(self) -> None:
        super().check()
        check_part("beta1", self.beta1)
        check_part("beta2", self.beta2)
        check_float("weight_decay", self.weight_decay)

    def slots(self, name: str, param: TensorType) -> dict[str, TensorType]:
        return {"momentum": param}

    def apply(self, name: str, p: Value, g: Value, slots: Slots, at: At) -> tuple[Value, Slots]:
        m = slots["momentum"]
        step = (m * self.beta1 + g * (1 - self.beta1)).sign()
        if self.weight_decay:
            step = step + p * self.weight_decay
        return p - step * at.lr, {"momentum": m * self.beta2 + g * (1 - self.beta2)}

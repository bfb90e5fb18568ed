"""MARS: Adam on gradients whose variance is reduced by the last one."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.ir.builders import public
from rlx.ir.value import Value
from rlx.optim.adam import AdamW
from rlx.optim.base import At, Slots, check_float
from rlx.types import TensorType

__all__ = ["Mars"]


@public
@dataclass(frozen=True, kw_only=True)
class Mars(AdamW):
    """Yuan et al., "MARS: Unleashing the Power of Variance Reduction for Training Large Models",
    2024: its approximate form with AdamW, which takes the last gradient as it was.

        c = grad + gamma * beta1 / (1 - beta1) * (grad - last)     (at first grad itself)
        c = c / max(1, |c|)

    and then AdamW with c in the place of the gradient.
    """

    beta1: float = 0.95
    beta2: float = 0.99
    gamma: float = 0.025

    def check(self) -> None:
        super().check()
        check_float("gamma", self.gamma)

    def slots(self, name: str, param: TensorType) -> dict[str, TensorType]:
        return {**super().slots(name, param), "last": param}

    def apply(self, name: str, p: Value, g: Value, slots: Slots, at: At) -> tuple[Value, Slots]:
        last = (at.t == 1.0).where(g, slots["last"])
        c = g + (g - last) * (self.gamma * self.beta1 / (1 - self.beta1))
        c = c / (c * c).sum().sqrt().maximum(1.0)
        p, after = super().apply(name, p, c, slots, at)
        return p, {**after, "last": g}

"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.errors import GraphError
from rlx.ir.builders import public
from rlx.ir.value import Value
from rlx.optim.base import At, Optimizer, Slots, check_float, check_part
from rlx.types import TensorType

__all__ = ["SGD"]


@public
@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Gradient descent, with momentum if it is above 0, as PyTorch's SGD.

        g = grad + weight_decay * p
        m = momentum * m + g          (the slot; the first update makes it g)
        p = p - lr * m                (with nesterov: lr * (g + momentum * m))

    Weight decay is part of the gradient here; ``AdamW`` and ``Lion`` keep it apart.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def check(self) -> None:
        super().check()
        check_part("momentum", self.momentum)
        check_float("weight_decay", self.weight_decay)
        if self.nesterov and not self.momentum:
            raise GraphError("nesterov needs a momentum above 0, found 0")

    def slots(self, name: str, param: TensorType) -> dict[str, TensorType]:
        return {"momentum": param} if self.momentum else {}

    def apply(self, name: str, p: Value, g: Value, slots: Slots, at: At) -> tuple[Value, Slots]:
        if self.weight_decay:
            g = g + p * self.weight_decay
        if not self.momentum:
            return p - g * at.lr, {}
        m = slots["momentum"] * self.momentum + g
        step = g + m * self.momentum if self.nesterov else m
        return p - step * at.lr, {"momentum": m}

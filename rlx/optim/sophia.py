"""Sophia: momentum over an estimate of the Hessian's diagonal, clipped."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.errors import GraphError
from rlx.ir.builders import public
from rlx.ir.value import Value
from rlx.optim.base import At, Optimizer, Slots, check_float, check_part
from rlx.optim.schedules import Schedule
from rlx.types import TensorType

__all__ = ["Sophia"]


@public
@dataclass(frozen=True, kw_only=True)
class Sophia(Optimizer):
    """Liu et al., "Sophia: A Scalable Stochastic Second-order Optimizer for Language Model
    Pre-training", 2023.

        m = beta1 * m + (1 - beta1) * grad
        h = beta2 * h + (1 - beta2) * batch * grad * grad      (at updates 1, 1 + every, ...)
        p = p - lr * weight_decay * p - lr * clip(m / max(gamma * h, eps), -1, 1)

    The estimate of the Hessian is that of Gauss, Newton and Bartlett on the labels of the data,
    where the paper draws labels from the model: it takes no second backward pass. ``batch`` is the
    number of examples whose mean the loss is.
    """

    lr: float | Schedule = 1e-4
    beta1: float = 0.96
    beta2: float = 0.99
    gamma: float = 0.05
    eps: float = 1e-12
    weight_decay: float = 0.1
    batch: float = 1.0
    every: int = 10

    def check(self) -> None:
        super().check()
        check_part("beta1", self.beta1)
        check_part("beta2", self.beta2)
        for name in ("gamma", "eps", "batch"):
            check_float(name, getattr(self, name), above=0)
        check_float("weight_decay", self.weight_decay)
        if isinstance(self.every, bool) or not isinstance(self.every, int) or self.every < 1:
            raise GraphError(f"every is a number of updates from 1 on, found {self.every!r}")

    def slots(self, name: str, param: TensorType) -> dict[str, TensorType]:
        return {"mean": param, "hessian": param}

    def shared(self, t: Value, lr: Value) -> Slots:
        done = t - 1.0
        return {"new": done == (done / float(self.every)).floor() * float(self.every)}

    def apply(self, name: str, p: Value, g: Value, slots: Slots, at: At) -> tuple[Value, Slots]:
        m = slots["mean"] * self.beta1 + g * (1 - self.beta1)
        h = slots["hessian"]
        estimate = h * self.beta2 + g * g * ((1 - self.beta2) * self.batch)
        h = at.shared["new"].where(estimate, h)
        step = (m / (h * self.gamma).maximum(self.eps)).maximum(-1.0).minimum(1.0)
        if self.weight_decay:
            step = step + p * self.weight_decay
        return p - step * at.lr, {"mean": m, "hessian": h}

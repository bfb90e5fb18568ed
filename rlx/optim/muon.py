"""Muon: momentum with its singular values made equal."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rlx.errors import GraphError
from rlx.ir.builders import public
from rlx.ir.value import Value
from rlx.optim.adam import AdamW
from rlx.optim.base import At, Optimizer, Slots, check_float, check_part
from rlx.optim.schedules import as_schedule
from rlx.types import TensorType

__all__ = ["Muon"]

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""The quintic of Jordan et al., with the steepest slope at 0: it takes singular values to about 1
in 5 steps."""


@public
@dataclass(frozen=True, kw_only=True)
class Muon(Optimizer):
    """Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024.

        m = momentum * m + (1 - momentum) * grad
        u = momentum * m + (1 - momentum) * grad      (without nesterov: m)
        p = p - lr * weight_decay * p - lr * scale * orthogonalised(u)

    It is for matrices: a param of two dims that is not named in ``exclude`` (embeddings and the
    last layer are best left out). All others follow ``others``. ``scale`` is "original" (the root
    of rows/columns, at least 1) or "match_rms_adamw" (0.2 times the root of the longer side, so
    that AdamW's rates can be kept). The orthogonalisation computes in the param's own element type,
    where PyTorch's rounds to bf16.
    """

    momentum: float = 0.95
    nesterov: bool = True
    weight_decay: float = 0.1
    steps: int = 5
    eps: float = 1e-7
    scale: str = "original"
    exclude: tuple[str, ...] = ()
    others: Optimizer = field(default_factory=AdamW)

    def check(self) -> None:
        super().check()
        check_part("momentum", self.momentum)
        check_float("weight_decay", self.weight_decay)
        check_float("eps", self.eps, above=0)
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise GraphError(f"steps is a number from 1 on, found {self.steps!r}")
        if self.scale not in ("original", "match_rms_adamw"):
            raise GraphError(f"scale is 'original' or 'match_rms_adamw', found {self.scale!r}")
        if not isinstance(self.others, Optimizer):
            raise GraphError(f"others is an optimiser, found {self.others!r}")

    def takes(self, name: str, param: TensorType) -> bool:
        """Whether a param is updated by Muon's own rule."""
        return param.rank == 2 and name not in self.exclude

    def slots(self, name: str, param: TensorType) -> dict[str, TensorType]:
        if self.takes(name, param):
            return {"momentum": param}
        return self.others.slots(name, param)

    def shared(self, t: Value, lr: Value) -> Slots:
        rate = as_schedule(self.others.lr)(t - 1.0)
        return {"lr": rate, **self.others.shared(t, rate)}

    def apply(self, name: str, p: Value, g: Value, slots: Slots, at: At) -> tuple[Value, Slots]:
        if not self.takes(name, p.type):
            inner = At(at.t, at.shared["lr"], at.shared)
            return self.others.apply(name, p, g, slots, inner)
        m = slots["momentum"] * self.momentum + g * (1 - self.momentum)
        u = m * self.momentum + g * (1 - self.momentum) if self.nesterov else m
        rows, columns = p.type.static_shape
        size = math.sqrt(max(1, rows / columns))
        if self.scale == "match_rms_adamw":
            size = 0.2 * math.sqrt(max(rows, columns))
        if self.weight_decay:
            p = p - p * (at.lr * self.weight_decay)
        return p - self._orthogonal(u) * (at.lr * size), {"momentum": m}

    def _orthogonal(self, u: Value) -> Value:
        """``u`` with its singular values at about 1, by a Newton-Schulz iteration."""
        a, b, c = NEWTON_SCHULZ
        rows, columns = u.type.static_shape
        tall = rows > columns
        wide = u.T if tall else u
        wide = wide / (wide * wide).sum().sqrt().maximum(self.eps)
        for _ in range(self.steps):
            gram = wide @ wide.T
            wide = wide * a + (gram * b + gram @ gram * c) @ wide
        return wide.T if tall else wide

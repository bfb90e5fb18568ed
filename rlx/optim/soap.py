"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlx.errors import GraphError
from rlx.ir.builders import public
from rlx.ir.value import Value
from rlx.ops.control.builders import cond
from rlx.optim.adam import AdamW, bias
from rlx.optim.base import At, Optimizer, Slots, check_float, check_part
from rlx.optim.schedules import Schedule, as_schedule
from rlx.types import TensorType

__all__ = ["Soap"]


@public
@dataclass(frozen=True, kw_only=True)
class Soap(Optimizer):
    """Vyas et al., "SOAP: Improving and Stabilizing Shampoo using Adam", 2024.

        g' = left.T @ grad @ right            (left, right: the eigenvectors of l and r)
        m = beta1 * m + (1 - beta1) * grad;   m' = left.T @ m @ right
        v = beta2 * v + (1 - beta2) * g' * g'
        p = p - lr * left @ (m' / (1 - beta1**t) / (sqrt(v / (1 - beta2**t)) + eps)) @ right.T
        l = shampoo_beta * l + (1 - shampoo_beta) * grad @ grad.T;   r likewise of grad.T @ grad

    It is for matrices: a param of two dims that is not named in ``exclude``; all others follow
    ``others``. The eigenvectors are found anew at every ``every``-th update, exactly, where the
    paper makes a step of orthogonal iteration. The first update finds them and leaves the param as
    it is, as the paper's program does; ``t`` counts from the second.
    """

    lr: float | Schedule = 3e-3
    beta1: float = 0.95
    beta2: float = 0.95
    shampoo_beta: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 1e-2
    every: int = 10
    exclude: tuple[str, ...] = ()
    others: Optimizer = field(default_factory=AdamW)

    def check(self) -> None:
        super().check()
        for name in ("beta1", "beta2", "shampoo_beta"):
            check_part(name, getattr(self, name))
        check_float("eps", self.eps)
        check_float("weight_decay", self.weight_decay)
        if isinstance(self.every, bool) or not isinstance(self.every, int) or self.every < 1:
            raise GraphError(f"every is a number of updates from 1 on, found {self.every!r}")
        if not isinstance(self.others, Optimizer):
            raise GraphError(f"others is an optimiser, found {self.others!r}")

    def takes(self, name: str, param: TensorType) -> bool:
        """Whether a param is updated by SOAP's own rule."""
        return param.rank == 2 and name not in self.exclude

    def slots(self, name: str, param: TensorType) -> dict[str, TensorType]:
        if not self.takes(name, param):
            return self.others.slots(name, param)
        rows, columns = (param.with_shape((n, n)) for n in param.shape)
        return {"mean": param, "square": param, "l": rows, "r": columns,
                "left": rows, "right": columns}  # fmt: skip

    def shared(self, t: Value, lr: Value) -> Slots:
        rate = as_schedule(self.others.lr)(t - 1.0)
        whole = (t / float(self.every)).floor() * float(self.every)
        later = (t - 1.0).maximum(1.0)
        own = {
            "soap later": t > 1.0, "soap anew": (t == 1.0) | (t == whole),
            "soap first": bias(self.beta1, later), "soap second": bias(self.beta2, later).sqrt(),
        }  # fmt: skip
        return {"lr": rate, **own, **self.others.shared(t, rate)}

    def apply(self, name: str, p: Value, g: Value, slots: Slots, at: At) -> tuple[Value, Slots]:
        if not self.takes(name, p.type):
            inner = At(at.t, at.shared["lr"], at.shared)
            return self.others.apply(name, p, g, slots, inner)
        left, right, later = slots["left"], slots["right"], at.shared["soap later"]
        turned = left.T @ g @ right
        m = slots["mean"] * self.beta1 + g * (1 - self.beta1)
        v = slots["square"] * self.beta2 + turned * turned * (1 - self.beta2)
        scale = v.sqrt() / at.shared["soap second"] + self.eps
        step = left @ (left.T @ m @ right / at.shared["soap first"] / scale) @ right.T
        moved = p - step * at.lr
        if self.weight_decay:
            moved = moved - moved * (at.lr * self.weight_decay)
        kept = self.shampoo_beta
        pair = (slots["l"] * kept + g @ g.T * (1 - kept), slots["r"] * kept + g.T @ g * (1 - kept))
        anew = at.shared["soap anew"]
        left, right = cond(anew, _eigenvectors, lambda *_: (left, right), *pair)
        after = {"l": pair[0], "r": pair[1], "left": left, "right": right}
        after["mean"] = later.where(m, slots["mean"])
        after["square"] = later.where(v, slots["square"])
        return later.where(moved, p), after


def _eigenvectors(left: Value, right: Value) -> tuple[Value, Value]:
    return left.eigh()[1], right.eigh()[1]

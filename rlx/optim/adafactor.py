"""Adafactor: second moments by rows and columns."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.errors import GraphError
from rlx.ir.builders import public
from rlx.ir.value import Value
from rlx.optim.base import At, Optimizer, Slots, check_float
from rlx.optim.schedules import Schedule
from rlx.types import TensorType

__all__ = ["Adafactor"]


@public
@dataclass(frozen=True, kw_only=True)
class Adafactor(Optimizer):
    """Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", 2018, as
    PyTorch's Adafactor.

    Of a param of two or more dims the means of squared gradients are kept along each of the last
    two, instead of a square for each element. The step is relative to the size of the param (its
    root mean square, at least ``eps2``), at most ``lr`` and at most 1/sqrt(t) of it, and clipped to
    a root mean square of ``clip``. ``eps1`` None is the element type's own epsilon.
    """

    lr: float | Schedule = 1e-2
    beta2_decay: float = -0.8
    eps1: float | None = None
    eps2: float = 1e-3
    clip: float = 1.0
    weight_decay: float = 0.0

    def check(self) -> None:
        super().check()
        if not -1 <= self.beta2_decay <= 0:
            raise GraphError(f"beta2_decay is a number from -1 to 0, found {self.beta2_decay!r}")
        if self.eps1 is not None:
            check_float("eps1", self.eps1, above=0)
        check_float("eps2", self.eps2)
        check_float("clip", self.clip, above=0)
        check_float("weight_decay", self.weight_decay)

    def slots(self, name: str, param: TensorType) -> dict[str, TensorType]:
        if param.rank < 2:
            return {"square": param}
        *outer, rows, columns = param.shape
        return {
            "row": TensorType((*outer, rows, 1), param.dtype),
            "column": TensorType((*outer, 1, columns), param.dtype),
        }

    def shared(self, t: Value, lr: Value) -> Slots:
        return {"new": t**self.beta2_decay, "rate": lr.minimum(t.rsqrt())}

    def apply(self, name: str, p: Value, g: Value, slots: Slots, at: At) -> tuple[Value, Slots]:
        import ml_dtypes

        eps1 = float(ml_dtypes.finfo(p.dtype.numpy).eps) if self.eps1 is None else self.eps1
        alpha = _root_mean_square(p).maximum(self.eps2) * at.shared["rate"]
        squares, new = g * g, at.shared["new"]
        if p.rank < 2:
            after = {"square": _lerp(slots["square"], squares, new)}
            estimate = after["square"]
        else:
            row = _lerp(slots["row"], squares.mean(axis=-1, keepdims=True), new)
            column = _lerp(slots["column"], squares.mean(axis=-2, keepdims=True), new)
            after = {"row": row, "column": column}
            estimate = row / row.mean(axis=-2, keepdims=True).maximum(eps1) * column
        step = g * estimate.maximum(eps1 * eps1).rsqrt()
        alpha = alpha / (_root_mean_square(step) / self.clip).maximum(1.0)
        if self.weight_decay:
            p = p * (1.0 - at.lr * self.weight_decay)
        return p - step * alpha, after


def _lerp(old: Value, new: Value, part: Value) -> Value:
    return old + (new - old) * part


def _root_mean_square(x: Value) -> Value:
    return (x * x).mean().sqrt()

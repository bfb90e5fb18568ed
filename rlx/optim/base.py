"""The base class of optimisers: functions from params, gradients and state to new params and state.

All three are graph values, and all that an optimiser does is ordinary ops; nothing is kept outside
the graph. The state is named tensors: ``count``, the number of updates made (i64), and for every
param the optimiser's slots, such as ``momentum/w``. Slots have the element type of the param, and
all of the state is 0 before the first update.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from rlx.base.frozen import frozen
from rlx.errors import DTypeError, GraphError, NameError, ShapeError, did_you_mean
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.optim.schedules import Schedule, as_schedule
from rlx.types import DType, TensorType, bool_, f32, i64

__all__ = ["COUNT", "At", "Optimizer", "Slots", "check_float", "check_part", "matching"]

Slots = dict[str, Value]
"""The state of one param by the names of its slots."""

COUNT = "count"
"""The number of updates made, in the state of every optimiser."""


@frozen
class At:
    """An update: its number ``t`` from 1 on, and its learning rate ``lr``; scalars of the element
    type of the param. ``shared`` is what the optimiser's ``shared`` made of them."""

    t: Value
    lr: Value
    shared: Slots


@dataclass(frozen=True, kw_only=True)
class Optimizer(ABC):
    """A rule of updates. ``lr`` is the learning rate: a number, or a schedule of it."""

    lr: float | Schedule = field(default=1e-3, kw_only=False)

    def __post_init__(self) -> None:
        located(self.check)()

    def check(self) -> None:
        """Raise GraphError for settings that have no meaning."""
        as_schedule(self.lr)

    @abstractmethod
    def slots(self, name: str, param: TensorType) -> dict[str, TensorType]:
        """What is kept for a param from one update to the next."""

    @abstractmethod
    def apply(self, name: str, p: Value, g: Value, slots: Slots, at: At) -> tuple[Value, Slots]:
        """A param after an update with the gradient ``g``, and its slots after it."""

    def shared(self, t: Value, lr: Value) -> Slots:
        """Scalars that the updates of all params use, made once, in f32 for params of halves."""
        return {}

    # -- the whole -------------------------------------------------------------------------

    @located
    def state(self, params: Mapping[str, TensorType]) -> dict[str, TensorType]:
        """The types of the state, by name, for params of the given types."""
        found = {COUNT: TensorType((), i64)}
        for name, t in params.items():
            if not t.dtype.is_float:
                raise DTypeError(f"param {name!r} is {t.dtype}, and only floats are trained")
            found |= {f"{slot}/{name}": kept for slot, kept in self.slots(name, t).items()}
        return found

    @located
    def update(
        self, params: Mapping[str, Value], grads: Mapping[str, Value], state: Mapping[str, Value]
    ) -> tuple[dict[str, Value], dict[str, Value]]:
        """The new params and the new state, from gradients of the names, shapes and element types
        of the params. NameError, ShapeError and DTypeError for what does not fit."""
        types = {name: p.type for name, p in params.items()}
        matching("gradient", grads, types)
        matching("state", state, self.state(types))
        new_params: dict[str, Value] = {}
        new_state = {COUNT: state[COUNT] + 1}
        moments: dict[DType, At] = {}
        for name, p in params.items():
            if p.dtype not in moments:
                moments[p.dtype] = self.at(state[COUNT], p.dtype)
            mine = {slot: state[f"{slot}/{name}"] for slot in self.slots(name, p.type)}
            new_params[name], after = self.apply(name, p, grads[name], mine, moments[p.dtype])
            new_state |= {f"{slot}/{name}": v for slot, v in after.items()}
        return new_params, new_state

    @located
    def mixing(self, name: str, t: TensorType) -> str:
        """Which op makes an update of a param of a type more than an update of each element by
        itself, in any shape; "" if none does."""
        if any(kept.shape not in ((), t.shape) for kept in self.slots(name, t).values()):
            return "a slot of another shape"
        ops, flat = (self._ops(name, u) for u in (t, TensorType((t.size,), t.dtype)))
        if [op.name for op in ops] != [op.name for op in flat]:
            return "other ops for another shape"
        shaped = {v for op in ops for v in op.present if v.op is None and v.type == t}
        for op in ops:
            if any(v in shaped for v in op.present):
                if not op.pointwise:
                    return op.name.partition(".")[2]
                shaped |= set(op.results)
        return ""

    def _ops(self, name: str, t: TensorType) -> list[Op]:
        """The ops of an update of one param."""
        g = Graph("update")
        p, grad = g.input("param", t.shape, t.dtype), g.input("grad", t.shape, t.dtype)
        kept = {n: g.input(n, s.shape, s.dtype) for n, s in self.state({name: t}).items()}
        after, state = self.update({name: p}, {name: grad}, kept)
        g.set_outputs([*after.values(), *state.values()])
        return list(g.nodes())

    @located
    def at(self, count: Value, dtype: DType) -> At:
        """The update that follows ``count`` others, for params of an element type."""
        # Halves do not tell large counts apart.
        wide = dtype if dtype.bits >= 32 else f32
        done = count.cast(wide)
        t, lr = done + 1.0, as_schedule(self.lr)(done)
        if lr.type != done.type:
            raise ShapeError(f"the schedule gives {lr.type}, expected a scalar as its own: {wide}")
        shared = self.shared(t, lr)
        if wide is not dtype:
            t, lr = t.cast(dtype), lr.cast(dtype)
            shared = {n: v if v.dtype is bool_ else v.cast(dtype) for n, v in shared.items()}
        return At(t, lr, shared)


def matching(what: str, given: Mapping[str, Value], types: Mapping[str, TensorType]) -> None:
    """NameError, ShapeError or DTypeError unless ``given`` has exactly the names and types."""
    for name, t in types.items():
        if name not in given:
            raise NameError(f"there is no {what} {name!r}{did_you_mean(name, given)}")
        found = given[name].type
        if found.dtype != t.dtype:
            raise DTypeError(f"{what} {name!r} is {found.dtype}, expected {t.dtype}; cast it")
        if found.shape != t.shape:
            raise ShapeError(f"{what} {name!r} is {found}, expected {t}")
    for name in given:
        if name not in types:
            raise NameError(f"the {what} {name!r} belongs to no param{did_you_mean(name, types)}")


def check_part(name: str, value: float) -> None:
    """GraphError unless a setting is in [0, 1)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise GraphError(f"{name} is a number from 0 to 1, 1 excluded; found {value!r}")


def check_float(name: str, value: float, above: float | None = None) -> None:
    """GraphError unless a setting is finite and not negative, or above ``above``."""
    fine = not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
    if not fine or value < 0 or (above is not None and value <= above):
        bound = "from 0 on" if above is None else f"above {above:g}"
        raise GraphError(f"{name} is a number {bound}, found {value!r}")

"""The two graphs of a training step: gradients of the loss, and the update by them.

Between them the gradients lie in memory, so that they can be summed over several batches, and so
that nothing is updated by what is not finite. The state is named tensors:

    params/NAME      what is trained; f32 for a param of f16 or bf16, which the loss sees rounded
    grads/NAME       gradients, of the same types
    optimizer/NAME   the optimiser's own
    ema/NAME         averages of params, if they are wanted
    run/position     the number of batches; run/key the random key that theirs are made of;
    run/scale        of the loss; run/good the updates since it was changed
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from rlx.autodiff import gradients
from rlx.base.frozen import frozen
from rlx.errors import DTypeError, GraphError, NameError, ShapeError
from rlx.ir.graph import Graph
from rlx.ir.replay import cloned, replay
from rlx.ir.value import Value
from rlx.ops.movement.movement import zeros
from rlx.optim import Optimizer, all_finite, ema
from rlx.random import fold_in
from rlx.types import TensorType, f32, i64, u32

__all__ = ["Clip", "Half", "Plan", "check_plan", "gradient_half", "update_half"]

RUN = {
    "run/position": TensorType((), i64),
    "run/key": TensorType((2,), u32),
    "run/scale": TensorType((), f32),
    "run/good": TensorType((), i64),
}

Clip = Callable[[Mapping[str, Value]], dict[str, Value]]


@frozen
class Plan:
    """What is trained, and how. ``trained`` are params of ``graph``, the first output of which is
    the loss."""

    graph: Graph
    optimizer: Optimizer
    trained: tuple[str, ...]
    clip: Clip | None = None
    ema: float | None = None
    accumulate: int = 1
    scaled: bool = False
    key: str | None = None

    @property
    def settings(self) -> str:
        """How it is trained, for people: the optimiser and what changes gradients and averages."""
        parts = [repr(self.optimizer)]
        parts += [f"clip={self.clip!r}"] if self.clip is not None else []
        parts += [f"ema={self.ema!r}"] if self.ema is not None else []
        parts += [f"accumulate={self.accumulate}"] if self.accumulate > 1 else []
        return re.sub(r" at 0x[0-9a-f]+", "", ", ".join(parts))

    def masters(self) -> dict[str, TensorType]:
        """The types in which the params are trained: no narrower than f32."""
        types = {str(v.name): v.type for v in self.graph.params}
        return {
            n: types[n] if types[n].dtype.bits >= 32 else TensorType(types[n].shape, f32)
            for n in self.trained
        }

    def state(self) -> dict[str, TensorType]:
        """The types of the state by name."""
        masters = self.masters()
        found = {f"params/{n}": t for n, t in masters.items()}
        found |= {f"grads/{n}": t for n, t in masters.items()}
        found |= {f"optimizer/{n}": t for n, t in self.optimizer.state(masters).items()}
        if self.ema is not None:
            found |= {f"ema/{n}": t for n, t in masters.items()}
        return found | RUN


@frozen
class Half:
    """A graph, the state that it reads, and that which it writes: the last of its outputs."""

    graph: Graph
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def donate(self) -> tuple[tuple[int, int], ...]:
        """The option ``donate`` for its compile."""
        first = len(self.graph.outputs) - len(self.writes)
        at = {str(v.name): i for i, v in enumerate(self.graph.inputs)}
        return tuple((at[name], first + n) for n, name in enumerate(self.writes))


class _Builder:
    """A half in the making: its graph, and the state that it takes."""

    def __init__(self, plan: Plan, what: str) -> None:
        self.types = plan.state()
        self.graph = Graph(f"{plan.graph.name}_{what}")
        self.taken: dict[str, Value] = {}

    def state(self, name: str) -> Value:
        if name not in self.taken:
            t = self.types[name]
            self.taken[name] = self.graph.input(name, t.shape, t.dtype)
        return self.taken[name]

    def done(self, outputs: Sequence[Value], new: Mapping[str, Value]) -> Half:
        for name in new:
            self.state(name)
        self.graph.set_outputs([*outputs, *new.values()])
        return Half(self.graph, tuple(self.taken), tuple(new))


def gradient_half(plan: Plan) -> Half:
    """The outputs of the graph, whether the loss and all gradients are finite, and the gradients:
    of a ``plan.accumulate``-th of the loss, added to those that are there."""
    b, source = _Builder(plan, "gradients"), plan.graph
    env: dict[Value, Value] = {}
    for v in source.inputs:
        if str(v.name) == plan.key:
            env[v] = fold_in(b.state("run/key"), b.state("run/position"))
        else:
            env[v] = b.graph.input(str(v.name), v.shape, v.dtype)
    for v in source.params:
        name = str(v.name)
        if name in plan.trained:
            env[v] = b.state(f"params/{name}").cast(v.dtype)
        else:
            env[v] = b.graph.param(name, v.shape, v.dtype)
    by = {str(v.name): env[v] for v in source.params if v.name in plan.trained}
    loss, *metrics = _copied(source, env)
    scaled = loss.cast(f32) * b.state("run/scale") if plan.scaled else loss
    found = dict(zip(by, gradients(scaled, list(by.values())), strict=True))
    new: dict[str, Value] = {}
    for name, t in plan.masters().items():
        g = found[name].cast(t.dtype)
        if plan.scaled:
            g = g / b.state("run/scale").cast(t.dtype)
        if plan.accumulate > 1:
            g = b.state(f"grads/{name}") + g * (1.0 / plan.accumulate)
        new[f"grads/{name}"] = g
    finite = all_finite({"loss": loss, **new})
    return b.done([loss, *metrics, finite], new)


def update_half(plan: Plan) -> Half:
    """New params and a new state of the optimiser from the gradients."""
    b = _Builder(plan, "update")
    params = {n: b.state(f"params/{n}") for n in plan.trained}
    grads = {n: b.state(f"grads/{n}") for n in plan.trained}
    types = plan.optimizer.state(plan.masters())
    state = {n: b.state(f"optimizer/{n}") for n in types}
    clipped = grads if plan.clip is None else plan.clip(grads)
    after, kept = plan.optimizer.update(params, clipped, state)
    new = {f"params/{n}": v for n, v in after.items()}
    new |= {f"optimizer/{n}": v for n, v in kept.items()}
    if plan.ema is not None:
        averages = ema({n: b.state(f"ema/{n}") for n in params}, after, plan.ema)
        new |= {f"ema/{n}": v for n, v in averages.items()}
    if plan.accumulate > 1:
        new |= {f"grads/{n}": zeros(g.shape, g.dtype) for n, g in grads.items()}
    return b.done([], new)


def _copied(source: Graph, env: dict[Value, Value]) -> list[Value]:
    """The outputs of a graph on what stands for its leaves, at the lines of its ops."""
    replay(source.nodes(), env, cloned)
    return [env[v] for v in source.outputs]


def check_plan(plan: Plan) -> None:
    """GraphError and its kin for what cannot be trained."""
    graph, loss = plan.graph, plan.graph.outputs[0]
    where = loss.op.location if loss.op is not None else None
    if loss.type.size != 1 or not loss.dtype.is_float:
        raise ShapeError(
            f"the first output is the loss, one float; found {loss.type}; reduce it, such as with"
            " .mean()",
            where,
        )
    types = {str(v.name): v.type for v in graph.params}
    for name in plan.trained:
        if name not in types:
            graph.leaf_location(name)
            raise NameError(f"{name!r} is an input; what is trained is a param")
        if not types[name].dtype.is_float or not types[name].is_static:
            raise DTypeError(f"param {name!r} is {types[name]}, and only floats are trained")
    if not plan.trained:
        raise GraphError(f"graph {graph.name!r} has no params that could be trained")
    if plan.key is not None:
        keys = {str(v.name): v.type for v in graph.inputs}
        if keys.get(plan.key) != TensorType((2,), u32):
            raise GraphError(
                f"key names an input of 2xu32 that is given a new key in every step; {plan.key!r}"
                f" is {keys.get(plan.key, 'none')}"
            )

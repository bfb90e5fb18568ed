"""The graphs of a training step: gradients of the loss, and the update by them.

Between them the gradients lie in memory, so that they can be summed over several batches, and so
that nothing is updated by what is not finite. The state is named tensors:

    params/NAME      what is trained; f32 for a param of f16 or bf16, which the loss sees rounded
    grads/NAME       gradients, of the same types
    optimizer/NAME   the optimiser's own
    ema/NAME         averages of params, if they are wanted
    run/position     the number of batches; run/key the random key that theirs are made of;
    run/scale        of the loss; run/good the updates since it was changed
    run/part         on many ranks: which part of the batch is at hand, for its random key

Where losses are to be the same on any number of ranks, the gradients are three graphs: those of a
part of the batch, the sum of two of them, and the mean over all parts.
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
from rlx.ops.collective.exchange import AxisIndex, Broadcast
from rlx.ops.movement.movement import zeros
from rlx.ops.pointwise.cast import widened
from rlx.ops.rules import carries_derivative
from rlx.optim import ClipNorm, ClipValue, Optimizer, all_finite, ema
from rlx.random import fold_in
from rlx.training.ranks import Ranks
from rlx.types import TensorType, f32, i64, u32

__all__ = [
    "Clip", "Half", "Plan", "check_plan", "common_start", "gradient_half", "mean_half", "part_half",
    "sum_half", "update_half", "whole_of",
]  # fmt: skip

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
    ranks: Ranks | None = None
    """The ranks that train together, each on a batch of its own."""

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

    @property
    def zero(self) -> int:
        """What a rank holds slices of: 0: of nothing, 1: of all but params, 3: of all."""
        return 0 if self.ranks is None else self.ranks.zero

    def slices(self) -> dict[str, TensorType]:
        """The types of what this rank updates of each param."""
        masters = self.masters()
        if self.ranks is None or not self.zero:
            return masters
        return {n: self.ranks.slice_of(t) for n, t in masters.items()}

    def state(self, whole: bool = False) -> dict[str, TensorType]:
        """The types of the state by name; ``whole``, of what all ranks hold together."""
        masters = self.masters()
        own = masters if whole else self.slices()
        found = {f"params/{n}": t for n, t in (own if self.zero == 3 else masters).items()}
        found |= {f"grads/{n}": t for n, t in own.items()}
        found |= {f"optimizer/{n}": t for n, t in self.optimizer.state(own).items()}
        if self.ema is not None:
            found |= {f"ema/{n}": t for n, t in own.items()}
        if self.ranks is not None:
            found["run/part"] = TensorType((), i64)
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

    def __init__(
        self, plan: Plan, what: str, types: Mapping[str, TensorType] | None = None
    ) -> None:
        self.types = plan.state() if types is None else types
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
    b = _Builder(plan, "gradients")
    outputs, found = _of_a_batch(b, plan)
    if plan.ranks is not None:
        outputs, found = _means(plan.ranks, outputs, found)
    return _added(b, plan, outputs, found)


def part_half(plan: Plan) -> Half:
    """The outputs of the graph and its gradients on a part of a batch, no narrower than f32."""
    b = _Builder(plan, "part")
    outputs, found = _of_a_batch(b, plan)
    return b.done([*(widened(v) for v in outputs), *found.values()], {})


def sum_half(plan: Plan, types: Mapping[str, TensorType]) -> Half:
    """What two parts gave, added; it takes the place of the first."""
    b = _Builder(plan, "sum", {**types, **{f"more/{n}": t for n, t in types.items()}})
    return b.done([], {n: b.state(n) + b.state(f"more/{n}") for n in types})


def mean_half(plan: Plan, types: Mapping[str, TensorType]) -> Half:
    """As ``gradient_half``, from the sums over the parts of each rank."""
    assert plan.ranks is not None
    b = _Builder(plan, "means", {**plan.state(), **types})
    sums, outputs = [b.state(n) for n in types], plan.graph.outputs
    given = dict(zip(plan.masters(), sums[len(outputs) :], strict=True))
    wide, found = _means(plan.ranks, sums[: len(outputs)], given)
    own = [m.cast(v.dtype) for v, m in zip(outputs, wide, strict=True)]
    return _added(b, plan, own, found)


def _means(
    ranks: Ranks, outputs: Sequence[Value], grads: Mapping[str, Value]
) -> tuple[list[Value], dict[str, Value]]:
    """The means over the ranks of the outputs that have one, and of gradients, of which this rank
    may keep slices. Where all are whole they share meetings."""
    moving = [widened(v) for v in outputs if carries_derivative(v)]
    if ranks.zero:
        means = [*ranks.means(moving), *ranks.means(list(grads.values()), cut=True)]
    else:
        means = ranks.means([*moving, *grads.values()])
    own = iter(means[: len(moving)])
    found = [next(own).cast(v.dtype) if carries_derivative(v) else v for v in outputs]
    return found, dict(zip(grads, means[len(moving) :], strict=True))


def _of_a_batch(b: _Builder, plan: Plan) -> tuple[list[Value], dict[str, Value]]:
    """The outputs of the graph, and the gradients by name, in the types of what is trained."""
    source, env = plan.graph, dict[Value, Value]()
    for v in source.inputs:
        if str(v.name) == plan.key:
            key = fold_in(b.state("run/key"), b.state("run/position"))
            env[v] = key if plan.ranks is None else fold_in(key, b.state("run/part"))
        else:
            env[v] = b.graph.input(str(v.name), v.shape, v.dtype)
    trained = [v for v in source.params if v.name in plan.trained]
    own = [b.state(f"params/{v.name}").cast(v.dtype) for v in trained]
    if plan.ranks is not None and plan.zero == 3:
        own = plan.ranks.whole(own, [v.type for v in trained])
    env |= zip(trained, own, strict=True)
    for v in source.params:
        if v not in env:
            env[v] = b.graph.param(str(v.name), v.shape, v.dtype)
    by = {str(v.name): env[v] for v in source.params if v.name in plan.trained}
    loss, *metrics = _copied(source, env)
    scaled = loss.cast(f32) * b.state("run/scale") if plan.scaled else loss
    found = dict(zip(by, gradients(scaled, list(by.values())), strict=True))
    wide: dict[str, Value] = {}
    for name, t in plan.masters().items():
        g = found[name].cast(t.dtype)
        wide[name] = g / b.state("run/scale").cast(t.dtype) if plan.scaled else g
    return [loss, *metrics], wide


def _added(b: _Builder, plan: Plan, outputs: Sequence[Value], found: Mapping[str, Value]) -> Half:
    """The half that adds gradients to those that are there, and says whether all are finite."""
    new: dict[str, Value] = {}
    for name, g in found.items():
        share = g if plan.accumulate == 1 else g * (1.0 / plan.accumulate)
        new[f"grads/{name}"] = share if share is g else b.state(f"grads/{name}") + share
    finite = all_finite({"loss": outputs[0], **new})
    if plan.ranks is not None and plan.zero:
        finite = plan.ranks.all(finite)
    return b.done([*outputs, finite], new)


def common_start(plan: Plan) -> Graph:
    """The params of the first rank along the axis, on all of them, and where this one is along each
    axis of the mesh."""
    assert plan.ranks is not None
    g = Graph(f"{plan.graph.name}_start")
    leaves = [g.input(name, t.shape, t.dtype) for name, t in plan.masters().items()]
    axis, axes = plan.ranks.axis, plan.ranks.axes
    g.set_outputs([*(Broadcast.build(v, axis) for v in leaves), *map(AxisIndex.build, axes)])
    return g


def update_half(plan: Plan) -> Half:
    """New params and a new state of the optimiser from the gradients."""
    b = _Builder(plan, "update")
    params = {n: b.state(f"params/{n}") for n in plan.trained}
    if plan.ranks is not None and plan.zero == 1:
        params = {n: plan.ranks.own(v) for n, v in params.items()}
    grads = {n: b.state(f"grads/{n}") for n in plan.trained}
    types = plan.optimizer.state(plan.slices())
    state = {n: b.state(f"optimizer/{n}") for n in types}
    after, kept = plan.optimizer.update(params, _clipped(plan, grads), state)
    new = {f"params/{n}": v for n, v in after.items()}
    if plan.ranks is not None and plan.zero == 1:
        whole = plan.ranks.whole(list(after.values()), list(plan.masters().values()))
        new = dict(zip(new, whole, strict=True))
    new |= {f"optimizer/{n}": v for n, v in kept.items()}
    if plan.ema is not None:
        averages = ema({n: b.state(f"ema/{n}") for n in params}, after, plan.ema)
        new |= {f"ema/{n}": v for n, v in averages.items()}
    if plan.accumulate > 1:
        new |= {f"grads/{n}": zeros(g.shape, g.dtype) for n, g in grads.items()}
    return b.done([], new)


def _clipped(plan: Plan, grads: dict[str, Value]) -> dict[str, Value]:
    if plan.clip is None:
        return grads
    apart = plan.ranks is not None and (plan.ranks.parts or plan.ranks.zero)
    if apart and isinstance(plan.clip, ClipNorm | ClipValue):
        assert plan.ranks is not None
        return plan.ranks.clipped(plan.clip, grads)
    return plan.clip(grads)


def whole_of(plan: Plan, prefix: str) -> Graph:
    """What the ranks have slices of, under a prefix of the state, on all of them."""
    assert plan.ranks is not None
    g = Graph(f"{plan.graph.name}_whole")
    slices = [g.input(f"{prefix}/{n}", t.shape, t.dtype) for n, t in plan.slices().items()]
    g.set_outputs(plan.ranks.whole(slices, list(plan.masters().values())))
    return g


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
    if plan.ranks is not None:
        plan.ranks.check(plan.optimizer, plan.clip, plan.masters())
    if plan.key is not None:
        keys = {str(v.name): v.type for v in graph.inputs}
        if keys.get(plan.key) != TensorType((2,), u32):
            raise GraphError(
                f"key names an input of 2xu32 that is given a new key in every step; {plan.key!r}"
                f" is {keys.get(plan.key, 'none')}"
            )

"""Training in stages: the params of a stage, and what an optimiser keeps of them, on its rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlx.autodiff import vjp
from rlx.base.mesh import Axis
from rlx.distributed.connections import current_rank
from rlx.distributed.pipeline import Pipeline, PipelineRank, Shift
from rlx.distributed.stages import Stage
from rlx.distributed.status import note_step
from rlx.errors import GraphError, NonFiniteError, ShapeError, shown
from rlx.ir.builders import public
from rlx.ir.given import param_arrays
from rlx.ir.graph import Graph
from rlx.ir.location import caller
from rlx.ops.collective.all_reduce import AllReduce
from rlx.ops.rules import carries_derivative
from rlx.optim import ClipNorm, ClipValue, Optimizer
from rlx.optim.gradients import sum_of_squares
from rlx.runtime.session import CompiledGraph, Session
from rlx.training.graphs import Plan, update_half
from rlx.training.halves import Run
from rlx.training.ranks import Ranks
from rlx.training.saving import Checkpoints
from rlx.training.slices import Seat
from rlx.training.state import State
from rlx.training.step import StepResult, metrics_of
from rlx.types import TensorType

__all__ = ["PipelineStep"]

Array = np.ndarray[Any, Any]


@public
class PipelineStep:
    """A training run of a pipeline (``rlx.distributed.pipeline``): call it with a batch.

    The first output of the graph is the loss, a mean over a micro-batch; all params of floats are
    trained, by the mean of the gradients of the micro-batches, and, where the mesh has an axis
    "data", over its ranks, each of which has a batch of its own. A stage computes what it needs of
    its forward pass again, so that it keeps what it received and nothing else. ``metrics`` names
    the outputs after the loss, which by default keep their own names. ``clip`` is a ``ClipNorm``,
    by the norm of the gradients of all stages, or a ``ClipValue``. ``params`` adds to, or replaces,
    the values that the graph's params have; all ranks give the same. ``rlx.fit`` takes it as it
    takes a ``TrainStep``.

    ShapeError for a loss that is not one float, GraphError for a param without a value, for another
    ``clip``, and for a mesh with axes beside that of the stages and "data"; NameError, ShapeError
    and DTypeError for ``params`` that the graph has not.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        optimizer: Optimizer,
        *,
        metrics: Sequence[str] = (),
        clip: ClipNorm | ClipValue | None = None,
        params: Mapping[str, Any] | None = None,
        session: Session | None = None,
    ) -> None:
        if not isinstance(pipeline, Pipeline):
            raise GraphError(f"PipelineStep: found {shown(pipeline)}, expected a Pipeline")
        if not isinstance(optimizer, Optimizer):
            raise GraphError(f"an optimiser of rlx.optim is expected, found {optimizer!r}")
        if not (clip is None or isinstance(clip, ClipNorm | ClipValue)):
            raise GraphError(
                f"a stage has some of the gradients, and clip is {shown(clip)}; take"
                " rlx.optim.ClipNorm or rlx.optim.ClipValue"
            )
        _check_loss(pipeline)
        self.metrics = metrics_of(pipeline.graph, metrics)
        if not _trained(pipeline.stages[0]):
            raise GraphError(
                "PipelineStep: the first stage has no param of floats, so there is nothing to train"
                " there; name later layers in `at` of the pipeline"
            )
        values = _values(pipeline.graph, params or {})
        session = session or Session()
        self.pipeline, self.forward = pipeline, PipelineRank(pipeline, session)
        self.stage, others = self.forward.stage, _others(pipeline)
        types = {str(v.name): v for v in self.stage.graph.params}
        self.trained = _trained(self.stage)
        moved = [i for i, t in enumerate(self.stage.received) if t.dtype.is_float]
        self._moved = [self.stage.received[i] for i in moved]
        by = [*(Stage.input(i) for i in moved), *self.trained]
        self._backward = session.compile(vjp(self.stage.graph, by))
        self._back = Shift(pipeline, session, -1)
        ranks = Ranks(others[0] if others else Axis("data", 1), mesh=pipeline.mesh)
        plans = [Plan(s.graph, optimizer, _trained(s), clip, ranks=ranks) for s in pipeline.stages]
        plan = plans[self.forward.number]
        self._tied = _Sums(session, _tied(plans), pipeline.axis, "sum")
        self._data = [_Sums(session, plan.masters(), axis, "mean") for axis in others]
        self._means = [_Sums(session, _results(pipeline), axis, "mean") for axis in others]
        self.plan, self._seat = plan, _seat(pipeline, ranks.axis)
        self.state, self._clip = State(plan.state()), _Clip(session, pipeline, plan)
        self.state["run/scale"][...] = 1  # for a TrainStep that goes on, whose loss has a scale
        self._update = Run(update_half(replace(plan, clip=None)), session) if self.trained else None
        self._checkpoints = Checkpoints(plan, session, self._seat, _kept(plans), pipeline.axis.name)
        for name in types:
            if name in self.trained:
                self.state[f"params/{name}"][...] = values[name]
            else:
                for compiled in (self.forward.compiled, self._backward):
                    compiled.set_param(name, values[name])

    def params(self) -> dict[str, Array]:
        """Copies of the params of this stage."""
        return {n: self.state[f"params/{n}"].copy() for n in self.trained}

    def __call__(self, batch: Mapping[str, Any]) -> StepResult:
        """Train on a batch, whose micro-batches stand one after the other along the first axes; so
        do metrics, the outputs after the loss, and of those that are single numbers it is the mean.
        With an axis "data" the loss, and metrics of floats, are means over its ranks.

        NonFiniteError, on all ranks, if the loss or a gradient is nan or infinite: it names which,
        and the state stays as it was.
        """
        note_step(self.position + 1)
        for name in self.trained:
            value = self.state[f"params/{name}"].astype(self._types()[name].dtype.numpy)
            for compiled in (self.forward.compiled, self._backward):
                compiled.set_param(name, value)
            self.state[f"grads/{name}"][...] = 0
        parts, kept = self.forward.parts(batch), list[dict[str, Any]]()
        sent = len(self.stage.sent)

        def each(feeds: dict[str, Any]) -> list[Array]:
            kept.append(feeds)
            return self.forward.compiled.run(feeds)[:sent] if sent else []

        self.forward.forward(parts, each)
        found = self._pull_back(kept)
        grads = {n: self.state[f"grads/{n}"] for n in self.trained}
        for sums in (self._tied, *self._data):
            sums.into(grads)
        outputs = self.forward.shared(found)
        results = {str(i): a for i, a in enumerate(outputs)}
        for means in self._means:
            means.into(results)
        loss, *others = results.values()
        self._check_finite(loss, grads)
        self._clip.into(grads)
        if self._update is not None:
            self._update.run({}, self.state)
        self.state["run/position"][...] += 1
        return StepResult(float(loss), dict(zip(self.metrics, others, strict=True)), updated=True)

    def _check_finite(self, loss: Array, grads: Mapping[str, Array]) -> None:
        """Refuse a batch on all ranks by what any of them found."""
        names = [str(v.name) for v in self.pipeline.graph.params]
        bad = [names.index(n) + 1 for n, g in grads.items() if not np.isfinite(g).all()]
        first = self._checkpoints.agreed(max(bad, default=0))
        if not np.isfinite(loss):
            raise NonFiniteError(f"batch {self.position}: the loss is {loss}", caller())
        if first:
            raise NonFiniteError(
                f"batch {self.position}: the gradient of {names[first - 1]!r} is not finite",
                caller(),
            )

    @property
    def rank(self) -> int:
        """The number of this rank of the mesh."""
        return self._seat.number

    def on_any_rank(self, said: bool) -> bool:
        """Whether something is true on one rank or more; all ranks call it."""
        return bool(self._checkpoints.agreed(int(said)))

    @property
    def position(self) -> int:
        """The number of batches trained on."""
        return int(self.state["run/position"])

    def save(self, path: str | Path) -> None:
        """Write the state of all stages to a folder that all ranks see; they all call it. As
        ``TrainStep.save``."""
        self._checkpoints.save(Path(path), self.state, self._names())

    def load(self, path: str | Path) -> str:
        """Go on from what ``save`` of a pipeline of any number of stages wrote, or that of a
        ``TrainStep`` of the same params without averages; all ranks call it. As
        ``TrainStep.load``."""
        return self._checkpoints.load(Path(path), self.state, self._names())

    def finds(self, path: str | Path) -> bool:
        """Whether there is something to ``load``; all ranks call it."""
        return self._checkpoints.exists(Path(path))

    def _names(self) -> list[str]:
        return [n for n in self.state if _is_kept(n)]

    def _types(self) -> dict[str, TensorType]:
        return {str(v.name): v.type for v in self.stage.graph.params}

    def _pull_back(self, kept: list[dict[str, Any]]) -> list[Array]:
        """Add up the gradients of the micro-batches, in turns from the last stage to the first; the
        outputs of this one."""
        stage, count, ranks = self.stage, len(kept), self.pipeline.axis.ranks
        outputs = stage.graph.outputs
        floats = [i for i, t in enumerate(stage.sent) if t.dtype.is_float]
        fixed = {
            f"cotangent_{len(stage.sent) + i}": np.full(
                v.type.static_shape, 1 / count if n == 0 else 0, v.dtype.numpy
            )
            for i, (n, v) in enumerate(zip(stage.outputs, outputs[len(stage.sent) :], strict=True))
            if carries_derivative(v)
        }
        found: list[list[Array]] = [[] for _ in stage.outputs]
        given: list[Array] = []
        turns, first = count + ranks - 1, ranks - 1 - self.forward.number
        for turn in range(turns):
            n, back = turn - first, list[Array]()
            if 0 <= n < count:
                own = {f"cotangent_{i}": a for i, a in zip(floats, given, strict=True)}
                results = self._backward.run({**kept[n], **own, **fixed})
                for had, a in zip(found, results[len(stage.sent) :], strict=False):
                    had.append(a)
                back = results[len(outputs) : len(outputs) + len(self._moved)]
                grads = results[len(outputs) + len(self._moved) :]
                for name, g in zip(self.trained, grads, strict=True):
                    self.state[f"grads/{name}"][...] += g
            if turn + 1 < turns:
                given = self._back(back, [stage.sent[i] for i in floats])
        return [np.stack(a) for a in found]


class _Sums:
    """Sums or means of gradients over the ranks of an axis, each of which has some of them."""

    def __init__(
        self, session: Session, types: Mapping[str, TensorType], axis: Axis, op: str
    ) -> None:
        self._compiled: CompiledGraph | None = None
        self._zeros = {n: np.zeros(t.static_shape, t.dtype.numpy) for n, t in types.items()}
        if types:
            g = Graph("sums")
            leaves = [g.input(f"{i}", t.shape, t.dtype) for i, t in enumerate(types.values())]
            g.set_outputs([AllReduce.build(v, axis, op) for v in leaves])
            self._compiled = session.compile(g)

    def into(self, grads: Mapping[str, Array]) -> None:
        """In the place of what this rank has."""
        if self._compiled is None:
            return
        given = [grads.get(n, zero) for n, zero in self._zeros.items()]
        found = self._compiled.run({f"{i}": a for i, a in enumerate(given)})
        for name, total in zip(self._zeros, found, strict=True):
            if name in grads:
                grads[name][...] = total


class _Clip:
    """Clips the gradients of all stages: a stage that trains nothing meets the others too."""

    def __init__(self, session: Session, pipeline: Pipeline, plan: Plan) -> None:
        self._compiled: CompiledGraph | None = None
        if plan.clip is None:
            return
        g, types = Graph("clip"), plan.masters()
        grads = {n: g.input(n, t.shape, t.dtype) for n, t in types.items()}
        if isinstance(plan.clip, ClipNorm):
            wide = any(v.dtype.bits > 32 for v in pipeline.graph.params if carries_derivative(v))
            first = _first(pipeline)
            own = [v for n, v in grads.items() if pipeline.stages[first[n]].graph is plan.graph]
            total = sum_of_squares(own) if own else g.constant(0.0)
            total = AllReduce.build(total.cast("f64" if wide else "f32"), pipeline.axis)
            g.set_outputs([*plan.clip.scaled(grads, total.sqrt()).values(), total])
        else:
            g.set_outputs([*plan.clip(grads).values(), g.constant(0.0)])
        self._compiled = session.compile(g)

    def into(self, grads: Mapping[str, Array]) -> None:
        """In the place of what this stage has."""
        if self._compiled is not None:
            for g, clipped in zip(grads.values(), self._compiled.run(grads), strict=False):
                g[...] = clipped


def _trained(stage: Stage) -> tuple[str, ...]:
    return tuple([str(v.name) for v in stage.graph.params if carries_derivative(v)])


def _values(graph: Graph, given: Mapping[str, Any]) -> dict[str, Array]:
    """What all params start from: a rank that refused those of its own stage would leave the others
    waiting for it."""
    found = param_arrays(graph, {**graph.param_values, **given})
    for v in graph.params:
        if str(v.name) not in found:
            raise GraphError(f"param {v.name!r} has no value to start from; give it in params")
    return found


def _results(pipeline: Pipeline) -> dict[str, TensorType]:
    """The outputs of a batch that are means over ranks with batches of their own."""
    count, graph = pipeline.microbatches, pipeline.graph
    found: dict[str, TensorType] = {}
    for i, v in enumerate(graph.outputs):
        if v.dtype.is_float:
            rows = [count * n for n in v.type.static_shape[:1]]
            found[str(i)] = TensorType((*rows, *v.shape[1:]), v.dtype)
    return found


def _first(pipeline: Pipeline) -> dict[str, int]:
    """The first stage that has each param."""
    found: dict[str, int] = {}
    for n, stage in enumerate(pipeline.stages):
        for name in stage.params:
            found.setdefault(name, n)
    return found


def _is_kept(name: str) -> bool:
    return not name.startswith("grads/") and name != "run/part"


def _kept(plans: Sequence[Plan]) -> dict[str, tuple[TensorType, int]]:
    """The tensors of all stages that go from one batch to the next, and who has them first."""
    found: dict[str, tuple[TensorType, int]] = {}
    for n, plan in enumerate(plans):
        for name, t in plan.state(whole=True).items():
            if _is_kept(name):
                found.setdefault(name, (t, n))
    return found


def _seat(pipeline: Pipeline, axis: Axis) -> Seat:
    """Where this rank is, along the axis of data and that of the stages."""
    at = pipeline.mesh.coordinates(current_rank(pipeline.mesh))
    shape = tuple([(a.name, a.ranks) for a in pipeline.mesh.axes])
    if axis.name not in at:
        return Seat((*shape, (axis.name, 1)), (*at.values(), 0), axis.name)
    return Seat(shape, tuple(at.values()), axis.name)


def _check_loss(pipeline: Pipeline) -> None:
    loss = pipeline.graph.outputs[0]
    if loss.rank or not loss.dtype.is_float:
        raise ShapeError(
            f"the first output is the loss, one float; found {loss.type}",
            loss.op.location if loss.op is not None else None,
        )


def _others(pipeline: Pipeline) -> list[Axis]:
    """The axis of data, if there is one."""
    found = [axis for axis in pipeline.mesh.axes if axis != pipeline.axis]
    if [axis.name for axis in found] not in ([], ["data"]):
        raise GraphError(
            f"PipelineStep: {pipeline.mesh} has axes beside {pipeline.axis.name!r} and 'data'"
        )
    return found


def _tied(plans: Sequence[Plan]) -> dict[str, TensorType]:
    """The params that several stages train."""
    found = [item for plan in plans for item in plan.masters().items()]
    counts = Counter(n for n, _ in found)
    return {n: t for n, t in found if counts[n] > 1}

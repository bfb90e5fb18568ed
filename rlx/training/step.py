"""A compiled training step, and the run that it advances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from rlx.base.frozen import frozen
from rlx.base.mesh import Mesh
from rlx.base.units import counted
from rlx.distributed.connections import current_rank
from rlx.distributed.status import note_step
from rlx.errors import (
    CheckpointError,
    DTypeError,
    GraphError,
    NonFiniteError,
    OutOfMemoryError,
    RlxError,
    a_type,
)
from rlx.ir.builders import located, public
from rlx.ir.given import param_arrays, unknown
from rlx.ir.graph import Graph
from rlx.ir.location import caller
from rlx.ir.pure import Uncopied
from rlx.ops.rules import carries_derivative
from rlx.optim import Optimizer
from rlx.random import key_data
from rlx.runtime.interrupts import Held, held
from rlx.runtime.session import CompiledGraph, Session
from rlx.training.graphs import Clip, Plan, check_plan, common_start, update_half, whole_of
from rlx.training.halves import Run, gradients_of
from rlx.training.ranks import ranks_of
from rlx.training.saving import Checkpoints
from rlx.training.slices import Seat
from rlx.training.state import State

__all__ = ["LossScale", "StepResult", "TrainStep", "compile_training", "metrics_of"]

Array = np.ndarray[Any, Any]


@public
@frozen
class LossScale:
    """How a loss is scaled so that gradients of f16 do not vanish.

    The scale is ``initial`` at first. When a gradient is not finite, the update is left out and the
    scale is multiplied by ``backoff``; after ``interval`` updates in a row it is multiplied by
    ``growth``. Below ``least`` a step fails instead.
    """

    initial: float = 2.0**15
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000
    least: float = 2.0**-14

    def __post_init__(self) -> None:
        if not (0 < self.least <= self.initial and 0 < self.backoff < 1 < self.growth):
            raise GraphError(
                f"a loss scale has 0 < least <= initial and 0 < backoff < 1 < growth, found {self}",
                caller(),
            )


@frozen
class StepResult:
    """What a step gives: the loss of its batch, the metrics by name, and whether the params were
    ``updated``: not by a batch that is only accumulated, or whose gradients overflowed."""

    loss: float
    metrics: dict[str, Array]
    updated: bool


@located
def compile_training(
    graph: Graph,
    optimizer: Optimizer,
    *,
    wrt: Sequence[str] | None = None,
    metrics: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
    clip: Clip | None = None,
    ema: float | None = None,
    accumulate: int = 1,
    loss_scale: LossScale | None = None,
    key: str | None = None,
    seed: int = 0,
    session: Session | None = None,
    mesh: Mesh | None = None,
    axis: str = "data",
    reproducible: bool = False,
    zero: int = 0,
) -> TrainStep:
    """Compile a graph whose first output is a loss into a step that trains its params.

    ``wrt`` names the params that are trained, by default all of floats; the others are constant.
    ``metrics`` names the outputs after the loss, which by default keep their own names. ``params``
    adds to, or replaces, the values that the graph's params have. ``clip`` changes the gradients
    (``rlx.optim.ClipNorm``), ``ema`` is the decay of averages of the params. With ``accumulate`` n
    the params are updated after every n-th batch, by the mean of n gradients. ``key`` names an
    input of 2xu32 that is given a fresh random key for every batch, drawn from ``seed``. Params of
    f16 and bf16 are kept and updated in f32; for f16 add a ``loss_scale``.

    With ``mesh`` the ranks along its ``axis`` train together (docs/distributed.md): each calls the
    step with a batch of its own, of the shapes of the graph, and all update by the mean of their
    gradients. The loss, and metrics of floats, are means over the ranks; all start from the params
    of the first one.

    With ``reproducible`` losses and params are the same to the bit on 1, 2, 4 and 8 ranks, with or
    without a mesh. The batch of all ranks is then 8 parts of the shapes of the graph, and each rank
    gives as many of them in a call as every other, along the first axes of its arrays. It runs
    them one after the other, and their gradients are added in a fixed binary tree.

    With ``zero`` 1 each rank keeps a slice of the gradients and of the optimiser's state, with 3
    also of the params, which are gathered in each step (ZeRO: Rajbhandari et al., 2020). It takes
    an optimiser that updates each element by itself.

    Raises ShapeError for a loss that is not one float, NameError for unknown names, GraphError for
    a param without a value, and where this is no rank of the mesh.
    """
    _check_arguments(graph, optimizer, accumulate)
    graph.nodes()
    graph = graph.snapshot()
    floats = [str(v.name) for v in graph.params if v.dtype.is_float]
    trained = tuple(floats if wrt is None else wrt)
    scaled = loss_scale is not None
    ranks = ranks_of(mesh, axis, reproducible, zero)
    plan = Plan(graph, optimizer, trained, clip, ema, accumulate, scaled, key, ranks)
    check_plan(plan)
    names = _of_parts(plan, metrics_of(graph, metrics))
    if mesh is not None and mesh.size > 1:
        current_rank(mesh)  # connects a process that is none yet
    return TrainStep(plan, names, loss_scale, {**graph.param_values, **(params or {})}, seed,
                     session or Session())  # fmt: skip


def _check_arguments(graph: Any, optimizer: Any, accumulate: Any) -> None:
    if not isinstance(graph, Graph):
        raise GraphError(f"compile_training takes a Graph, found {a_type(graph)}")
    if not isinstance(optimizer, Optimizer):
        raise GraphError(f"an optimiser of rlx.optim is expected, found {optimizer!r}")
    if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
        raise GraphError(f"accumulate is a number of batches from 1 on, found {accumulate!r}")


def metrics_of(graph: Graph, names: Sequence[str]) -> tuple[str, ...]:
    """The names of the outputs after the loss: those given, or their own."""
    found = tuple(names) or graph.output_names[1:]
    if len(found) != len(graph.outputs) - 1:
        raise GraphError(
            f"metrics names the outputs after the loss: {len(graph.outputs) - 1} of them, found"
            f" {len(found)} names"
        )
    if len({*found}) < len(found):
        raise GraphError(f"metrics has a name twice: {', '.join(map(repr, found))}")
    return found


def _of_parts(plan: Plan, metrics: tuple[str, ...]) -> tuple[str, ...]:
    """The names of metrics, where those of a batch's parts have a mean."""
    for name, v in zip(metrics, plan.graph.outputs[1:], strict=True):
        if plan.ranks is not None and plan.ranks.parts and not carries_derivative(v):
            raise DTypeError(
                f"reproducible: metric {name!r} is {v.type}, and the parts of a batch have a mean"
                " of floats alone; cast it to f32"
            )
    return metrics


@public
class TrainStep(Uncopied):
    """A training run: call it with a batch to train on it.

        result = step({"x": images, "label": labels})

    It is for one thread at a time. ``state`` is all that a run is: it is what a checkpoint holds.
    """

    instead = "save its state to a file, and load that in another step"

    def __init__(
        self, plan: Plan, metrics: tuple[str, ...], loss_scale: LossScale | None,
        params: Mapping[str, Any], seed: int, session: Session,
    ) -> None:  # fmt: skip
        self.plan, self.metrics, self.loss_scale = plan, metrics, loss_scale
        self.state = State(plan.state())
        self.frozen: dict[str, Array] = {}
        self._session = session
        start, self._seat = self._taken(params), Seat((("data", 1),), (0,), "data")
        if plan.ranks is not None:
            start = self._start_alike(start)
            self.state["run/part"][...] = self._seat.slot * plan.ranks.each
        self._checkpoints = Checkpoints(plan, session, self._seat)
        for name, a in start.items():
            self._put(f"params/{name}", a)
            if plan.ema is not None:
                self._put(f"ema/{name}", a)
        self.state["run/key"][...] = key_data(seed)
        self.state["run/scale"][...] = loss_scale.initial if loss_scale else 1.0
        self._gradients = gradients_of(plan, session, self.frozen)
        self._update = Run(update_half(plan), session)
        self._gathers: dict[str, CompiledGraph] = {}  # by prefix
        self._torn = ""  # by which error an update was ended in its middle
        self._inputs = [str(v.name) for v in plan.graph.inputs if v.name != plan.key]

    def _taken(self, given: Mapping[str, Any]) -> dict[str, Array]:
        """The values to start from of what is trained, in its types; keeps the others."""
        arrays, found = param_arrays(self.plan.graph, given), dict[str, Array]()
        masters = self.plan.masters()
        for name in (str(v.name) for v in self.plan.graph.params):
            if name not in arrays:
                raise GraphError(
                    f"param {name!r} has no value to start from; give it one in the graph, or in"
                    f" params={{{name!r}: array}}"
                )
            if name in masters:
                found[name] = arrays[name].astype(masters[name].dtype.numpy)
            else:
                self.frozen[name] = arrays[name].copy()
        return found

    def _start_alike(self, start: Mapping[str, Array]) -> dict[str, Array]:
        """The values of the first rank; notes which rank this one is."""
        assert self.plan.ranks is not None
        names, axes = list(self.plan.masters()), self.plan.ranks.axes
        compiled = self._session.compile(common_start(self.plan))
        found = compiled.run({n: start[n] for n in names})
        shape = tuple([(axis.name, axis.ranks) for axis in axes])
        at = tuple([int(n) for n in found[len(names) :]])
        self._seat = Seat(shape, at, self.plan.ranks.axis.name)
        return dict(zip(names, found, strict=False))

    def _put(self, name: str, whole: Array) -> None:
        """Set what this rank holds of a whole array of the state."""
        mine, ranks = self.plan.state()[name], self.plan.ranks
        self.state[name][...] = whole if ranks is None else ranks.part(whole, mine, self._seat.slot)

    # -- what it has come to ---------------------------------------------------------------

    def __repr__(self) -> str:
        trained = counted(len(self.plan.masters()), "param")
        return f"TrainStep of {self.plan.graph.name!r}: {trained}, batch {self.position}"

    @property
    def position(self) -> int:
        """The number of batches trained on."""
        return int(self.state["run/position"])

    @property
    def rank(self) -> int:
        """The number of this rank of the mesh; 0 where there is none."""
        return self._seat.number

    def on_any_rank(self, said: bool) -> bool:
        """Whether something is true on one rank or more; all ranks call it."""
        return bool(self._checkpoints.agreed(int(said)))

    @property
    def updates(self) -> int:
        """The number of updates of the params."""
        return int(self.state["optimizer/count"])

    def params(self, averaged: bool = False) -> dict[str, Array]:
        """Copies of all params, in the types that the graph declares: for ``set_param``, or the
        ``params`` of ``compile_artifact``. ``averaged`` takes the moving averages instead. Where
        ranks have slices of them, all ranks call it."""
        self._check_whole(GraphError)
        if averaged and self.plan.ema is None:
            raise GraphError("there are no averages; compile_training(..., ema=0.999)", caller())
        found = self._whole("ema" if averaged else "params")
        types = {str(v.name): v.dtype.numpy for v in self.plan.graph.params}
        return {n: (found | self.frozen)[n].astype(dt) for n, dt in types.items()}

    def _whole(self, prefix: str) -> dict[str, Array]:
        """The whole arrays under a prefix of the state, of which each rank may have a slice."""
        own = self.state.part(prefix)
        if self.plan.zero < (3 if prefix == "params" else 1):
            return own
        if prefix not in self._gathers:
            self._gathers[prefix] = self._session.compile(whole_of(self.plan, prefix))
        found = self._gathers[prefix].run({f"{prefix}/{n}": a for n, a in own.items()})
        return dict(zip(self.plan.masters(), found, strict=True))

    def memory(self) -> dict[str, int]:
        """The bytes that this rank takes, by what they are: params, gradients, the optimiser's
        state, averages, and what its graphs keep between kernels in a call, as far as it has made
        one."""
        names = {"params": "params", "grads": "gradients", "optimizer": "optimizer", "ema": "ema"}
        found = {
            said: sum(a.nbytes for a in self.state.part(prefix).values())
            for prefix, said in names.items()
        }
        found["between kernels"] = max(self._gradients.arena(), self._update.arena())
        return {what: n for what, n in found.items() if n}

    # -- training --------------------------------------------------------------------------

    def __call__(self, batch: Mapping[str, Any]) -> StepResult:
        """Train on a batch: arrays by the names of the graph's inputs.

        NonFiniteError if the loss or a gradient is nan or infinite: it names the op that made it.
        After that, a FaultError or a KeyboardInterrupt in the gradients, the state is that after
        the last update; one in the update waits for the end of the step. Raises as
        ``CompiledGraph.run`` does for arrays that do not fit, and GraphError once an update was
        ended in its middle, until a checkpoint is loaded.
        """
        self._check_whole(GraphError)
        self._check_names(batch)
        note_step(self.position + 1)
        with held() as interrupts:
            loss, *metrics, finite = self._run_gradients(batch, interrupts)
            due = (self.position + 1) % self.plan.accumulate == 0
            try:
                if not finite and (self.loss_scale is None or not np.isfinite(loss)):
                    self._fail(batch)
                updated = due and bool(finite)
                if updated:
                    self._run_update()
                if due:
                    self._rescale(batch, updated)
                self.state["run/position"][...] += 1
            except RlxError:
                raise
            except BaseException as e:  # of a handler of another signal, which may raise anywhere
                if due:
                    self._torn = type(e).__name__
                else:
                    self._go_back()
                raise
        return StepResult(float(loss), dict(zip(self.metrics, metrics, strict=True)), updated)

    def _run_gradients(self, batch: Mapping[str, Any], interrupts: Held) -> list[Array]:
        try:
            with interrupts.open():
                return self._gradients.run(batch, self.state)
        except BaseException as e:
            if not isinstance(e, GraphError) or e.partly_run:
                self._go_back()  # it may have added up a part
            raise

    def _run_update(self) -> None:
        try:
            self._update.run({}, self.state)
        except RlxError as e:
            if e.partly_run or not isinstance(e, (GraphError, OutOfMemoryError)):
                self._torn = type(e).__name__
            else:
                self._go_back()  # the batch that the gradients have would count twice
            raise

    def _check_whole(self, kind: type[RlxError]) -> None:
        if self._torn:
            raise kind(
                f"an update was ended by {self._torn}, so that a part of the params and of the"
                " optimiser's state is new and the rest old; load a checkpoint",
                caller(),
            )

    def _check_names(self, batch: Mapping[str, Any]) -> None:
        if not isinstance(batch, Mapping):
            listed = ", ".join(f"{n!r}: array" for n in self._inputs)
            raise GraphError(
                f"a batch is arrays by the names of inputs, found {a_type(batch)}; write"
                f" {{{listed}}}",
                caller(),
            )
        for name in batch:
            if name not in self._inputs:
                raise unknown(name, self._inputs, "input")

    def _rescale(self, batch: Mapping[str, Any], updated: bool) -> None:
        """Make the scale of the loss smaller after gradients that overflowed, and larger after many
        that did not."""
        policy, scale, good = self.loss_scale, self.state["run/scale"], self.state["run/good"]
        if policy is None:
            return
        if updated:
            good[...] += 1
            if good == policy.interval:
                good[...] = 0
                scale[...] *= policy.growth
            return
        if scale * policy.backoff < policy.least:
            self._fail(batch)
        scale[...] *= policy.backoff
        self._restart()

    def _restart(self) -> None:
        """Forget what was accumulated since the last update, which was no good."""
        self.state["run/good"][...] = 0
        for a in self.state.part("grads").values():
            a[...] = 0

    def _go_back(self) -> None:
        """Go back to the last update."""
        self._restart()
        self.state["run/position"][...] -= self.position % self.plan.accumulate

    def _fail(self, batch: Mapping[str, Any]) -> NoReturn:
        """Say where nan or infinity came from, and go back to the last update."""
        position = self.position
        found = self._gradients.culprit(batch, self.state)
        self._go_back()
        raise NonFiniteError(f"batch {position}: {found.message}", found.location)

    # -- checkpoints -----------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the whole state as a safetensors file, which appears whole or not at all.

        The tensors are ``params/NAME``, ``optimizer/NAME`` and so on. With a mesh all ranks call
        it, and ``path`` is a folder that all of them see, in which each writes its slice of every
        tensor: the checkpoint before is there until all have. CheckpointError, on all ranks, if it
        cannot be written.
        """
        self._check_whole(CheckpointError)
        self._checkpoints.save(Path(path), self.state, self._kept())

    def load(self, path: str | Path) -> str:
        """Go on from what ``save`` wrote, a file or a folder, on any number of ranks; all of the
        mesh call it. On as many ranks, the losses are then those, to the bit, that the saved run
        would have had; with ``reproducible`` on any number. CheckpointError if it is no checkpoint,
        or is of another graph or optimiser; the state is then as before. Returns the settings that
        it was trained with, as ``Plan.settings`` says them."""
        settings = self._checkpoints.load(Path(path), self.state, self._kept())
        self._torn = ""
        return settings

    def finds(self, path: str | Path) -> bool:
        """Whether there is something to ``load``; all ranks of a mesh call it."""
        return self._checkpoints.exists(Path(path))

    def _kept(self) -> list[str]:
        """The state that goes from one batch to the next: without gradients that are made anew."""
        anew = self._gradients.writes if self.plan.accumulate == 1 else ()
        return [n for n in self.state if n not in (*anew, "run/part")]

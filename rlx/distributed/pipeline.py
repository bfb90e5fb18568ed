"""Pipelines: the stages of a graph on the ranks of an axis, through which micro-batches go.

All ranks meet after every turn, in which each runs its stage on the micro-batch that it was given
in the turn before (Y. Huang et al., GPipe, 2019). With S stages and M micro-batches there are
M + S - 1 turns, in S - 1 of which a rank has nothing to do: the bubbles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from rlx.base.mesh import Axis, Mesh
from rlx.base.units import bytes_text
from rlx.distributed.connections import current_rank
from rlx.distributed.stages import Stage, cut
from rlx.errors import GraphError, NameError, ShapeError, did_you_mean, shown
from rlx.ir.arrays import typed_array
from rlx.ir.builders import located, public
from rlx.ir.graph import Graph
from rlx.runtime.session import CompiledGraph, Session
from rlx.types import TensorType

__all__ = ["Pipeline", "PipelineRank", "Shift", "pipeline"]

Array = np.ndarray[Any, Any]


@located
def pipeline(
    graph: Graph, mesh: Mesh, at: Sequence[str], *, microbatches: int, axis: str = "stage"
) -> Pipeline:
    """A graph in stages, on the ranks along an axis of a mesh.

    A stage begins where a param of a layer of ``at`` is used first: "layers.4" is the layer of the
    params "layers.4.wq" and so on. What depends on inputs alone, or on params alone, is computed
    by every stage that needs it; what a later stage needs of another goes through those between.
    The graph is of one micro-batch; a batch has so many ``microbatches``.

    GraphError for another number of stages than there are ranks, NameError for a layer that no
    param is of; UnsupportedError for a graph of symbolic sizes, and for one that has collectives.
    """
    if not isinstance(mesh, Mesh):
        raise GraphError(f"pipeline: mesh is {shown(mesh)}, expected a Mesh")
    if isinstance(microbatches, bool) or not isinstance(microbatches, int) or microbatches < 1:
        raise GraphError(f"pipeline: microbatches is {shown(microbatches)}, expected 1 or more")
    stages, along = cut(graph, at), mesh[axis]
    if len(stages) != along.ranks:
        raise GraphError(
            f"pipeline: at names {len(at)} layers, for {len(stages)} stages, and there are"
            f" {along.ranks} ranks along {axis!r}"
        )
    return Pipeline(graph, mesh, along, stages, microbatches)


@public
class Pipeline:
    """What ``pipeline`` gives. ``bubbles`` is the share of the turns in which a rank has nothing to
    do; printed, it says what each stage has."""

    def __init__(
        self, graph: Graph, mesh: Mesh, axis: Axis, stages: list[Stage], microbatches: int
    ) -> None:
        self.graph, self.mesh, self.axis, self.stages = graph, mesh, axis, stages
        self.microbatches = microbatches

    @property
    def bubbles(self) -> float:
        """``(S - 1) / (M + S - 1)``, for S stages and M micro-batches."""
        return (len(self.stages) - 1) / (self.microbatches + len(self.stages) - 1)

    @property
    def busy(self) -> float:
        """The share of the time in which a rank computes, by the operations of the stages: less
        than all but bubbles, where some stages have more to do than others."""
        flops = [stage.flops for stage in self.stages]
        return (1 - self.bubbles) * sum(flops) / max(1, max(flops) * len(flops))

    def compile(self, session: Session | None = None) -> PipelineRank:
        """The stage of the rank that this thread or process is."""
        return PipelineRank(self, session or Session())

    def __str__(self) -> str:
        total = max(1, sum(stage.flops for stage in self.stages))
        head = (
            f"{len(self.stages)} stages along {self.axis.name!r}, {self.microbatches}"
            f" micro-batches: bubbles {100 * self.bubbles:.1f} %, busy {100 * self.busy:.1f} %"
        )
        lines = [
            f"stage {n}: {len(s.graph.nodes())} ops, {100 * s.flops / total:.1f} % of the"
            f" operations, {bytes_text(s.held)} of params, sends {bytes_text(_size(s.sent))}"
            for n, s in enumerate(self.stages)
        ]
        return "\n".join([head, *lines])

    def __repr__(self) -> str:
        return f"<Pipeline: {len(self.stages)} stages, {self.microbatches} micro-batches>"


def _size(types: Sequence[TensorType]) -> int:
    return sum(prod(t.static_shape) * t.dtype.bytes for t in types)


class Shift:
    """What moves values of every stage to the next, or to the one before, as bytes."""

    def __init__(self, pipeline: Pipeline, session: Session, step: int) -> None:
        ranks = pipeline.axis.ranks
        self.size = max(1, *(_size(s.sent) for s in pipeline.stages))
        pairs = [(n, n + step) for n in range(ranks) if 0 <= n + step < ranks]
        g = Graph("shift")
        g.set_outputs(g.input("x", [self.size], "u8").collective_permute(pipeline.axis, pairs))
        self._compiled = session.compile(g)

    def __call__(self, arrays: Sequence[Array], types: Sequence[TensorType]) -> list[Array]:
        """Give arrays, if there are any; take those of so many types."""
        given, at = np.zeros(self.size, np.uint8), 0
        for a in arrays:
            given[at : at + a.nbytes] = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
            at += a.nbytes
        (taken,), at, found = self._compiled.run({"x": given}), 0, list[Array]()
        for t in types:
            size = prod(t.static_shape) * t.dtype.bytes
            found.append(taken[at : at + size].view(t.dtype.numpy).reshape(t.static_shape))
            at += size
        return found


@public
class PipelineRank:
    """The stage of a rank, compiled. It takes whole arrays, and gives those of all stages."""

    def __init__(self, pipeline: Pipeline, session: Session) -> None:
        self.pipeline = pipeline
        self.rank = current_rank(pipeline.mesh)
        self.number = pipeline.mesh.coordinates(self.rank)[pipeline.axis.name]
        self.stage = pipeline.stages[self.number]
        self.compiled: CompiledGraph = session.compile(self.stage.graph)
        self.shift = Shift(pipeline, session, 1)
        self._share = session.compile(_outputs(pipeline))
        self._params = {str(v.name) for v in pipeline.graph.params}

    def set_param(self, name: str, value: Any) -> None:
        """Set a param, if the stage has it. NameError for one that the graph has not."""
        if name not in self._params:
            raise NameError(f"no param is called {name!r}{did_you_mean(name, self._params)}")
        if name in self.stage.params:
            self.compiled.set_param(name, value)

    def run(self, inputs: Mapping[str, Any]) -> list[Array]:
        """The outputs of a batch; all ranks call it, with the same arrays. Those of a batch's
        micro-batches stand one after the other along the first axes, and so do outputs; of floats
        that are single numbers it is the mean. NameError, ShapeError and DTypeError, on all ranks,
        for a batch that does not fit."""
        found: list[list[Array]] = [[] for _ in self.stage.outputs]

        def each(feeds: dict[str, Any]) -> list[Array]:
            results = self.compiled.run(feeds)
            sent = len(self.stage.sent)
            for own, a in zip(found, results[sent:], strict=True):
                own.append(a)
            return results[:sent]

        self.forward(self.parts(inputs), each)
        return self.shared([np.stack(a) for a in found])

    def parts(self, inputs: Mapping[str, Any]) -> list[dict[str, Array]]:
        """What the stage takes of each micro-batch of a batch. All ranks check all of it: one that
        refused its own part alone would leave the others waiting for it."""
        count = self.pipeline.microbatches
        found: list[dict[str, Array]] = [{} for _ in range(count)]
        names = {str(v.name): v for v in self.pipeline.graph.inputs}
        for name in (*names, *inputs):
            if name not in inputs or name not in names:
                kind = "has no value" if name in names else "is none of the graph's"
                raise NameError(f"pipeline: the input {name!r} {kind}{did_you_mean(name, names)}")
        own = {str(v.name) for v in self.stage.graph.inputs}
        for name, v in names.items():
            a, shape = typed_array(inputs[name], name, v.dtype.name, "input"), v.type.static_shape
            whole = (count * shape[0], *shape[1:]) if shape else ()
            if a.shape != whole:
                raise ShapeError(
                    f"pipeline: {name!r} is {list(a.shape)}, expected {list(whole)}, for {count}"
                    " micro-batches"
                )
            if name in own:
                pieces = np.split(a, count) if shape else [a] * count
                for part, piece in zip(found, pieces, strict=True):
                    part[name] = piece
        return found

    def forward(
        self,
        parts: Sequence[dict[str, Array]],
        each: Callable[[dict[str, Any]], list[Array]],
    ) -> None:
        """Run ``each`` on the feeds of every micro-batch, in turns; it gives what is sent on."""
        received: list[Array] = []
        turns = len(parts) + self.pipeline.axis.ranks - 1
        for turn in range(turns):
            n, sent = turn - self.number, list[Array]()
            if 0 <= n < len(parts):
                own = {Stage.input(i): a for i, a in enumerate(received)}
                sent = each({**parts[n], **own})
            if turn + 1 < turns:
                received = self.shift(sent, self.stage.received)

    def shared(self, own: Sequence[Array]) -> list[Array]:
        """The outputs of all stages, on all of them, from those of this one by micro-batches."""
        feeds = _zeros(self.pipeline)
        feeds |= {f"{n}": a for n, a in zip(self.stage.outputs, own, strict=True)}
        found: list[Array] = []
        for v, a in zip(self.pipeline.graph.outputs, self._share.run(feeds), strict=True):
            if v.rank:
                found.append(a.reshape((-1, *a.shape[2:])))
            else:
                found.append(a.mean(dtype=a.dtype) if v.dtype.is_float else a)
        return [np.asarray(a) for a in found]


def _outputs(pipeline: Pipeline) -> Graph:
    """The outputs of micro-batches, from the ranks that have them to all."""
    g, root = Graph("outputs"), {n: k for k, s in enumerate(pipeline.stages) for n in s.outputs}
    g.set_outputs(
        [
            g.input(f"{n}", (pipeline.microbatches, *v.shape), v.dtype).collective_broadcast(
                pipeline.axis, root=root[n]
            )
            for n, v in enumerate(pipeline.graph.outputs)
        ]
    )
    return g


def _zeros(pipeline: Pipeline) -> dict[str, Array]:
    return {
        f"{n}": np.zeros((pipeline.microbatches, *v.type.static_shape), v.dtype.numpy)
        for n, v in enumerate(pipeline.graph.outputs)
    }

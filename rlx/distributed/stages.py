"""A graph cut in stages, each of which computes on what the one before gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlx.errors import GraphError, NameError, UnsupportedError, a_type, did_you_mean, shown
from rlx.ir.graph import Graph, with_bodies
from rlx.ir.op import Op
from rlx.ir.replay import cloned, replay
from rlx.ir.value import Value, bytes_of
from rlx.types import TensorType

__all__ = ["Stage", "cut"]


class Stage(NamedTuple):
    """A stage: ``graph`` takes inputs and params of the whole, and ``received`` from the stage
    before; it gives ``sent`` to the next, and after these outputs of the whole, whose numbers are
    ``outputs``."""

    graph: Graph
    received: tuple[TensorType, ...]
    sent: tuple[TensorType, ...]
    outputs: tuple[int, ...]

    @property
    def flops(self) -> int:
        """Of one micro-batch."""
        return sum(op.cost().flops for op in self.graph.nodes())

    @property
    def params(self) -> tuple[str, ...]:
        """Their names."""
        return tuple([str(v.name) for v in self.graph.params])

    @staticmethod
    def input(number: int) -> str:
        """The name of what is received."""
        return f"stage/{number}"

    @property
    def held(self) -> int:
        """The bytes of its params."""
        return bytes_of(self.graph.params)


class _Kind(NamedTuple):
    """What a value depends on: whether on inputs, whether on params; and the first stage that can
    compute it. What depends on both is computed once, in its ``stage``; others where they are
    used."""

    inputs: bool
    params: bool
    stage: int

    @property
    def staged(self) -> bool:
        return self.inputs and self.params


def cut(graph: Graph, at: Sequence[str]) -> list[Stage]:
    """The stages of a graph: a new one begins where a param of the layer of a name of ``at`` is
    used first."""
    check(graph, at)
    kinds = _kinds(graph, at)
    last = len(at)
    staged: dict[Op, int] = {}
    crossing: list[dict[Value, None]] = [{} for _ in at]
    for op in graph.nodes():
        kind = kinds[op.out]
        if not kind.staged:
            continue
        staged[op] = kind.stage
        for v in op.present:
            if kinds[v].staged:
                for k in range(kinds[v].stage, kind.stage):
                    crossing[k][v] = None
    own = [kinds[v].stage if kinds[v].staged else last for v in graph.outputs]
    found: list[Stage] = []
    for k in range(last + 1):
        numbers = tuple([n for n, stage in enumerate(own) if stage == k])
        received = [*crossing[k - 1]] if k else []
        sent = [*crossing[k]] if k < last else []
        ops = [op for op, stage in staged.items() if stage == k]
        if not ops:
            raise GraphError(f"pipeline: stage {k} of {last + 1} has no ops; leave its name away")
        outputs = [graph.outputs[n] for n in numbers]
        built = _built(graph, k, ops, received, [*sent, *outputs])
        taken, given = (tuple([v.type for v in values]) for values in (received, sent))
        found.append(Stage(built, taken, given, numbers))
    return found


def check(graph: Graph, at: Sequence[str]) -> None:
    """GraphError and its kin for what is not cut."""
    if not isinstance(graph, Graph):
        raise GraphError(f"pipeline takes a Graph, found {a_type(graph)}")
    if isinstance(at, str) or not at or not all(isinstance(n, str) for n in at):
        raise GraphError(f"pipeline: at is {shown(at)}, expected names of layers")
    if graph.symbols:
        raise UnsupportedError(
            f"pipeline: the sizes {', '.join(sorted(graph.symbols))} are not known; bind them first"
        )
    for op in with_bodies(graph.nodes()):
        if op.meets:
            raise UnsupportedError(
                f"pipeline: the graph has a collective, {op.short}; cut one without", op.location
            )
    names = [str(v.name) for v in graph.params]
    for n, name in enumerate(at):
        if not any(_of_layer(p, name) for p in names):
            known = {p.rpartition(".")[0] or p for p in names}
            raise NameError(
                f"pipeline: no param is of the layer {name!r}{did_you_mean(name, known)}"
            )
        if name in at[:n]:
            raise GraphError(f"pipeline: at names {name!r} twice")


def _of_layer(param: str, layer: str) -> bool:
    return param == layer or param.startswith(f"{layer}.")


def _kinds(graph: Graph, at: Sequence[str]) -> dict[Value, _Kind]:
    found: dict[Value, _Kind] = {v: _Kind(True, False, 0) for v in graph.inputs}
    for v in graph.params:
        stages = [n + 1 for n, name in enumerate(at) if _of_layer(str(v.name), name)]
        found[v] = _Kind(False, True, max(stages, default=0))
    for op in graph.nodes():
        given = [found[v] for v in op.present]
        kind = _Kind(
            any(k.inputs for k in given), any(k.params for k in given),
            max((k.stage for k in given), default=0),
        )  # fmt: skip
        found.update(dict.fromkeys(op.results, kind))
    return found


def _built(
    graph: Graph,
    number: int,
    ops: Sequence[Op],
    received: Sequence[Value],
    outputs: Sequence[Value],
) -> Graph:
    """The graph of a stage: its ops, and those that these need and that belong to no stage."""
    out = Graph(f"{graph.name}.{number}")
    own, env = set(ops), dict[Value, Value]()
    for n, v in enumerate(received):
        env[v] = out.input(Stage.input(n), v.shape, v.dtype)
    needed = {v for v in outputs if v not in env}
    kept: list[Op] = []
    for op in reversed(graph.nodes()):
        if op in own or needed.intersection(op.results):
            kept.append(op)
            needed.update(v for v in op.present if v not in env)
    for v in graph.inputs:
        if v in needed:
            env[v] = out.input(str(v.name), v.shape, v.dtype)
    for v in graph.params:
        if v in needed:
            env[v] = out.param(str(v.name), v.shape, v.dtype)
    out.param_values = {
        n: a for n, a in graph.param_values.items() if n in {*map(_name, out.params)}
    }
    replay(reversed(kept), env, cloned)
    out.set_outputs([env[v] for v in outputs])
    return out


def _name(v: Value) -> str:
    return str(v.name)

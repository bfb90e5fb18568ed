"""Derivatives and batches of Values, by chaining the rules of the ops between them.

A missing tangent or cotangent is None and means zero. What is made stands at the line of the op
that it is made for.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rlx.errors import ShapeError, UnsupportedError
from rlx.ir.graph import Graph, topological
from rlx.ir.op import Op, located
from rlx.ir.replay import cloned, replay
from rlx.ir.value import Keys, Value
from rlx.ops.movement.fill import zeros
from rlx.types import Dim

__all__ = [
    "Records", "batch", "carries_derivative", "inline", "inline_blocks", "jvp", "moved_by",
    "named_axis", "pull_back", "recorded", "substituted", "vjp", "vjp_of_operands",
]  # fmt: skip

Records = dict[Op, Sequence[Value]]
"""What ops have kept of a computation for their derivatives in reverse mode."""


def vjp(
    outputs: Sequence[Value], wrt: Sequence[Value], cotangents: Sequence[Value | None]
) -> list[Value | None]:
    """Cotangents of ``wrt`` from those of ``outputs`` (reverse mode).

    Each of ``wrt`` is taken as given: where it is computed from another, what reaches that one
    through it does not count for the other.
    """
    stop = set(wrt)
    env, records = recorded(outputs, wrt, stop)
    return pull_back([env.get(v, v) for v in outputs], wrt, cotangents, records, stop)


def recorded(
    outputs: Sequence[Value], wrt: Collection[Value], stop: Keys = frozenset()
) -> tuple[dict[Value, Value], Records]:
    """``outputs`` computed so that ``pull_back`` finds what it needs of the computation.

    Of ops with a rule ``record`` it is kept what that says. Returned is what stands for the values
    that are computed anew, and what is kept, by the ops.
    """
    nodes = topological(outputs, stop)
    if not any(hasattr(op, "record") for op in nodes):
        return {}, {}
    moving, env, records = moved_by(nodes, wrt), dict[Value, Value](), Records()
    for op in nodes:
        node = _moved(op, env)
        results: Sequence[Value] = node.results
        if hasattr(op, "record") and not moving.isdisjoint(op.results):
            with located(op.location):
                results, kept = node.record()
            records.update(kept)
        if results is not op.results:
            pairs = zip(op.results, results, strict=True)
            env.update((old, new) for old, new in pairs if old not in stop)
    return env, records


def pull_back(
    outputs: Sequence[Value],
    wrt: Sequence[Value],
    cotangents: Sequence[Value | None],
    records: Records,
    stop: Keys = frozenset(),
) -> list[Value | None]:
    """Cotangents of ``wrt`` from those of ``outputs``, with what ``recorded`` has kept. Nothing
    goes further back than the values in ``stop``."""
    grads: dict[Value, Value] = {}
    for v, g in zip(outputs, cotangents, strict=True):
        _add(grads, v, g)
    nodes = topological(outputs, stop)
    moving = moved_by(nodes, wrt)
    for op in reversed(nodes):
        gs = [None if r in stop else grads.get(r) for r in op.results]
        if not op.differentiable or all(g is None for g in gs) or moving.isdisjoint(op.present):
            continue
        with located(op.location):
            for v, g in _pulled(op, gs, records, moving):
                if v in moving:
                    _add(grads, v, g)
    return [grads.get(v) for v in wrt]


def _pulled(
    op: Op, cotangents: Sequence[Value | None], records: Records, moving: Keys
) -> list[tuple[Value | None, Value | None]]:
    """The operands of an op with their cotangents."""
    if op in records:
        wanted = [v in moving for v in op.operands]
        found = op.vjp(*cotangents, record=records[op], wanted=wanted)
        return list(zip(op.operands, found, strict=True))
    if hasattr(op, "vjp"):
        return list(zip(op.operands, op.vjp(*cotangents), strict=True))
    found = vjp_of_operands(_expanded(op, "vjp"), op.present, cotangents)
    return list(zip(op.present, found, strict=True))


def vjp_of_operands(
    outputs: Sequence[Value], operands: Sequence[Value], cotangents: Sequence[Value | None]
) -> list[Value | None]:
    """As ``vjp`` for the operands of an op, which are summed up per Value: the cotangent of one
    that is there twice comes once, and is that of both."""
    once = list(dict.fromkeys(operands))
    found = dict(zip(once, vjp(outputs, once, cotangents), strict=True))
    return [found.pop(v, None) for v in operands]


def jvp(
    outputs: Sequence[Value], wrt: Sequence[Value], tangents: Sequence[Value | None]
) -> list[Value | None]:
    """Tangents of ``outputs`` from those of ``wrt`` (forward mode); each of ``wrt`` is taken as
    given."""
    found = {v: t for v, t in zip(wrt, tangents, strict=True) if t is not None}
    stop = set(wrt)
    for op in topological(outputs, stop):
        ts = [None if v is None else found.get(v) for v in op.operands]
        if not op.differentiable or all(t is None for t in ts):
            continue
        with located(op.location):
            if hasattr(op, "jvp"):
                out = op.jvp(*ts)
                many = out if isinstance(out, tuple) else (out,)
            else:
                there = [t for v, t in zip(op.operands, ts, strict=True) if v is not None]
                many = jvp(_expanded(op, "jvp"), op.present, there)
        for r, t in zip(op.results, many, strict=True):
            if t is not None and r not in stop:
                found[r] = t
    return [found.get(v) for v in outputs]


def carries_derivative(v: Value) -> bool:
    """Whether a value can have a tangent or cotangent: integers and bools have none."""
    return v.dtype.is_float or v.dtype.is_complex


def moved_by(nodes: Sequence[Op], wrt: Collection[Value]) -> set[Value]:
    """The values among ``wrt`` and the results of ``nodes`` (operands before users) that have a
    derivative by ``wrt``, by what the ops say of themselves; it may still be zero."""
    moving = {v for v in wrt if carries_derivative(v)}
    for op in nodes:
        if op.differentiable and not moving.isdisjoint(op.present):
            # A cast of an 8-bit float refuses its cotangent, which would be a silent zero.
            moving.update(r for r in op.results if carries_derivative(r) or r.dtype.is_float8)
    return moving


def batch(
    outputs: Sequence[Value], leaves: Mapping[Value, tuple[Value, bool]]
) -> list[tuple[Value, bool]]:
    """``outputs`` computed from what stands for the ``leaves``: a Value, and whether it has a new
    leading axis. Each is again a Value, and whether it has the axis. What depends on none of the
    leaves stays as it is."""
    found = dict(leaves)
    for op in topological(outputs, stop=leaves):
        given = [None if v is None else found.get(v, (v, False)) for v in op.operands]
        values = [None if pair is None else pair[0] for pair in given]
        flags = [pair is not None and pair[1] for pair in given]
        with located(op.location):
            if _named.axis and not any(flags) and not op.meets and _over_named(op):
                # Its bodies differ from rank to rank, though what they are given does not.
                last = values[-1]
                assert last is not None
                values[-1], flags[-1] = last.expand((_named.ranks, *last.shape)), True
                given[-1] = values[-1], True
            if op.meets and _over_named(op):
                results = [_simulated(op, values)]
            elif not any(flags):
                same = all(a is b for a, b in zip(values, op.operands, strict=True))
                node = op if same else op.with_operands(values)
                results = [(r, False) for r in node.results]
            elif hasattr(op, "batch"):
                out = _empty(op) if _size(given) == 0 else op.batch(values, flags)
                many = out if isinstance(out, tuple) else (out,)
                results = [r if isinstance(r, tuple) else (r, True) for r in many]
            else:
                there = [pair for pair in given if pair is not None]
                inner = dict(zip(op.present, there, strict=True))
                results = batch(_expanded(op, "batch"), inner)
        found.update(zip(op.results, results, strict=True))
    return [found.get(v, (v, False)) for v in outputs]


class _Named(threading.local):
    axis: str = ""
    ranks: Dim = 0


_named = _Named()


@contextmanager
def named_axis(axis: str, ranks: Dim) -> Generator[None]:
    """In the block the new axis of a batch has the ranks of the axis of a mesh: collectives along
    that are computed. None is meant by an empty name."""
    before = _named.axis, _named.ranks
    _named.axis, _named.ranks = axis, ranks
    try:
        yield
    finally:
        _named.axis, _named.ranks = before


def _over_named(op: Op) -> bool:
    """Whether an op, or one in its bodies, is a collective along the named axis."""
    if op.meets:
        return op.attrs["axis"] == _named.axis
    bodies = (a for a in op.attrs.values() if isinstance(a, Graph))
    return any(_over_named(inner) for body in bodies for inner in body.nodes())


def _simulated(op: Any, values: Sequence[Value | None]) -> tuple[Value, bool]:
    if op.ranks != _named.ranks:
        raise ShapeError(
            f"{op.short} is over {op.ranks} ranks along {op.axis!r}, and vmap has {_named.ranks}"
            " examples there; give as many as there are ranks"
        )
    return op.simulated(values, op.ranks)


def _size(given: Sequence[tuple[Value, bool] | None]) -> Dim:
    """The length of the new axis."""
    return next(pair[0].shape[0] for pair in given if pair is not None and pair[1])


def _empty(op: Op) -> tuple[Value, ...]:
    """The results over a batch of nothing. Rules need not know of it: some make the axis groups of
    channels, of which there must be one."""
    return tuple(zeros((0, *r.shape), r.dtype) for r in op.results)


def inline(graph: Graph, values: Sequence[Value]) -> list[Value]:
    """The outputs of a graph on other values as its inputs."""
    env = dict(zip(graph.inputs, values, strict=True))
    replay(topological(graph.outputs), env, cloned)
    return [env[v] for v in graph.outputs]


def substituted(values: Sequence[Value], given: Mapping[Value, Value], stop: Keys) -> list[Value]:
    """``values`` computed from what is ``given`` for others; what is behind the values in ``stop``
    stays as it is."""
    env = dict(given)
    for op in topological(values, stop={*given, *stop}):
        node = _moved(op, env)
        if node is not op:
            env.update(zip(op.results, node.results, strict=True))
    return [env.get(v, v) for v in values]


def _moved(op: Op, env: Mapping[Value, Value]) -> Op:
    """The op on what stands for its operands; itself if nothing stands for any."""
    if not any(v in env for v in op.present):
        return op
    return op.with_operands([None if v is None else env.get(v, v) for v in op.operands])


def inline_blocks(outputs: Sequence[Value], stop: Keys) -> tuple[list[Value], dict[Value, Value]]:
    """``outputs`` with what the blocks (of the dialect hir) on the way from ``stop`` expand to, as
    far as derivatives do the same; and what stands for the values that are computed anew."""
    env: dict[Value, Value] = {}
    for op in topological(outputs, stop=stop):
        node = _moved(op, env)
        results: Sequence[Value] = node.results
        if op.dialect == "hir" and op.differentiable and op.composite() and not hasattr(op, "vjp"):
            results = inline_blocks(_expanded(node, "vjp"), set(node.present))[0]
        if results is not op.results:
            env.update(zip(op.results, results, strict=True))
    return [env.get(v, v) for v in outputs], env


def _expanded(op: Op, rule: str) -> list[Value]:
    """What a composite stands for; UnsupportedError for another op, which lacks the rule."""
    if not op.composite():
        raise UnsupportedError(
            f"{op.short} has no {rule} rule, which this needs; declare one where the op is"
            " declared, or keep the op off the way by stop_gradient",
            op.location,
        )
    return list(op.expansion())


def _add(grads: dict[Value, Value], v: Value | None, g: Value | None) -> None:
    if v is None or g is None:
        return
    assert g.type == v.type, f"the cotangent of {v!r} has type {g.type}"
    grads[v] = grads[v] + g if v in grads else g

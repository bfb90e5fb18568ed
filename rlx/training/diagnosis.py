"""Diagnosis of nan and infinities: a graph run again, op by op, by the reference interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.ir.graph import Graph, sizes_of
from rlx.ir.interpreter import evaluate
from rlx.ir.op import Location, Op
from rlx.ir.replay import replay
from rlx.ir.value import Value

__all__ = ["Culprit", "culprit"]

Array = np.ndarray[Any, Any]


@frozen
class Culprit:
    """What was found, and the user's line that it is about, if there is one."""

    message: str
    location: Location | None = None


def culprit(graph: Graph, feeds: Mapping[str, Any], params: Mapping[str, Any]) -> Culprit | None:
    """The first op, on the way to the first output that is not finite, that makes nan or infinity
    of finite operands; or the input or param that has them already. None if all are finite."""
    given = {**params, **feeds}
    leaves = {v: np.asarray(given[str(v.name)]) for v in (*graph.inputs, *graph.params)}
    if graph.symbols:
        sizes = sizes_of((str(v.name), v.type, a.shape) for v, a in leaves.items())
        graph = graph.bind(sizes)
        leaves = {v: np.asarray(given[str(v.name)]) for v in (*graph.inputs, *graph.params)}
    values = replay(graph.nodes(), dict(leaves), evaluate)
    bad = [v for v in graph.outputs if _kind(values[v])]
    if not bad:
        return None
    what = "the loss" if bad[0] is graph.outputs[0] else "a gradient"
    head = f"{what} is {_kind(values[bad[0]])}"
    return _explained(head, _origin(bad[0], values), values)


def _origin(v: Value, values: Mapping[Value, Array]) -> Value:
    """The value furthest back from which ``v`` has its nan or infinity."""
    while v.op is not None:
        kinds = [(w, _kind(values[w])) for w in v.op.present]
        worse = [w for w, kind in kinds if kind == "nan"] or [w for w, kind in kinds if kind]
        if not worse:
            return v
        v = worse[0]
    return v


def _explained(head: str, v: Value, values: Mapping[Value, Array]) -> Culprit:
    kind, a = _kind(values[v]), values[v]
    count = int((~np.isfinite(a.astype(np.float64))).sum())
    some = f"{count} of {a.size} elements {kind}" if a.size > 1 else kind
    if v.op is None:
        return Culprit(f"{head}: {v.name!r} was given with {some}")
    operands = ", ".join(_range(values[w]) for w in v.op.present)
    return Culprit(
        f"{head}: {_name(v.op)} is the first to give {some}, of operands in {operands}",
        v.op.location,
    )


def _name(op: Op) -> str:
    return op.name.partition(".")[2]


def _range(a: Array) -> str:
    if a.size == 0:
        return "[]"
    low, high = (float(x) for x in (a.min(), a.max()))
    return f"[{low:.4g}, {high:.4g}]"


def _kind(a: Array) -> str:
    """ "nan" or "infinite" if an element is; nan goes before."""
    if a.dtype.kind not in "fV" or a.size == 0:
        return ""
    wide = a.astype(np.float64)
    if np.isnan(wide).any():
        return "nan"
    return "infinite" if np.isinf(wide).any() else ""

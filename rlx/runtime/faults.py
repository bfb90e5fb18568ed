"""Diagnosis of faults: the index out of range, and the input that holds it, after a failed run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.errors import FaultError, RlxError
from rlx.ir.declared import is_foreign
from rlx.ir.graph import Graph, sizes_of
from rlx.ir.interpreter import evaluate
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.control.control import Control

__all__ = ["with_index"]

Array = np.ndarray[Any, Any]
Known = dict[Value, Array]

_LARGEST = 1 << 24
"""Elements of a result up to which an op is computed again."""


def with_index(fault: FaultError, graph: Graph, given: Mapping[str, Any]) -> FaultError:
    """A fault with the index that was out of range, and the inputs and params that it comes from;
    the fault itself where the arrays ``given`` by name do not tell.

    A kernel records its op alone. So the op is interpreted again, on its own integers and on zeros
    for the rest: where those follow from integers that were given, which takes a moment.
    """
    arrays = {name: a for name, a in given.items() if isinstance(a, np.ndarray)}
    if not graph.nodes():
        return fault  # the signature of an artifact
    try:
        if graph.symbols:
            leaves = (v for v in (*graph.inputs, *graph.params) if v.name in arrays)
            sizes = sizes_of((str(v.name), v.type, arrays[str(v.name)].shape) for v in leaves)
            graph = graph.bind(sizes)
        for node in graph.nodes():
            found = _again(node, arrays) if node.location == fault.location else None
            if found is not None and (node.composite() or found.message.startswith(fault.message)):
                return found
    except (RlxError, MemoryError):
        pass  # what failed is told as it was
    return fault


def _again(node: Op, arrays: Mapping[str, Array]) -> FaultError | None:
    """The fault of a node on the integers that it is given, if it has one."""
    integers = [v for v in node.present if v.dtype.is_int]
    if not integers or not _is_small(node):
        return None
    known: Known = {}
    sources: dict[str, None] = {}
    for v in integers:
        before = _sources(v, known, arrays)
        if before is None:
            return None
        sources |= before
    for v in node.present:
        zeros = np.broadcast_to(np.zeros((), v.dtype.numpy), v.type.static_shape)
        known.setdefault(v, zeros)
    try:
        evaluate(node, [None if v is None else known[v] for v in node.operands])
    except FaultError as fault:
        listed = " and ".join(map(repr, sources))
        return FaultError(f"{fault.message}{', from ' * bool(sources)}{listed}", node.location)
    return None


def _sources(v: Value, known: Known, arrays: Mapping[str, Array]) -> dict[str, None] | None:
    """The names of what a value comes from, which is ``known`` then. None where that is not given,
    or where it would take long: all between is integers."""
    if v.op is None:
        name = str(v.name)
        if name not in arrays:
            return None
        known[v] = arrays[name].reshape(v.type.static_shape)
        return {name: None}
    if not _is_small(v.op):
        return None
    found: dict[str, None] = {}
    for x in v.op.present:
        plain = x.op is None or x.dtype.is_int or x.dtype.kind == "bool"
        before = _sources(x, known, arrays) if plain else None
        if before is None:
            return None
        found |= before
    if v not in known:
        results = evaluate(v.op, [None if x is None else known[x] for x in v.op.operands])
        known.update(zip(v.op.results, results, strict=True))
    return found


def _is_small(op: Op) -> bool:
    """Whether an op is computed again: no loop, no code of a user's, and no large result."""
    if isinstance(op, Control) or is_foreign(type(op)):
        return False
    return all(v.type.size <= _LARGEST for v in op.results)

"""The structure of a graph as text: all that a compile depends on, and nothing else.

    input "x": [2, 3] f32
    param "w": [3, 4] f32
    %0 = mir.matmul(input 0, param 0)
    %1 = mir.reduce_sum(%0) axes=(1,) keepdims=false
    output %1

Graphs of equal text are compiled alike. Names of inputs, params and outputs, types, attributes, the
contents of constants and the wiring are part of it; the graph's own name, the values of params, and
where the code that built it stands are not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rlx.base.dims import SymDim
from rlx.base.stored import elements_digest
from rlx.errors import UnsupportedError, a_type
from rlx.ir.declared import is_foreign
from rlx.ir.graph import Graph, topological, with_bodies
from rlx.ir.value import Value
from rlx.types import DType

__all__ = ["foreign_ops", "structure"]


class _Structure(Protocol):
    """A graph, or what a graph with bound dims was made of."""

    @property
    def inputs(self) -> Sequence[Value]: ...
    @property
    def params(self) -> Sequence[Value]: ...
    @property
    def outputs(self) -> Sequence[Value]: ...
    @property
    def output_names(self) -> tuple[str, ...]: ...


def structure(graph: _Structure) -> str:
    """The text of a graph's structure."""
    names: dict[Value, str] = {}
    lines: list[str] = []
    for kind, leaves in (("input", graph.inputs), ("param", graph.params)):
        for i, v in enumerate(leaves):
            names[v] = f"{kind} {i}"
            dims = ", ".join(map(str, v.shape))
            lines.append(f"{kind} {json.dumps(v.name)}: [{dims}] {v.dtype}")
    for n, op in enumerate(topological(graph.outputs)):
        for i, v in enumerate(op.results):
            names[v] = f"%{n}" if i == 0 else f"%{n}#{i}"
        operands = ", ".join("none" if v is None else names[v] for v in op.operands)
        attrs = "".join(f" {key}={_attr(op.attrs[key])}" for key in sorted(op.attrs))
        lines.append(f"%{n} = {op.name}({operands}){attrs}")
    lines += [f"output {names[v]}" for v in graph.outputs]
    lines += [f"name {json.dumps(name)}" for name in graph.output_names]
    return "\n".join(lines)


def foreign_ops(graph: _Structure) -> list[str]:
    """The ops that RLX does not declare: what their classes mean is no part of any key."""
    kinds = {type(op) for op in with_bodies(topological(graph.outputs))}
    return sorted(kind.name for kind in kinds if is_foreign(kind))


def _attr(value: Any) -> str:
    """An attribute, so that no two values of any kind look alike."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, bool | int | SymDim | DType) or value is None:
        return str(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_attr, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{_attr(k)}: {_attr(v)}' for k, v in value.items()))}}}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}:{elements_digest(value)}"
    if isinstance(value, Graph):
        body = structure(value).replace("\n", "\n  ")
        return f"{{\n  {body}\n}}"
    raise UnsupportedError(f"an attribute that is {a_type(value)} has no fingerprint")

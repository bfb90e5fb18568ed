"""The interpreter behind the interface of an executable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.graph import Graph
from rlx.interpret import interpret
from rlx.runtime.artifact import Signature

__all__ = ["Interpreted"]

Array = np.ndarray[Any, Any]


class _Signatures:
    def __init__(self, graph: Graph) -> None:
        self.inputs: list[Signature] = [(str(v.name), v.dtype.name, v.type.static_shape) for v in graph.inputs]
        self.outputs: list[Signature] = [
            (str(i), v.dtype.name, v.type.static_shape) for i, v in enumerate(graph.outputs)
        ]


class Interpreted:
    """Runs a bound graph by its ops' references."""

    report = None

    def __init__(self, graph: Graph) -> None:
        self.graph, self.artifact = graph, _Signatures(graph)
        self._params: dict[str, Array] = {}

    def set_param(self, name: str, value: Array) -> None:
        self._params[name] = value

    def run_slots(self, *inputs: Array) -> tuple[Array, ...]:
        feeds = {name: a for (name, _, _), a in zip(self.artifact.inputs, inputs, strict=True)}
        return tuple(interpret(self.graph, feeds, self._params))

    def run_into(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        for out, value in zip(outputs, self.run_slots(*inputs), strict=True):
            out[...] = value

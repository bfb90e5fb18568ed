"""The interpreter behind the interface of an executable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.ir.arrays import as_array
from rlx.ir.graph import Graph, names_of_outputs
from rlx.ir.interpreter import interpret
from rlx.ir.op import caller
from rlx.runtime.by_slots import BySlots
from rlx.runtime.executable import wrong_count
from rlx.schedule.plan import Signature

__all__ = ["Interpreted"]

Array = np.ndarray[Any, Any]


class _Signatures:
    def __init__(self, graph: Graph) -> None:
        self.inputs: list[Signature] = [
            (str(v.name), v.dtype.name, v.type.static_shape) for v in graph.inputs
        ]
        self.outputs: list[Signature] = [
            (name, v.dtype.name, v.type.static_shape)
            for name, v in zip(names_of_outputs(graph), graph.outputs, strict=True)
        ]


class Params:
    """The params of a graph by name."""

    def __init__(self) -> None:
        self.params: dict[str, Array] = {}

    def set_param(self, name: str, value: Array) -> None:
        """Set a param; the array is kept."""
        self.params[name] = value


class Interpreted(BySlots):
    """Runs a bound graph by its ops' references."""

    report = None

    def __init__(
        self,
        graph: Graph,
        shared: Sequence[Params] = (),
        donate: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.graph, self.artifact, self.donate = graph, _Signatures(graph), dict(donate)
        self.weights = shared[0] if shared else Params()

    def run_slots(self, *inputs: Array) -> tuple[Array, ...]:
        """Run on inputs in declared order; the results are new arrays."""
        expected = self.artifact.inputs
        if len(inputs) != len(expected):
            raise wrong_count(len(inputs), [name for name, _, _ in expected])
        feeds = {s[0]: as_array(a, s, "input") for s, a in zip(expected, inputs, strict=True)}
        # New arrays: an output may be an input, a param, or a view of one.
        return tuple(np.array(a) for a in interpret(self.graph, feeds, self.weights.params))

    def profile(self, inputs: Sequence[Array], runs: int) -> Any:
        """UnsupportedError: the interpreter launches no kernels."""
        raise UnsupportedError(
            "the interpreter launches no kernels that could be timed; compile for 'cpu'", caller()
        )

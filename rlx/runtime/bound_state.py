"""Runs over state: donated inputs that are the same arrays in every run, and checked once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.graph import Graph
from rlx.runtime import calls

if TYPE_CHECKING:
    from rlx.runtime.executable import Executable

__all__ = ["BoundState"]

Array = np.ndarray[Any, Any]


class BoundState:
    """A compiled graph with its state (``CompiledGraph.bind_state``). One thread at a time may run
    it."""

    def __init__(
        self,
        graph: Graph,
        state: Mapping[str, Any],
        find: Callable[[Any], Executable | None],
        checked: Callable[[Mapping[str, Any], Mapping[str, Any]], list[Array]],
        quick: Callable[[Executable, list[Array], Mapping[str, Any]], list[Array]],
    ) -> None:
        """``find`` gives the executable for inputs, if it is there; ``checked`` runs after all
        checks, ``quick`` without any."""
        self._find, self._run_checked, self._run_quick = find, checked, quick
        self._state = {name: calls.written_to(name, a) for name, a in state.items()}
        self._names = [str(v.name) for v in graph.inputs]
        kinds = {str(v.name): v.dtype.numpy for v in graph.inputs}
        self._given = [(i, n, kinds[n]) for i, n in enumerate(self._names) if n not in self._state]
        self._checked = False
        # One without bytes shares none; in the middle of another it would hide what follows there.
        arrays = [a for a in self._state.values() if isinstance(a, np.ndarray) and a.nbytes]
        spans = sorted(calls.extent(a)[1:] for a in arrays)
        self._begins, self._ends = [b for b, _ in spans], [e for _, e in spans]

    def run(self, inputs: Mapping[str, Any]) -> list[Array]:
        """As ``CompiledGraph.run_in_place`` with this state. Raises as that does."""
        if self._checked and type(inputs) is dict and len(inputs) == len(self._given):
            feeds = {**self._state, **inputs}
            executable = self._find(feeds)
            if executable is not None and self._fit(executable, inputs):
                return self._run_quick(executable, [feeds[name] for name in self._names], inputs)
        found = self._run_checked(inputs, self._state)
        self._checked = True
        return found

    def _fit(self, executable: Executable, inputs: Mapping[str, Any]) -> bool:
        """Whether inputs are arrays exactly as declared, which share no memory with the state."""
        for place, name, kind in self._given:
            a = inputs.get(name)
            shape = executable.artifact.inputs[place][2]
            if type(a) is not np.ndarray or a.dtype != kind or a.shape != shape:
                return False
            if not a.flags.c_contiguous:
                return False
            _, begin, end = calls.extent(a)
            if begin == end:
                continue
            at = bisect_right(self._begins, begin) - 1
            if at >= 0 and begin < self._ends[at]:
                return False
            if at + 1 < len(self._begins) and self._begins[at + 1] < end:
                return False
        return True

"""The search: the first candidate that is smaller and still fails is the next to shrink."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.tools.reduce.change import Subject, changed
from rlx.tools.reduce.edits import EDITS, cost

__all__ = ["Subject", "reduce_graph"]


@dataclass
class _Budget:
    tries: int
    deadline: float
    tried: int = 0

    @property
    def spent(self) -> bool:
        return self.tried >= self.tries or time.monotonic() > self.deadline


def reduce_graph(
    subject: Subject,
    fails: Callable[[Subject], bool],
    *,
    tries: int = 2000,
    seconds: float = 600.0,
    progress: Callable[[Subject, int], None] = lambda subject, tried: None,
) -> Subject:
    """The smallest subject found that still fails, in at most ``tries`` calls of ``fails`` and
    ``seconds`` of time. ``fails`` must hold of ``subject``; ``progress`` hears of each step."""
    budget = _Budget(tries, time.monotonic() + seconds)
    seen: set[int] = set()
    best, moved = subject, True
    while moved and not budget.spent:
        moved = False
        for edit in EDITS:
            while (smaller := _next(_candidates(best, edit, seen), fails, budget)) is not None:
                best, moved = smaller, True
                progress(best, budget.tried)
    return best


def _candidates(
    best: Subject, edit: Callable[[Subject], Iterator], seen: set[int]
) -> Iterator[Subject]:
    size = cost(best)
    for change in edit(best):
        candidate = changed(best, change)
        if candidate is None or cost(candidate) >= size:
            continue
        key = _key(candidate)
        if key not in seen:
            seen.add(key)
            yield candidate


def _key(subject: Subject) -> int:
    """What tells a candidate from those that were tried."""
    graph, arrays = subject.graph, (subject.arrays or {}).values()
    leaves = [*graph.inputs, *graph.params]
    number = {v: n for n, v in enumerate(leaves)}
    parts: list[Any] = [len(graph.inputs), *(str(v.type) for v in leaves)]
    for op in graph.nodes():
        attrs = (a.tobytes() if isinstance(a, np.ndarray) else repr(a) for a in op.attrs.values())
        operands = (-1 if v is None else number[v] for v in op.operands)
        parts += [op.name, *attrs, *operands, *(str(v.type) for v in op.results)]
        number.update((v, len(number) + n) for n, v in enumerate(op.results))
    ends = (number[v] for v in graph.outputs)
    return hash((*parts, *ends, *(a.tobytes() for a in arrays)))


def _next(
    candidates: Iterator[Subject], fails: Callable[[Subject], bool], budget: _Budget
) -> Subject | None:
    for candidate in candidates:
        if budget.spent:
            return None
        budget.tried += 1
        if fails(candidate):
            return candidate
    return None

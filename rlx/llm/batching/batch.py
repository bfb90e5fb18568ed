"""Answers to many prompts at once, by one engine: each step is what the scheduler says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.llm.answer import Answer
from rlx.llm.batching.scheduler import Entry, Limits, Schedule, cancel, commit, next_step, submit
from rlx.llm.engine import Engine, StepRows
from rlx.llm.sampling import Drawn, Row

__all__ = ["Batch"]

Array = np.ndarray[Any, Any]


class Batch:
    """Draws answers together. One thread at a time may use it.

    ``draw`` gives a token for each row of logits (``rlx.llm.sampling.Sampler.draw``).
    """

    def __init__(
        self,
        engine: Engine,
        draw: Callable[[Array, Sequence[Row]], list[Drawn]],
        *,
        sequences: int,
    ) -> None:
        limits = Limits(engine.max_rows, sequences, engine.context)
        self.engine, self.schedule = engine, Schedule.of(engine.pool, limits)
        self.steps = self.rows = 0
        self._draw = draw
        self._answers: dict[int, Answer] = {}
        self._names = itertools.count()

    @property
    def room(self) -> int:
        """The most tokens of a prompt and its answer."""
        pool = self.engine.pool
        return min(self.engine.context, pool.capacity * pool.tokens_per_page)

    @property
    def answers(self) -> int:
        """How many answers have not ended."""
        return len(self._answers)

    def add(self, answer: Answer, client: str = "") -> int:
        """Let an answer be drawn; returns its number. ``client`` is who asks: clients are served
        alike. ShapeError if there is no room for it."""
        name = next(self._names)
        longest = len(answer.prompt) + answer.most
        submit(self.schedule, name, answer.prompt, longest, client)
        self._answers[name] = answer
        return name

    def cancel(self, name: int) -> None:
        """End an answer, whose pages are free at once; nothing if it has ended."""
        answer = self._answers.pop(name, None)
        if answer is not None:
            cancel(self.schedule, name)
            answer.end("cancelled")

    def step(self) -> list[tuple[int, Answer]]:
        """One step of the engine: the answers that have a token more, with their numbers. Those
        that ended are no longer in the batch."""
        entries = next_step(self.schedule)
        if not entries:
            return []
        last = [e for e in entries if e.last]
        rows = StepRows.of(
            [(e.tokens, e.cached, e.pages) for e in entries], wanting=[e.last for e in entries]
        )
        logits = self.engine.step(rows)
        drawn = self._draw(logits, [self._answers[e.name].row() for e in last]) if last else []
        self.steps, self.rows = self.steps + 1, self.rows + len(rows.ids)
        return self._commit(entries, last, drawn)

    def _commit(
        self, entries: list[Entry], last: list[Entry], drawn: list[Drawn]
    ) -> list[tuple[int, Answer]]:
        grown: list[tuple[int, Answer]] = []
        tokens: dict[int, int] = {}
        for entry, found in zip(last, drawn, strict=True):
            answer = self._answers[entry.name]
            answer.add(found)
            grown.append((entry.name, answer))
            if answer.finish is None:
                tokens[entry.name] = found.token
        commit(self.schedule, entries, tokens)
        for entry in entries:
            answer, running = self._answers[entry.name], self.schedule.running[entry.name]
            answer.read = min(running.cached, len(answer.prompt))
            answer.cached = running.hit
        for name, answer in grown:
            if answer.finish is not None:
                del self._answers[name]
                cancel(self.schedule, name)
        return grown

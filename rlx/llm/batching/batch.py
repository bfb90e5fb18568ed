"""Answers to many prompts at once, by one engine: each step is what the scheduler says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.llm.answer import Answer
from rlx.llm.batching.drafts import Asked, Drafter
from rlx.llm.batching.scheduler import Entry, Limits, Schedule, cancel, commit, next_step, submit
from rlx.llm.engine import Engine, StepRows
from rlx.llm.sampling import Drawn, Row

__all__ = ["Batch"]

Array = np.ndarray[Any, Any]

MOST_DRAFTED = 32
"""The most drafted tokens of a step: more rows are bound by arithmetic, and wrong ones cost it."""


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
        self.engine, self.schedule = engine, Schedule.of(engine.pool, limits, engine.states)
        self.steps = self.rows = self.drafted = self.accepted = 0
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
        submit(self.schedule, name, answer.prompt, longest, client, answer.adapter)
        self._answers[name] = answer
        return name

    def cancel(self, name: int) -> None:
        """End an answer, whose pages are free at once; nothing if it has ended."""
        answer = self._answers.pop(name, None)
        if answer is not None:
            self._leave(name, answer)
            answer.end("cancelled")

    def step(self) -> list[tuple[int, Answer]]:
        """One step of the engine: the answers that have tokens more, with their numbers. Those
        that ended are no longer in the batch."""
        entries = next_step(self.schedule, self._drafts())
        if not entries:
            return []
        rows = StepRows.of(
            [(e.tokens, e.cached, e.pages) for e in entries],
            wanting=[1 + e.drafted if e.last else 0 for e in entries],
            adapters=[e.adapter for e in entries],
            states=[e.state for e in entries],
        )
        logits = self.engine.step(rows)
        asked = [self._answers[e.name].rows(_draft(e)) for e in entries if e.last]
        drawn = self._draw(logits, [row for own in asked for row in own]) if asked else []
        self.steps, self.rows = self.steps + 1, self.rows + len(rows.ids)
        return self._commit(entries, drawn)

    def _drafts(self) -> dict[int, list[int]]:
        """What answers that are through their prompts may go on with."""
        asked: dict[Drafter, list[Asked]] = {}
        for name, s in self.schedule.running.items():
            answer = self._answers[name]
            if answer.drafter is not None and s.missing == 1 and answer.draft_room > 0:
                asked.setdefault(answer.drafter, []).append(Asked(name, s.tokens, answer))
        each = MOST_DRAFTED // max(1, sum(map(len, asked.values())))
        found: dict[int, list[int]] = {}
        for drafter, own in asked.items() if each else ():
            for one, draft in zip(own, drafter.draft(own, each), strict=True):
                found[one.name] = one.answer.fitting(draft[:each])
        return found

    def _commit(self, entries: list[Entry], drawn: list[Drawn]) -> list[tuple[int, Answer]]:
        grown: list[tuple[int, Answer]] = []
        tokens: dict[int, list[int]] = {}
        at = 0
        for entry in entries:
            if entry.last:
                answer = self._answers[entry.name]
                before, end = answer.accepted, at + 1 + entry.drafted
                tokens[entry.name] = answer.go_on(drawn[at:end], _draft(entry))
                at = end
                grown.append((entry.name, answer))
                self.drafted += entry.drafted
                self.accepted += answer.accepted - before
        commit(self.schedule, entries, tokens)
        for entry in entries:
            answer, running = self._answers[entry.name], self.schedule.running[entry.name]
            answer.read = min(running.cached, len(answer.prompt))
            answer.cached = running.hit
        for name, answer in grown:
            if answer.finish is not None:
                del self._answers[name]
                self._leave(name, answer)
        return grown

    def _leave(self, name: int, answer: Answer) -> None:
        cancel(self.schedule, name)
        if answer.drafter is not None:
            answer.drafter.forget(name)


def _draft(entry: Entry) -> tuple[int, ...]:
    return entry.tokens[len(entry.tokens) - entry.drafted :]

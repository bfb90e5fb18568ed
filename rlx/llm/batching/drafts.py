"""Speculation: tokens that answers may go on with, drafted at little cost, judged by one step.

A step of the model takes a row for each token of a draft, and what is drawn after each of them is
what would have been drawn without one: rows of a sequence have the same bits in any cut, and a draw
depends on its place and its seed. The draft is right as long as it is what is drawn (Y. Leviathan
et al., Fast inference from transformers via speculative decoding, 2023, of which this is the
deterministic case). So answers are the same with any drafts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from rlx.base.frozen import field, frozen, record
from rlx.llm.answer import Answer
from rlx.llm.decoder import Decoder
from rlx.llm.engine import StepRows
from rlx.llm.pages import KvBlockTable
from rlx.llm.sampling import Drawn, Row

__all__ = ["Asked", "DraftModel", "Drafter", "Lookup"]

Array = np.ndarray[Any, Any]

LONGEST, SHORTEST = 4, 2
"""How many tokens must have been seen together before, at most and at least."""


@frozen
class Asked:
    """An answer that a draft is asked for: its number, and all tokens so far."""

    name: int
    tokens: list[int]
    answer: Answer


class Drafter(Protocol):
    """What makes drafts. One thread at a time may use it."""

    def draft(self, asked: Sequence[Asked], most: int, /) -> list[list[int]]:
        """Drafts of at most so many tokens, and no more than ``answer.draft_room``; they may be
        empty."""
        ...

    def forget(self, name: int, /) -> None:
        """The answer of a number has ended; it may be one that no draft was asked for."""
        ...


# -- prompt lookup -------------------------------------------------------------------------


@record
class _Seen:
    """Of a text, where each run of tokens was followed the last time; ``read`` is how many tokens
    that covers."""

    after: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    read: int = 0


class Lookup:
    """Drafts what followed the last tokens where they stood before, in the prompt or the answer (A.
    Saxena, Prompt lookup decoding, 2023)."""

    def __init__(self) -> None:
        self._texts: dict[int, _Seen] = {}

    def draft(self, asked: Sequence[Asked], most: int) -> list[list[int]]:
        """What followed the longest run that ends a text, and was there before."""
        return [self._of(a.name, a.tokens, min(most, a.answer.draft_room)) for a in asked]

    def forget(self, name: int) -> None:
        """The answer of a number has ended."""
        self._texts.pop(name, None)

    def _of(self, name: int, tokens: list[int], count: int) -> list[int]:
        seen = self._texts.setdefault(name, _Seen())
        for at in range(seen.read, len(tokens)):
            for size in range(SHORTEST, min(at, LONGEST) + 1):
                seen.after[tuple(tokens[at - size : at])] = at
        seen.read = len(tokens)
        for size in range(LONGEST, SHORTEST - 1, -1):
            at = seen.after.get(tuple(tokens[-size:])) if size <= len(tokens) else None
            if at is not None:
                # What repeats goes on repeating behind the end.
                found, period = tokens[at : at + count], len(tokens) - at
                found += (found[n - period] for n in range(len(found), count))
                return found
        return []


# -- a draft model -------------------------------------------------------------------------


@record
class _Read:
    """What a draft model has read of an answer: ``tokens``, of which so many are ``sure`` to be the
    answer's, with keys and values in the pages of ``table``."""

    table: KvBlockTable
    tokens: list[int] = field(default_factory=list[int])
    sure: int = 0


class DraftModel:
    """Drafts what a smaller model of the same vocabulary draws, by the same parameters and seeds.

    ``draw`` draws for rows of ``vocab`` logits; ``free`` frees up to so many pages of the
    ``decoder`` that nobody uses; ``lock`` is held by who uses it.
    """

    def __init__(
        self,
        decoder: Decoder,
        lock: threading.RLock,
        draw: Callable[[Array, Sequence[Row]], list[Drawn]],
        vocab: int,
        free: Callable[[int], Any],
    ) -> None:
        self._decoder, self._lock, self._draw = decoder, lock, draw
        self._vocab, self._free = vocab, free
        self._texts: dict[int, _Read] = {}

    def draft(self, asked: Sequence[Asked], most: int) -> list[list[int]]:
        """What the model goes on with; nothing for texts that its cache has no room for."""
        drafts: dict[int, list[int]] = {a.name: [] for a in asked}
        with self._lock:
            left = [(a, n) for a in asked if (n := self._ready(a, most)) > 0]
            while left:
                self._step(left[: self._decoder.cache.sequences], drafts)
                left = [(a, n) for a, n in left if self._open(a, n, drafts[a.name])]
        return [drafts[a.name] for a in asked]

    def forget(self, name: int) -> None:
        """The answer of a number has ended, whose pages are free."""
        read = self._texts.pop(name, None)
        if read is not None:
            with self._lock:
                read.table.release(self._decoder.pool)

    def _ready(self, asked: Asked, most: int) -> int:
        """How many tokens can be drafted, for which there are pages then. Of what was read, that is
        kept which the answer has too."""
        tokens, decoder = asked.tokens, self._decoder
        read = self._texts.get(asked.name)
        if read is None:
            read = self._texts[asked.name] = _Read(KvBlockTable(decoder.pool.tokens_per_page))
        end = min(len(read.tokens), len(tokens) - 1)
        while read.sure < end and read.tokens[read.sure] == tokens[read.sure]:
            read.sure += 1
        del read.tokens[read.sure :]
        count = min(most, asked.answer.draft_room, decoder.context - len(tokens) + 1)
        wanted = len(tokens) + count - 1
        if count > 0 and not read.table.reserve(wanted, decoder.pool):
            self._free(-(-wanted // decoder.pool.tokens_per_page) - decoder.pool.free_count)
            if not read.table.reserve(wanted, decoder.pool):
                return 0
        return count

    def _step(self, left: Sequence[tuple[Asked, int]], drafts: dict[int, list[int]]) -> None:
        """One step of the model: each text reads what it lacks, as far as there are rows; those
        that have read all have a token more."""
        room = self._decoder.max_rows
        entries: list[tuple[Sequence[int], int, Sequence[int]]] = []
        rows: list[Row] = []
        wanting: list[bool] = []
        grown: list[list[int]] = []
        for a, _ in left:
            read, draft = self._texts[a.name], drafts[a.name]
            at = len(read.tokens)
            missing = a.tokens[at:] + draft[max(0, at - len(a.tokens)) :]
            part = missing[:room]
            if not part:
                break
            room -= len(part)
            entries.append((part, at, read.table.pages))
            read.tokens += part
            wanting.append(len(part) == len(missing))
            if wanting[-1]:
                rows.append(a.answer.rows(draft)[-1])
                grown.append(draft)
        logits = self._decoder.step(StepRows.of(entries, wanting=wanting))
        for draft, drawn in zip(grown, self._drawn(logits, rows), strict=True):
            draft.append(drawn.token)

    def _drawn(self, logits: Array, rows: Sequence[Row]) -> list[Drawn]:
        """Draws of logits that are made as long as the other model's: some pad their tables."""
        if not rows:
            return []
        fitted = np.full((len(rows), self._vocab), -np.inf, np.float32)
        width = min(self._vocab, logits.shape[1])
        fitted[:, :width] = logits[:, :width]
        return self._draw(fitted, rows)

    def _open(self, asked: Asked, count: int, draft: Sequence[int]) -> bool:
        """Whether a draft can have more tokens."""
        return len(draft) < count and len(asked.answer.fitting(draft)) == len(draft)

"""The step of a language model: what goes in, what comes out, and what runs it.

Who schedules owns the pages (``rlx.llm.pages``), and says for every row of a step which token it
is, where it stands in its sequence, and which pages its sequence has:

    pages = KvBlockTable(engine.pool.tokens_per_page)
    pages.reserve(len(prompt), engine.pool)
    rows = StepRows.of([(prompt, 0, pages.pages)])
    logits = engine.step(rows)                       # f32 [1, vocab], of the prompt's last token

The result of a row depends on the tokens of its sequence alone: not on the other rows of the step,
on how the prompt is cut into steps, or on the pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import GraphError
from rlx.llm.pages import KvPagePool

__all__ = ["Engine", "StepRows"]

Array = np.ndarray[Any, Any]


@frozen
class StepRows:
    """The rows of a step. The rows of a sequence follow one another, at positions that do; keys and
    values of all earlier positions are in its pages.

    ``ids`` and ``positions`` are i32 ``[rows]``; ``sequence`` i32 ``[rows]`` says which of
    ``tables``, the pages of each sequence, a row's is; ``wanted`` are the rows that want logits.
    ``adapters`` has the number of each sequence's adapter, 0 for none; ``states`` the slot of each
    one's states, of models that have such.
    """

    ids: Array
    positions: Array
    sequence: Array
    tables: Sequence[Sequence[int]]
    wanted: Array
    adapters: Sequence[int]
    states: Sequence[int] = ()

    @staticmethod
    def of(
        entries: Iterable[tuple[Sequence[int], int, Sequence[int]]],
        *,
        every: bool = False,
        wanting: Sequence[int] | None = None,
        adapters: Sequence[int] | None = None,
        states: Sequence[int] = (),
    ) -> StepRows:
        """Rows of entries, each the tokens of a sequence, how many tokens stand before them, and
        the sequence's pages. The last token of each wants logits, or with ``every`` all, or as many
        of its last ones as ``wanting`` says."""
        found = list(entries)
        counts = [len(tokens) for tokens, _, _ in found]
        if not counts or min(counts) < 1:
            raise GraphError("a step has at least one sequence, and each at least one token")
        last = counts if every else [1] * len(counts) if wanting is None else wanting
        ends = np.cumsum(counts)
        wanted = np.concatenate(
            [np.arange(end - n, end) for end, n in zip(ends, last, strict=True)]
        )
        return StepRows(
            np.concatenate([np.asarray(tokens, np.int32) for tokens, _, _ in found]),
            np.concatenate(
                [
                    np.arange(at, at + n, dtype=np.int32)
                    for (_, at, _), n in zip(found, counts, strict=True)
                ]
            ),
            np.repeat(np.arange(len(found), dtype=np.int32), counts),
            [pages for _, _, pages in found],
            wanted.astype(np.int32),
            [0] * len(found) if adapters is None else adapters,
            states,
        )


class Engine(Protocol):
    """A model that takes steps. One thread at a time may use it.

    ``pool`` counts the pages of its cache, and ``states`` the slots of states, one to a sequence,
    where it has such. ``vocab`` is the length of a row of logits, ``context``
    the number of positions that a sequence may have, and ``max_rows`` the most rows of a step.
    """

    pool: KvPagePool
    states: KvPagePool | None
    vocab: int
    context: int
    max_rows: int

    def step(self, rows: StepRows, /) -> Array:
        """Write keys and values of the rows into their pages, and return the logits of those that
        want them: f32 ``[wanted, vocab]``."""
        ...

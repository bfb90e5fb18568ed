"""The answer to a prompt: how it is drawn, where it ends, and its text as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

from rlx.base.frozen import frozen
from rlx.llm.sampling import Drawn, Row, SamplingParams

if TYPE_CHECKING:
    from rlx.llm.batching.drafts import Drafter
    from rlx.llm.calls import Call, CallReader
    from rlx.llm.grammar import Matcher
    from rlx.llm.text.stops import StopText

__all__ = ["Answer", "Completion", "Finish"]

Finish = Literal["stop", "length", "cancelled"]


@frozen
class Completion:
    """What a model said to a prompt.

    ``ids`` are the tokens that were drawn, the one that ended the answer included; ``text`` is
    theirs, without special tokens and up to the first stop string, and None for a model without a
    tokenizer. ``finish`` says what ended it: "stop" (a token that ends texts, a stop string, or a
    grammar with nothing to follow), "length" or "cancelled". ``drawn`` has the log probability of
    each token, ``cached`` how many tokens of the prompt were read before, by others. Speculation
    tried ``drafted`` tokens, of which ``accepted`` were drawn. ``calls`` are those of tools, which
    are not in the text.
    """

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    text: str | None
    finish: Finish
    drawn: tuple[Drawn, ...]
    cached: int = 0
    drafted: int = 0
    accepted: int = 0
    calls: tuple[Call, ...] = ()


class Answer:
    """An answer as it grows: at most ``most`` tokens, up to one of ``ends``.

    ``text`` makes text of tokens, if the model has a tokenizer, and ``reader`` finds calls of tools
    in it; ``matcher`` says what a grammar lets through. ``finish`` is None until it has ended.
    ``read`` is how many tokens of the prompt have been read, ``cached`` how many of them before, by
    others. ``drafter`` says what tokens it may go on with, at most ``draft_tokens`` at a time;
    ``adapter`` is the number of its adapter, 0 for none.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        most: int,
        seed: int = 0,
        ends: frozenset[int] = frozenset(),
        text: StopText | None = None,
        reader: CallReader | None = None,
        matcher: Matcher | None = None,
        drafter: Drafter | None = None,
        draft_tokens: int = 0,
        adapter: int = 0,
    ) -> None:
        self.prompt, self.params, self.most, self.seed = [*prompt], params, most, seed
        self.ids: list[int] = []
        self.drawn: list[Drawn] = []
        self.finish: Finish | None = None
        self.read = self.cached = self.drafted = self.accepted = 0
        self.adapter, self.drafter, self._draft_tokens = adapter, drafter, draft_tokens
        self._next_draft = draft_tokens
        self._ends, self._text, self._matcher, self._reader = ends, text, matcher, reader
        self._pieces: list[str] = []
        self._taken = self._taken_calls = 0

    @property
    def text(self) -> str | None:
        """The text that is known; None for a model without a tokenizer."""
        return None if self._text is None else "".join(self._pieces)

    def take(self) -> str:
        """The text that became known since this was last asked."""
        new = "".join(self._pieces[self._taken :])
        self._taken = len(self._pieces)
        return new

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that are known."""
        return () if self._reader is None else tuple(self._reader.calls)

    def take_calls(self) -> tuple[Call, ...]:
        """The calls that became known since this was last asked."""
        new = self.calls[self._taken_calls :]
        self._taken_calls += len(new)
        return new

    @property
    def draft_room(self) -> int:
        """How many tokens are worth a try: two more than were right the last time, before the last
        token that it may have."""
        return 0 if self.drafter is None else min(self._next_draft, self.most - len(self.ids) - 1)

    def fitting(self, draft: Sequence[int]) -> list[int]:
        """The tokens of a draft, from the first on, that it can have and go on."""
        found = [*takewhile(lambda token: token not in self._ends, draft[: self.draft_room])]
        return found if self._matcher is None else found[: self._matcher.fitting(found)]

    def rows(self, draft: Sequence[int] = ()) -> list[Row]:
        """What the next token is drawn by, and those behind each token of a draft that fits."""
        count = 1 + len(draft)
        masks = [None] * count if self._matcher is None else self._matcher.masks(draft)
        return [
            Row(self.params, self.prompt, [*self.ids, *draft[:n]] if n else self.ids, self.seed, m)
            for n, m in enumerate(masks)
        ]

    def go_on(self, drawn: Sequence[Drawn], draft: Sequence[int] = ()) -> list[int]:
        """Go on with what was drawn by ``rows``, as long as that is the draft; the tokens that it
        has more."""
        before, right = len(self.ids), 0
        for one, wanted in zip(drawn, (*draft, None), strict=True):
            self.add(one)
            right += one.token == wanted
            if one.token != wanted or self.finish is not None:
                break
        if draft:
            self.drafted, self.accepted = self.drafted + len(draft), self.accepted + right
            self._next_draft = min(self._draft_tokens, right + 2)
        return self.ids[before:]

    def add(self, drawn: Drawn) -> None:
        """Go on with a token, and end where it is the last."""
        token = drawn.token
        self.ids.append(token)
        self.drawn.append(drawn)
        if self._matcher is not None:
            self._matcher.accept(token)
        ended = token in self._ends or (self._matcher is not None and self._matcher.done)
        if self._text is not None:
            self._go_on(self._text.add(token))
            ended = ended or self._text.hit is not None
        if ended or len(self.ids) >= self.most:
            self.end("stop" if ended else "length")

    def end(self, finish: Finish) -> None:
        """End it, if it has not ended before."""
        if self.finish is None:
            self.finish = finish
            if self._text is not None:
                self._go_on(self._text.end())
                if self._reader is not None:
                    self._pieces.append(self._reader.end())

    def _go_on(self, piece: str) -> None:
        """Go on with a piece of text."""
        self._pieces.append(piece if self._reader is None else self._reader.add(piece))

    def completion(self) -> Completion:
        """The answer as it is; one that has not ended counts as cancelled."""
        return Completion(
            tuple(self.prompt), tuple(self.ids), self.text, self.finish or "cancelled",
            tuple(self.drawn), self.cached, self.drafted, self.accepted,
            self.calls,
        )  # fmt: skip

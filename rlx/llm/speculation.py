"""What drafts the tokens of answers: nothing, the texts themselves, or a smaller model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx.errors import GraphError, ModelError
from rlx.llm.batching.drafts import Drafter, DraftModel, Lookup

if TYPE_CHECKING:
    from rlx.llm.model import LLM

__all__ = ["Speculation"]

KINDS = ("lookup", "draft")


class Speculation:
    """The drafters of a model: lookup, and a draft model if one is given. ``kind`` is which of them
    answers have by default; None for neither. ModelError for a draft model of other tokens."""

    def __init__(self, llm: LLM, kind: str | None, draft: LLM | None, draft_tokens: int) -> None:
        _count("draft_tokens", draft_tokens, 1)
        self.kind, self.draft_tokens = kind, draft_tokens
        self._llm = llm
        if kind is not None:
            _check_states(llm)
        if draft is not None:
            _check_states(draft)
        self._drafters: dict[str, Drafter] = {"lookup": Lookup()}
        if draft is not None:
            _check_tokens(llm, draft)
            self._drafters["draft"] = DraftModel(
                draft.decoder, draft.lock, llm.sampler.draw, llm.vocab,
                draft.batch.schedule.prefix.evict,
            )  # fmt: skip

    def of(self, kind: str | None, draft_tokens: int | None) -> tuple[Drafter | None, int]:
        """The drafter of an answer that asks for a kind and so many tokens, or leaves them open.
        GraphError for a kind that there is not."""
        count = self.draft_tokens if draft_tokens is None else draft_tokens
        _count("draft_tokens", count, 0)
        kind = self.kind if kind is None else kind
        if kind is None or not count:
            return None, 0
        if kind not in KINDS:
            raise GraphError(f"speculate is one of {', '.join(KINDS)}, found {kind!r}")
        _check_states(self._llm)
        if kind not in self._drafters:
            raise GraphError(
                "there is no draft model: load the model with speculate=, its path, or ask for"
                " 'lookup'"
            )
        return self._drafters[kind], count


def _count(name: str, n: Any, least: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < least:
        raise GraphError(f"{name} is {least} or more, found {n!r}")


def _check_states(llm: LLM) -> None:
    """GraphError for a model whose states cannot be what they were before a wrong draft."""
    if llm.decoder.states is not None:
        raise GraphError(
            f"{llm.path} has recurrent states, which are not taken back behind a wrong draft;"
            " leave speculate out"
        )


def _check_tokens(llm: LLM, draft: LLM) -> None:
    """ModelError if an id is not the same token to both. Tables may be padded to other lengths."""
    if llm.has_tokenizer and draft.has_tokenizer:
        own, other = (
            {n: t for t, n in m.tokenizer.backend.get_vocab().items()} for m in (llm, draft)
        )
        for n in sorted(own.keys() & other.keys()):
            if own[n] != other[n]:
                raise ModelError(
                    f"{draft.path} drafts for another vocabulary: its token {n} is {other[n]!r},"
                    f" where {llm.path} has {own[n]!r}"
                )
    elif llm.vocab != draft.vocab:
        raise ModelError(
            f"{draft.path} drafts for another vocabulary: of {draft.vocab} tokens, where"
            f" {llm.path} has {llm.vocab}"
        )

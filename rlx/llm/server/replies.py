"""Answers to bodies of replies, whole or in chunks."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any

from rlx.llm.answer import Answer, Finish
from rlx.llm.calls import Call
from rlx.llm.sampling import Drawn
from rlx.llm.server.requests import Asked, Ranking
from rlx.llm.server.worker import Event
from rlx.llm.text import Tokenizer

__all__ = ["Replies", "embeddings", "ranked"]


class Replies:
    """The bodies of one reply: of a chat, or of completions."""

    def __init__(self, asked: Asked, tokenizer: Tokenizer, *, chat: bool) -> None:
        self.asked, self.tokenizer, self.chat = asked, tokenizer, chat
        kind = "chat.completion" if chat else "text_completion"
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}", "object": kind,
            "created": int(time.time()), "model": asked.model,
        }  # fmt: skip
        self._offsets = [0] * len(asked.answers)

    def whole(self) -> dict[str, Any]:
        """The reply with all answers, which have ended."""
        choices = [
            self._choice(n, a.text or "", a.calls, a.drawn, a.finish, whole=True)
            for n, a in enumerate(self.asked.answers)
        ]
        return {**self._head, "choices": choices, "usage": self.usage()}

    def first(self) -> list[dict[str, Any]]:
        """The chunks that begin a chat's stream: who speaks."""
        if not self.chat:
            return []
        delta = {"role": "assistant", "content": ""}
        return [
            self._chunk([{"index": n, "delta": delta, "logprobs": None, "finish_reason": None}])
            for n in range(len(self.asked.answers))
        ]

    def part(self, event: Event, drawn: Sequence[Drawn]) -> dict[str, Any]:
        """A chunk: text and calls that an answer goes on with by tokens, and what ended it."""
        return self._chunk(
            [self._choice(event.index, event.text, event.calls, drawn, event.finish, whole=False)]
        )

    def last(self) -> list[dict[str, Any]]:
        """The chunk that ends a stream whose usage was asked for."""
        return [{**self._chunk([]), "usage": self.usage()}] if self.asked.usage else []

    def usage(self) -> dict[str, Any]:
        """How many tokens it took."""
        answers, each = self.asked.answers, self.asked.choices
        prompt = sum(len(a.prompt) for a in answers[::each])
        drawn = sum(len(a.ids) for a in answers)
        accepted = sum(a.accepted for a in answers)
        rejected = sum(a.drafted for a in answers) - accepted
        return {
            "prompt_tokens": prompt, "completion_tokens": drawn, "total_tokens": prompt + drawn,
            "prompt_tokens_details": {"cached_tokens": sum(a.cached for a in answers[::each])},
            "completion_tokens_details": {
                "accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected,
            },
        }  # fmt: skip

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        made = {**self._head, "object": kind, "choices": choices}
        return {**made, "usage": None} if self.asked.usage else made

    def _choice(
        self,
        index: int,
        text: str,
        calls: Sequence[Call],
        drawn: Sequence[Drawn],
        finish: Finish | None,
        *,
        whole: bool,
    ) -> dict[str, Any]:
        answer = self.asked.answers[index]
        told = self._logprobs(index, answer, drawn, finish)
        # Of a call that was asked for by name the API says that the answer stopped.
        called = finish == "stop" and answer.calls and not self.asked.named
        reason = "tool_calls" if called else finish
        rest = {"index": index, "logprobs": told, "finish_reason": reason}
        if not self.chat:
            return {**rest, "text": text}
        said: dict[str, Any] = {"content": text} if text else {}
        if whole:
            said = {
                "role": "assistant",
                "content": text or (None if calls else ""),
                "refusal": None,
            }
        if calls:
            first = 0 if whole else answer.calls.index(calls[0])
            numbers = (
                [{}] * len(calls) if whole else [{"index": first + n} for n in range(len(calls))]
            )
            said["tool_calls"] = [{**n, **_call(c)} for n, c in zip(numbers, calls, strict=True)]
        return {**rest, "message" if whole else "delta": said}

    # -- log probabilities -----------------------------------------------------------------

    def _logprobs(
        self, index: int, answer: Answer, drawn: Sequence[Drawn], finish: Finish | None
    ) -> dict[str, Any] | None:
        """Those of tokens, without the one that ended the text."""
        if self.asked.logprobs is None:
            return None
        if finish == "stop" and drawn and drawn[-1].token in self.tokenizer.eos_ids:
            drawn = drawn[:-1]
        if self.chat:
            return {"content": [self._told(d) for d in drawn], "refusal": None}
        texts = [self._text(d.token) for d in drawn]
        offsets: list[int] = []
        for text in texts:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [d.logprob for d in drawn],
            "top_logprobs": [{self._text(t): p for t, p in d.top} for d in drawn],
            "text_offset": offsets,
        }

    def _told(self, drawn: Drawn) -> dict[str, Any]:
        return {
            **self._token(drawn.token, drawn.logprob),
            "top_logprobs": [self._token(t, p) for t, p in drawn.top],
        }

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        found = self.tokenizer.token_bytes(token)
        return {"token": self._text(token), "logprob": logprob, "bytes": list(found)}

    def _text(self, token: int) -> str:
        return self.tokenizer.token_bytes(token).decode("utf-8", "replace")


def _call(call: Call) -> dict[str, Any]:
    """A call as the API has it."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def embeddings(vectors: Iterable[Any], model: str, tokens: int, *, packed: bool) -> dict[str, Any]:
    """The reply with vectors, as lists or as base64 of their bytes."""
    data = [
        {
            "object": "embedding", "index": n,
            "embedding": base64.b64encode(v.astype("<f4").tobytes()).decode() if packed
            else v.tolist(),
        }
        for n, v in enumerate(vectors)
    ]  # fmt: skip
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def ranked(
    found: Sequence[tuple[int, float]], asked: Ranking, model: str, tokens: int
) -> dict[str, Any]:
    """The reply with the best documents, by their numbers and scores."""
    results = [
        {
            "index": n, "relevance_score": score,
            **({"document": {"text": asked.documents[n]}} if asked.shown else {}),
        }
        for n, score in found
    ]  # fmt: skip
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {
        "id": f"rerank-{secrets.token_hex(12)}", "model": model, "results": results, "usage": usage
    }  # fmt: skip

"""What a grammar or a JSON schema lets a text go on with, as bits over the vocabulary.

The package llguidance reads grammars (``rlx[grammar]``); without it a request for one is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError, ModelError
from rlx.llm.text.tokenizer import Tokenizer

__all__ = ["Grammars", "Matcher"]

Array = np.ndarray[Any, Any]


class Matcher:
    """The state of one text under a grammar."""

    def __init__(self, matcher: Any, words: int) -> None:
        self._matcher, self._words = matcher, words

    def mask(self) -> Array:
        """Which tokens may come next: u32 ``[ceil(vocab / 32)]``, a bit a token."""
        found = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        mask = np.zeros(self._words, np.uint32)
        mask[: min(len(found), self._words)] = found[: self._words]
        return mask

    def masks(self, drafts: Sequence[int]) -> list[Array]:
        """The masks of the next token, and of those behind each of ``drafts``, which all fit."""
        found = [self.mask()]
        for token in drafts:
            self.accept(token)
            found.append(self.mask())
        self._matcher.rollback(len(drafts))
        return found

    def fitting(self, drafts: Sequence[int]) -> int:
        """How many of ``drafts``, from the first on, it lets through with something to follow."""
        count = done = 0
        for token in drafts:
            if not self._matcher.validate_tokens([token]):
                break
            self.accept(token)
            done += 1
            if self.done:
                break
            count += 1
        if done:
            self._matcher.rollback(done)
        return count

    def accept(self, token: int) -> None:
        """Go on with a token that the mask let through."""
        accepted = self._matcher.consume_token(token)
        assert accepted, self._matcher.get_error()

    @property
    def done(self) -> bool:
        """Whether nothing can follow."""
        return bool(self._matcher.is_stopped())


class Grammars:
    """Makes matchers over the tokens of a model, whose logits have ``vocab`` columns."""

    def __init__(self, tokenizer: Tokenizer, vocab: int) -> None:
        self._tokenizer, self._vocab = tokenizer, vocab
        self._made: Any = None

    def json_schema(self, schema: Mapping[str, Any] | bool) -> Matcher:
        """JSON that meets a schema; ``{}`` or True is any JSON."""
        given = schema if isinstance(schema, bool) else dict(schema)
        return self._matcher("grammar_from_json_schema", json.dumps(given), "JSON schema")

    def json_object(self) -> Matcher:
        """Any JSON object."""
        return self.json_schema({"type": "object"})

    def regex(self, pattern: str) -> Matcher:
        """Text that a regular expression matches as a whole."""
        return self._matcher("grammar_from_regex", pattern, "regular expression")

    def lark(self, grammar: str) -> Matcher:
        """Text of a context-free grammar in the form of Lark."""
        return self._matcher("grammar_from_lark", grammar, "grammar")

    def _matcher(self, method: str, source: str, what: str) -> Matcher:
        guidance = self._package()
        if self._made is None:
            words = _Words(self._tokenizer)
            self._made = guidance.LLTokenizer(
                guidance.TokenizerWrapper(words), n_vocab=self._vocab, eos_token=words.ends
            )
        try:
            grammar = getattr(guidance.LLMatcher, method)(source)
            matcher = guidance.LLMatcher(self._made, grammar)
        except Exception as e:  # the package raises ValueError and its own
            raise GraphError(f"the {what} cannot be used: {e}") from None
        if matcher.is_error():
            raise GraphError(f"the {what} cannot be used: {matcher.get_error()}")
        return Matcher(matcher, -(-self._vocab // 32))

    def _package(self) -> Any:
        try:
            import llguidance
        except ImportError:
            raise ModelError(
                "grammars and JSON schemas need the package llguidance: pip install 'rlx[grammar]'"
            ) from None
        return llguidance


class _Words:
    """A tokenizer as llguidance reads it: the bytes of every token, and which are special."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        size = tokenizer.vocab_size
        # 0xFF before a name: no text can spell a special token.
        self.special_token_ids = sorted(tokenizer.special_ids)
        special = tokenizer.special_ids
        self.tokens: Sequence[bytes] = [
            (b"\xff" if n in special else b"") + tokenizer.token_bytes(n) for n in range(size)
        ]
        self.ends = sorted(tokenizer.eos_ids) or [size - 1]
        self.eos_token_id = self.ends[0]
        self.bos_token_id = None

    def __call__(self, text: bytes | str) -> list[int]:
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return self._tokenizer.encode(text, add_special=False, parse_special=False)

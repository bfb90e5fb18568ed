"""Texts under grammars: whatever is drawn of what the mask lets through, meets the grammar."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="texts need the package tokenizers")
pytest.importorskip("llguidance", reason="grammars need the package llguidance")

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from rlx.errors import GraphError, ModelError
from rlx.llm.grammar import Grammars, Matcher
from rlx.llm.text import Tokenizer

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"enum": ["ada", "bob"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A vocabulary of bytes, some words, and an end."""
    words = ['"name"', '":', "true", "false", '{"', "12", "ada"]
    vocab = {c: n for n, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for word in words:
        vocab[word] = len(vocab)
    made = Backend(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|end|>"])
    return Tokenizer(made, eos_ids=[len(vocab)])


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, 300)  # a model's logits may have columns that no token is of


def draw(matcher: Matcher, tokenizer: Tokenizer, seed: int) -> str:
    rng, ids = np.random.default_rng(seed), list[int]()
    while len(ids) < 400:
        allowed = np.flatnonzero(np.unpackbits(matcher.mask().view(np.uint8), bitorder="little"))
        assert len(allowed) and allowed.max() < tokenizer.vocab_size
        token = int(rng.choice(allowed))
        matcher.accept(token)
        if token in tokenizer.eos_ids:
            assert matcher.done
            break
        ids.append(token)
    return tokenizer.decode(ids)


@pytest.mark.parametrize("seed", range(5))
def test_json_schema(grammars: Grammars, tokenizer: Tokenizer, seed: int) -> None:
    found = json.loads(draw(grammars.json_schema(SCHEMA), tokenizer, seed))
    assert found["name"] in ("ada", "bob") and 0 <= found["age"] <= 120
    assert len(found["tags"]) <= 3 and all(type(x) is bool for x in found["tags"])


def test_regex_and_lark(grammars: Grammars, tokenizer: Tokenizer) -> None:
    assert re.fullmatch("[ab]{3}-[0-9]{2}", draw(grammars.regex("[ab]{3}-[0-9]{2}"), tokenizer, 0))
    text = draw(grammars.lark('start: "x" ("y" | "z") "\\u00e9"'), tokenizer, 0)
    assert text in ("xyé", "xzé")


def test_json_object_begins_with_a_brace(grammars: Grammars, tokenizer: Tokenizer) -> None:
    bits = np.unpackbits(grammars.json_object().mask().view(np.uint8), bitorder="little")
    allowed = {tokenizer.decode([int(n)]) for n in np.flatnonzero(bits)}
    assert "{" in allowed and not allowed & {"[", "a", "1", ""}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda g: g.json_schema({"type": "nothing"}), "the JSON schema cannot be used"),
        (lambda g: g.regex("(["), "the regular expression cannot be used"),
        (lambda g: g.regex(5), "the regular expression cannot be used: .*int"),
        (lambda g: g.lark("start: missing"), "the grammar cannot be used"),
    ],
)
def test_what_is_no_grammar(grammars: Grammars, make: Any, says: str) -> None:
    with pytest.raises(GraphError, match=says):
        make(grammars)


def test_without_the_package(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ModelError, match=r"llguidance: pip install 'rlx\[grammar\]'"):
        Grammars(tokenizer, 300).json_object()

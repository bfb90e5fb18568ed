"""Wrong calls of a language model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="texts need the package tokenizers")

import rlx
from rlx.errors import DTypeError, GraphError, ModelError, RlxError, ShapeError
from rlx.frontends import gguf
from rlx.llm.weights import from_hf
from support.tiny_llm import no_biases, write_talker


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> rlx.LLM:
    folder = write_talker(tmp_path_factory.mktemp("talker"))
    return rlx.LLM(folder, threads=1, context=64, sequences=4)


MESSAGE = {"role": "user", "content": "Hi"}
CALLS: dict[str, tuple[Callable[[Any], Any], type[RlxError], str]] = {
    "a number": (lambda m: m.generate(3), DTypeError, "a list of messages, found int"),
    "no prompt": (lambda m: m.generate([]), ShapeError, "there is no prompt: expected one"),
    "no tokens": (lambda m: m.generate([[]]), ShapeError, "one token or more, found none"),
    "no text": (lambda m: m.generate(""), ShapeError, "one token or more, found none"),
    "halves": (lambda m: m.generate([1, 2.5]), DTypeError, "ids are whole numbers, found 2.5"),
    "vocabulary": (lambda m: m.generate([1, 320]), GraphError, "from 0 to 319, found 320"),
    "no answer": (
        lambda m: m.generate("Hi", max_new_tokens=0), GraphError, "is 1 or more, found 0"
    ),
    "room": (
        lambda m: m.generate("Hi", max_new_tokens=63), ShapeError,
        "2 tokens of prompt and an answer of 63 have no room in a context of 64",
    ),
    "full": (lambda m: m.generate([1] * 64), ShapeError, "64 tokens of prompt and an answer have"),
    "stop": (lambda m: m.stream("Hi", stop=[""]), GraphError, "strings that are not empty"),
    "option": (lambda m: m.generate("Hi", top_x=2), GraphError, "no option is called 'top_x'"),
    "bias": (
        lambda m: m.generate("Hi", logit_bias={320: 1.0}), GraphError, "names token 320; the voc"
    ),
    "grammars": (
        lambda m: m.generate("Hi", regex="a", grammar="b"), GraphError,
        "one of json_schema, regex, grammar, found 2",
    ),
    "chat": (lambda m: m.chat("Hi"), DTypeError, "chat takes a list of messages; generate"),
    "long": (lambda m: m.logits([1] * 65), ShapeError, "65 tokens have no room in a context of 64"),
    "vectors": (lambda m: m.embed("Hi"), ModelError, "does not say how it makes vectors of texts"),
    "pooling": (lambda m: m.embed("Hi", pooling="max"), GraphError, "mean, last, found 'max'"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str, llm: rlx.LLM) -> None:
    call, kind, says = CALLS[name]
    with pytest.raises(kind, match=says):
        call(llm)
    assert llm.batch.answers == 0


def test_no_room_beside_answers_that_are_drawn(llm: rlx.LLM) -> None:
    stream = llm.stream([1] * 40, ignore_eos=True, temperature=2.0, seed=1)
    next(stream)
    with pytest.raises(ShapeError, match="33 tokens have no room beside 1 answers"):
        llm.logits([1] * 33)
    list(stream)
    assert llm.logits([1] * 64).shape == (64, 320), "pages of known beginnings make room"


@pytest.mark.parametrize("said", [{}, {"tokenizer.ggml.model": "no_vocab"}], ids=["", "no_vocab"])
def test_a_file_without_a_tokenizer(llm: rlx.LLM, tmp_path: Path, said: dict[str, Any]) -> None:
    c, path = llm.decoder.config, tmp_path / "small.gguf"
    sizes: dict[str, Any] = {
        "embedding_length": c.hidden, "block_count": c.layers, "context_length": c.context,
        "attention.head_count": c.heads, "attention.head_count_kv": c.kv_heads,
        "attention.key_length": c.head_dim, "feed_forward_length": c.inner,
    }  # fmt: skip
    metadata = {"general.architecture": "qwen2", **{f"qwen2.{k}": v for k, v in sizes.items()}}
    gguf.write(path, {**from_hf(llm.path, c), **no_biases(c)}, {**metadata, **said})
    bare = rlx.LLM(path, threads=1, context=32)
    for call in (bare.generate, bare.stream):
        with pytest.raises(ModelError, match="has no tokenizer: give ids for prompts"):
            call("Hi")
    with pytest.raises(ModelError, match="no tokenizer, which stop strings need"):
        bare.generate([1], stop="x")
    assert len(bare.generate(np.array([1, 2]), max_new_tokens=3)[0].ids) == 3

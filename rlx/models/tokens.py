"""The texts that encoders take, and their tokenizers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from rlx.errors import DTypeError, ModelError, ShapeError
from rlx.models.files import read_json

__all__ = ["checked_texts", "encoded", "limits_of", "load_tokenizer"]


def limits_of(path: str, positions: int) -> tuple[int, bool]:
    """The most tokens of a text that the model of a folder takes, which has so many positions, and
    whether texts become lower case. ModelError for another number of tokens."""
    file = os.path.join(path, "sentence_bert_config.json")
    limits = read_json(file, dict, {})
    longest = limits.get("max_seq_length") or positions
    if not isinstance(longest, int) or longest < 1:
        raise ModelError(f"{file}: max_seq_length is {longest!r}, expected a number of tokens")
    return min(longest, positions), bool(limits.get("do_lower_case"))


def checked_texts(texts: Any, method: str) -> list[str]:
    """Texts as a list, for a method of a name. DTypeError for what are none, ShapeError for an
    empty list."""
    if isinstance(texts, str):
        raise DTypeError(f"{method} takes a list of texts, found one str; write [text]")
    if not isinstance(texts, Iterable):
        raise DTypeError(f"{method} takes a list of texts, found {texts!r}")
    texts = list(texts)
    if not texts:
        raise ShapeError(f"{method} needs at least one text, found an empty list")
    for i, t in enumerate(texts):
        if not isinstance(t, str):
            raise DTypeError(f"{method} takes str items, found {type(t).__name__} at index {i}")
    return texts


def encoded(tokenizer: Any, texts: Sequence[str | tuple[str, str]]) -> list[Any]:
    """What a tokenizer makes of texts or pairs of them. DTypeError for halves of characters."""
    try:
        return tokenizer.encode_batch_fast(texts)
    except TypeError:  # str, but not UTF-8
        wrong = next((t for t in texts if not _is_utf8("".join(t))), "")
        raise DTypeError(f"a text cannot be UTF-8 (a lone surrogate): {wrong!r}") from None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def load_tokenizer(path: str, max_tokens: int, *, pairs: bool = False) -> Any:
    """A tokenizer.json that cuts texts, or pairs of them, at so many tokens. ModelError for a file
    that cannot be read, or a number that leaves nothing."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ModelError(
            "texts need the package tokenizers: pip install 'rlx[models]'; encode_ids does not"
        ) from None
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as e:  # the package raises plain Exceptions
        raise ModelError(f"cannot read {path}: {e}") from None
    # The file's own settings are those of its training; ours pads, and cuts at max_tokens with
    # the special tokens kept.
    special = tokenizer.num_special_tokens_to_add(is_pair=pairs)
    if max_tokens <= special:
        raise ModelError(
            f"{path} adds {special} tokens to every {'pair' if pairs else 'text'}, and the model"
            f" takes {max_tokens} in all"
        )
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=max_tokens)
    return tokenizer

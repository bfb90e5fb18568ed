"""Texts to ids and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx.base.cached import cached_property
from rlx.errors import DTypeError, FaultError, ModelError
from rlx.ir.builders import public
from rlx.llm.text.backends import Vocabulary, backend
from rlx.llm.text.folder import read_folder
from rlx.llm.text.stream import Detokenizer
from rlx.llm.text.template import ChatTemplate

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Tokenizer"]

ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>",
    "<end_of_turn>", "<EOT>", "<|return|>", "<|call|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)  # fmt: skip
"""Control tokens that end an answer, whatever else a GGUF file names; <|endoftext|> and its like
stand between documents."""

SHOWN = (*range(33, 127), *range(161, 173), *range(174, 256))
BYTE_ALPHABET = {chr(b): b for b in SHOWN} | {
    chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in SHOWN)
}
"""The characters that byte-level vocabularies write bytes as."""


@public
class Tokenizer:
    """A model's tokenizer, its special tokens and its chat templates.

        tokenizer = Tokenizer.load("model.gguf")
        ids = tokenizer.encode("Once upon a time")
        tokenizer.decode(ids)

    ``eos_ids`` are the tokens that end a text, ``templates`` the chat templates by name, and
    ``named`` the special tokens by role, such as ``bos_token``.
    """

    def __init__(
        self,
        backend: Any,
        *,
        eos_ids: Iterable[int | None] = (),
        named: Mapping[str, Any] | None = None,
        templates: Mapping[str, str] | None = None,
    ) -> None:
        """``backend`` is a ``tokenizers.Tokenizer``."""
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self.eos_ids = frozenset(n for n in eos_ids if n is not None)
        self.named = dict(named or {})
        self.templates = {
            name: ChatTemplate(source, self.named) for name, source in (templates or {}).items()
        }
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of a GGUF file, of a folder with a tokenizer.json, or of such a file."""
        path = os.fspath(path)
        if os.path.isdir(path):
            return cls.from_dir(path)
        if path.endswith(".json"):
            return cls(_read(path))
        from rlx.frontends.gguf import read

        return cls.from_gguf(read(path).metadata)

    @classmethod
    def from_dir(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of a Hugging Face folder; ModelError if it has no tokenizer.json."""
        files = read_folder(path)
        made = _read(files.tokenizer)
        ends = {*files.eos_ids, *(made.token_to_id(token) for token in files.eos_tokens)}
        return cls(made, eos_ids=ends, named=files.named, templates=files.templates)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """The tokenizer that the metadata of a GGUF file describe."""
        _need_package()
        words = Vocabulary(metadata)
        named = {
            role: words.tokens[n]
            for role, key in (
                ("bos_token", "bos_token_id"), ("eos_token", "eos_token_id"),
                ("unk_token", "unknown_token_id"), ("pad_token", "padding_token_id"),
            )
            if (n := words.id_of(key)) is not None
        }  # fmt: skip
        ends = {words.id_of(f"{key}_token_id") for key in ("eos", "eot", "eom")}
        ends |= {words.ids[t] for t in words.of_kind(3, 4) if t in ENDS}
        prefix = "tokenizer.chat_template"
        templates = {
            key.removeprefix(prefix).removeprefix(".") or "default": str(source)
            for key, source in metadata.items()
            if key == prefix or key.startswith(f"{prefix}.")
        }
        return cls(backend(metadata), eos_ids=ends, named=named, templates=templates)

    # -- texts to ids ----------------------------------------------------------------------

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """The ids of a text. ``add_special`` adds what the model wants at its ends;
        ``parse_special`` reads the texts of special tokens as those tokens."""
        if not isinstance(text, str):
            raise DTypeError(f"encode takes a str, found {type(text).__name__}")
        backend = self.backend if parse_special else self._literal
        try:
            return backend.encode(text, add_special_tokens=add_special).ids
        except Exception as e:  # the package raises plain Exceptions
            raise ModelError(f"the tokenizer cannot encode this text: {e}") from None

    @cached_property
    def _literal(self) -> Any:
        """The backend that reads no text as a special token."""
        made = type(self.backend).from_str(self.backend.to_str())
        made.encode_special_tokens = True
        return made

    # -- ids to texts ----------------------------------------------------------------------

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of ids, without special tokens unless they are asked for. FaultError for an id
        below 0; one above the vocabulary has no text."""
        numbers = [int(n) for n in ids]
        if numbers and min(numbers) < 0:
            raise FaultError(f"a token's id is 0 or more, found {min(numbers)}")
        return self.backend.decode(numbers, skip_special_tokens=skip_special)

    def stream(self, *, skip_special: bool = True, kept: Iterable[str] = ()) -> Detokenizer:
        """What gives the text of ids as they come; special tokens that are skipped are all but
        those whose texts are ``kept``."""
        skipped = self.special_ids - {self.id_of(token) for token in kept} if skip_special else ()
        return _Stream(self, frozenset(skipped))

    def token(self, n: int) -> str | None:
        """How the vocabulary spells a token; None if there is none."""
        return self.backend.id_to_token(n)

    def id_of(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it; None if there is none."""
        return self.backend.token_to_id(token)

    def token_bytes(self, n: int) -> bytes:
        """The bytes that a token stands for within a text: all bytes in order are the text in
        UTF-8. Empty for ids that the vocabulary does not have."""
        piece = self.token(n)
        if piece is None:
            return b""
        if n in self.added:
            return piece.encode()
        if self._byte_level:
            if all(c in BYTE_ALPHABET for c in piece):
                return bytes(BYTE_ALPHABET[c] for c in piece)
            return piece.encode()
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes([int(piece[3:5], 16)])
        return piece.replace("\u2581", " ").encode()

    @cached_property
    def added(self) -> frozenset[int]:
        """The ids of tokens that stay whole in any text, special or not."""
        return frozenset(self.backend.get_added_tokens_decoder())

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of special tokens."""
        found = self.backend.get_added_tokens_decoder()
        return frozenset(n for n, token in found.items() if token.special)

    @cached_property
    def _byte_level(self) -> bool:
        return "ByteLevel" in repr(self.backend.decoder)

    # -- conversations ---------------------------------------------------------------------

    def template(self, name: str | None = None, *, tools: bool = False) -> ChatTemplate:
        """A chat template by name; without one, that for tools where there are tools and there is
        one, else the default. ModelError if the model has no such template."""
        found = self.templates
        if name is None:
            name = "tool_use" if tools and "tool_use" in found else "default"
        if name not in found:
            there = f"it has {', '.join(found)}" if found else "it has none: prompt it with a text"
            raise ModelError(f"the model has no chat template {name!r}; {there}")
        return found[name]

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **values: Any,
    ) -> list[int]:
        """The ids of a conversation's prompt, by the model's chat template; ``values`` are those of
        ``ChatTemplate.render``."""
        text = self.template(tools=bool(tools)).render(messages, tools=tools, **values)
        return self.encode(text, add_special=False)


class _Stream(Detokenizer):
    """Skipped tokens are left out before they reach the window that is decoded."""

    def __init__(self, tokenizer: Tokenizer, skipped: frozenset[int]) -> None:
        super().__init__(lambda ids: tokenizer.decode(ids, skip_special=False))
        self._skipped = skipped

    def add(self, token: int) -> str:
        """The text that a token adds, which may be empty."""
        return "" if token in self._skipped else super().add(token)


def _need_package() -> None:
    try:
        import tokenizers  # pyright: ignore[reportUnusedImport] # noqa: F401
    except ImportError:
        raise ModelError(
            "texts need the package tokenizers: pip install 'rlx[models]'; ids do not"
        ) from None


def _read(path: str) -> Any:
    _need_package()
    from tokenizers import Tokenizer as Backend

    try:
        return Backend.from_file(path)
    except Exception as e:  # the package raises plain Exceptions
        raise ModelError(f"cannot read {path}: {e}") from None

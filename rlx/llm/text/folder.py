"""What the files of a Hugging Face folder say of a model's tokens and chat templates."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlx.base.frozen import frozen
from rlx.errors import ModelError
from rlx.models.files import read_json

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TextFiles", "read_folder"]

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@frozen
class TextFiles:
    """The path of a tokenizer.json; the texts of special tokens by their roles, such as
    ``bos_token``; chat templates by name; what ends a text, as ids and as tokens."""

    tokenizer: str
    named: Mapping[str, Any]
    templates: Mapping[str, str]
    eos_ids: tuple[int, ...]
    eos_tokens: tuple[str, ...]


def read_folder(path: str | Path) -> TextFiles:
    """Read a folder. ModelError if it has no tokenizer.json, or a file that cannot be read."""
    path = os.fspath(path)
    tokenizer = os.path.join(path, "tokenizer.json")
    if not os.path.isfile(tokenizer):
        raise ModelError(f"{path} has no tokenizer.json, which texts need")
    config = read_json(os.path.join(path, "tokenizer_config.json"), dict, {})
    special = read_json(os.path.join(path, "special_tokens_map.json"), dict, {})
    named = _named({**special, **config})
    eos: list[int] = []
    for name in ("generation_config.json", "config.json"):
        listed = read_json(os.path.join(path, name), dict, {}).get("eos_token_id")
        values = listed if isinstance(listed, list) else [listed]
        if not all(v is None or type(v) is int for v in values):
            raise ModelError(
                f"{os.path.join(path, name)}: eos_token_id is {listed!r}, expected ids"
            )
        eos += [v for v in values if v is not None]
    ends = (named["eos_token"],) if "eos_token" in named else ()
    return TextFiles(
        tokenizer, named, dict(_templates(path, config)), tuple(dict.fromkeys(eos)), ends
    )


def _named(config: Mapping[str, Any]) -> dict[str, Any]:
    """The special tokens by role, those that a model adds of its own included."""
    found = {key: _text(config[key]) for key in NAMED if _text(config.get(key)) is not None}
    own = config.get("model_specific_special_tokens") or config.get("extra_special_tokens")
    if isinstance(own, dict):
        found |= {key: _text(value) for key, value in own.items() if _text(value) is not None}
    return found


def _text(token: Any) -> str | None:
    """A token is written as its text, or as a dict with settings and the text."""
    return token.get("content") if isinstance(token, dict) else token


def _templates(path: str, config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Chat templates by name: those of the configuration, then those in files of their own."""
    listed = config.get("chat_template")
    if isinstance(listed, str):
        yield "default", listed
    elif isinstance(listed, list):
        for row in listed:
            yield row["name"], row["template"]
    files = {"default": os.path.join(path, "chat_template.jinja")}
    more = os.path.join(path, "additional_chat_templates")
    if os.path.isdir(more):
        for name in sorted(os.listdir(more)):
            if name.endswith(".jinja"):
                files[name.removesuffix(".jinja")] = os.path.join(more, name)
    for name, file in files.items():
        if os.path.isfile(file):
            with open(file, encoding="utf-8") as text:
                yield name, text.read()

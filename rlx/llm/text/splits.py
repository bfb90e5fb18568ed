"""How byte-level vocabularies cut text before they merge, by the names that GGUF files give.

A name stands for the expressions that the vocabulary was trained with, in the order in which they
are applied; each cuts the parts that the one before it left.
"""

from __future__ import annotations

from typing import Any

from rlx.errors import UnsupportedError, did_you_mean

__all__ = ["SPLITS", "pre_tokenizer"]

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
HAN = "\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff"
"""Chinese, Japanese and Korean, as DeepSeek's vocabularies cut them."""

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _words(digits: str, letters: str = r"\p{L}", rest: str = r"\p{L}") -> str:
    """A letter's run may take one character before it along, and punctuation the line ends."""
    return (
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}"
        rf"| ?[^\s{rest}\p{{N}}]+[\r\n]*|{SPACES}"
    )


def _cased(digits: str, ending: str) -> str:
    """Words that begin anew where a capital follows a small letter."""
    start = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{start}{UPPER}*{LOWER}+{ending}|{start}{UPPER}+{LOWER}*{ending}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"
    )


LLAMA3 = (_words(r"\p{N}{1,3}"),)
QWEN2 = (_words(r"\p{N}"),)
QWEN35 = (_words(r"\p{N}", r"[\p{L}\p{M}]", r"\p{L}\p{M}"),)
GPT4O = (_cased(r"\p{N}{1,3}", rf"{CONTRACTIONS}?"),)
TEKKEN = (_cased(r"\p{N}", ""),)
DIGITS = (r"\p{N}", GPT2)
DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    f"[{HAN}]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{SPACES}",
)

SPLITS: dict[str, tuple[str, ...]] = {
    name: rows
    for names, rows in (
        ("gpt-2 default phi-2 jina-es jina-de mpt olmo jais roberta-bpe granite-docling", (GPT2,)),
        ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", LLAMA3),
        ("dbrx smaug-bpe", LLAMA3),
        ("qwen2 stablelm2 deepseek-r1-qwen kormo megrez f2llmv2 hunyuan", QWEN2),
        ("qwen35", QWEN35),
        ("gpt-4o llama4 kanana2", GPT4O),
        ("tekken", TEKKEN),
        ("smollm starcoder refact command-r codeshell exaone minerva-7b", DIGITS),
        ("deepseek-v3 deepseek-v3.1", DEEPSEEK_V3),
    )
    for name in names.split()
}
"""The expressions of each name."""


def pre_tokenizer(name: str | None) -> Any:
    """The pre-tokenizer of a name; without one that of GPT-2, as files from before names have.

    UnsupportedError for another name: text cut in another way gives ids that the model never saw.
    """
    from tokenizers import Regex, pre_tokenizers

    rows = SPLITS.get(name or "gpt-2")
    if rows is None:
        raise UnsupportedError(
            f"tokenizer.ggml.pre is {name!r}, which is not known{did_you_mean(name or '', SPLITS)}."
            " A folder with the model's tokenizer.json does without it"
        )
    return pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(row), "isolated") for row in rows),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )

"""Changes to valid inputs: of bytes, of text by its tokens, and of nested Python values."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

__all__ = ["NUMBERS", "mutated_bytes", "mutated_text", "mutated_value"]

NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    8,
    63,
    64,
    255,
    256,
    2**31 - 1,
    2**31,
    2**32,
    2**62,
    2**63 - 1,
    2**63,
    -(2**63),
)


def mutated_bytes(data: bytes, r: random.Random, hot: Sequence[int] = ()) -> bytes:
    """Bytes changed, cut, doubled or overwritten by a number. Half of the changes go to the
    offsets in ``hot``, where the structure is."""
    out = bytearray(data)
    for _ in range(r.choice((1, 1, 1, 2, 4, 8))):
        at = r.choice(hot) if hot and r.random() < 0.5 else r.randrange(len(out) or 1)
        kind = r.random()
        if at >= len(out):
            continue
        if kind < 0.5:
            out[at] = r.choice(
                (0, 1, 0x7F, 0x80, 0xFF, out[at] ^ (1 << r.randrange(8)), r.randrange(256))
            )
        elif kind < 0.75:
            width = r.choice((2, 4, 8))
            number = r.choice(NUMBERS) % (1 << 8 * width)
            out[at : at + width] = number.to_bytes(width, "little")
        elif kind < 0.85:
            del out[at : at + r.choice((1, 4, 8, 64))]
        elif kind < 0.95:
            other = r.randrange(len(out))
            out[at:at] = out[other : other + r.choice((1, 8, 64))]
        else:
            del out[at:]
    return bytes(out)


_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[%@#!^]?[\w.$]+|->|::|\s+|.', re.DOTALL)
_NUMBER = re.compile(r"-?\d+")


def mutated_text(text: str, r: random.Random, words: Sequence[str]) -> str:
    """Tokens deleted, doubled, swapped and replaced by ``words``; numbers and characters changed;
    lines deleted, doubled and swapped."""
    tokens = _TOKEN.findall(text)
    if r.random() < 0.5:  # the same change everywhere leaves more texts that parse
        return _everywhere(text, r)
    for _ in range(r.choice((1, 1, 1, 2, 3, 6))):
        at, other = r.randrange(len(tokens)), r.randrange(len(tokens))
        kind = r.random()
        if kind < 0.15:
            tokens[at] = ""
        elif kind < 0.25:
            tokens.insert(at, tokens[other])
        elif kind < 0.35:
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind < 0.55:
            tokens[at] = r.choice(words)
        elif kind < 0.85:
            tokens[at] = _one_number(tokens, r)
        else:
            tokens = _TOKEN.findall(_lines("".join(tokens), r)) or [" "]
    return "".join(tokens)


_ALIKE = tuple(
    re.compile(p)
    for p in (
        r"(?<![\w.%@])\d+", r"\b(?:ui|i|f|bf)\d+\b", r"\bmir\.\w+", r"%\w+", r"\b\w+ = ",
        r'"\w+"', r"\d+x",
    )
)  # fmt: skip


def _everywhere(text: str, r: random.Random) -> str:
    """A number, type, op or name replaced by one of its kind, all over the text."""
    for _ in range(r.choice((1, 1, 2, 3))):
        pattern = r.choice(_ALIKE)
        found = sorted(set(pattern.findall(text)))
        if not found:
            continue
        old, new = r.choice(found), r.choice(found)
        if old.isdigit() and r.random() < 0.5:
            new = str(r.choice(NUMBERS))
        elif r.random() < 0.2:
            new = r.choice(("f64", "i1", "ui8", "bf16", "0x", "?x", "1x"))
        at = re.escape(old) if r.random() < 0.7 else rf"{re.escape(old)}(?=[^\n]*\n)"
        count = 0 if r.random() < 0.7 else 1
        text = re.sub(rf"(?<![\w]){at}", new.replace("\\", ""), text, count=count)
    return text


def _one_number(tokens: list[str], r: random.Random) -> str:
    """Change a number somewhere, in place; returns the token to put where it would have gone."""
    places = [i for i, t in enumerate(tokens) if _NUMBER.search(t)]
    if not places:
        return r.choice(tokens)
    i = r.choice(places)
    found = r.choice(list(_NUMBER.finditer(tokens[i])))
    value = r.choice((*NUMBERS, int(found[0]) + 1, int(found[0]) - 1, int(found[0]) * 2))
    tokens[i] = f"{tokens[i][: found.start()]}{value}{tokens[i][found.end() :]}"
    return tokens[r.randrange(len(tokens))] if r.random() < 0.1 else tokens[i]


def _lines(text: str, r: random.Random) -> str:
    lines = text.split("\n")
    at, other = r.randrange(len(lines)), r.randrange(len(lines))
    kind = r.randrange(4)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[other])
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        joined = "\n".join(lines)
        cut = r.randrange(len(joined) or 1)
        return (
            joined[:cut] + r.choice("(){}[]<>%@\"'#!^:,=-x?\0é\n/") + joined[cut + r.randrange(3) :]
        )
    return "\n".join(lines)


def mutated_value(value: Any, r: random.Random) -> Any:
    """One place in nested tuples, lists and dicts changed."""
    if isinstance(value, tuple | list) and value and r.random() < 0.9:
        items = list(value)
        at = r.randrange(len(items))
        if r.random() < 0.85:
            items[at] = mutated_value(items[at], r)
        else:
            items[at : at + r.randrange(2)] = [r.choice(items)]
        return type(value)(items)
    if isinstance(value, dict) and value and r.random() < 0.9:
        key = r.choice(list(value))
        return {**value, key: mutated_value(value[key], r)}
    if isinstance(value, int) and r.random() < 0.8:
        return r.choice((*NUMBERS, value + 1, value - 1, value * 2))
    return r.choice((None, "", "text", (), [], {}, 0, -1, 1.5, True, b"", 2**70, *NUMBERS))

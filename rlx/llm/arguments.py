"""What callers give a language model: prompts, and how answers are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, GraphError, ShapeError, unknown_option
from rlx.llm.sampling import SamplingParams

__all__ = [
    "ContextError", "Prompt", "RoomError", "checked_ids", "longest_answer", "positive",
    "sampling_of", "several",
]  # fmt: skip

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]] | np.ndarray[Any, Any]
"""A text, ids, or a conversation."""


class ContextError(ShapeError):
    """A text that a context has no room for."""


class RoomError(ShapeError):
    """A text that the cache of keys and values has no room for while others are being drawn."""


def several(prompts: Any) -> list[Any]:
    """Prompts as a list: what is one prompt is a list of one."""
    if isinstance(prompts, str) or not isinstance(prompts, Sequence | np.ndarray):
        return [prompts]
    if not len(prompts):
        raise ShapeError("there is no prompt: expected one or more")
    first = prompts[0]
    one = isinstance(first, Mapping) or (np.ndim(first) == 0 and not isinstance(first, str))
    return [prompts] if one else list(prompts)


def checked_ids(given: Any, vocab: int) -> list[int]:
    """Ids as a list. DTypeError for what are no whole numbers, GraphError for ids outside the
    vocabulary."""
    if isinstance(given, list) and {*map(type, given)} == {int}:
        low, high = min(given), max(given)
        if low >= 0 and high < vocab:
            return [*given]
    for n in given:
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise DTypeError(f"a prompt's ids are whole numbers, found {n!r}")
        if not 0 <= int(n) < vocab:
            raise GraphError(f"an id is from 0 to {vocab - 1}, found {int(n)}")
    return [int(n) for n in given]


def positive(name: str, n: Any) -> int:
    """A number from 1 on; GraphError for what is none."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise GraphError(f"{name} is 1 or more, found {n!r}")
    return n


def longest_answer(prompt: int, context: int, asked: int | None) -> int:
    """The most tokens of an answer to a prompt of so many: as many as are asked for, else what the
    context has room for. ContextError if it has none."""
    room = context - prompt
    most = room if asked is None else positive("max_new_tokens", asked)
    if room < most or room < 1:
        wanted = "an answer" if asked is None else f"an answer of {most}"
        raise ContextError(
            f"{prompt} tokens of prompt and {wanted} have no room in a context of {context};"
            " shorten them, or load the model with a larger context"
        )
    return most


def sampling_of(options: Mapping[str, Any], vocab: int) -> SamplingParams:
    """The parameters of a call, by which the likeliest token is taken unless they say otherwise."""
    known = SamplingParams.__dataclass_fields__
    unknown = [name for name in options if name not in known]
    if unknown:
        raise unknown_option(unknown[0], known)
    given: dict[str, Any] = {"temperature": 0.0, **options}
    params = SamplingParams(**given)
    params.check_vocab(vocab)
    return params

"""Calls in the messages of a conversation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx.llm.text import ChatTemplate

__all__ = ["calls_fit", "with_arguments"]


def calls_fit(calls: Any) -> bool:
    """Whether ``calls`` are None, or such as an assistant's message has: with names, and with
    arguments that are JSON objects, or the texts of such."""
    if calls is None:
        return True
    if not isinstance(calls, list):
        return False
    return all(_fits(call.get("function") if isinstance(call, Mapping) else None) for call in calls)


def _has_calls(message: Any) -> bool:
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    return bool(calls) and calls_fit(calls)


def _fits(function: Any) -> bool:
    return (
        isinstance(function, Mapping)
        and isinstance(function.get("name"), str)
        and isinstance(_value(function.get("arguments")), Mapping)
    )


def with_arguments(
    messages: Sequence[Mapping[str, Any]], template: Callable[[], ChatTemplate]
) -> list[Mapping[str, Any]]:
    """Messages whose calls have their arguments as the template wants them: as an object or as
    text, whatever they are. Calls of another form are left to the template."""
    called = [_has_calls(m) for m in messages]
    if not any(called):
        return [*messages]
    as_text = template().arguments_are_text
    return [
        {**m, "tool_calls": [_written(c, as_text=as_text) for c in m["tool_calls"]]} if has else m
        for m, has in zip(messages, called, strict=True)
    ]


def _written(call: Mapping[str, Any], *, as_text: bool) -> dict[str, Any]:
    function = call["function"]
    value = _value(function["arguments"])
    arguments = json.dumps(value, ensure_ascii=False) if as_text else value
    return {**call, "function": {**function, "arguments": arguments}}


def _value(arguments: Any) -> Any:
    """Arguments as an object, if they are one; else None."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None

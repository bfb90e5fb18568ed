"""Calls in the messages of a conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["calls_fit", "with_arguments"]


def calls_fit(calls: Any) -> bool:
    """Whether ``calls`` are None, or such as an assistant's message has: with names, and with
    arguments that are JSON objects, or the texts of such."""
    if calls is None:
        return True
    if not isinstance(calls, list):
        return False
    return all(_fits(call.get("function") if isinstance(call, Mapping) else None) for call in calls)


def _fits(function: Any) -> bool:
    return (
        isinstance(function, Mapping)
        and isinstance(function.get("name"), str)
        and isinstance(_value(function.get("arguments")), Mapping)
    )


def with_arguments(message: Mapping[str, Any], *, as_text: bool) -> dict[str, Any]:
    """A message whose calls have their arguments as text, or else as an object."""
    calls = message.get("tool_calls")
    if calls is None:
        return {**message}
    return {**message, "tool_calls": [_written(call, as_text=as_text) for call in calls]}


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

"""The form of the catalogue of bad calls in ``test/bad_calls``, and how a row of it is judged."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from rlx.errors import FaultError, GraphError, RlxError

__all__ = ["Bad", "check", "ids"]


class Bad(NamedTuple):
    """A wrong call, the class of the error that it must give, and a pattern of its message.

    The pattern names the place (a name, a position, a file) and what was expected or what to do.
    """

    error: type[RlxError]
    match: str
    call: Callable[..., Any]


def ids(rows: list[Bad]) -> list[str]:
    """A name for each row: its class and the words of its pattern."""
    return [f"{b.error.__name__}-{re.sub('[^a-z0-9]+', '-', b.match.lower())[:50]}" for b in rows]


def check(bad: Bad, *args: Any) -> None:
    """The call raises that error and no other; one that comes from the user's code says where."""
    try:
        bad.call(*args)
    except RlxError as error:
        assert type(error) is bad.error, f"{type(error).__name__}: {error}"
        assert re.search(bad.match, error.message), error.message
        if isinstance(error, GraphError | FaultError):
            _check_place(error, bad.call)
        return
    raise AssertionError(f"nothing was refused, expected {bad.error.__name__}: {bad.match}")


def _check_place(error: RlxError, call: Callable[..., Any]) -> None:
    """The error's location is inside the call."""
    code = inspect.unwrap(call).__code__
    lines = {line for *_, line in code.co_lines() if line is not None}
    assert error.location is not None, f"no place is named: {error.message}"
    file, line = error.location
    assert file == code.co_filename and min(lines) <= line <= max(lines), f"{file}:{line}"

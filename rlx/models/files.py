"""The files of a model's folder."""

from __future__ import annotations

import json
import math
import os
import re
from typing import Any, TypeVar

from rlx.errors import ModelError, a_type

__all__ = ["check_there", "expect", "read_json"]

J = TypeVar("J", dict[str, Any], list[Any])

_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")
"""A name on Hugging Face's hub."""
_NUMBERS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
"""What JSON has no numbers for: transformers writes ``{"__float__": "Infinity"}``."""


def check_there(path: str, kind: str) -> None:
    """ModelError, which calls what was expected a ``kind``, for a path at which nothing is;
    it says how to fetch one that may be a name on the hub."""
    if not os.path.exists(path):
        hub = _HUB.fullmatch(path) and not os.path.isdir(path.partition("/")[0])
        fetch = f"; fetch it: hf download {path} --local-dir FOLDER" if hub else ""
        raise ModelError(f"there is no {kind} {path}, and RLX downloads nothing{fetch}")


def read_json(path: str, kind: type[J], default: J | None = None) -> J:
    """A JSON file with an object (dict) or an array (list) in it; ``default``, if given, stands
    for a file that is not there."""
    try:
        with open(path, encoding="utf-8") as f:
            found = json.load(f, object_hook=_number)
    except FileNotFoundError:
        if default is not None:
            return default
        raise ModelError(f"{path} is missing") from None
    except (OSError, RecursionError, ValueError) as e:
        raise ModelError(f"cannot read {path}: {e}") from None
    if not isinstance(found, kind):
        name = {dict: "object", list: "array"}[kind]
        raise ModelError(f"{path} holds {a_type(found)}, expected a JSON {name}")
    return found


def _number(found: dict[str, Any]) -> Any:
    tag = found.get("__float__")
    return _NUMBERS.get(tag, found) if isinstance(tag, str) and len(found) == 1 else found


def expect(path: str, raw: dict[str, Any], key: str, known: tuple[str | None, ...]) -> None:
    """ModelError for an entry of config.json that is none of those that are known."""
    found = raw.get(key)
    if found not in known:
        names = ", ".join(repr(k) for k in known if k is not None)
        raise ModelError(f"{path}: {key} is {found!r}; this encoder takes {names}")

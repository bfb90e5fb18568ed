"""What a config.json means where it does not say something.

Files often lack the entries that are as in the first model of their kind. ``defaults.json`` has
what transformers takes for those (``tools/make_llm_defaults.py``), and other names of entries.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

__all__ = ["PATH", "completed"]

PATH = os.path.join(os.path.dirname(__file__), "defaults.json")
_ROPE = ("rope_parameters", "rope_scaling", "rope_theta")


def completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json with the entries that it lacks. One that is null is there."""
    row = _defaults().get(config.get("model_type", ""), {"entries": {}, "names": {}})
    names = {other: name for other, name in row["names"].items() if name not in config}
    said = {names.get(key, key): value for key, value in config.items()}
    found = {**row["entries"], **said}
    if any(said.get(key) for key in _ROPE):
        found["rope_parameters"] = said.get("rope_parameters")
    return found


@cache
def _defaults() -> Mapping[str, Any]:
    with open(PATH, encoding="utf-8") as f:
        return json.load(f)

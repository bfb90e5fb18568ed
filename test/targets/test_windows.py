"""The native runtime on Windows: built by mingw-w64, run under wine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "try_windows.py"


@pytest.mark.slow
def test_an_artifact_runs_there(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("try_windows", TOOL)
    assert spec is not None and spec.loader is not None
    tool: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    if lacking := tool.missing():
        pytest.skip(f"not on the PATH: {', '.join(lacking)}")
    tool.check(tmp_path)

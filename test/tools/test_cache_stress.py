"""The stress tool itself, for a few rounds; ``tools/cache_stress.py --rounds 500`` is the whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks")
def test_processes_do_not_disturb_each_other() -> None:
    done = subprocess.run(
        [sys.executable, "tools/cache_stress.py", "--rounds", "4", "--processes", "8"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 rounds of 8 processes: 0 failures" in done.stdout
    for what in ("hit", "miss", "processes killed 4"):
        assert what in done.stdout

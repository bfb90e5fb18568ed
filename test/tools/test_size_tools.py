"""The tools that count variants, on a few ops and a small model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from support.samples import cases
from support.unsayable import HEAD, rows

ROOT = Path(__file__).resolve().parents[2]


def _said(tool: str, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, f"tools/{tool}.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_ops() -> None:
    assert _said("size_variants", "--op", "mir.flip", "--op", "mir.cumsum")[:2] == (0, "")
    status, said, counted = _said("size_variants", "--op", "mir.fft")
    assert status == 1 and "mir.fft-c64-0 at 8: " in said and " need more than" in counted


def test_the_table_of_dims_that_must_be_numbers() -> None:
    """What `python tools/size_variants.py --table` writes."""
    page = (ROOT / "docs" / "sizes.md").read_text("utf-8")
    table = re.match(r"(?:\n\|.*)*", page.partition(HEAD)[2])
    assert table is not None
    assert table[0].strip().splitlines() == rows(cases())


def test_models() -> None:
    status, table, why = _said(
        "size_models",
        "--model",
        "training",
        "--sizes",
        "9",
        "--bits",
        "1",
        "--timed",
        "1",
        "--speed",
        "1",
    )
    assert status == 0, why
    assert table.splitlines()[2].startswith("| training |") and " 1 of 1 " in table

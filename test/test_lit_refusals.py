"""The lit files that check diagnostics, in this process: so the session sees what they provoke.

lit itself runs them by ``make lit``, in processes of their own, where nothing watches.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rlx.tools import opt

LIT = Path(__file__).parent / "lit"
RUN = re.compile(
    r"^// RUN: %rlx-opt %s ([^|>\n]*--verify-diagnostics[^|>\n]*?)(?: *(?:2?>|\|).*)?$",
    re.MULTILINE,
)
FOUND = [
    (path, m[1]) for path in sorted(LIT.rglob("*.mlir")) for m in RUN.finditer(path.read_text())
]


@pytest.mark.parametrize(
    ("path", "flags"), FOUND, ids=[f"{p.parent.name}-{p.name}" for p, _ in FOUND]
)
def test_diagnostics_are_those_expected(path: Path, flags: str, monkeypatch, capsys) -> None:
    monkeypatch.setenv("RLX_CPU", "x86-64-v3")
    assert opt.main([str(path), *shlex.split(flags)]) == 0, capsys.readouterr().err

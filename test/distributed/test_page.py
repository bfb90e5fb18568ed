"""What docs/distributed.md does works: its program, and its script as ranks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlx.tools.cli import main
from support.documents import ROOT, run_page

PAGE = ROOT / "docs" / "distributed.md"


def test_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (script,) = re.findall(r"^```python script.py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)
    (command,) = re.findall(r"^```sh launch\nrlx (.*?)\n```$", text, re.MULTILINE)
    assert main(command.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == [f"[{rank}] the sum is 6.0" for rank in range(4)]

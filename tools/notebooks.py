"""Tutorials as Jupyter notebooks, which the site offers beside each page.

    python tools/notebooks.py FOLDER

Blocks in ``python`` and ``sh`` become cells, with the ``text`` behind them as what they printed;
all else is prose. A page is run by a test, so its notebook is as well.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = ROOT / "docs" / "tutorials"

CELL = re.compile(
    r"^```(?P<language>python|sh)\n(?P<code>.*?)^```$(?:\s*^```text\n(?P<printed>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\[([^\[\]]*)\]\((?!https?:)[^)]*\)")
"""Links to other pages, which are not beside a notebook."""


def notebook(page: str) -> dict[str, Any]:
    """A page in Markdown as a notebook."""
    cells: list[dict[str, Any]] = []
    end = 0
    for m in CELL.finditer(page):
        cells += _prose(page[end : m.start()])
        cells.append(_code(m["language"], m["code"], m["printed"]))
        end = m.end()
    cells += _prose(page[end:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def _prose(text: str) -> list[dict[str, Any]]:
    text = LINK.sub(r"\1", text.strip())
    return [{"cell_type": "markdown", "metadata": {}, "source": text}] if text else []


def _code(language: str, code: str, printed: str | None) -> dict[str, Any]:
    if language == "sh":  # a command each, which may go on after a backslash
        code = re.sub(r"^(?=\S)(?!#)", "!", code.replace("\\\n", "\\\n "), flags=re.MULTILINE)
    outputs: list[dict[str, Any]] = []
    if printed is not None:
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed})
    return {
        "cell_type": "code", "execution_count": None, "metadata": {}, "source": code.rstrip("\n"),
        "outputs": outputs,
    }  # fmt: skip


def write(folder: Path) -> list[Path]:
    """Write a notebook for each tutorial into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for page in sorted(TUTORIALS.glob("*.md")):
        path = folder / f"{page.stem}.ipynb"
        made = notebook(page.read_text(encoding="utf-8"))
        path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        written.append(path)
    return written


if __name__ == "__main__":
    for name in write(Path(sys.argv[1])):
        print(name)

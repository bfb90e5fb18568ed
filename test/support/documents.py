"""Pages whose code is run, and what it prints compared or written down.

A block in ``python`` or ``sh`` is run; one in ``text`` right behind it is what it prints. A word
after the language (````` ```python model`````) marks a block for a test of its own, and blocks in
other languages are only read. Of the shell, the commands of RLX and the C compiler are run.

    PYTHONPATH=test python -m support.documents docs/tutorials/first-graph.md

runs pages, and writes what has changed into them.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.minilm import smollm_file

__all__ = [
    "ROOT", "Block", "blocks", "check", "prepare", "run_block", "run_page", "same",
]  # fmt: skip

ROOT = Path(__file__).resolve().parents[2]

FENCE = re.compile(r"^```(\w+)( \w+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = ("python", "sh")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, a word after that, its text, the text block behind it, and
    where that text lies on the page."""

    language: str
    mark: str
    text: str
    expected: str | None = None
    place: tuple[int, int] = (0, 0)


def blocks(text: str) -> Iterator[Block]:
    """The blocks of code on a page; one in ``text`` right after another is its output."""
    found = list(FENCE.finditer(text))
    for i, m in enumerate(found):
        after = found[i + 1] if i + 1 < len(found) else None
        expected, place = None, (m.end(), m.end())
        if after is not None and after[1] == "text" and not text[m.end() : after.start()].strip():
            expected, place = after[3], after.span(3)
        if m[1] != "text":
            yield Block(m[1], (m[2] or "").strip(), m[3], expected, place)


def run_block(block: Block, names: dict[str, Any]) -> str:
    """Run a block of Python or of shell lines, and return what it prints."""
    # With bytes below it, as the stream of a process.
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(printed):
        if block.language == "python":
            exec(compile(block.text, "tour.py", "exec"), names)
        else:
            for line in block.text.replace("\\\n", " ").splitlines():
                _command(line)
    return printed.buffer.getvalue().decode()  # type: ignore[attr-defined]


def _command(line: str) -> None:
    """A line of the shell, in this process where it is a command of RLX."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    name, *arguments = words
    if name == "rlx-opt":
        from rlx.tools.opt import main

        assert main(arguments) == 0, line
    elif name == "rlx":
        from rlx.tools.cli import main

        assert main(arguments) == 0, line
    else:
        assert name in ("gcc", "cat", "ls", "head", "grep") or name.startswith("./"), (
            f"a page has an unknown command: {line}"
        )
        done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)
        print(done.stdout, end="")


def same(block: Block, printed: str) -> bool:
    """Whether a block printed what the page says; ``...`` on the page stands for anything."""
    expected = block.expected or ""
    return doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)


def check(block: Block, printed: str) -> None:
    """Compare what a block printed with the page."""
    assert same(block, printed), f"the page says\n{block.expected}\nbut it prints\n{printed}"


def run_page(path: Path) -> None:
    """Run the blocks of a page in the working directory, as one program, and compare."""
    names: dict[str, Any] = {"__name__": "tour"}
    run = [b for b in blocks(path.read_text(encoding="utf-8")) if _is_run(b)]
    assert run, f"{path} has nothing to run"
    for block in run:
        check(block, run_block(block, names))


def prepare(folder: Path) -> None:
    """Put the reader's own files where a page runs: a model in ONNX, and SmolLM2 if it is there."""
    fixture = ROOT / "test" / "frontends" / "fixtures" / "resnet.onnx"
    (folder / "model.onnx").symlink_to(fixture)
    language_model = smollm_file()
    if language_model is not None:
        (folder / "model.gguf").symlink_to(language_model)


def _is_run(block: Block) -> bool:
    return block.language in RUN and not block.mark


def rewrite(path: Path) -> int:
    """Run a page and put what its blocks print where the page says otherwise; returns in how many
    places."""
    text = path.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "tour"}
    changes: list[tuple[tuple[int, int], str]] = []
    for block in blocks(text):
        if not _is_run(block):
            continue
        printed = run_block(block, names)
        if not same(block, printed):
            kept = block.expected is not None
            changes.append((block.place, printed if kept else f"\n\n```text\n{printed}```"))
    for (start, end), new in reversed(changes):
        text = text[:start] + new + text[end:]
    path.write_text(text, encoding="utf-8")
    return len(changes)


def main(paths: Iterable[str]) -> None:
    for name in paths:
        path = Path(name).resolve()
        before = Path.cwd()
        folder = tempfile.mkdtemp()
        os.chdir(folder)
        try:
            prepare(Path(folder))
            print(f"{name}: {rewrite(path)} outputs written")
        finally:
            os.chdir(before)
            shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])

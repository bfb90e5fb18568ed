"""The README does what it says: its code is run, and what it prints is compared."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.minilm import minilm_dir

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w+)( \w+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, a word after that, its text, and the text block behind it."""

    language: str
    mark: str
    text: str
    expected: str | None


def blocks(document: Path) -> Iterator[Block]:
    """The blocks of code in a document; one in ``text`` right after another is its output."""
    text = document.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    for i, m in enumerate(found):
        after = found[i + 1] if i + 1 < len(found) else None
        expected = None
        if after is not None and after[1] == "text" and not text[m.end() : after.start()].strip():
            expected = after[3]
        if m[1] != "text":
            yield Block(m[1], (m[2] or "").strip(), m[3], expected)


BLOCKS = list(blocks(ROOT / "README.md"))


def run_block(block: Block, names: dict[str, Any]) -> str:
    """Run a block of Python or of shell lines, and return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if block.language == "python":
            exec(compile(block.text, "tour.py", "exec"), names)
        else:
            for line in block.text.splitlines():
                _command(shlex.split(line, comments=True))
    return printed.getvalue()


def _command(words: list[str]) -> None:
    from rlx.tools.opt import main

    assert words[0] == "rlx-opt", f"the README has an unknown command: {words}"
    assert main(words[1:]) == 0, words


def check(block: Block, printed: str) -> None:
    """Compare output; ``...`` in the README stands for anything."""
    expected = block.expected or ""
    same = doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)
    assert same, f"the README says\n{expected}\nbut it prints\n{printed}"


def test_the_tour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "tour"}
    tour = [b for b in BLOCKS if not b.mark and "make " not in b.text]
    assert len(tour) == 11
    for block in tour:
        check(block, run_block(block, names))


def test_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = minilm_dir()
    if found is None:
        pytest.skip("the model package is not installed; make demo installs it")
    (tmp_path / "all-MiniLM-L6-v2").symlink_to(found)
    monkeypatch.chdir(tmp_path)
    (block,) = (b for b in BLOCKS if b.mark == "model")
    check(block, run_block(block, {}))


def test_the_hello_graph_is_the_one_that_is_promised() -> None:
    hello = BLOCKS[1]
    assert "[1, 0, 0, 1, 1, 0, 0, 1]" in hello.text
    assert "[[1, 2, 3, 4]]" in hello.text
    assert hello.expected == "[[4. 6.]]\n"


def test_the_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for document in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        named = set(re.findall(r"(?:^|`)make (\w+)", text, re.MULTILINE))
        assert named, document
        assert not {n for n in named if not re.search(rf"^{n}:", makefile, re.MULTILINE)}, document


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/cache.md"]
)
def test_what_is_referred_to_is_there(document: str) -> None:
    path = ROOT / document
    text = path.read_text(encoding="utf-8")
    links = {path.parent / link for link in re.findall(r"\]\(([^)#:]+)\)", text)}
    named = re.findall(r"`((?:rlx|test|tools|docs|examples|cmake)/[\w./]*)`", text)
    # NAME stands for one that the reader chooses.
    paths = {*links, *(ROOT / n for n in named if "NAME" not in n)}
    missing = [p for p in paths if not p.exists()]
    assert not missing


def test_a_wrong_output_would_be_seen() -> None:
    block = Block("python", "", "print(1 + 1)", "3\n")
    with pytest.raises(AssertionError, match="the README says"):
        check(block, run_block(block, {}))


def test_make_leaves_the_c_locale_in_which_python_may_not_read_the_name_of_its_directory() -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("there is no make")
    for given, expected in (("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("C.utf8", "C.utf8")):
        done = subprocess.run(
            [make, "--no-print-directory", "-f", "-", "shown"],
            input="include Makefile\nshown: ; @echo $$LC_ALL\n", cwd=ROOT,
            env={**os.environ, "LC_ALL": given}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout == f"{expected}\n"

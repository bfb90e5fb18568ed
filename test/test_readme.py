"""The README does what it says: its code is run, what it prints is compared, and its figures are
those of the benchmarks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.documents import ROOT, Block, blocks, check, run_block
from support.reader_model import write_model

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = list(blocks(README))


def test_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx", reason="the README imports an ONNX model")
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path)
    names: dict[str, Any] = {"__name__": "tour"}
    tour = [b for b in BLOCKS if "make " not in b.text]
    assert len(tour) == 7
    for block in tour:
        check(block, run_block(block, names))
    assert np.load("y.npy").shape == (2, 3)
    assert "contraction" in Path("layer.s").read_text(encoding="utf-8")


def test_the_hello_graph_is_the_one_that_is_promised() -> None:
    hello = BLOCKS[1]
    assert "[1, 0, 0, 1, 1, 0, 0, 1]" in hello.text
    assert "[[1, 2, 3, 4]]" in hello.text
    assert hello.expected == "[[4. 6.]]\n"


def rows(text: str, start: str) -> list[list[str]]:
    """The cells of the table whose head begins with a text, without its head."""
    table = text[text.index(start) :].split("\n\n", maxsplit=1)[0]
    return [[c.strip() for c in line.strip("| ").split("|")] for line in table.splitlines()[2:]]


def test_the_figures_are_those_of_the_benchmarks() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    # family, threads, cases, faster than all, torch, onnxruntime, openvino, numpy, ..., worst case
    measured = {r[0]: r for r in rows(page, "| family | threads |") if r[1] == "1"}
    shown = rows(README, "| workload | cases |")
    assert len(shown) > 5
    for family, cases, *ratios, worst in shown:
        row = measured[family]
        assert [cases, *ratios] == [row[2], *row[4:8]], family
        assert worst == (re.findall(r": ([\d.]+) \(", row[-1]) or [""])[0], family


def test_the_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for document in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        named = set(re.findall(r"(?:^|`)make (\w+)", text, re.MULTILINE))
        assert named, document
        assert not {n for n in named if not re.search(rf"^{n}:", makefile, re.MULTILINE)}, document


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len(re.sub(r"```.*?```", "", README, flags=re.DOTALL).split()) < 1500


def test_a_wrong_output_would_be_seen() -> None:
    block = Block("python", "", "print(1 + 1)", "3\n")
    with pytest.raises(AssertionError, match="the page says"):
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

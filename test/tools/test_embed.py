"""``rlx embed``: sentences from a command line, a file or standard input, to a table or a file."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.models.safetensors import SafeTensors
from rlx.tools.cli import main
from support import tiny_bert

TEXTS = ["the cat", "a dog sat", "the mat"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a model and a file of sentences."""
    tiny_bert.write(tmp_path / "model")
    (tmp_path / "lines.txt").write_text("\n".join([TEXTS[0], "", *TEXTS[1:]]) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def vectors() -> np.ndarray:
    return rlx.models.Embed.from_dir("model").encode(TEXTS)


@pytest.mark.parametrize("source", ["lines.txt", "-"])
def test_a_file_and_standard_input_are_sentences(
    source: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (here / "lines.txt").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["embed", "model", "--file", source, "-o", "v.npy", "--batch-size", "2"]) == 0
    np.testing.assert_array_equal(np.load("v.npy"), vectors())


def test_a_sentence_ends_with_its_line_alone(here: Path) -> None:
    """A form feed or a separator of paragraphs inside one does not cut it, and marks of a file of
    Windows are no part of any."""
    texts = ["the\x0ccat", "a\u2028dog\x85sat", "the mat"]
    Path("w.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(texts).encode() + b"\r\n")
    assert main(["embed", "model", "--file", "w.txt", "-o", "v.jsonl"]) == 0
    rows = [json.loads(line) for line in Path("v.jsonl").read_bytes().split(b"\n") if line]
    assert [row["text"] for row in rows] == texts


def test_vectors_go_to_files_of_three_kinds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    embed = ["embed", "model", *TEXTS, "-o"]
    for name in ("v.npy", "v.safetensors", "v.jsonl"):
        assert main([*embed, name]) == 0
        assert f"{name}: 3 vectors of" in capsys.readouterr().err
    expected = vectors()
    np.testing.assert_array_equal(SafeTensors("v.safetensors")["vectors"], expected)
    rows = [json.loads(line) for line in Path("v.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    np.testing.assert_array_equal(np.array([r["vector"] for r in rows], np.float32), expected)
    assert main([*embed, "v.npy"]) == 1
    assert main([*embed, "v.npy", "--force", "--precision", "bf16"]) == 0
    assert np.abs(np.load("v.npy") - expected).max() < 0.05


def test_vectors_are_printed_as_lines(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", "model", *TEXTS]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    np.testing.assert_array_equal(np.array([r["vector"] for r in rows], np.float32), vectors())


def test_the_rate_of_many_sentences(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("many.txt").write_text("the cat\n" * 101)
    assert main(["embed", "model", "--file", "many.txt", "-o", "v.npy"]) == 0
    assert re.search(r"101 sentences in [\d.]+ s: \d+ sentences/s", capsys.readouterr().err)


def test_few_sentences_make_a_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["similar", "model", *TEXTS]) == 0
    table = [line.split()[-3:] for line in capsys.readouterr().out.splitlines()[1:]]
    np.testing.assert_allclose(np.array(table, float), vectors() @ vectors().T, atol=5e-4)


@pytest.mark.parametrize("ending", ["", ".npy", ".safetensors", ".jsonl"])
def test_the_nearest_sentences(ending: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a file, by its vectors if they are given."""
    source = [] if ending == ".jsonl" else ["--file", "lines.txt"]
    if ending:
        assert main(["embed", "model", *TEXTS, "-o", f"v{ending}"]) == 0
        source += ["--vectors", f"v{ending}"]
    capsys.readouterr()
    assert main(["search", "model", "a dog sat", *source, "-k", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    scores = vectors() @ vectors()[1]
    order = np.argsort(-scores)[:2]
    assert [line.split(None, 2) for line in lines] == [
        [f"{scores[i]:.3f}", str(i + 1), TEXTS[i]] for i in order
    ]
    assert order[0] == 1
    assert main(["search", "model", "a", "b", *source]) == 0
    assert capsys.readouterr().out.count("# ") == 2

"""The tutorials and how-to pages do what they say: each is run as one program, and what it prints
compared."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from support.documents import ROOT, prepare, run_page

DOCS = ROOT / "docs"
PAGES = sorted(
    p
    for folder in ("tutorials", "howto")
    for p in (DOCS / folder).glob("*.md")
    if "```python\n" in p.read_text(encoding="utf-8")
)
NEEDED = {
    "onnx": ("onnx",),
    "quantise-and-chat": ("tokenizers", "llguidance"),
    "torch": ("torch",),
    "train": ("sklearn",),
}
"""The packages that a page uses, beside what compiles."""


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_a_page(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDED.get(path.stem, ()):
        pytest.importorskip(package, reason=f"the page uses the package {package}")
    prepare(tmp_path)
    if path.stem == "quantise-and-chat" and not (tmp_path / "model.gguf").exists():
        pytest.skip("SmolLM2 is not installed")
    monkeypatch.chdir(tmp_path)
    run_page(path)


def test_the_program_in_c(tmp_path: Path) -> None:
    """That of the page on deploying, with the command that the page gives."""
    prefix = Path(sysconfig.get_paths()["purelib"]) / "rlx"
    if shutil.which("gcc") is None or not (prefix / "lib" / "librlx.a").exists():
        pytest.skip("there is no gcc, or no library of RLX")
    import numpy as np

    import rlx

    text = (DOCS / "tutorials" / "deploy.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```c\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (command,) = (line[2:] for line in text.splitlines() if line.startswith("$ gcc "))
    (tmp_path / "program.c").write_text(program, encoding="utf-8")
    g = rlx.Graph("classifier")
    w = g.param("w", value=np.arange(12, dtype=np.float32).reshape(4, 3) / 10)
    g.set_outputs((g.input("x", [1, 4]) @ w).softmax(axis=-1))
    rlx.compile_artifact(g).save(tmp_path / "classifier.rlx")
    built = subprocess.run(
        command.replace("PREFIX", str(prefix)), shell=True, cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    printed = subprocess.run(
        ["./program"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    expected = rlx.interpret(g, {"x": np.ones((1, 4), np.float32)})[0][0]
    assert np.allclose([float(word) for word in printed.split()], expected, atol=1e-4)

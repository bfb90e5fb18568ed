"""The tutorials and how-to pages do what they say: each is run as one program, and what it prints
compared."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from support.documents import ROOT, RUN, blocks, prepare, run_page

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


# -- as notebooks --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The notebooks of the site, by their tutorials."""
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = module.write(tmp_path_factory.mktemp("notebooks"))
    return {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in written}


@pytest.mark.parametrize("path", sorted((DOCS / "tutorials").glob("*.md")), ids=lambda p: p.stem)
def test_a_notebook_has_the_code_of_its_page(path: Path, notebooks: dict[str, Any]) -> None:
    cells = [c for c in notebooks[path.stem]["cells"] if c["cell_type"] == "code"]
    run = [b for b in blocks(path.read_text(encoding="utf-8")) if b.language in RUN and not b.mark]
    for cell, block in zip(cells, run, strict=True):
        code = re.sub(r"^!", "", cell["source"], flags=re.MULTILINE).replace("\\\n ", "\\\n")
        assert code == block.text.rstrip("\n")
        assert "".join(o["text"] for o in cell["outputs"]) == (block.expected or "")


def test_a_notebook_runs(
    notebooks: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shells = pytest.importorskip("IPython.core.interactiveshell", reason="IPython is missing")
    capture = importlib.import_module("IPython.utils.capture").capture_output
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "profile"))
    monkeypatch.setenv("PATH", f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}")
    shell = shells.InteractiveShell()
    for cell in notebooks["first-graph"]["cells"]:
        if cell["cell_type"] == "code":
            with capture() as printed:
                done = shell.run_cell(cell["source"])
            done.raise_error()
            expected = "".join(o["text"] for o in cell["outputs"])
            found = printed.stdout.replace("\r\n", "\n")  # a shell command has a terminal
            found = re.sub(r"<ipython-input-[^>]*>", "tour.py", found)
            assert doctest.OutputChecker().check_output(expected, found, doctest.ELLIPSIS), found

"""The examples in C++, Rust and Node, built as their page says, compute what Python computes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import rlx
from support.cpp import ROOT, run
from support.documents import blocks

PAGE = (ROOT / "docs" / "howto" / "other-languages.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples"
RLX = Path(sys.executable).with_name("rlx")

ROWS = np.array([[1, 2, 3, 4], [0, 1, 0, 1], [-2, 0.5, 1e3, 0]], np.float32)
GIVEN = [" ".join(f"{v:g}" for v in row) for row in ROWS]


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [p for p in programs if shutil.which(p) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="module")
def flags() -> list[str]:
    return run(RLX, "config", "--cflags", "--libs").split()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact that the page makes."""
    path = tmp_path_factory.mktemp("model") / "classifier.rlx"
    (code,) = (b.text for b in blocks(PAGE) if b.language == "python")
    exec(code.replace('"classifier.rlx"', repr(str(path))), {})
    return path


def expected(model: Path) -> str:
    (y,) = rlx.Session("cpu").load(model).run_slots(ROWS)
    return "".join(" ".join(f"{v:.4f}" for v in row) + "\n" for row in y)


def failed(command: Sequence[str | Path]) -> str:
    """What a program that must fail says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done
    return done.stderr


@needs("c++")
def test_the_program_in_cpp(model: Path, flags: list[str], tmp_path: Path) -> None:
    (text,) = (b.text for b in blocks(PAGE) if b.language == "cpp")
    (tmp_path / "main.cpp").write_text(text.replace('"classifier.rlx"', f'"{model}"'))
    run("c++", "-std=c++17", tmp_path / "main.cpp", "-o", tmp_path / "main", *flags)
    assert run(tmp_path / "main") == "0.0900 0.2447 0.6652 "
    model.rename(kept := model.with_suffix(".kept"))
    assert "expected a file to read" in failed([tmp_path / "main"])
    kept.rename(model)


@needs("cargo", "cc")
def test_the_program_in_rust(model: Path, tmp_path: Path) -> None:
    (shown,) = (b.text for b in blocks(PAGE) if b.language == "rust")
    assert shown in (EXAMPLES / "rust" / "src" / "main.rs").read_text(encoding="utf-8")
    folder = shutil.copytree(EXAMPLES / "rust", tmp_path / "rust")
    built = subprocess.run(
        ["cargo", "build", "-q", "--offline"], cwd=folder, env={**os.environ, "RLX": str(RLX)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    assert not built.stderr, "warnings"
    program = folder / "target" / "debug" / "rlx-example"
    assert run(program, model, *GIVEN) == expected(model)
    assert "input 'x': found shape [1, 3]" in failed([program, model, "1 2 3"])
    assert "bytes, expected" in failed([program, model, "1 2 3 4", "1"])
    assert "expected a file to read" in failed([program, "none.rlx", "1 2 3"])


@needs("node", "c++")
def test_the_program_in_node(model: Path, flags: list[str], tmp_path: Path) -> None:
    (shown,) = (b.text for b in blocks(PAGE) if b.language == "js")
    example = EXAMPLES / "node"
    assert shown in (example / "classify.js").read_text(encoding="utf-8")
    where = re.search(r'node -p "([^"]*)"', PAGE)
    assert where is not None
    headers = run("node", "-p", where[1]).strip()
    if not Path(headers, "node_api.h").exists():
        pytest.skip("Node's headers are not installed")
    addon = tmp_path / "rlx.node"
    run("c++", "-std=c++17", "-shared", "-fPIC", example / "addon.cpp", "-o", addon,
        "-I", headers, *flags)  # fmt: skip
    program = ["env", f"RLX_ADDON={addon}", "node", str(example / "classify.js")]
    assert run(*program, model, *GIVEN) == expected(model)
    assert "input 'x': found shape [1, 3]" in failed([*program, model, "1 2 3"])
    assert "expected a file to read" in failed([*program, "none.rlx", "1 2 3"])
    calls = """
        const model = require(process.argv[1]).load(process.argv[2]);
        console.log(JSON.stringify([model.inputs, model.outputs]));
        const x = new Float32Array(4);
        const said = (error) => console.log(error.message);
        for (const given of [[{ x: [1] }], [{ x: new Int8Array(4) }], [{ x }, {}]])
          try { model.run(...given); } catch (error) { said(error); }
        model.run({ x }).catch(said);
    """
    described, *errors = run("node", "-e", calls, addon, model).splitlines()
    assert described == (
        '[[{"name":"x","dtype":"f32","shape":[-1,4]}],[{"name":"y","dtype":"f32","shape":[-1,3]}]]'
    )
    wrong = "input 'x': expected a typed array for f32"
    assert errors[:3] == [wrong, wrong, "shapes: expected an array of sizes for 'x'"]
    assert "expected a model that rlx_bind gave" in errors[3]

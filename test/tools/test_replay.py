"""tools/replay.py: a refactoring alters no kernel, and any other change is named."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rlx
from rlx.kernels.elementwise import emit as elementwise
from rlx.lowering.rules import Rule
from rlx.text import graph_text
from support.planted import plant

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def replay() -> ModuleType:
    spec = importlib.util.spec_from_file_location("replay", ROOT / "tools" / "replay.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["replay"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    g = rlx.Graph()
    x = g.input("x", [4, 8])
    g.set_outputs((x.abs() + 1.0).softmax(axis=-1))
    (folder / "a-f32-0.mlir").write_text(graph_text(g))
    g = rlx.Graph()
    g.set_outputs(g.input("x", [4], "i32") * 3)
    (folder / "b-i32-0.mlir").write_text(graph_text(g))
    return folder


def snapshot(replay: ModuleType, corpus: Path, out: Path) -> dict[str, Any]:
    out.mkdir()
    replay.take_snapshot(corpus, out)
    return json.loads((out / "index.json").read_text())["graphs"]


def test_the_same_code_has_no_difference(replay: ModuleType, corpus: Path, tmp_path: Path) -> None:
    base, now = (snapshot(replay, corpus, tmp_path / name) for name in ("base", "now"))
    assert set(base) == {
        *(f"a-f32-0 {target}" for target in replay.TARGETS),
        "b-i32-0 cpu:x86-64-v4",
    }
    found = replay.compare(base, now)
    assert found.empty and found.kernels >= 4


def test_a_changed_kernel_is_named_and_shown(
    replay: ModuleType, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = snapshot(replay, corpus, tmp_path / "base")
    monkeypatch.setattr(elementwise, "SHORT_PROGRAM", 0)
    now = snapshot(replay, corpus, tmp_path / "now")
    found = replay.compare(base, now)
    assert {k.family for k, _ in found.changed} == {"elementwise"}
    assert not (found.added or found.gone or found.errors)
    lines = list(replay.report(found, tmp_path / "base", tmp_path / "now", True))
    assert any(line.startswith("changed  elementwise") and "b-i32-0" in line for line in lines)
    assert any(line.startswith("-  ") for line in lines)
    assert lines[-1].startswith(f"{len(found.changed)} of {found.kernels} kernels changed, 0 added")


def test_a_rule_adds_and_removes_kernels(
    replay: ModuleType, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = snapshot(replay, corpus, tmp_path / "base")
    plant(monkeypatch, Rule("wrong", "abs(x) --> x"))
    found = replay.compare(base, snapshot(replay, corpus, tmp_path / "now"))
    assert not found.changed and not found.errors
    assert {k.family for k in found.added} == {k.family for k in found.gone} == {"rowwise"}
    assert all(graphs == {"a-f32-0"} for graphs in found.added.values())
    assert len(found.schedules) == len(replay.TARGETS)


def test_another_config_with_the_same_code_is_the_same_kernel(replay: ModuleType) -> None:
    def index(config: str, code: str, **more: str) -> dict[str, Any]:
        return {"g cpu": {"schedule": "1", "kernels": [["copy", config, code, code]], **more}}

    assert replay.compare(index("Copy(1)", "a"), index("Copy(1, 2)", "a")).empty
    assert len(replay.compare(index("Copy(1)", "a"), index("Copy(1)", "b")).changed) == 1
    found = replay.compare(index("Copy(1)", "a"), {"g cpu": {"error": "E: no", "kernels": []}})
    assert len(found.gone) == 1 and found.errors == ["g cpu: compiled -> E: no"]


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_a_revision_is_compared_with_the_checkout() -> None:
    inside = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, check=False
    )
    if inside.returncode:
        pytest.skip("this is no git checkout")
    done = subprocess.run(
        [sys.executable, "tools/replay.py", "--base", "HEAD", "--only", "mir.relu-i32"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "kernels changed" in done.stdout

"""RLX_IR_DUMP and the reports: every compile shows itself, and standard output stays clean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.errors import KnobError, RlxError
from rlx.inspect import inspect_pipeline
from rlx.lowering import dump
from rlx.tools import opt

CPU = "cpu:x86-64-v3"
X = {"x": np.ones((4, 8), np.float32)}


def graph(name: str = "mlp", rows: int | str = 4) -> rlx.Graph:
    g = rlx.Graph(name)
    g.set_outputs(
        (g.input("x", [rows, 8]) @ g.param("w", value=np.ones((8, 3), np.float32))).gelu()
    )
    return g


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "_dumped", type(dump._dumped)())
    for knob in (knobs.ir_dump, knobs.fusion_report, knobs.dispatch_report):
        monkeypatch.delenv(knob.variable, raising=False)


def compiled(g: rlx.Graph) -> Any:
    with knobs.cpu.scoped("x86-64-v3"):
        return rlx.Session("cpu").compile(g)


def test_nothing_is_shown_unasked(capfd: pytest.CaptureFixture[str]) -> None:
    compiled(graph())
    assert capfd.readouterr() == ("", "")


def test_a_directory_gets_a_file_a_level(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with knobs.ir_dump.scoped(f"{tmp_path}/new/dir/"):
        f = compiled(graph())
    assert f.run(X)[0].shape == (4, 3)
    expected = inspect_pipeline(graph(), CPU)
    folder = tmp_path / "new" / "dir"
    for level in ("hir", "mir", "fused", "lir"):
        path = folder / f"mlp.{level}.mlir"
        assert path.read_text() == getattr(expected, level)
        assert (
            opt.main([str(path), "--emit=lir", f"--target={CPU}", "-o", str(tmp_path / "o")]) == 0
        )
        assert (tmp_path / "o").read_text() == expected.lir
    reports = (folder / "mlp.reports.txt").read_text()
    assert reports.startswith(f"{expected.fusion}\n\n{expected.dispatch}\n\n")
    assert "ms  fuse" in reports
    assert capfd.readouterr() == ("", "")


def test_a_directory_that_is_there_needs_no_slash(tmp_path: Path) -> None:
    with knobs.ir_dump.scoped(str(tmp_path)):
        compiled(graph())
    assert (tmp_path / "mlp.lir.mlir").exists()


def test_graphs_of_one_name_and_each_compile_are_kept(tmp_path: Path) -> None:
    with knobs.ir_dump.scoped(f"{tmp_path}/"), knobs.sizes.scoped("bound"):
        f = compiled(graph("a/b ü", "n"))
        for rows in (2, 2, 1):
            f.run({"x": np.ones((rows, 8), np.float32)})
    found = sorted(p.name for p in tmp_path.glob("*.hir.mlir"))
    assert found == ["a_b_ü.2.hir.mlir", "a_b_ü.hir.mlir"]
    assert "tensor<2x8xf32>" in (tmp_path / "a_b_ü.hir.mlir").read_text()
    assert "tensor<1x8xf32>" in (tmp_path / "a_b_ü.2.hir.mlir").read_text()


def test_a_file_gets_all_compiles(tmp_path: Path) -> None:
    path = tmp_path / "all.txt"
    path.write_text("old")
    with knobs.ir_dump.scoped(str(path)):
        compiled(graph("one"))
        compiled(graph("two"))
    text = path.read_text()
    titles = [t for t in text.splitlines() if t.startswith("=====")]
    assert titles == [
        f"===== {name}: {level} ====="
        for name in ("one", "two")
        for level in ("hir", "mir", "fused", "lir", "reports")
    ]
    assert "old" not in text


def test_levels_are_printed(capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("RLX_IR_DUMP", "mir, lir")
    compiled(graph())
    out, err = capfd.readouterr()
    assert out == ""
    assert [t for t in err.splitlines() if t.startswith("=====")] == [
        "===== mlp: mir =====", "===== mlp: lir =====",
    ]  # fmt: skip
    assert inspect_pipeline(graph(), CPU).lir.strip() in err
    monkeypatch.setenv("RLX_IR_DUMP", "all")
    compiled(graph())
    assert capfd.readouterr().err.count("=====\n") == 5


def test_what_it_cannot_mean(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("RLX_IR_DUMP", "mirr")
    with pytest.raises(
        KnobError, match=r"no level is called 'mirr'; did you mean 'mir'.*a path with"
    ):
        compiled(graph())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RLX_IR_DUMP", f"{tmp_path}/file/below/")
    with pytest.raises(KnobError, match=r"RLX_IR_DUMP is .*Not a directory"):
        compiled(graph())
    monkeypatch.delenv("RLX_IR_DUMP")
    monkeypatch.setenv("RLX_FUSION_REPORT", "maybe")
    with pytest.raises(KnobError, match="RLX_FUSION_REPORT is 'maybe'; expected on or off"):
        compiled(graph())


def test_the_levels_before_a_failure_are_there(tmp_path: Path, monkeypatch: Any) -> None:
    from rlx.lowering.passes.fuse import Fuse

    def fail(*_: Any) -> None:
        raise RlxError("it broke")

    monkeypatch.setattr(Fuse, "run", fail)
    with knobs.ir_dump.scoped(f"{tmp_path}/"), pytest.raises(RlxError, match="it broke"):
        compiled(graph())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mlp.hir.mlir", "mlp.mir.mlir"]


@pytest.mark.parametrize(
    ("word", "shown"), [("1", True), ("on", True), ("off", False), ("0", False)]
)
def test_reports(word: str, shown: bool, capfd: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("RLX_FUSION_REPORT", word)
    compiled(graph())
    out, err = capfd.readouterr()
    line = "rlx: fusion of graph 'mlp' for cpu:x86-64-v3\n  fused 1 x contraction: matmul+gelu\n"
    assert (out, err) == ("", line if shown else "")
    monkeypatch.delenv("RLX_FUSION_REPORT")
    monkeypatch.setenv("RLX_DISPATCH_REPORT", word)
    compiled(graph())
    out, err = capfd.readouterr()
    assert (out, bool(err)) == ("", shown)
    if shown:
        assert err.startswith(
            "rlx: dispatch of graph 'mlp' for cpu:x86-64-v3\n  native    contraction"
        )

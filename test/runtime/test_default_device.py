"""The device where none is named: RLX_DEVICE, in sessions, artifacts, models and commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import ArtifactError, DeviceError, GraphError, UnsupportedError
from rlx.runtime.interpreted import Interpreted
from rlx.tools.cli import main
from support import tiny_bert

X = np.arange(4, dtype=np.float32)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a graph of two named outputs and its input."""
    rlx.save(graph(), tmp_path / "g.mlir")
    np.save(tmp_path / "x.npy", X)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the interpreter ran a graph."""
    runs: list[int] = []
    run = Interpreted.run_slots

    def counted(self: Interpreted, *inputs: Any) -> Any:
        runs.append(1)
        return run(self, *inputs)

    monkeypatch.setattr(Interpreted, "run_slots", counted)
    return runs


def graph() -> rlx.Graph:
    g = rlx.Graph("g")
    x = g.input("x", [4])
    g.set_outputs({"twice": x * 2.0, "sum": x.sum()})
    return g


def test_the_variable_counts_where_no_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rlx.Session().device == "cpu"
    monkeypatch.setenv("RLX_DEVICE", "Interpret")
    assert rlx.Session().device == "interpret"
    assert rlx.Session("cpu").device == "cpu"
    monkeypatch.setenv("RLX_DEVICE", "VK")
    assert rlx.compile_artifact(graph()).target == "vulkan"
    assert rlx.compile_artifact(graph(), "cpu").target == "cpu"


def test_a_model_takes_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny_bert.write(tmp_path)
    monkeypatch.setenv("RLX_DEVICE", "interpret")
    model = rlx.models.Embed.from_dir(tmp_path)
    assert model._runner.backend.name == "interpret"  # type: ignore[attr-defined]
    model = rlx.models.Embed.from_dir(tmp_path, "CPU")
    assert model._runner.backend.name == "cpu"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cpuu", r"unknown device 'cpuu'; did you mean 'cpu'.*in the variable RLX_DEVICE"),
        ("tpu", r"device 'tpu', which the variable RLX_DEVICE asks for, is not available"),
    ],
)
def test_a_device_that_is_not_there_is_no_cpu(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_DEVICE", name)
    with pytest.raises(DeviceError, match=said):
        rlx.Session()


def test_commands_take_the_variable_and_the_option(
    here: Path, interpreted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ["run", "g.mlir", "--input", "x=x.npy"]
    assert main(run) == 0 and not interpreted
    assert main([*run, "--device", "Interpret"]) == 0 and len(interpreted) == 1
    monkeypatch.setenv("RLX_DEVICE", "interpret")
    assert main(run) == 0 and len(interpreted) == 2
    assert main([*run, "--device", "cpu"]) == 0 and len(interpreted) == 2
    assert main(["bench", "g.mlir", "--device", "cpu", "--repeat", "1"]) == 0


def test_a_variable_that_names_no_target_is_told_by_its_name(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_DEVICE", "interpret")
    told = r"no target is called 'interpret'.*\(in the variable RLX_DEVICE\)"
    with pytest.raises(DeviceError, match=told):
        rlx.compile_artifact(graph())
    for command in (["compile", "g.mlir", "-o", "g.rlx"], ["view", "g.mlir"], ["reduce", "g.mlir"]):
        assert main(command) == 1
        assert re.search(told, capsys.readouterr().err), command
    assert main(["view", "g.mlir", "--target", "cpu"]) == 0


def test_bench_says_what_it_cannot_time(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_DEVICE", "interpret")
    assert main(["bench", "g.mlir"]) == 1
    assert "the interpreter launches no kernels" in capsys.readouterr().err


def test_an_artifact_goes_to_its_own_device(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_DEVICE", "interpret")
    assert main(["compile", "g.mlir", "-o", "g.rlx", "--target", "CPU"]) == 0
    assert main(["run", "g.rlx", "--input", "x=x.npy"]) == 0
    assert main(["bench", "g.rlx", "--repeat", "1"]) == 0
    capsys.readouterr()
    for command in ("run", "bench"):
        assert main([command, "g.rlx", "--device", "interpret"]) == 1
        said = capsys.readouterr().err
        assert "made for 'cpu', this session is for 'interpret'" in said


@pytest.mark.parametrize(
    ("spelling", "target"), [("vk", "vulkan"), ("Vulkan", "vulkan"), ("nvidia:sm_80", "cuda")]
)
def test_targets_have_the_names_of_devices(
    spelling: str, target: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--target", "--device"):
        assert main(["compile", "g.mlir", "-o", "g.rlx", "--force", option, spelling]) == 0
        assert f"for {target} " in capsys.readouterr().err
    assert rlx.Artifact.load("g.rlx").target == target
    for wrong in (7, None):
        with pytest.raises(DeviceError, match="a target is text such as 'cpu'"):
            rlx.legalize_for_backend(graph(), wrong)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="unknown op 'cpu'"):
        rlx.legalize_for_backend(graph(), ["cpu"])


def test_a_page_shows_a_target_by_any_name(here: Path) -> None:
    assert main(["view", "g.mlir", "-o", "g.html", "--device", "VK"]) == 0
    assert "vulkan" in Path("g.html").read_text()


def test_outputs_go_to_files_by_name_and_over_none(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", "g.mlir", "--input", "x=x.npy"]
    assert main([*run, "--output", "sum=s.npy"]) == 0
    assert np.load("s.npy") == 6
    capsys.readouterr()
    assert main(run) == 0
    assert capsys.readouterr().out == "twice: f32[4]\n[0. 2. 4. 6.]\nsum: f32[]\n6.0\n"
    assert main([*run, "--output", "sum=s.npy"]) == 1
    assert "s.npy is there already; give another name, or --force" in capsys.readouterr().err
    assert main([*run, "--output", "twice=s.npy", "--force"]) == 0
    assert np.load("s.npy").tolist() == [0, 2, 4, 6]
    for wrong in ("max=m.npy", "m.npy"):
        assert main([*run, "--output", "sum=t.npy", "--output", wrong]) == 1
        assert "names no output; write NAME=FILE.npy for 'twice', 'sum'" in capsys.readouterr().err
    assert main([*run, "--output", "sum=t.npy", "--output", "sum=u.npy"]) == 1
    assert "--output sum=... is given twice" in capsys.readouterr().err
    assert main([*run, "--output", "sum=t.csv"]) == 1
    assert "--output t.csv: outputs are written as .npy files" in capsys.readouterr().err
    assert main([*run, "--output", "m.npy"]) == 1
    assert "has 2 outputs, found 1 --output" in capsys.readouterr().err


@pytest.mark.parametrize("stage", ["fused", "lir"])
def test_a_precision_is_refused_where_it_would_change_nothing(stage: str) -> None:
    g = rlx.Graph("p")
    g.set_outputs(g.input("x", [4, 8]) @ g.param("w", [8, 8], value=np.ones((8, 8), np.float32)))
    module = rlx.GraphModule.of(g)
    sessions = (rlx.Session("cpu", "bf16"), rlx.Session("cpu").with_policy({"compute": "f16"}))
    for session in sessions:
        assert session.compile_module(module.to("mir")).precision is not None
        with pytest.raises(UnsupportedError, match=f"a {stage} module has its element types"):
            session.compile_module(module.to(stage))
        with pytest.raises(UnsupportedError, match="an artifact has its element types already"):
            session.load(rlx.compile_artifact(g))
    assert rlx.Session("cpu").compile_module(module.to(stage)).precision is None
    with pytest.raises(ArtifactError, match="made for 'cpu'"):
        rlx.Session("interpret").load(rlx.compile_artifact(g))

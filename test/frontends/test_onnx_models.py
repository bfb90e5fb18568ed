"""Models that PyTorch exported, against what ONNX Runtime makes of them.

``tools/export_onnx_models.py`` makes the fixtures: tiny models with random weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import rlx
from rlx.tools.cli import main

FIXTURES = Path(__file__).with_name("fixtures")
MODELS = sorted(p.stem for p in FIXTURES.glob("*.onnx"))


def arrays(name: str) -> tuple[dict[str, Any], list[Any]]:
    """The inputs of a model, and the outputs that they must give."""
    with np.load(FIXTURES / f"{name}.npz") as found:
        inputs = {k: found[k] for k in found if not k.startswith("output_")}
        return inputs, [found[f"output_{i}"] for i in range(len(found) - len(inputs))]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_what_onnx_runtime_gives(name: str) -> None:
    """Interpreted, and compiled from symbolic dims."""
    graph = rlx.from_onnx(FIXTURES / f"{name}.onnx")
    assert graph.symbols, "the dims are not symbolic"
    feeds, wanted = arrays(name)
    for found in (rlx.interpret(graph, feeds), rlx.Session("cpu").compile(graph).run(feeds)):
        assert [a.shape for a in found] == [a.shape for a in wanted]
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_at_other_sizes(name: str) -> None:
    """A batch of one gives the first row of the batch of the fixture."""
    graph = rlx.from_onnx(FIXTURES / f"{name}.onnx", dims={"batch": 1})
    feeds, wanted = arrays(name)
    found = rlx.interpret(graph, {k: a[:1] for k, a in feeds.items()})
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b[:1], rtol=1e-4, atol=1e-5)


def test_the_command_runs_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feeds, wanted = arrays("bert")
    line = ["run", str(FIXTURES / "bert.onnx")]
    for name, value in feeds.items():
        np.save(tmp_path / f"{name}.npy", value)
        line += ["--input", f"{name}={tmp_path / name}.npy"]
    outputs = [tmp_path / f"out{i}.npy" for i in range(len(wanted))]
    assert main([*line, *(part for p in outputs for part in ("--output", str(p)))]) == 0
    for path, value in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(np.load(path), value, rtol=1e-4, atol=1e-5)
    assert main([*line, "--dim", "bach=2"]) == 1
    assert "did you mean 'batch'" in capsys.readouterr().err


def test_the_commands_measure_and_compile_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--dim", "batch=1", "--dim", "length=4"]
    assert main(["bench", str(FIXTURES / "bert.onnx"), *sizes, "--repeat", "2"]) == 0
    assert "matmul" in capsys.readouterr().out
    artifact = tmp_path / "bert.rlx"
    assert main(["compile", str(FIXTURES / "bert.onnx"), "-o", str(artifact), *sizes]) == 0
    assert artifact.is_file()

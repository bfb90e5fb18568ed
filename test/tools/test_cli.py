"""The command line as a whole: versions, help, completion, and files of every kind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.models.safetensors import write_safetensors
from rlx.tools.cli import COMMANDS, main
from rlx.tools.kinds import Kind, kind_of
from support import tiny_bert


def test_the_package_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rlx", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"rlx {rlx.__version__}\n"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n    {name} " in listed for name in COMMANDS)
    for name in COMMANDS:
        assert main(["help", name]) == 0
        assert capsys.readouterr().out.startswith(f"usage: rlx {name} ")


# -- completion ----------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    """What bash offers for the last of the words of a command line."""
    script = subprocess.run(
        [sys.executable, "-m", "rlx", "completion", "bash"], capture_output=True, check=True
    ).stdout
    quoted = " ".join(f"'{w}'" for w in words)
    ask = f"\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _rlx; echo ${{COMPREPLY[@]}}\n"
    done = subprocess.run(["bash"], input=script + ask.encode(), capture_output=True, check=True)
    return done.stdout.decode().split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_options_and_their_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completed("rlx", "emb") == ["embed"]
    assert set(completed("rlx", "")) == {*COMMANDS}
    assert completed("rlx", "run", "--dev") == ["--device"]
    assert completed("rlx", "run", "x", "--device", "vu") == ["vulkan"]
    assert completed("rlx", "cache", "ex") == ["explain"]
    assert completed("rlx", "completion", "f") == ["fish"]
    monkeypatch.chdir(tmp_path)
    Path("model.mlir").write_text("")
    assert completed("rlx", "run", "mod") == ["model.mlir"]


@pytest.mark.parametrize(("shell", "check"), [("zsh", "-fn"), ("fish", "-n")])
def test_scripts_of_other_shells(
    shell: str, check: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)
    found = shutil.which(shell)
    if found is not None:
        (tmp_path / "script").write_text(script)
        subprocess.run([found, check, str(tmp_path / "script")], check=True)


# -- models of every kind ------------------------------------------------------------------

W = np.arange(8, dtype=np.float32).reshape(4, 2)


def small() -> rlx.Graph:
    g = rlx.Graph("small")
    x = g.input("x", ["batch", 4])
    g.set_outputs({"y": (x @ g.param("w", value=W)).relu()})
    return g


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file of every kind that needs nothing but RLX."""
    monkeypatch.chdir(tmp_path)
    rlx.save(small(), "small.mlir")
    rlx.compile_artifact(small(), dims={"batch": 3}).save("small.rlx")
    tiny_bert.write(tmp_path / "bert")
    write_safetensors("w.safetensors", {"w": W}, {"of": "a test"})
    Path("hlo.mlir").write_text(
        "module { func.func public @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
        "  %0 = stablehlo.exponential %x : tensor<2x3xf32>\n  return %0 : tensor<2x3xf32> } }\n"
    )
    Path("folder").mkdir()
    Path("folder/config.json").write_text('{"model_type": "llama", "hidden_size": 4}')
    write_safetensors("folder/model.safetensors", {"w": W}, {})
    return tmp_path


KINDS = {
    "small.mlir": Kind.TEXT, "small.rlx": Kind.ARTIFACT, "bert": Kind.ENCODER,
    "w.safetensors": Kind.SAFETENSORS, "hlo.mlir": Kind.STABLEHLO, "folder": Kind.DECODER,
    "none.onnx": Kind.ONNX, "none": Kind.TEXT,
}  # fmt: skip


def test_kinds_are_told_by_what_is_in_files(here: Path) -> None:
    assert {name: kind_of(name) for name in KINDS} == KINDS
    shutil.copy("small.rlx", "renamed.bin")
    assert kind_of("renamed.bin") is Kind.ARTIFACT


SAID = {
    "small.mlir": ["a graph's text", "input x: f32[batch, 4]", "output y: f32[batch, 2]",
                   "dim batch: 0 or more", "1 param (1 f32): 8 elements, 32 B", "matmul 1"],
    "small.rlx": ["device cpu", "input x: f32[3, 4]", "output y: f32[3, 2]", "variant 0: ",
                  "kernels, ", "of code"],
    "bert": ["the folder of a sentence encoder", "input ids: i64[batch, tokens]", "bert_layer"],
    "w.safetensors": ["of: a test", "8 elements, 32 B"],
    "hlo.mlir": ["a program of StableHLO", "f32[2, 3]", "exp 1"],
    "folder": ["hidden_size: 4", "1 param (1 f32)"],
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_what_a_model_is(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", name]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{name}: {KINDS[name]}, ")
    assert not [said for said in SAID[name] if said not in out]
    assert main(["inspect", name, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["kind"] == KINDS[name]
    if name != "hlo.mlir":
        assert main(["inspect", name, "--tensors"]) == 0
        assert facts["params"]["count"] == capsys.readouterr().out.count("\n    ")


def test_the_work_of_a_graph_with_sizes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "small.mlir", "--dim", "batch=1000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flops"] == 1000 * 2 * (4 * 2 + 1) - 1000 * 0 - 0


SIZES = {
    "small.mlir": ["--dim", "batch=3"], "small.rlx": [], "hlo.mlir": [],
    "bert": ["--dim", "batch=2", "--dim", "tokens=4"],
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_commands_take_every_kind(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = SIZES[name]
    assert main(["run", name, "--random", "--threads", "1", *sizes]) == 0
    assert ": f32[" in capsys.readouterr().out
    assert main(["bench", name, "--repeat", "2", "--threads", "1", *sizes]) == 0
    if name == "small.rlx":
        return
    assert main(["compile", name, "-o", "made.rlx", "--precision", "bf16", *sizes]) == 0
    assert main(["view", name, "-o", "page.html", "--precision", "bf16", *sizes]) == 0
    assert "bf16" in Path("page.html").read_text()
    assert main(["compare", name, "--targets", "cpu", *sizes]) == 0


def test_random_arrays_fill_what_is_not_given(here: Path, capsys: Any) -> None:
    x = np.ones((5, 4), np.float32)
    np.save("x.npy", x)
    assert main(["run", "small.mlir", "--random", "--input", "x=x.npy", "--output", "y.npy"]) == 0
    np.testing.assert_allclose(np.load("y.npy"), x @ W)
    assert main(["run", "small.mlir", "--random"]) == 1
    assert "dims without a size: batch; give --dim batch=SIZE" in capsys.readouterr().err


def test_a_precision_is_heeded(here: Path) -> None:
    x = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    np.save("x.npy", x)
    run = ["run", "small.mlir", "--input", "x=x.npy", "--output", "y.npy", "--force"]
    found: list[Any] = []
    for precision in ("f32", "bf16"):
        assert main([*run, "--precision", precision]) == 0
        found.append(np.load("y.npy"))
    expected = rlx.Session(precision="bf16").compile(small()).run({"x": x})[0]
    np.testing.assert_array_equal(found[1], expected)
    assert (found[0] != found[1]).any()


def test_a_program_of_torch(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: it is a peer only")
    model, x = torch.nn.Linear(4, 2), torch.ones(3, 4)
    torch.export.save(torch.export.export(model, (x,)), "m.pt2")
    np.save("x.npy", x.numpy())
    assert main(["run", "m.pt2", "--input", "input=x.npy", "--output", "y.npy"]) == 0
    np.testing.assert_allclose(np.load("y.npy"), model(x).detach().numpy(), rtol=1e-5)
    Path("no.pt2").write_bytes(b"PK no")
    capsys.readouterr()
    assert main(["run", "no.pt2"]) == 1
    assert "cannot read no.pt2 as torch.export.save writes it" in capsys.readouterr().err

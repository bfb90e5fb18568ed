"""``rlx compile`` and ``rlx run``: from a graph's text to an artifact to arrays, by files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
from rlx.errors import ArtifactError
from rlx.tools.cli import main
from support.tiny_bert import write_safetensors

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.linspace(2, -2, 8, dtype=np.float32).reshape(4, 2)
B: Any = np.array([1, 0.5], ml_dtypes.bfloat16)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a graph's text and arrays."""
    g = rlx.Graph("small")
    x = g.input("x", ["batch", 4])
    y = x @ g.param("w", [4, 2])
    g.set_outputs([y, y.cast("bf16") + g.param("b", [2], "bf16")])
    rlx.save(g, tmp_path / "small.mlir")
    for name, value in (("x", X), ("w", W), ("b", B)):
        np.save(tmp_path / f"{name}.npy", value)
    np.savez(tmp_path / "both.npz", w=W, b=B, more=X)
    objects = np.array([{}])
    np.save(tmp_path / "objects.npy", objects)
    np.savez(tmp_path / "objects.npz", w=objects)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "both.npz").read_bytes()[:100])
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "unknown.mlir").write_text('%0 = "mir.gelo"() : () -> tensor<4xf32>')
    write_safetensors(tmp_path / "w.safetensors", {"w": W, "more": X})
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMPILE = ("compile", "small.mlir", "-o", "small.rlx", "--dim", "batch=3", "--force")
RUN = ("run", "small.rlx", "--input", "x=x.npy")
OUT = ("--output", "y.npy", "--output", "z.npy")


def expected() -> list[Any]:
    y = X @ W
    return [y, y.astype(ml_dtypes.bfloat16) + B]


def check_outputs() -> None:
    y, z = np.load("y.npy"), np.load("z.npy").view(ml_dtypes.bfloat16)
    np.testing.assert_allclose(y, expected()[0], rtol=1e-6)
    np.testing.assert_allclose(z.astype(float), expected()[1].astype(float), rtol=1e-2)


@pytest.mark.parametrize(
    ("carried", "given"),
    [
        ((), ("--param", "w=w.npy", "--param", "b=b.npy")),
        (("--params", "both.npz"), ()),
        (("--params", "w.safetensors", "--param", "b=b.npy"), ()),
        (("--params", "w.safetensors"), ("--param", "b=b.npy")),
    ],
    ids=["set at the run", "npz", "safetensors and npy", "some"],
)
@pytest.mark.usefixtures("here")
def test_a_graph_is_compiled_and_run(
    carried: tuple[str, ...], given: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMPILE, *carried]) == 0
    count = {0: 0, 2: 2 if "npz" in str(carried) else 1, 4: 2}[len(carried)]
    assert f"carries {count} of 2 params" in capsys.readouterr().err
    assert main([*RUN, *given, *OUT]) == 0
    check_outputs()


@pytest.mark.usefixtures("here")
def test_a_graph_is_run_as_it_is() -> None:
    given = ("--param", "w=w.npy", "--param", "b=b.npy")
    assert main(["run", "small.mlir", "--input", "x=x.npy", *given, *OUT]) == 0
    check_outputs()


@pytest.mark.usefixtures("here")
def test_outputs_are_printed_without_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPILE, "--params", "both.npz"]) == 0
    assert main(list(RUN)) == 0
    assert str(rlx.Session("cpu").load("small.rlx").run({"x": X})[0]) in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_one_artifact_for_several_cpus(capsys: pytest.CaptureFixture[str]) -> None:
    targets = ("--target", "cpu:x86-64-v3", "--target", "cpu:x86-64-v4")
    assert main([*COMPILE, *targets]) == 0
    assert "for cpu x86-64-v4, x86-64-v3; carries 0 of 2" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_an_artifact_for_a_gpu_that_is_not_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPILE, "--target", "cuda:sm_90", "--target", "cuda:sm_75"]) == 0
    assert "for cuda sm_90, sm_75; carries 0 of 2" in capsys.readouterr().err
    files = rlx.Artifact.load("small.rlx").files
    codes = [bytes(part) for name, part in files.items() if name.startswith("objects/")]
    assert [b".target sm_90" in c or b".target sm_75" in c for c in codes] == [True, True]
    assert main(["run", "small.rlx"]) == 1
    assert "device 'cuda' is not available" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((*COMPILE, "--target", "cuda:sm_1"), "RLX emits PTX for sm_75, sm_80"),
        ((*COMPILE, "--target", "vulcan"), "did you mean 'vulkan'"),
        (("compile", "small.mlir", "-o", "a.rlx", "--dim", "batch=9..1"), "no less, found 9 to 1"),
        (("compile", "none.mlir", "-o", "a.rlx"), "cannot read none.mlir"),
        ((*COMPILE, "--params", "x.npy"), "one array without a name"),
        ((*COMPILE, "--params", "none.npz"), "cannot read none.npz"),
        ((*COMPILE, "--params", "small.mlir"), "small.mlir holds no array"),
        ((*COMPILE, "--param", "v=w.npy"), "no param is called 'v'"),
        ((*COMPILE, "--param", "w=x.npy"), "'w' has shape"),
        ((*COMPILE, "--target", "cpu:486"), "unknown CPU '486'"),
        (("run", "both.npz"), "the file is an archive"),
        (("run", "small.mlir", "--params", "both.npz"), "given for the input x: f32[batch, 4]"),
        ((*RUN, "--output", "y.npy"), "has 2 outputs, found 1 --output"),
        ((*RUN[:2], "--params", "both.npz", "--input", "y=x.npy"), "no input is called 'y'"),
        (RUN, "no value was set for the params w: f32[4, 2], b: bf16[2]; give --param w=FILE"),
        ((*RUN, "--param", "w=w.npy"), "no value was set for the param b: bf16[2]; give"),
        ((*RUN, "--dim", "batch=4"), "rlx compile decided all of that; leave --dim out"),
        ((*RUN, "--constant", "x=x.npy"), "leave --constant out"),
        (("bench", "small.rlx", "--precision", "bf16"), "leave --precision out, or compile it"),
        ((*RUN, "--param", "w=small.mlir"), "holds no array: it begins with b'"),
        ((*RUN, "--param", "w=empty.npy"), "holds no array: it is empty"),
        ((*RUN, "--param", "w=objects.npy"), "expected what numpy.save or numpy.savez writes"),
        ((*RUN, "--params", "objects.npz"), "objects.npz holds no array: Object arrays"),
        ((*RUN, "--params", "cut.npz"), "cut.npz holds no array: File is not a zip file"),
        (("compare", "small.mlir"), "without a size: batch; give --dim batch=SIZE"),
        (("reduce", "small.mlir"), "without a size: batch; give --dim batch=SIZE"),
        (("view", "small.mlir"), "without a size: batch; give --dim batch=SIZE"),
        (("view", "none.mlir"), "cannot read none.mlir: No such file"),
        (("view", "unknown.mlir"), "unknown.mlir:1: cannot parse the MLIR text"),
        (("cache", "explain", "none.mlir"), "there is no file 'none.mlir', and no entry has a key"),
        ((*RUN, "--param", "w=none.npy"), "cannot read none.npy"),
        ((*RUN, "--param", "w=w.npy", "--param", "b=b.npy", "--output", "no/a.npy", "--output",
          "c.npy"), "cannot write no/a.npy"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("here")
def test_what_is_wrong_is_said_in_one_line(
    command: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(COMPILE)) == 0
    capsys.readouterr()
    assert main(list(command)) == 1
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith("rlx: ")
    assert err.count("\n") == 1
    assert __file__ not in err  # the place of a command's error is not where it was called


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--dim", "batch"), "argument --dim: found 'batch', expected NAME=SIZE"),
        (("--dim", "batch=x"), "expected a whole number for the size of batch"),
        (("--dim", "n=1", "--dim", "m=2", "--dim", "n=3"), "argument --dim: 'n' was given twice"),
        (("--param", "w"), "argument --param: found 'w', expected NAME=FILE.npy"),
        (("--param", "w=a.npy", "--param", "w=b.npy"), "argument --param: 'w' was given twice"),
    ],
)
def test_wrong_usage_is_shown(
    wrong: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["compile", "g.mlir", "-o", "a.rlx", *wrong])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_a_reader_that_has_enough_is_no_error() -> None:
    """``rlx ... | head`` ends with nothing but what was read."""
    assert main([*COMPILE[:3], "long.rlx", *COMPILE[4:], "--params", "both.npz"]) == 0
    code = "from rlx.tools.cli import main; raise SystemExit(main())"
    done = subprocess.Popen(
        [sys.executable, "-c", code, "run", "long.rlx", "--input", "x=x.npy"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert done.stdout is not None and done.stderr is not None
    done.stdout.close()
    assert done.stderr.read() == b""
    done.stderr.close()
    assert done.wait() == 1


ONNX = """m (float[rows,4] x, int64[2] shape) => (float[] y)
<float[1] one = {1.0}> { h = Relu (x)  t = Add (h, one)  y = Reshape (t, shape) }"""


@pytest.mark.parametrize(
    "command",
    [("view", "m.onnx", "-o", "m.html", "--force"), ("reduce", "m.onnx", "--test"),
     ("bench", "m.onnx"),
     ("compare", "m.onnx", "--targets", "cpu"), ("compile", "m.onnx", "-o", "m.rlx", "--force")],
    ids=lambda c: c[0],
)  # fmt: skip
def test_onnx_models_are_taken(here: Path, command: tuple[str, ...], capsys: Any) -> None:
    pytest.importorskip("onnx")
    from support.onnx_text import model

    Path("m.onnx").write_bytes(model(ONNX).SerializeToString())
    np.save("shape.npy", np.array([-1, 2]))
    fixed = ("--dim", "rows=3", "--constant", "shape=shape.npy")
    assert main([*command, *fixed]) == 0
    capsys.readouterr()
    if command[0] == "compile":
        assert main([*command, *fixed[2:]]) == 0
        assert "all sizes of rows" in capsys.readouterr().err
        return
    assert main([*command, *fixed[2:]]) == 1
    assert "without a size: rows; give --dim rows=SIZE" in capsys.readouterr().err


KINDS = {
    "w.safetensors": "the file is safetensors: rlx.models.SafeTensors(path), or --params, reads it",
    "x.npy": "the file is a NumPy array",
    "both.npz": "the file is an archive",
    "w.gguf": "the file is a GGUF file: rlx.LLM(path), or rlx chat, takes a language model",
    "small.rlx": "the file is an RLX artifact: rlx.Session().load(path), or rlx run, takes it",
}


TAKEN = {("small.rlx", "bench"), ("small.rlx", "run"), ("w.gguf", "run"), ("w.gguf", "compile")}


@pytest.mark.parametrize("command", ["bench", "compare", "compile", "reduce", "run", "view"])
def test_a_file_of_another_kind_is_named(here: Path, command: str, capsys: Any) -> None:
    assert main([*COMPILE]) == 0
    Path("w.gguf").write_bytes(b"GGUF\3\0\0\0\xff")
    more = ["-o", "out.rlx"] if command == "compile" else []
    for name, says in KINDS.items():
        if (name, command) in TAKEN:
            continue
        capsys.readouterr()
        assert main([command, name, *more]) == 1, name
        assert says in capsys.readouterr().err


def test_what_is_no_artifact_by_its_name(here: Path) -> None:
    Path("model.rlx").write_bytes(Path("w.safetensors").read_bytes())
    for load in (rlx.Artifact.load, rlx.Session().load):
        with pytest.raises(ArtifactError, match=r"model\.rlx: .*the file is safetensors"):
            load("model.rlx")

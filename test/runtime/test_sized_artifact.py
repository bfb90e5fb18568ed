"""Artifacts for many sizes: what they are for, and what runs where no compiler is."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import ArtifactError, FaultError, NameError, ShapeError, UnsupportedError
from rlx.runtime.artifact import Artifact
from rlx.tools.cli import main

W = np.linspace(-1, 1, 16 * 24, dtype=np.float32).reshape(16, 24)


def model() -> rlx.Graph:
    g = rlx.Graph("sized")
    x = g.input("x", ["rows", "cols", 16])
    y = (x @ g.param("w", [16, 24], value=W)).gelu()
    g.set_outputs({"y": y.softmax(axis=1), "z": g.concat([x, x], axis=0)})
    return g


@pytest.fixture(scope="module")
def made() -> Artifact:
    return rlx.compile_artifact(model(), dims={"rows": (1, 40), "cols": (1, 1000)})


def test_one_artifact_runs_at_sizes_that_it_was_not_compiled_for(made: Artifact) -> None:
    again = Artifact.from_bytes(bytes(made))
    assert bytes(again) == bytes(made)
    assert [str(s) for s in again.symbols] == ["cols[1..1000]", "rows[1..40]"]
    f, bound = rlx.Session("cpu").load(again), rlx.Session("cpu")
    draw = np.random.default_rng(1)
    sizes = [(1, 1), (40, 1000), (1, 9), *zip(*draw.integers(1, (40, 300), (6, 2)).T, strict=True)]
    for rows, cols in sizes:
        x = draw.standard_normal((rows, cols, 16)).astype(np.float32)
        wanted = bound.compile(model(), dims={"rows": int(rows), "cols": int(cols)}).run({"x": x})
        for found, want in zip(f.run({"x": x}), wanted, strict=True):
            assert found.tobytes() == want.tobytes(), (rows, cols)


def test_sizes_that_it_is_not_for_are_refused(made: Artifact) -> None:
    f = rlx.Session("cpu").load(made)
    with pytest.raises(ShapeError, match=r"the dim 'rows.*' is from 1 to 40, found 41"):
        f.run({"x": np.zeros((41, 2, 16), np.float32)})
    few = rlx.Session("cpu").load(_of(made, lambda text: "rows <= 1" in text))
    with pytest.raises(ShapeError, match=r"no variant for cols=2, rows=7, but for .*rows <= 1"):
        few.run({"x": np.zeros((7, 2, 16), np.float32)})


def _of(made: Artifact, wanted: Any) -> Artifact:
    from dataclasses import replace

    from rlx.runtime.sized_variant import conditions_of

    found = [v for v in made.variants if v.sizes and wanted(conditions_of(v.sizes))]  # type: ignore
    return replace(made, variants=tuple(found))


def test_a_fault_is_told_at_any_size() -> None:
    """There are no ops to look for the index in: the line is that of the graph."""
    g = rlx.Graph()
    g.set_outputs({"y": g.input("x", ["rows", 3]).gather(g.input("at", [2], "i64"))})
    f = rlx.Session("cpu").load(rlx.compile_artifact(g))
    for rows in (1, 5):
        with pytest.raises(FaultError, match=r"test_sized_artifact.*gather: .* out of range"):
            f.run({"x": np.zeros((rows, 3), np.float32), "at": np.array([0, rows])})


def test_it_is_not_much_larger_than_one_for_one_size(made: Artifact) -> None:
    params = {"w": np.zeros((256, 4096), np.float32)}
    g = rlx.Graph()
    g.set_outputs((g.input("x", ["n", 256]) @ g.param("w", [256, 4096])).relu())
    whole = len(bytes(rlx.compile_artifact(g, params=params)))
    assert whole <= 1.3 * len(bytes(rlx.compile_artifact(g, params=params, dims={"n": 8})))


def test_it_needs_no_compiler(made: Artifact, tmp_path: Path) -> None:
    made.save(tmp_path / "m.rlx")
    code = (
        "import sys, numpy as np, rlx\n"
        "f = rlx.Session('cpu').load(sys.argv[1])\n"
        "for n in (1, 2, 7, 33):\n"
        "    y, z = f.run({'x': np.ones((n, 3 * n, 16), np.float32)})\n"
        "    assert y.shape == (n, 3 * n, 24) and z.shape == (2 * n, 3 * n, 16)\n"
        "assert not [m for m in sys.modules if 'mlir' in m or 'lowering.passes' in m]\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "m.rlx"], check=True)


def test_dims_are_bound_given_a_range_or_left(made: Artifact) -> None:
    some = rlx.compile_artifact(model(), dims={"rows": 3, "cols": (2, 9)})
    assert [str(s) for s in some.symbols] == ["cols[2..9]"]
    assert [str(d) for d in some.outputs[1][2]] == ["6", "cols[2..9]", "16"]
    fixed = rlx.compile_artifact(model(), dims={"rows": 3, "cols": 2})
    assert not fixed.symbols and fixed.inputs == [("x", "f32", (3, 2, 16))]
    with pytest.raises(NameError, match="no dim is called 'row'; did you mean 'rows'"):
        rlx.compile_artifact(model(), dims={"row": (1, 2)})
    with pytest.raises(ShapeError, match=r"'rows' is a size, or \(least, most\), found \(1,\)"):
        rlx.compile_artifact(model(), dims={"rows": (1,)})  # type: ignore
    with pytest.raises(ShapeError, match="from an int >= 0 to one that is no less"):
        rlx.compile_artifact(model(), dims={"rows": (9, 1)})


def test_what_no_artifact_is_for_all_sizes_of() -> None:
    g = rlx.Graph("free")
    n, m = rlx.Dim("n"), rlx.Dim("m")
    g.set_outputs(g.input("x", [n * m]).exp())
    with pytest.raises(ShapeError, match="no input of graph 'free' tells the size of m, n; give"):
        rlx.compile_artifact(g)
    g = rlx.Graph("params")
    g.set_outputs(g.input("x", ["n"]) * g.param("w", ["n"]))
    with pytest.raises(UnsupportedError, match="params have symbolic dims"):
        rlx.compile_artifact(g)


def test_the_first_machine_that_fits_has_all_its_variants() -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", ["n", 16]) @ g.param("w", [16, 24], value=W))
    made = rlx.compile_artifact(g, ["cpu:x86-64-v3", "cpu:x86-64-v4"], dims={"n": (1, 9)})
    assert list(dict.fromkeys(v.features for v in made.variants)) == ["x86-64-v4", "x86-64-v3"]
    f = rlx.Session("cpu").load(made)
    for n in range(1, 10):
        assert f.run({"x": np.ones((n, 16), np.float32)})[0].shape == (n, 24)


def test_the_command_line(
    made: Artifact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, graph = str(tmp_path / "m.rlx"), str(tmp_path / "m.mlir")
    rlx.save(model(), graph)
    assert main(["compile", graph, "-o", path, "--dim", "rows=2", "--dim", "cols=1..9"]) == 0
    capsys.readouterr()
    assert main(["inspect", path]) == 0
    said = capsys.readouterr().out
    assert "input x: f32[2, cols, 16]" in said
    assert "dim cols: 1 to 9, that of axis 1 of x" in said
    assert "cols <= 1" in said
    np.save(tmp_path / "x.npy", np.ones((2, 5, 16), np.float32))
    out = tmp_path / "y.npy"
    given = ["--param", f"w={tmp_path / 'w.npy'}", "--input", f"x={tmp_path / 'x.npy'}"]
    np.save(tmp_path / "w.npy", W)
    assert main(["run", path, *given, "--output", f"y={out}"]) == 0
    assert np.load(out).shape == (2, 5, 24)


def test_preparing_an_artifact_loads_it(made: Artifact) -> None:
    f = rlx.Session("cpu").load(made)
    f.prepare(dims={"rows": (1, 3), "cols": (1, 64)})
    assert len(f._variants.loaded) > 1  # type: ignore[union-attr]
    few = rlx.Session("cpu").load(_of(made, lambda text: "rows <= 1" in text))
    few.prepare(dims={"rows": (1, 40)})
    with pytest.raises(ShapeError, match=r"no variant for cols=\d+, rows=7, but for .*rows <= 1"):
        few.prepare(dims={"rows": 7})
    with pytest.raises(ShapeError, match=r"the dim 'rows.*' is from 1 to 40, found 41"):
        few.prepare(dims={"rows": 41})


def _with(made: Artifact, **words: bytes) -> Artifact:
    """The artifact with other words in the programs of its sizes."""
    variants = [replace(v, sizes=replace(v.sizes, **words)) for v in made.variants]  # type: ignore
    return replace(made, variants=tuple(variants))


@pytest.mark.parametrize(
    "words", [{"patches": bytes(16)}, {"results": bytes(8)}, {"guards": bytes(8)}], ids=str
)
def test_a_malformed_one(made: Artifact, words: dict[str, bytes]) -> None:
    """It is no fault of the sizes."""
    with pytest.raises(ArtifactError, match="the artifact is malformed: "):
        f = rlx.Session("cpu").load(_with(made, **words))
        f.run({"x": np.ones((2, 3, 16), np.float32)})

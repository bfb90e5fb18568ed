"""Targets whose programs are folders of sources: by compile_artifact, rlx compile and rlx-opt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import ArtifactError, DeviceError, ShapeError, UnsupportedError
from rlx.targets import PROJECTS, find_project, parse_target
from rlx.tools import cli, opt
from rlx.tools.opt.codes import USAGE


@pytest.fixture(scope="module")
def small() -> rlx.Graph:
    """A graph of integers with the values of its params."""
    rng = np.random.default_rng(0)
    g = rlx.Graph("small")
    w = g.param("w", value=rng.standard_normal((12, 4)).astype(np.float32))
    g.set_outputs([(g.input("x", ["n", 12]) @ w).relu()])
    x = rng.uniform(0, 1, (20, 12)).astype(np.float32)
    found = rlx.quant.quantize_graph(g, None, "int8", [{"x": x}])
    found.graph.param_values.update(found.params)
    return found.graph


MAIN = {"cortexm:m55": ("c", "model.c"), "fpga:ice40": ("verilog", "model.sv")}


@pytest.mark.parametrize("target", MAIN)
def test_a_project_is_the_same_by_all_ways(
    target: str, small: rlx.Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: Any = rlx.compile_artifact(small, target)
    assert made.target == target.partition(":")[0] and made.variants == ()
    assert made.inputs == [("x", "i8", (1, 1, 12))]
    assert made.outputs == [("results", "i16", (1, 1, 4))]
    made.save(tmp_path / "one")
    rlx.save(small, tmp_path / "small.mlir")
    words = ["compile", str(tmp_path / "small.mlir"), "--target", target]
    assert cli.main([*words, "-o", str(tmp_path / "two")]) == 0
    assert "bytes of RAM" in made.report or "cycles an image" in made.report
    assert made.report in capsys.readouterr().err
    for name, data in made.files.items():
        assert (tmp_path / "one" / name).read_bytes() == data
        assert (tmp_path / "two" / name).read_bytes() == data
    stage, file = MAIN[target]
    flags = [f"--emit={stage}", f"--target={target}", "-o", str(tmp_path / "out")]
    assert opt.main([str(tmp_path / "small.mlir"), *flags]) == 0
    assert (tmp_path / "out").read_bytes() == made.files[file]


def test_a_graph_of_floats_is_a_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    g = rlx.Graph("floats")
    w = g.param("w", value=np.ones((12, 4), np.float32))
    g.set_outputs([(g.input("x", ["n", 12]) @ w).relu()])
    rlx.save(g, tmp_path / "floats.mlir")
    words = ["compile", str(tmp_path / "floats.mlir"), "--target", "cortexm:m4", "--dim", "n=1"]
    assert cli.main([*words, "-o", str(tmp_path / "two")]) == 0
    made: Any = rlx.compile_artifact(g, "cortexm:m4", dims={"n": 1})
    assert made.inputs == [("x", "f32", (1, 12))] and made.outputs == [("0", "f32", (1, 4))]
    assert made.report in capsys.readouterr().err and "kernels.o" in made.files
    made.save(tmp_path / "one")
    for name, data in made.files.items():
        assert (tmp_path / "two" / name).read_bytes() == data
    rlx.save(g.bind({"n": 1}), tmp_path / "one.mlir")
    flags = ["--emit=c", "--target=cortexm:m4", "-o", str(tmp_path / "out")]
    assert opt.main([str(tmp_path / "one.mlir"), *flags]) == 0
    assert (tmp_path / "out").read_bytes() == made.files["model.c"]
    with pytest.raises(ShapeError, match="has dims without sizes: n"):
        rlx.compile_artifact(g, "cortexm:m4")
    with pytest.raises(UnsupportedError, match="fpga: matmul multiplies floats"):
        rlx.compile_artifact(g, "fpga")


def test_names() -> None:
    assert find_project("cpu") is find_project(3) is None
    for name in PROJECTS:
        found = find_project(name)
        assert found is not None and found[0] == name
        with pytest.raises(DeviceError, match=rf"no device of RLX runs '{name}'.*-o FOLDER"):
            parse_target(name)
    with pytest.raises(DeviceError, match="RLX emits networks for ecp5-25k"):
        find_project("fpga:ecp4")


def test_what_a_project_is_not(
    small: rlx.Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: Any = rlx.compile_artifact(small, ["cortexm:m4"])
    with pytest.raises(UnsupportedError, match=r"is a folder; write it by save\(folder\)"):
        bytes(made)
    with pytest.raises(ArtifactError, match="made for 'cortexm', this session is for 'cpu'"):
        rlx.Session("cpu").load(made)
    (tmp_path / "taken").write_text("")
    with pytest.raises(ArtifactError, match=r"cannot write .*taken"):
        made.save(tmp_path / "taken")
    with pytest.raises(UnsupportedError, match="have the types of the graph, and no precision"):
        rlx.compile_artifact(small, "cortexm:m4", precision="f16")
    with pytest.raises(DeviceError, match="no device of RLX runs 'cortexm'"):
        rlx.compile_artifact(small, ["cortexm:m4", "fpga"])
    path = str(tmp_path / "small.mlir")
    rlx.save(small, path)
    for flags, said in (
        (["--emit=llvm"], "no stage 'llvm'; it has c,"),
        (["--emit=c", "--target=cortexm:m5"], "did you mean 'm55'"),
        (["--emit=c", "--simplify"], "give no passes"),
    ):
        assert opt.main([path, "--target=cortexm:m4", *flags]) == USAGE
        assert said in capsys.readouterr().err

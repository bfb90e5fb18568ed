"""rlx compare: which op of a graph a device gets wrong, at which level, told by planted faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DeviceLostError
from rlx.ops.pointwise.unary import Exp
from rlx.runtime.backend import InterpreterBackend, _registry
from rlx.runtime.interpreted import Interpreted
from rlx.targets.gpu import drivers
from rlx.tools import cli
from rlx.tools.compare import compare
from rlx.tools.reduce import Subject
from rlx.tools.reduce.arrays import arrays_for


def subject() -> Subject:
    g = rlx.Graph("model")
    x = g.input("x", [4, 8])
    hidden = (x @ g.param("w", [8, 8])).tanh()
    wrong = hidden.exp()  # the line that a fault is planted in
    g.set_outputs([(wrong + 1.0).softmax(axis=-1), hidden.sum(axis=0)])
    return Subject(g, arrays_for(g))


def here(text: str) -> int:
    """The line of this file that holds a text."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


PLACE = f"test_compare.py:{here('the line that a fault is planted in')}"


@pytest.fixture
def wrong_exp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exp, "scalar", lambda self, k, x: k.exp(x) * 1.5)


def test_a_device_that_is_right_agrees_at_every_level() -> None:
    found = compare(subject(), "cpu")
    assert found.divergence is None
    assert found.agreed == ("hir-to-mir", "legalize", "simplify", "run")
    assert str(found) == "cpu: agrees at hir-to-mir, legalize, simplify, run"


@pytest.mark.parametrize("device", ["cpu", "vulkan", "gpu", "opencl"])
def test_a_wrong_kernel_is_named_with_the_user_s_line(device: str, wrong_exp: None) -> None:
    if device != "cpu" and not drivers.probe(device).found:
        pytest.skip(f"{device}: {drivers.probe(device).why}")
    # By other options than those of the test before, whose kernels this process has kept.
    found = compare(subject(), device, {"dispatch": "common"}).divergence
    assert found is not None and found.op is not None and found.alone is not None
    assert (found.level, found.op.name) == ("run", "mir.exp")
    said = str(found)
    assert said.startswith("differs at run, first in mir.exp (") and PLACE in said
    assert "32 of 32 elements differ" in said and "by itself it differs too" in said


def test_a_wrong_expansion_is_seen_before_anything_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    g = rlx.Graph("g")
    g.set_outputs(g.softmax(g.input("x", [3, 4]), axis=-1) + 1.0)
    kept = rlx.ir.op.op_class("mir.softmax").expand

    def expand(self: Any) -> Any:
        return kept(self) * 2.0

    monkeypatch.setattr(rlx.ir.op.op_class("mir.softmax"), "expand", expand)
    found = compare(Subject(g, arrays_for(g)), "cpu", {"dispatch": "common"})
    assert found.agreed == ("hir-to-mir",)
    assert found.divergence is not None and found.divergence.op is not None
    assert (found.divergence.level, found.divergence.op.name) == ("legalize", "mir.softmax")


class Fused(InterpreterBackend):
    """A device that is wrong only where a graph has two nodes and one output, as a bad fusion is:
    an output of every value hides it."""

    name = "fused"

    def load(self, graph: Any, options: Any, shared: Any) -> Any:
        names = [op.name for op in graph.nodes()]
        bad = len(graph.outputs) == 1 and names[:2] == ["mir.exp", "mir.tanh"]

        class Run(Interpreted):
            def run_slots(self, *inputs: Any) -> Any:
                out = super().run_slots(*inputs)
                return tuple(a + 1 for a in out) if bad else out

        return Run(graph, shared)


def test_what_extra_outputs_hide_is_found_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(_registry))
    rlx.register_backend("fused", Fused)
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [8]).exp().tanh().abs())
    found = compare(Subject(g, arrays_for(g)), "fused")
    assert found.agreed == ()
    assert found.divergence is not None and found.divergence.op is not None
    assert found.divergence.op.name == "mir.tanh" and found.divergence.alone is None
    assert str(found).endswith("; by itself it agrees")


class Lost(InterpreterBackend):
    """A device that is lost whenever it runs."""

    name = "lost"

    def load(self, graph: Any, options: Any, shared: Any) -> Any:
        raise DeviceLostError("pulled out")


def test_an_error_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(_registry))
    rlx.register_backend("lost", Lost)
    found = compare(subject(), "lost").divergence
    assert found is not None and found.said == "DeviceLostError: pulled out"


def test_the_command_says_a_line_for_each_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, arrays = str(tmp_path / "model.mlir"), str(tmp_path / "arrays.npz")
    rlx.save(subject().graph, path)
    np.savez(arrays, x=np.ones((4, 8), np.float32))
    words = ["compare", path, "--targets", "cpu,interpret", "--arrays", arrays]
    assert cli.main(words) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["cpu", "interpret"]
    monkeypatch.setattr(Exp, "scalar", lambda self, k, x: k.exp(x) * 1.5)
    assert cli.main([*words, "--dispatch", "common", "--no-fuse"]) == 1
    assert f"{PLACE}): " in capsys.readouterr().out
    assert cli.main([*words, "--tolerance", "10"]) == 0
    assert cli.main(["compare", path, "--targets", "cpux"]) == 1
    assert "unknown device 'cpux'" in capsys.readouterr().err
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", ["n"]) + 1.0)
    rlx.save(g, path)
    assert cli.main(["compare", path]) == 1
    assert "has dims without a size: n" in capsys.readouterr().err
    assert cli.main(["compare", path, "--targets", "cpu", "--dim", "n=3"]) == 0

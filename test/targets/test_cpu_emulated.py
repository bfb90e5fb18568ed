"""Artifacts for processors that are not here: every op through ``rlx.h`` under QEMU, against the
interpreter. What QEMU emulates is instructions; of a real machine's caches and speed it says
nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.interpreter import interpret
from support import emulated
from support.conformance import ELSEWHERE, SETS, conforms, need
from support.emulated import EMULATED
from support.samples import op_classes


@pytest.fixture(params=EMULATED)
def target(request: pytest.FixtureRequest) -> str:
    """A target that runs here."""
    need(request.param)
    return request.param


def test_every_op_agrees_with_the_interpreter(target: str) -> None:
    found = list(conforms(target, SETS["turning"](target), wholly=False))
    wrong = [str(f) for f in found if not f.good]
    assert not wrong, "\n".join(wrong)
    assert all(f.verdict == "agrees" or f.dtype == "f64" for f in found)


def test_every_op_has_a_case_on_one_of_them() -> None:
    """Processors that are emulated, and engines of WebAssembly: the kernels are made alike."""
    taken = {case.op.name for name in ELSEWHERE for case in SETS["turning"](name)}
    assert taken == {op.name for op in op_classes()}


def _mlp() -> tuple[rlx.Graph, dict[str, Any]]:
    g, rng = rlx.Graph("mlp"), np.random.default_rng(0)
    x = g.input("x", [3, 64])
    h = (x @ g.param("w", [64, 33]) + g.param("b", [33])).gelu()
    g.set_outputs(g.softmax(h, axis=-1))
    given = {
        "x": rng.standard_normal((3, 64), np.float32),
        "w": rng.standard_normal((64, 33), np.float32),
        "b": rng.standard_normal(33, np.float32),
    }
    return g, given


def test_an_artifact_carries_its_params(target: str) -> None:
    """The prologue, which packs weights, runs on the other machine too."""
    g, given = _mlp()
    params = {name: given[name] for name in "wb"}
    (found,) = emulated.run_graph(g, target, given, params=params)
    np.testing.assert_allclose(found, interpret(g, given)[0], rtol=1e-5, atol=1e-7)


def test_code_for_more_than_a_machine_has_is_refused_there() -> None:
    need("cpu:aarch64")
    g, given = _mlp()
    artifact = rlx.compile_artifact(
        g, "cpu:aarch64+dotprod+i8mm", params={name: given[name] for name in "wb"}
    )
    emulated.run(artifact, "cpu:aarch64", given)
    with pytest.raises(AssertionError, match="i8mm"):
        emulated.run(artifact, "cpu:aarch64", given, cpu="cortex-a53")

"""Large constants: what they cost of memory, and that they arrive whole by every way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.base.stored import LARGE, elements_digest, is_stored
from rlx.compiler.aot import compile_artifact
from rlx.errors import IRError
from rlx.ops.movement.constant import Constant
from rlx.runtime.artifact import Artifact
from rlx.runtime.executable import Executable
from rlx.types import DTYPES

Array = np.ndarray[Any, Any]

PEAK = """
import resource
import numpy as np, rlx

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def build(a):
    g = rlx.Graph("g")
    g.set_outputs([(g.constant(a) * g.input("x", [a.shape[1]])).sum(0)])
    return g

session = rlx.Session("cpu")
session.compile(build(np.ones((3, 5), np.float32)))  # the libraries are there
session.compile(build(np.arange(15, dtype=np.float32).reshape(3, 5)))
a = np.arange(16 << 20, dtype=np.float32).reshape(-1, 64)
before = peak()
f = session.compile(build(a))
print((peak() - before) / a.nbytes)
"""


def times_its_memory(cache: str, folder: Path) -> float:
    """What a process that compiles a graph with a constant of 64 MiB takes for it, its copy of the
    constant included."""
    environment = {**os.environ, "RLX_CACHE": cache, "RLX_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", PEAK], env=environment, check=True, capture_output=True, text=True
    )
    return float(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory in other units")
def test_a_constant_takes_little_more_than_its_memory(tmp_path: Path) -> None:
    assert times_its_memory("off", tmp_path) < 1.5
    for _ in ("kept", "found"):
        assert times_its_memory("on", tmp_path) < 2.5


def graph(a: Array) -> rlx.Graph:
    g = rlx.Graph("g")
    c, i = g.constant(a), g.input("i", [3], "i64")
    g.set_outputs([g.gather(c, i), g.gather(c.flip([0]), i)])
    return g


@pytest.mark.parametrize("dt", DTYPES.values(), ids=str)
def test_every_type(dt: Any) -> None:
    rng = np.random.default_rng(0)
    a = (rng.standard_normal((LARGE // 4, 4)) * 50).astype(dt.numpy)
    i = np.array([0, 7, LARGE // 4 - 1])
    found = rlx.Session("cpu").compile(graph(a)).run({"i": i})
    for x, e in zip(found, (a[i], a[::-1][i]), strict=True):
        assert np.asarray(x).tobytes() == e.tobytes()


def test_constants_that_differ_in_an_element(tmp_path: Path) -> None:
    a = np.arange(LARGE // 4, dtype=np.float32)
    b = a.copy()
    b[-1] = -1.0
    g = rlx.Graph("g")
    x = g.input("x", [], "f32")
    g.set_outputs([x * v for v in (g.constant(a), g.constant(b), g.constant(a))])
    compile_artifact(g).save(tmp_path / "a.rlx")
    artifact = Artifact.load(tmp_path / "a.rlx")
    assert len(artifact.variant.constants) <= 3
    found = Executable(artifact).run_slots(np.float32(2.0).reshape(()))
    for y, e in zip(found, (a, b, a), strict=True):
        assert np.array_equal(y, e * 2)


def test_texts_have_the_elements(tmp_path: Path) -> None:
    a = np.random.default_rng(0).random((LARGE // 16, 4), np.float32)
    g = graph(a)
    rlx.save(g, tmp_path / "g.mlir")
    assert elements_digest(constant_of(rlx.load(tmp_path / "g.mlir"))) == elements_digest(a)
    text = str(rlx.GraphModule.of(g).to("lir"))
    assert "rlx.held" not in text
    assert len(text) > 2 * a.nbytes


def constant_of(g: rlx.Graph) -> Array:
    (node,) = [n for n in g.nodes() if isinstance(n, Constant)]
    return node.value


def test_no_text_names_an_array() -> None:
    kind = "tensor<524288xf32>"
    value = f'{{rlx.held = "{"0" * 32}", rlx.type = {kind}}}'
    text = (
        f"func.func @main() -> {kind} {{\n"
        f'  %0 = "mir.constant"() {{value = {value}}} : () -> {kind}\n'
        f"  return %0 : {kind}\n}}"
    )
    with pytest.raises(IRError, match="value"):
        rlx.GraphModule.parse(text)


def test_a_stored_array_is_neither_copied_nor_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.arange(LARGE // 4, dtype=np.float32)
    node = Constant(a)
    assert node.value is not a
    assert is_stored(node.value)
    assert not is_stored(a)
    assert node.with_operands([]).attrs["value"] is node.value
    found = elements_digest(node.value)
    assert found == elements_digest(a)
    monkeypatch.setattr("rlx.base.stored.digest", None)
    assert elements_digest(node.value) == found
    a[0] = 5.0  # the caller's own may change at any time
    with pytest.raises(TypeError):
        elements_digest(a)

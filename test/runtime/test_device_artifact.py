"""Artifacts of devices: made without one, read back whole, refused when damaged, and run."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.errors import ArtifactError, FaultError
from rlx.ir.interpreter import interpret
from rlx.runtime import _native, container
from rlx.runtime.artifact import Artifact
from rlx.runtime.cache import artifacts
from rlx.runtime.devices.gpu_program import DeviceVariant
from rlx.schedule.steps import Await, Collective, For, If, Launch, Place, Step, While
from rlx.targets import TARGETS, find_target, presets
from rlx.targets.gpu import drivers
from rlx.targets.gpu.program import GpuProgram, bind
from support.mutation import mutated_bytes
from support.tolerances import assert_close

DEVICES = [name for name in TARGETS if find_target(name).kernels.binds]
SOFTWARE = ["opencl", "vulkan", "gpu"]

X = np.linspace(-2, 2, 4 * 6, dtype=np.float32).reshape(4, 6)
W = np.linspace(-1, 1, 6 * 5, dtype=np.float32).reshape(6, 5)
FEEDS = {"x": X, "n": np.int32(3), "i": np.array([3, 1], np.int32)}


def model() -> rlx.Graph:
    """A param that is packed, a constant, every kind of step, and a fault's site."""
    g = rlx.Graph("model")
    x, n, i = g.input("x", [4, 6]), g.input("n", [], "i32"), g.input("i", [2], "i32")
    y = (x @ (g.param("w", [6, 5]) * 2.0).transpose([1, 0]).transpose([1, 0])).softmax(axis=-1)
    y = y + g.constant(np.arange(5, dtype=np.float32))
    either = rlx.cond(n.lt(2), lambda v: v * 2.0, lambda v: v + 1.0, y)
    (grown,) = rlx.while_loop(lambda v: v.max() < 50.0, lambda v: (v * 3.0,), (y,))
    last, stack = rlx.scan(lambda c, r: (c + r, c * r), y.narrow(0, 0, 1).reshape([5]), y)
    g.set_outputs([either, grown, last, stack, g.gather(y, i, axis=0, mode="fault")])
    return g


def small() -> rlx.Graph:
    g = rlx.Graph("small")
    g.set_outputs((g.input("x", [4, 6]) @ g.param("w", [6, 5])).softmax(axis=-1))
    return g


@pytest.fixture(scope="module", params=["opencl", "cuda"])
def data(request: pytest.FixtureRequest) -> bytes:
    return bytes(rlx.compile_artifact(model(), request.param, params={"w": W}))


def program_of(artifact: Artifact) -> Any:
    (variant,) = artifact.variants
    assert isinstance(variant, DeviceVariant)
    return variant.program


@pytest.mark.parametrize("name", DEVICES)
def test_every_preset_compiles_without_a_device(name: str) -> None:
    made = rlx.compile_artifact(small(), [f"{name}:{p}" for p in presets(name)])
    assert made.target == name
    assert [v.features for v in made.variants] == list(reversed(presets(name)))
    again = Artifact.from_bytes(bytes(made))
    for v, w in zip(made.variants, again.variants, strict=True):
        assert isinstance(v, DeviceVariant) and isinstance(w, DeviceVariant)
        assert (v.requires, v.machine) == (w.requires, name)
        assert v.program == w.program
    assert [n.split("/")[0] for n in made.files if n != "manifest"]


def test_a_file_holds_the_program(data: bytes) -> None:
    again = Artifact.from_bytes(data)
    assert bytes(again) == data
    made = rlx.compile_artifact(model(), again.target, params={"w": W})
    a, b = program_of(made), program_of(again)
    for x, y in zip(a.constants, b.constants, strict=True):
        np.testing.assert_array_equal(x, y)
    for name in ("target", "kernels", "memories", "params", "inputs", "outputs", "prologue",
                 "main", "launches", "sites"):  # fmt: skip
        assert getattr(a, name) == getattr(b, name), name
    assert any("test_device_artifact" in file for _, file, _ in b.sites)


def test_the_parts_of_a_file_are_the_code(data: bytes) -> None:
    made = Artifact.from_bytes(data)
    codes = [bytes(part) for name, part in made.files.items() if name.startswith("objects/")]
    assert codes == [k.code for k in program_of(made).kernels][:1]
    assert codes[0].startswith({"cuda": b"//", "opencl": b"#pragma"}[made.target])


def test_every_changed_bit_is_found(data: bytes) -> None:
    r = random.Random(0)
    for _ in range(300):
        changed = mutated_bytes(data, r, range(256))
        if changed != data:
            with pytest.raises(ArtifactError):
                Artifact.from_bytes(changed)


def test_whatever_is_changed_under_fitting_checksums_is_read_or_refused(data: bytes) -> None:
    """What is let through is whole: nothing in it points outside of what it names."""
    r = random.Random(1)
    parts = {name: bytes(part) for name, part in container.parts_of(data).items()}
    taken = refused = 0
    for _ in range(1500):
        name = r.choice(["manifest", "variants/0"])
        changed = {**parts, name: mutated_bytes(parts[name], r)}
        try:
            made = Artifact.from_bytes(b"".join(container.chunks(changed)))
        except ArtifactError:
            refused += 1
            continue
        taken += 1
        for v in made.variants:
            if isinstance(v, DeviceVariant):
                _walk(v.program, v.program.main, ())
    assert taken and refused


def _walk(program: GpuProgram, steps: Sequence[Step[Place]], rounds: tuple[int, ...]) -> None:
    for step in steps:
        match step:
            case Launch():
                kernel = program.kernels[step.kernel]
                offsets, params = bind(step, kernel, 16, rounds)
                assert len(params) == 4 * kernel.params
                for place, at in zip(step.places, offsets, strict=True):
                    assert 0 <= at <= program.memories[place.base].nbytes
            case If() | While():
                assert step.flag.at(rounds) < program.memories[step.flag.base].nbytes
                _walk(program, step.children(), rounds)
            case For():
                for n in {0, max(0, step.rounds - 1)}:
                    _walk(program, step.body, (*rounds, n))
            case Collective() | Await():
                raise AssertionError("these graphs are of one rank")


def test_the_runtime_of_the_cpu_refuses_a_device_s(data: bytes) -> None:
    with pytest.raises(ArtifactError, match="this session is for 'cpu'"):
        rlx.Session("cpu").load(Artifact.from_bytes(data))
    assert _native.check_artifact(data) is None


def expected() -> list[Any]:
    g = model()
    return interpret(g, FEEDS, {"w": W})


@pytest.mark.parametrize("api", SOFTWARE)
def test_a_loaded_artifact_runs_as_the_interpreter(api: str, tmp_path: Path) -> None:
    if not drivers.probe(api).found:
        pytest.skip(f"no {api} device (run `make drivers`)")
    path = tmp_path / "model.rlx"
    rlx.compile_artifact(model(), api, params={"w": W}).save(path)
    f = rlx.Session(api).load(path)
    for _ in range(2):
        for a, b in zip(f.run(FEEDS), expected(), strict=True):
            assert_close(a, b)
    with pytest.raises(FaultError, match=r"test_device_artifact\.py:\d+: .*out of range"):
        f.run({**FEEDS, "i": np.array([0, 9], np.int32)})


@pytest.mark.parametrize("api", SOFTWARE)
def test_another_process_hits_the_cache_and_imports_no_compiler(api: str, tmp_path: Path) -> None:
    if not drivers.probe(api).found:
        pytest.skip(f"no {api} device (run `make drivers`)")
    code = f"""
import sys, numpy as np, rlx
from rlx import knobs
knobs.cache_dir.set({str(tmp_path)!r})
g = rlx.Graph("small")
g.set_outputs((g.input("x", [4, 6]) @ g.param("w", [6, 5])).softmax(axis=-1))
f = rlx.Session({api!r}).compile(g)
f.set_param("w", np.ones((6, 5), np.float32))
y = f.run({{"x": np.ones((4, 6), np.float32)}})[0]
assert np.allclose(y, 0.2)
compilers = {{"torch_mlir", "llvmlite", "rlx._mlir", "rlx.compiler.driver"}} & set(sys.modules)
print(f.reports[0].cache.split()[0], sorted(compilers))
if not compilers:  # and what is compiled after a driver was loaded does not meet its LLVM
    g.set_outputs(g.outputs[0] * 2.0)
    rlx.Session("cpu").compile(g)
"""
    said = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        for _ in range(2)
    ]
    assert said[0].stdout.startswith("miss")
    assert said[1].stdout == "hit []\n"


def test_an_artifact_for_what_the_device_lacks_says_so() -> None:
    made = rlx.compile_artifact(small(), ["cuda:sm_90a", "cuda:sm_80"])
    from rlx.targets.cuda.features import runs

    for capability, taken in ((80, "sm_80"), (89, "sm_80"), (90, "sm_90a"), (120, "sm_80")):
        assert made.fitting("cuda", runs(capability), "a GPU").features == taken
    with pytest.raises(ArtifactError, match=r"not run on a GPU, .*: sm_90a needs sm_90a; sm_80"):
        made.fitting("cuda", runs(75), "a GPU")


def test_a_damaged_entry_of_a_device_is_compiled_again(tmp_path: Path) -> None:
    with knobs.cache_dir.scoped(str(tmp_path)):
        rlx.compile_artifact(small(), "cuda")
        artifacts.in_memory.clear()
        files = [p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size > 2000]
        for path in files:
            path.write_bytes(path.read_bytes()[:-7] + b"damaged")
        made = rlx.compile_artifact(small(), "cuda")
    assert files and program_of(made).kernels

"""What targets are said to refuse, beside what their compiles refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import rlx
from rlx.compiler.driver import compile_program
from rlx.errors import UnsupportedError
from rlx.ir.graph import Graph
from rlx.ir.op import op_class
from rlx.runtime.backend import InterpreterBackend, _registry
from rlx.runtime.devices import hardware
from rlx.runtime.devices.graph_devices import GraphDevices
from rlx.runtime.devices.refusals import refusal, refuses_all
from rlx.targets import find_target
from rlx.targets.gpu.drivers import Probe

TARGETS = (
    "gpu", "webgpu", "opengl", "directx", "metal", "vulkan:vulkan1.1", "opencl:opencl1.2-fp64",
    "gpu:webgpu+buffers16", "cuda",
)  # fmt: skip
"""Those that lack element types or buffers, and one that lacks nothing."""


def best(n: int | str = 4) -> Graph:
    """An i64 between numbers of 32 bits, which no leaf and no output shows."""
    g = Graph("best")
    x = g.input("x", [n, 8])
    g.set_outputs(x.argmax(axis=-1).cast("f32") + 1.0)
    return g


def _softmax() -> Graph:
    g = Graph("softmax")
    g.set_outputs(g.input("x", [4, 8]).softmax(axis=-1))
    return g


def _branch() -> Graph:
    g = Graph("branch")
    p, x = g.input("p", [], "bool"), g.input("x", [4])
    g.set_outputs(rlx.cond(p, lambda: x.cast("f64").exp().cast("f32"), lambda: x))
    return g


def _complex() -> Graph:
    g = Graph("complex")
    x = g.input("x", [4], "c128")
    g.set_outputs(x * x)
    return g


def _many() -> Graph:
    """An op of ten operands."""
    g = Graph("many")
    xs = [g.input(f"x{i}", [2]) for i in range(10)]
    g.set_outputs(g.concat(xs, axis=0))
    return g


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [best, _softmax, _branch, _complex, _many])
def test_they_are_those_of_a_compile(make: Callable[[], Graph], target: str) -> None:
    g = make()
    said = next(filter(None, (refusal(node, target) for node in g.nodes())), "")
    try:
        compile_program(g, find_target(target))
    except UnsupportedError as e:
        assert said, e
        assert "test_refusals.py" in str(e)
    else:
        assert not said


def test_each_is_refused_somewhere_and_runs_somewhere() -> None:
    for make in (best, _branch, _complex):
        found = {bool(refusal(node, t)) for t in TARGETS for node in make().nodes()}
        assert found == {False, True}


def test_sizes_that_are_not_known_change_nothing() -> None:
    for target in ("gpu", "vulkan:vulkan1.1", "cuda"):
        a, b = (refusal(best(n).nodes()[0], target) for n in (4, "n"))
        assert bool(a) == bool(b)


def test_dims_that_attributes_name_are_known() -> None:
    g = Graph("noise")
    noise = rlx.random.normal(g.input("key", [2], "u32"), ["n"])
    g.set_outputs(noise + g.input("x", ["n"]))
    assert [refusal(node, "gpu") for node in g.nodes()] == [""] * len(g.nodes())


def test_an_op_is_refused_if_all_its_samples_are() -> None:
    assert "i64" in refuses_all(op_class("mir.argmax"), "gpu")
    for name, target in (
        ("mir.argmax", "metal"), ("mir.add", "gpu"), ("mir.softmax", "gpu"),
        ("control.while_loop", "gpu"),
    ):  # fmt: skip
        assert not refuses_all(op_class(name), target)


@pytest.fixture
def wgpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device of WebGPU that binds 16 buffers."""
    registry = {k: v for k, v in _registry.items() if k in ("cpu", "interpret")}
    monkeypatch.setattr("rlx.runtime.backend._registry", registry)
    rlx.register_backend("gpu", InterpreterBackend)
    probe = Probe("gpu", "it", features=frozenset(["buffers10", "buffers16"]))
    monkeypatch.setattr(hardware, "probe", lambda api: probe)


@pytest.mark.usefixtures("wgpu")
def test_a_device_names_the_op_and_the_line() -> None:
    for n in (4, "n"):
        g = best(n)
        assert rlx.first_unsupported_op("gpu", g) == (0, g.nodes()[0])
        assert not rlx.supports_graph("gpu", g) and "gpu" not in rlx.devices_for(g)
    assert not rlx.supports("gpu", "mir.argmax")
    report = {c.device: c.blocker for c in GraphDevices(best()).report()}
    assert report["gpu"].startswith("it does not run mir.argmax of f32, i64 (")
    assert "test_refusals.py:" in report["gpu"] and "i64" in report["gpu"]
    with pytest.raises(UnsupportedError, match=r"test_refusals\.py.*argmax.*i64"):
        rlx.dispatch_report_for_device(best(), "gpu")


@pytest.mark.usefixtures("wgpu")
def test_a_report_says_for_which_features_it_is() -> None:
    for device, target in (
        ("gpu", "gpu:webgpu+buffers16"), ("gpu:webgpu", "gpu:webgpu"), ("metal", "metal:metal2.4"),
    ):  # fmt: skip
        report = rlx.dispatch_report_for_device(_softmax(), device)
        assert report.target == target
        assert str(report).splitlines()[0] == f"target    {target}"

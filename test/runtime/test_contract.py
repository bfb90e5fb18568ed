"""What the documents of the original API promise of sessions and devices, by the numbers of the
list that was made of them. Where ours differs, it is an error that says so.

9, and most of 1 and 8, are in ``test_devices``; 4 (hello world) in ``test_session``; 6 (a precision
is a part of the cache's key) in ``test/precision/test_policy``; 7 (a param of another length) in
``test/bad_calls/test_running``. Of 2, 3 and 12 ours differ: a precision that a
device has not is an error, a compile raises and does not end the process, and no transform falls
back to the host.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.errors import DeviceError, UnsupportedError
from rlx.runtime import hardware
from rlx.runtime.backend import InterpreterBackend, _registry
from rlx.runtime.graph_devices import GraphDevices
from rlx.runtime.policy import DevicePolicy
from rlx.targets.gpu.drivers import Probe

HOST = {name: _registry[name] for name in ("cpu", "interpret")}


def graph() -> rlx.Graph:
    g = rlx.Graph("hello")
    g.set_outputs(g.input("x", [1, 4]) @ g.param("w", [4, 2]))
    return g


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the devices that need no driver are registered."""
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(HOST))


def test_1_a_device_without_a_backend_says_how_one_is_added(alone: None) -> None:
    with pytest.raises(DeviceError, match=r"^.*TPU: device 'tpu' is not available: .*register_ba"):
        rlx.Session("tpu")


def test_5_what_a_device_does_not_run_is_refused_as_it_is_compiled() -> None:
    from rlx.compiler import compile_program
    from rlx.targets import find_target

    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [4], "f64").exp())
    with pytest.raises(UnsupportedError, match=r"f64, which webgpu lacks: WGSL has none"):
        compile_program(g, find_target("gpu"))


def test_8_what_was_found_is_forgotten_on_demand(
    monkeypatch: pytest.MonkeyPatch, alone: None
) -> None:
    r = GraphDevices(graph(), DevicePolicy().with_benchmark_pick(1))
    r.set_param("w", np.ones((4, 2), np.float32))
    feeds = {"x": np.ones((1, 4), np.float32)}
    first, kept = r.resolve_with_inputs(None, feeds), r.compile("cpu")
    assert r.devices() == ("cpu", "interpret")
    rlx.register_backend("mine", InterpreterBackend)
    asked: list[int] = []
    monkeypatch.setattr(r, "benchmark", lambda inputs, runs: asked.append(runs) or [])
    assert r.resolve_with_inputs(None, feeds) == first and r.devices() == ("cpu", "interpret")
    r.invalidate_cache()
    assert r.devices() == ("cpu", "interpret", "mine"), "the supported set is found anew"
    r.resolve_with_inputs(None, feeds)
    assert asked == [1], "the winner is measured anew"
    assert r.compile("cpu") is not kept
    np.testing.assert_array_equal(r.run("mine", feeds)[0], [[4, 4]])
    kept = r.compile("cpu")
    r.set_policy(DevicePolicy.only(["cpu"]))
    assert r.devices() == ("cpu",) and r.compile("cpu") is not kept


def test_10_what_is_not_there_supports_nothing(alone: None) -> None:
    g = graph()
    assert all(rlx.supports("cpu", op) for op in rlx.ops.OP_MODULES)
    for device in ("vulkan", "tpu"):
        assert not rlx.supports(device, "mir.add") and not rlx.supports_graph(device, g)
        found = rlx.first_unsupported_op(device, g)
        assert found is not None and found[0] == 0
    assert rlx.first_unsupported_op("cpu", g) is None


def test_11_the_fastest_is_the_first_by_priority_that_is_there(
    alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rlx.fastest_device() == "cpu"
    for device in ("metal", "mlx"):
        rlx.register_backend(device, InterpreterBackend)
    monkeypatch.setattr(hardware, "probe", lambda api: Probe(api, "it"))
    assert rlx.fastest_among(["cpu", "metal", "mlx"]) == "mlx"
    g = graph()
    assert rlx.devices_for(g)
    assert all(rlx.is_available(d) and rlx.supports_graph(d, g) for d in rlx.devices_for(g))


def test_13_the_package_measures_with_one_clock() -> None:
    root = Path(rlx.__file__).parent
    users = [p.name for p in root.rglob("*.py") if "perf_counter" in p.read_text(encoding="utf-8")]
    assert users == ["clock.py"]
    result, took = rlx.time_ns(lambda: 7)
    assert result == 7 and took > 0

"""What the documents of the original API promise of sessions and devices, a test for each number of
the list that was made of them.

Of 2, 3 and 12 ours differ: a precision that a device has not is an error, a compile raises and does
not end the process, and no transform falls back to the host. ``test_devices`` and
``test_graph_devices`` have more of 1, 8 and 9, ``test/precision/test_policy`` of 6,
``test/bad_calls/test_running`` of 7.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.errors import DeviceError, ShapeError, UnsupportedError
from rlx.runtime.backend import InterpreterBackend, _registry
from rlx.runtime.devices import hardware
from rlx.runtime.devices.graph_devices import GraphDevices
from rlx.runtime.devices.policy import DevicePolicy
from rlx.targets.gpu.drivers import Probe
from support.conformance import facts, gpu_targets
from support.device import device_of

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


@pytest.mark.parametrize("target", ["cpu", *gpu_targets()])
def test_4_hello_world(target: str) -> None:
    if target != "cpu" and not facts(target).runs:
        pytest.skip(f"{target}: {facts(target).why} (or run `make drivers`)")
    f = rlx.Session(device_of(target)).compile(graph())
    f.set_param("w", np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32))
    found = f.run({"x": np.array([[1, 2, 3, 4]], np.float32)})
    np.testing.assert_array_equal(found[0], [[4, 6]])


def test_5_what_a_device_does_not_run_is_refused_as_it_is_compiled() -> None:
    from rlx.compiler.driver import compile_program
    from rlx.targets import find_target

    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [4], "f64").exp())
    with pytest.raises(UnsupportedError, match=r"f64, which webgpu lacks: WGSL has none"):
        compile_program(g, find_target("gpu"))


def test_6_a_precision_is_a_part_of_a_cache_s_key() -> None:
    cache = rlx.CompileCache()
    f32, bf16 = (cache.compile(rlx.Session("cpu", precision=p), graph()) for p in ("f32", "bf16"))
    assert f32 is not bf16
    assert cache.compile(rlx.Session("cpu"), graph()) is f32


def test_7_a_param_of_another_length_is_an_error() -> None:
    f = rlx.Session("cpu").compile(graph())
    with pytest.raises(ShapeError, match="8 elements expected, 7 found"):
        f.set_param("w", np.ones(7, np.float32))


def test_8_a_chain_returns_the_device_and_says_why_others_were_left_out(alone: None) -> None:
    r = GraphDevices(graph())
    r.set_param("w", np.ones((4, 2), np.float32))  # before anything is compiled
    device, (y,) = r.run_try(["cuda", "cpu"], {"x": np.ones((1, 4), np.float32)})
    assert device == "cpu" and y.tolist() == [[4, 4]]
    ((skipped, why),) = r.attempts
    assert skipped == "cuda" and why.startswith("not viable for this graph under policy")
    with pytest.raises(rlx.DeviceFallbackError) as caught:
        r.run_try([], {})
    assert caught.value.attempts == (("", "empty fallback chain"),)


def test_8_what_was_found_is_forgotten_on_demand(
    monkeypatch: pytest.MonkeyPatch, alone: None
) -> None:
    r = GraphDevices(graph(), DevicePolicy().with_benchmark_pick(1))
    r.set_param("w", np.ones((4, 2), np.float32))
    feeds = {"x": np.ones((1, 4), np.float32)}
    first, kept = r.resolve_with_inputs(None, feeds), r.compile("cpu")
    assert r.devices() == ("cpu",)
    rlx.register_backend("mine", InterpreterBackend)
    asked: list[int] = []
    monkeypatch.setattr(r, "benchmark", lambda inputs, runs: asked.append(runs) or [])
    assert r.resolve_with_inputs(None, feeds) == first and r.devices() == ("cpu",)
    r.invalidate_cache()
    assert r.devices() == ("cpu", "mine"), "the supported set is found anew"
    r.resolve_with_inputs(None, feeds)
    assert asked == [1], "the winner is measured anew"
    assert r.compile("cpu") is not kept
    np.testing.assert_array_equal(r.run("mine", feeds)[0], [[4, 4]])
    kept = r.compile("cpu")
    r.set_policy(DevicePolicy.only(["cpu"]))
    assert r.devices() == ("cpu",) and r.compile("cpu") is not kept


def test_9_a_hint_comes_before_the_environment_s_chain() -> None:
    r = GraphDevices(graph())
    with knobs.device_chain.scoped(("interpret", "cpu")):
        assert r.resolve_chain("cpu") == "cpu"
        assert r.resolve_chain() == "interpret" and r.chain() == ("interpret", "cpu")
    assert r.resolve_chain() == r.resolve(None)


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
    g = graph()
    assert rlx.devices_for(g)
    assert all(rlx.is_available(d) and rlx.supports_graph(d, g) for d in rlx.devices_for(g))
    for device in ("metal", "mlx"):
        rlx.register_backend(device, InterpreterBackend)
    monkeypatch.setattr(hardware, "probe", lambda api: Probe(api, "it"))
    monkeypatch.setattr(hardware.whole, "is_software", lambda device: False)
    assert rlx.fastest_among(["cpu", "metal", "mlx"]) == "mlx"


def test_13_the_package_measures_with_one_clock() -> None:
    root = Path(rlx.__file__).parent
    users = [p.name for p in root.rglob("*.py") if "perf_counter" in p.read_text(encoding="utf-8")]
    assert users == ["clock.py"]
    result, took = rlx.time_ns(lambda: 7)
    assert result == 7 and took > 0

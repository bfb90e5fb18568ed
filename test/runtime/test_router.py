"""Devices by policy as functions, sessions that find their device, and graphs kept ready on all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DeviceError, GraphError, UnsupportedError
from rlx.runtime import backend
from rlx.runtime.backend import InterpreterBackend

FEEDS = {"x": np.array([[1, 2, 3, 4]], np.float32)}
W = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32)
BOTH = rlx.DevicePolicy.only(["interpret", "cpu"])


def hello() -> rlx.Graph:
    g = rlx.Graph("hello")
    g.set_outputs(g.input("x", [1, 4]) @ g.param("w", value=W))
    return g


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    here = {d: r for d, r in backend._registry.items() if d in ("cpu", "interpret")}
    monkeypatch.setattr(backend, "_registry", here)
    yield


def test_which_devices_a_policy_gives() -> None:
    g = hello()
    assert rlx.devices_for_with_policy(g) == ("cpu",)
    assert set(rlx.devices_for_with_policy(g, BOTH)) == {"cpu", "interpret"}
    rows = {r.device: r for r in rlx.device_report(g, rlx.DevicePolicy.only(["cpu", "cuda"]))}
    assert rows["cpu"].recommended and rows["cpu"].supports_graph and not rows["cpu"].blocker
    assert not rows["cuda"].available and rows["cuda"].blocker


def test_a_hint_then_the_environment_then_the_fastest() -> None:
    g = hello()
    assert rlx.resolve_device(g, "interpret", BOTH) == "interpret"
    with rlx.knobs.device.scoped("interpret"):
        assert rlx.resolve_device(g, None, BOTH) == "interpret"
    assert rlx.resolve_device(g) == "cpu"
    with pytest.raises(DeviceError, match="not allowed by the policy"):
        rlx.resolve_device(g, "interpret", rlx.DevicePolicy.only(["cpu"]))


def test_the_first_of_a_chain_that_can() -> None:
    g = hello()
    assert rlx.resolve_device_chain(g, ["cuda", "cpu"]) == "cpu"
    assert rlx.resolve_device_chain(g, "cpu") == "cpu"
    with pytest.raises(rlx.DeviceFallbackError) as caught:
        rlx.resolve_device_chain(g, ["cuda", "tpu"])
    assert [d for d, _ in caught.value.attempts] == ["cuda", "tpu"]


def test_chains_and_devices_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rlx.device_chain_from_env() == ()
    monkeypatch.setenv("RLX_DEVICE_CHAIN", "nvidia;cpu nvidia")
    assert rlx.device_chain_from_env() == ("cuda", "cpu")


def test_names_of_devices() -> None:
    assert rlx.parse_device("Nvidia") == "cuda"
    with pytest.raises(DeviceError, match="did you mean 'cuda'"):
        rlx.parse_device("cudaa")


def test_a_session_that_finds_its_device() -> None:
    session = rlx.FlexibleSession(BOTH)
    assert session.compile_on(hello(), "interpret").run(FEEDS)[0].tolist() == [[4, 6]]
    f = session.compile_resolved(hello(), "cpu", fuse=False)
    assert f.backend.name == "cpu" and f.options["fuse"] is False
    assert rlx.FlexibleSession(BOTH, "bf16").session("cpu").precision == "bf16"
    by_op = rlx.FlexibleSession(BOTH, op_policy="always_f16")
    assert by_op.session("cpu").policy == "always_f16"
    with pytest.raises(DeviceError, match="CPU is not allowed by the session's device policy"):
        rlx.FlexibleSession(rlx.DevicePolicy.only(["interpret"])).session("cpu")
    with pytest.raises(GraphError, match="did you mean 'always_f16'"):
        rlx.FlexibleSession(op_policy="always_f17")


def test_a_router_has_compiled_for_all_devices() -> None:
    r = rlx.DeviceRouter(hello(), BOTH)
    assert set(r.runner._compiled) == set(r.devices()) == {"cpu", "interpret"}
    device, (y,) = r.run(FEEDS)
    assert device in r.devices() and y.tolist() == [[4, 6]]
    assert r.run(FEEDS, "interpret")[0] == "interpret"
    r.set_param("w", 2 * W)
    r.set_param_typed("w", (3 * W).tobytes(), "f32")
    assert r.run_on("cpu", FEEDS)[0].tolist() == [[12, 18]]
    device, (y,) = r.run_chain(FEEDS, ["cuda", "interpret"])
    assert device == "interpret" and y.tolist() == [[12, 18]]
    only = rlx.DeviceRouter(hello(), rlx.DevicePolicy.only(["interpret"]))
    assert only.devices() == ("interpret",)
    with pytest.raises(rlx.DeviceFallbackError, match="no device can run the graph"):
        rlx.DeviceRouter(hello(), rlx.DevicePolicy.only(["cuda"]))


@pytest.mark.parametrize("rebench", [True, False])
def test_a_router_leaves_a_device_that_has_slowed(
    rebench: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    r = rlx.DeviceRouter(hello(), BOTH, rebench_on_throttle=rebench)
    took = iter([100, 150, 900, 900, 90, 300, 300, 300, 50])
    monkeypatch.setattr("rlx.runtime.devices.router.time_ns", lambda call: (call(), next(took)))
    first = r.run(FEEDS)[0]
    other = next(d for d in r.devices() if d != first)
    asked: list[int] = []

    def benchmark(inputs: Any, runs: int) -> list[Any]:
        asked.append(runs)
        return [rlx.DeviceBenchResult(other, other, 1, 1)]

    monkeypatch.setattr(r.runner, "benchmark", benchmark)
    assert [r.run(FEEDS)[0] for _ in range(7)] == [first] * 7
    assert bool(asked) is rebench
    assert r.run(FEEDS)[0] == (other if rebench else first)


def test_an_op_that_a_gpu_lacks_keeps_it_from_the_chain() -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", [4], "f64").exp())

    class Narrow(InterpreterBackend):
        supported_ops = ("mir.sin",)

    rlx.register_backend("narrow", Narrow)
    with pytest.raises(UnsupportedError, match="cannot lower this graph under the active policy"):
        rlx.resolve_device(g, "narrow")
    assert rlx.resolve_device_chain(g, ["narrow", "cpu"]) == "cpu"


def test_the_time_between_two_ticks() -> None:
    earlier = rlx.Tick(1_000)
    assert rlx.Tick(2_501_000) - earlier == timedelta(microseconds=2500)
    with pytest.raises(GraphError, match="earlier is a Tick"):
        rlx.Tick.now().__sub__(rlx.f32)  # pyright: ignore[reportArgumentType]

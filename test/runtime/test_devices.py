"""Devices: which there are, why others are not, and one graph on several of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.base.device_names import Device, label
from rlx.errors import (
    DeviceError,
    DeviceLostError,
    DTypeError,
    GraphError,
    KnobError,
    NameError,
    ShapeError,
    UnsupportedError,
)
from rlx.runtime.backend import InterpreterBackend, _registry, registered
from rlx.runtime.devices import cost, hardware
from rlx.runtime.devices.calls import graph_param_names
from rlx.runtime.devices.graph_devices import DeviceFallbackError, GraphDevices
from rlx.runtime.devices.policy import DevicePickStrategy, DevicePolicy
from rlx.runtime.interpreted import Interpreted
from rlx.targets import TARGETS
from rlx.targets.gpu.drivers import Probe

FEEDS = {"x": np.array([[1, 2, 3, 4]], np.float32)}
W = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32)

HOST = {name: _registry[name] for name in ("cpu", "interpret")}
"""The backends that need no driver."""


def graph() -> rlx.Graph:
    g = rlx.Graph("hello")
    g.set_outputs(g.input("x", [1, 4]) @ g.param("w", [4, 2]))
    return g


def runner(policy: DevicePolicy | None = None) -> GraphDevices:
    found = GraphDevices(graph(), policy)
    found.set_param("w", W)
    return found


class Flaky(InterpreterBackend):
    """A device that is lost in the middle of a run whenever ``fails`` says so."""

    name = "flaky"
    fails = False
    loads = 0

    def load(self, graph: Any, options: Any, shared: Any) -> Any:
        Flaky.loads += 1

        class Lost(Interpreted):
            def run_slots(self, *inputs: Any) -> Any:
                found = super().run_slots(*inputs)
                if Flaky.fails:
                    raise DeviceLostError("pulled out")
                return found

        return Lost(graph, shared)


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Flaky]]:
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(HOST))
    Flaky.fails, Flaky.loads = False, 0
    rlx.register_backend("flaky", Flaky)
    yield Flaky


# -- names and availability ----------------------------------------------------------------


def test_the_twelve_devices_have_names_and_other_names() -> None:
    assert len(Device.all()) == 12
    labels = {d.value: d.label for d in Device.all()}
    assert labels["gpu"] == "GPU (wgpu)" and labels["directx"] == "DirectX 12"
    given = {"mtl": "metal", "neural-engine": "ane", "NVIDIA": "cuda", "hip": "rocm", "amd": "rocm",
             "wgpu": "gpu", "vk": "vulkan", "gl": "opengl", "dx12": "directx",
             "d3d12": "directx", " Cpu ": "cpu"}  # fmt: skip
    for name, device in given.items():
        assert Device.parse(name) == device
    with pytest.raises(DeviceError, match="no device is called 'cudaa'; did you mean 'cuda'"):
        Device.parse("cudaa")


@pytest.mark.parametrize("device", [d for d in rlx.DEVICE_PRIORITY if d not in rlx.devices()])
def test_a_device_that_is_missing_says_its_name_and_why(device: str) -> None:
    with pytest.raises(DeviceError) as caught:
        rlx.Session(device)
    said = caught.value.message
    assert said.startswith(f"{label(device)}: device {device!r} is not available: ")
    assert registered(device) or "register_backend" in said
    assert "use one of cpu" in said
    assert hardware.why_missing(device)
    assert not rlx.is_available(device)


def test_a_target_is_a_device_by_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "phone", "rlx.targets.opengl")
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [4, 8]).softmax(axis=-1))
    assert "rowwise: softmax" in str(rlx.analyze_dispatch(g, "phone"))
    with pytest.raises(DeviceError, match=r"phone: .*not available: no driver here runs what is"):
        rlx.Session("phone")


def test_a_driver_without_code_generation_is_said_to_be_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hardware, "probe", lambda api: Probe(api, "A GPU"))
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(HOST))
    with pytest.raises(DeviceError, match="finds A GPU, but this build generates no code for it"):
        rlx.Session("rocm")


def test_a_backend_may_say_that_its_device_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(HOST))
    rlx.register_backend("vulkan", InterpreterBackend, lambda: "it is unplugged")
    assert "vulkan" not in rlx.available_devices()
    with pytest.raises(DeviceError, match="'vulkan' is not available: it is unplugged; use one of"):
        rlx.Session("vulkan")


def test_software_devices_come_after_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(HOST))
    for device in ("vulkan", "cuda", "mine"):
        rlx.register_backend(device, InterpreterBackend)
    monkeypatch.setattr(hardware, "probe", lambda api: Probe(api, "it", api == "vulkan"))
    assert rlx.available_devices() == ("cuda", "cpu", "interpret", "mine", "vulkan")
    assert rlx.fastest_device() == "cuda"
    assert rlx.full_name("cuda") == "CUDA (it)"
    assert rlx.fastest_among([Device.CPU, "vulkan"]) == "cpu"
    assert rlx.available_apple_devices() == ()


def test_waiting_for_a_device_waits_for_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []

    class Driver:
        def sync(self) -> None:
            waited.append("yes")

    monkeypatch.setattr("rlx.runtime.devices.available.opened", lambda device: Driver())
    rlx.drain_device("cpu")
    assert waited


def test_a_device_runs_no_graph_of_types_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(HOST))
    for device in ("gpu", "vulkan", "cuda", "mine"):
        rlx.register_backend(device, InterpreterBackend)
    has = {"vulkan": frozenset(["int64"]), "cuda": frozenset(["sm_80"])}
    found = lambda api: Probe(api, "it", features=has.get(api, frozenset()))
    monkeypatch.setattr(hardware, "probe", found)
    g = rlx.Graph()
    x = g.input("x", [4])
    g.set_outputs([x + 1.0, x.cast("i64"), x.cast("f64")])
    op = {d: rlx.first_unsupported_op(d, g) for d in rlx.available_devices()}
    assert [n and n[0] for n in (op["gpu"], op["vulkan"])] == [2, 3]
    assert rlx.devices_for(g) == ("cuda", "cpu", "interpret", "mine")
    r = GraphDevices(g)
    blockers = {c.device: c.blocker for c in r.report()}
    said = r"it does not run mir.cast of f32, {0} \(.*test_devices.py:\d+\): {0}: .*"
    assert re.fullmatch(said.format("i64"), blockers["gpu"])
    assert re.fullmatch(said.format("f64"), blockers["vulkan"]) and not blockers["cuda"]
    with pytest.raises(UnsupportedError, match=r"Vulkan cannot lower .* mir.cast of f32, f64"):
        r.compile("vulkan")


def test_a_gpu_runs_no_kernel_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(HOST))
    rlx.register_backend("cuda", InterpreterBackend)
    monkeypatch.setattr(hardware, "probe", lambda api: Probe(api, "it"))
    same = rlx.custom_op("test.same", infer=lambda x: x)(lambda x: x)
    g = rlx.Graph()
    g.set_outputs(same(g.input("x", [4])))
    assert rlx.devices_for(g) == ("cpu", "interpret")
    assert GraphDevices(g).fastest() in ("cpu", "interpret")


def test_what_a_device_makes_of_a_graph() -> None:
    legal, report = rlx.legalize_graph_for_device_with_report(graph(), "cpu")
    assert "mir.matmul" in str(legal) or "mir.dot" in str(legal)
    assert str(report) == str(rlx.dispatch_report_for_device(graph(), "cpu"))


@pytest.mark.parametrize("device", ["gpu", "metal", "vk"])
def test_what_a_device_runs_on_no_elements_of_a_type_is_not_legal_there(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = rlx.Graph("wide")
    g.set_outputs(g.input("x", [4], "f64").cast("f32") + 1.0)
    calls = (
        rlx.legalize_graph_for_device, rlx.legalize_graph_for_device_with_report,
        rlx.dispatch_report_for_device, rlx.legalize_graph_for_device_with_options,
    )  # fmt: skip
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(HOST))
    for here in (True,) if device == "vk" else (False, True):  # whether there is one
        if here:
            rlx.register_backend(rlx.Device.parse(device), InterpreterBackend)
            monkeypatch.setattr(hardware, "probe", lambda api: Probe(api, "it"))
            assert rlx.first_unsupported_op(device, g) == (0, g.nodes()[0])
        for call in calls:
            with pytest.raises(
                UnsupportedError, match=r"does not run mir\.cast of f64, f32: f64: "
            ) as e:
                call(g, device)
            assert "test_devices.py" in str(e.value)
    if device == "vk":  # one that has doubles
        has = frozenset(["float64", "int64"])
        monkeypatch.setattr(hardware, "probe", lambda api: Probe(api, "it", features=has))
        assert rlx.first_unsupported_op(device, g) is None
        assert "mir.cast" in str(rlx.legalize_graph_for_device(g, device))


def test_the_environment_says_how_ops_are_dispatched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_KERNEL_DISPATCH", "common")
    assert rlx.CompileOptions().dispatch == rlx.KernelDispatchPolicy.COMMON  # pyright: ignore[reportAttributeAccessIssue]
    common = str(rlx.dispatch_report_for_device(graph(), "cpu"))
    assert common == str(rlx.dispatch_report_for_device(graph(), "cpu", dispatch="common"))
    assert common != str(rlx.dispatch_report_for_device(graph(), "cpu", dispatch="native"))
    monkeypatch.setenv("RLX_KERNEL_DISPATCH", "fast")
    with pytest.raises(KnobError, match="expected native or common"):
        rlx.CompileOptions()


def test_the_environment_says_how_symbolic_sizes_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RLX_SIZES", "dynamic")
    with pytest.raises(KnobError, match="expected symbolic or bound"):
        knobs.sizes.get()


# -- policies ------------------------------------------------------------------------------


def test_a_policy_filters_and_orders() -> None:
    names = ("cpu", "cuda", "metal")
    assert DevicePolicy.all().apply(names) == ("cuda", "metal", "cpu")
    assert DevicePolicy.only(["cpu", "nvidia"]).apply(names) == ("cuda", "cpu")
    assert DevicePolicy.default().with_deny(["cuda"]).apply(names) == ("metal", "cpu")
    assert DevicePolicy().with_prefer(["cpu", "metal"]).apply(names) == ("cpu", "metal", "cuda")
    assert DevicePolicy().with_benchmark_pick(3).pick_strategy().measures
    assert str(DevicePickStrategy()) == "cost model"
    assert str(DevicePickStrategy(3)) == "benchmark of 3 runs"
    assert "cuda" in DevicePolicy().probe_set()
    with pytest.raises(DeviceError, match="unknown device 'cupu'; did you mean 'cpu'"):
        DevicePolicy.only(["cupu"])
    with pytest.raises(GraphError, match="1 run or more, found -1"):
        DevicePickStrategy(-1)


def test_a_policy_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_DEVICES", "cpu;  Interpret,CPU nvidia")
    monkeypatch.setenv("RLX_DENY_DEVICES", "cuda")
    monkeypatch.setenv("RLX_PREFER_DEVICES", "interpret")
    monkeypatch.setenv("RLX_BENCHMARK_PICK", "2")
    found = DevicePolicy.from_env()
    assert found == DevicePolicy(
        ("cpu", "interpret", "cuda"), ("cuda",), ("interpret",), DevicePickStrategy(2)
    )
    assert GraphDevices.from_env(graph()).devices() == ("interpret", "cpu")
    monkeypatch.setenv("MINE_DEVICES", "cpu")
    assert DevicePolicy.from_env_key("MINE") == DevicePolicy.only(["cpu"])
    monkeypatch.setenv("MINE_DEVICES", "cpux")
    with pytest.raises(DeviceError, match=r"'cpux'.*in the variable MINE_DEVICES"):
        DevicePolicy.from_env_key("MINE")


@pytest.mark.parametrize("given", ["cl", "CL", " OpenCL ", "opencl"])
def test_all_take_the_same_names_of_a_device(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(HOST))
    rlx.register_backend("opencl", InterpreterBackend)
    monkeypatch.setattr(hardware, "probe", lambda api: Probe(api, "it"))
    assert rlx.Session(given).device == "opencl"
    assert rlx.is_available(given) and rlx.supports_run_slots(given)
    assert rlx.full_name(given) == "OpenCL (it)" and rlx.fastest_among([given]) == "opencl"
    assert rlx.supports(given, "mir.gelu") and rlx.supports_graph(given, graph())
    rlx.drain_device(given)
    r = runner()
    assert r.resolve(given) == "opencl" and r.chain(["CPU", given]) == ("cpu", "opencl")
    assert r.compile(given) is r.compile("opencl")
    assert r.run_try(["NVIDIA", given], FEEDS)[0] == "opencl"
    assert r.attempts[0][0] == "cuda"
    with knobs.device.scoped("CPU"):
        assert r.resolve() == "cpu"
    monkeypatch.setenv("RLX_DEVICE", given)
    assert r.resolve() == "opencl"
    monkeypatch.setenv("RLX_DEVICE_CHAIN", f"nvidia,{given},CPU")
    assert r.chain() == ("cuda", "opencl", "cpu") and r.resolve_chain() == "opencl"
    assert r.run_chain(None, FEEDS)[0] == "opencl"
    monkeypatch.setenv("RLX_DENY_DEVICES", given)
    assert not DevicePolicy.from_env().allows("opencl")


def test_a_name_of_no_device_is_an_error_that_lists_the_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = r"unknown device 'vulcan'; did you mean 'vulkan'.*available: cpu.*vulkan.*vk"
    r = runner()
    for call in (
        lambda: rlx.Session("vulcan"), lambda: r.resolve("vulcan"),
        lambda: r.resolve_chain("vulcan"), lambda: r.compile("vulcan"),
        lambda: r.run_try(["cpu", "vulcan"], FEEDS), lambda: rlx.fastest_among(["cpu", "vulcan"]),
        lambda: rlx.supports("vulcan", "mir.gelu"), lambda: rlx.supports_graph("vulcan", graph()),
    ):  # fmt: skip
        with pytest.raises(DeviceError, match=listed):
            call()
    for variable, call in (
        ("RLX_DEVICE", r.resolve),
        ("RLX_DEVICE", lambda: r.resolve_with_inputs(None, FEEDS)),
        ("RLX_DEVICE_CHAIN", r.resolve_chain),
        ("RLX_PREFER_DEVICES", DevicePolicy.from_env),
        ("RLX_DENY_DEVICES", DevicePolicy.from_env),
    ):
        with monkeypatch.context() as m:
            m.setenv(variable, "vulcan")
            if variable == "RLX_DEVICE" and call != r.resolve:
                r.set_policy(DevicePolicy().with_benchmark_pick(1))
            with pytest.raises(DeviceError, match=rf"{listed}.*\(in the variable {variable}\)"):
                call()


def test_the_interpreter_is_taken_only_where_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(HOST))
    rlx.register_backend("vulkan", InterpreterBackend)
    monkeypatch.setattr(hardware, "probe", lambda api: Probe(api, "it", software=True))
    monkeypatch.setenv("RLX_DENY_DEVICES", "cpu")
    r = GraphDevices.from_env(graph())
    r.set_param("w", W)
    assert r.devices() == ("vulkan",) and r.fastest() == "vulkan"
    assert "interpret" not in {c.device for c in r.report()}
    assert r.resolve("interpret") == "interpret"
    np.testing.assert_array_equal(r.run("interpret", FEEDS)[0], [[4, 6]])
    assert r.run_try(["interpret"], FEEDS)[0] == "interpret"
    with knobs.device.scoped("interpret"):
        assert r.resolve() == "interpret"
    for policy in (DevicePolicy.only(["interpret"]), DevicePolicy().with_prefer(["interpret"])):
        assert GraphDevices(graph(), policy).fastest() == "interpret"
    with pytest.raises(DeviceError, match="interpreter is not allowed by the policy"):
        runner(DevicePolicy().with_deny(["interpret"])).resolve("interpret")
    with pytest.raises(DeviceError, match="no device can run graph 'hello' under the policy"):
        runner(DevicePolicy().with_deny(["cpu", "vulkan"])).fastest()


# -- one graph on several devices ----------------------------------------------------------


def test_every_device_gives_the_same_and_shares_params() -> None:
    r = runner()
    assert r.devices() == tuple(d for d in rlx.devices_for(r.graph) if d != "interpret")
    assert graph_param_names(r.graph) == ["w"]
    for device in r.devices():
        np.testing.assert_array_equal(r.run(device, FEEDS)[0], [[4, 6]])
    r.set_param("w", 2 * W)  # compiled already
    for device in r.devices():
        np.testing.assert_array_equal(r.run(device, FEEDS)[0], [[8, 12]])
    r.set_param_typed("w", (3 * W).tobytes(), "f32")
    r.invalidate_cache()
    for device in r.devices():
        np.testing.assert_array_equal(r.run(device, FEEDS)[0], [[12, 18]])
    r.compile("cpu").set_param("w", W)  # aside from the runner
    r.sync_params_to_all()
    np.testing.assert_array_equal(r.run("cpu", FEEDS)[0], [[12, 18]])


def test_params_that_do_not_fit_are_refused_before_anything_is_compiled() -> None:
    r = runner()
    with pytest.raises(NameError, match="no param is called 'v'"):
        r.set_param("v", W)
    with pytest.raises(ShapeError):
        r.set_param("w", W[:1])
    with pytest.raises(DTypeError):
        r.set_param_typed("w", bytes(64), "f64")
    with pytest.raises(GraphError, match="no dtype is called 'f33'"):
        r.set_param_typed("w", b"", "f33")


def test_a_device_is_resolved_by_hint_then_environment_then_strategy() -> None:
    r = runner(DevicePolicy().with_prefer(["interpret"]))
    assert r.resolve() == r.fastest() == "interpret"
    assert r.resolve("cpu") == "cpu"
    with knobs.device.scoped("cpu"):
        assert r.resolve() == "cpu"
        assert r.resolve("interpret") == "interpret"
    with knobs.device.scoped("cuda"):  # it is not viable, and is ignored
        assert r.resolve() == "interpret"
    with pytest.raises(DeviceError, match="ROCm is not available: "):
        r.resolve("rocm")
    with pytest.raises(DeviceError, match="unknown device 'cpux'"):
        r.resolve("cpux")
    with pytest.raises(DeviceError, match="interpreter is not allowed by the policy"):
        runner(DevicePolicy.only(["cpu"])).resolve("interpret")
    with pytest.raises(DeviceError, match="no device can run graph 'hello' under the policy"):
        runner(DevicePolicy.only(["rocm"])).fastest()
    np.testing.assert_array_equal(r.run_fastest(FEEDS)[0], r.run_resolved("cpu", FEEDS)[0])
    assert r.compile_fastest() is r.compile_resolved() is r.compile("interpret")


def test_a_chain_is_the_hint_or_the_environments_or_what_is_resolved() -> None:
    r = runner()
    with knobs.device_chain.scoped(("rocm", "interpret")):
        assert r.chain() == ("rocm", "interpret")
        assert r.chain("cpu") == ("cpu",)
        assert r.chain(["cpu", "rocm"]) == ("cpu", "rocm")
        assert r.resolve_chain() == "interpret" and r.resolve_chain("cpu") == "cpu"
        with pytest.raises(rlx.DeviceFallbackError, match="rocm: not viable"):
            r.resolve_chain("rocm")
        assert r.run_chain(None, FEEDS)[0] == "interpret"
        device, compiled = r.compile_chain()
        assert (device, compiled) == ("interpret", r.compile("interpret"))
    assert r.resolve_chain() == r.resolve()


def test_a_chain_goes_on_where_a_device_is_missing_and_says_so() -> None:
    r = runner()
    device, (y,) = r.run_try(["rocm", "tpu", "cpu"], FEEDS)
    assert device == "cpu"
    np.testing.assert_array_equal(y, [[4, 6]])
    (first, why), (second, _) = r.attempts
    assert (first, second) == ("rocm", "tpu")
    assert why.startswith("not viable for this graph under policy: ROCm is not available: ")
    with pytest.raises(DeviceError, match="unknown device 'nowhere'"):
        r.run_try(["nowhere", "cpu"], FEEDS)


def test_an_empty_chain_and_one_that_fails_list_every_attempt() -> None:
    r = runner()
    with pytest.raises(DeviceFallbackError) as caught:
        r.run_try([], FEEDS)
    assert caught.value.attempts == (("", "empty fallback chain"),)
    with pytest.raises(DeviceFallbackError, match=r"(?s)no device ran.*\n  tpu: .*\n  rocm: "):
        r.run_try(["tpu", "rocm"], FEEDS)
    assert [d for d, _ in r.attempts] == ["tpu", "rocm"]


def test_a_device_that_is_lost_in_a_run_is_followed_by_the_next(flaky: type[Flaky]) -> None:
    r = runner()
    assert r.run_try(["flaky", "cpu"], FEEDS)[0] == "flaky"
    flaky.fails = True
    device, (y,) = r.run_try(["flaky", "cpu"], FEEDS)
    assert device == "cpu"
    np.testing.assert_array_equal(y, [[4, 6]])
    assert r.attempts == (("flaky", "DeviceLostError: pulled out"),)
    flaky.fails = False
    r.set_param("w", 2 * W)  # in step on the device that comes back
    loads = flaky.loads
    device, (y,) = r.run_try(["flaky", "cpu"], FEEDS)
    assert (device, flaky.loads) == ("flaky", loads + 1)
    np.testing.assert_array_equal(y, [[8, 12]])


def test_inputs_that_do_not_fit_are_no_failure_of_a_device() -> None:
    with pytest.raises(ShapeError):
        runner().run_try(["cpu", "interpret"], {"x": np.ones((1, 5), np.float32)})


def test_a_report_says_what_blocks_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    r = runner(DevicePolicy().with_prefer(["cpu"]).with_deny(["interpret"]))
    found = {c.device: c for c in r.report()}
    cpu, web = found["cpu"], found["webgpu"]
    assert (cpu.label, cpu.available, cpu.registered, cpu.supports_graph) == ("CPU", *[True] * 3)
    assert (cpu.recommended, cpu.blocker) == (True, "")
    assert not (web.available or web.registered or web.supports_graph or web.recommended)
    assert web.blocker == hardware.why_missing("webgpu")
    assert "interpret" not in found
    monkeypatch.setattr("rlx.runtime.devices.available._has_way", lambda device, op: False)
    r.invalidate_cache()
    blocker = {c.device: c for c in r.report()}["cpu"].blocker
    assert blocker.startswith("it does not run mir.matmul of f32 (")
    assert blocker.endswith(": there is no kernel of it for this device")
    with pytest.raises(UnsupportedError, match=r"CPU cannot lower this graph .* does not run mir"):
        r.compile("cpu")


def test_a_benchmark_ranks_devices_and_its_winner_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    r = runner(DevicePolicy().with_benchmark_pick(2))
    found = rlx.benchmark_devices(r, FEEDS, 3)
    assert {b.device for b in found} == set(r.devices())
    assert found == sorted(found, key=lambda b: b.median_exec_ns)
    assert all(b.compile_ns > 0 and b.median_exec_ns > 0 for b in found)
    winner = r.resolve_with_inputs(None, FEEDS)
    monkeypatch.setattr(r, "benchmark", lambda inputs, runs: pytest.fail("it was kept"))
    assert r.resolve_with_inputs(None, FEEDS) == winner
    assert r.resolve_with_inputs("cpu", FEEDS) == "cpu"
    assert r.compile_resolved_with_inputs(None, FEEDS) is r.compile(winner)
    np.testing.assert_array_equal(r.run_resolved_with_inputs(None, FEEDS)[0], [[4, 6]])
    monkeypatch.undo()
    with pytest.raises(GraphError, match="1 run or more, found 0"):
        r.benchmark(FEEDS, 0)
    monkeypatch.setattr(r, "benchmark", lambda inputs, runs: [])
    r.set_policy(DevicePolicy.only(["cpu"]).with_benchmark_pick(1))
    assert r.resolve_with_inputs(None, FEEDS) == "cpu"


def test_all_are_compiled_ahead_but_those_that_fail(flaky: type[Flaky]) -> None:
    r = runner()
    assert rlx.warm_all(r) == r.devices() and not r.attempts
    assert set(r._compiled) == set(r.devices())
    r.invalidate_cache()
    flaky.load = lambda *a: (_ for _ in ()).throw(DeviceError("no"))  # pyright: ignore
    try:
        assert {b.device for b in r.benchmark(FEEDS, 1)} == set(r.devices()) - {"flaky"}
        assert [device for device, _ in r.attempts] == ["flaky"]
        r.invalidate_cache()
        assert r.warm_all() == tuple(d for d in r.devices() if d != "flaky")
        assert r.attempts == (("flaky", "no"),)
    finally:
        del flaky.load


# -- costs ---------------------------------------------------------------------------------


def test_costs_are_measured_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cost._calibrated.cache_clear()
    first = cost.calibrated("cpu")
    assert first.overhead_ns > 0 and first.flops > 0 and first.bytes > 0
    cost._calibrated.cache_clear()
    monkeypatch.setattr(cost, "measure", lambda device: pytest.fail("it was kept"))
    with knobs.cache.scoped(True):
        assert cost.calibrated("cpu") == first
    cost._calibrated.cache_clear()
    monkeypatch.setattr(cost, "measure", lambda device: first)
    with knobs.cache.scoped(False):
        assert cost.calibrated("cpu") is first
    cost._calibrated.cache_clear()


def test_the_device_of_least_cost_is_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    # One starts at once, the other computes faster: a small graph and a large one differ.
    figures = {"cpu": cost.DeviceCost(1e6, 100, 100), "interpret": cost.DeviceCost(10, 1, 1)}
    monkeypatch.setattr(cost, "calibrated", lambda device: figures[device])
    large = rlx.Graph()
    large.set_outputs(large.input("x", [1000, 1000]) @ large.input("y", [1000, 1000]))
    policy = DevicePolicy.only(["cpu", "interpret"])
    assert rlx.fastest_device_for_with_policy(graph(), policy) == "interpret"
    assert rlx.fastest_device_for_with_policy(large, policy) == "cpu"
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(HOST))
    assert rlx.fastest_device_for(large) == "cpu"
    # The processor by way of a GPU's API is not even measured beside the processor itself.
    rlx.register_backend("vulkan", InterpreterBackend)
    monkeypatch.setattr(hardware, "probe", lambda api: Probe(api, "it", software=True))
    monkeypatch.setattr(cost, "calibrated", lambda device: pytest.fail(f"{device} is measured"))
    policy = DevicePolicy.only(["cpu", "vulkan"])
    assert rlx.fastest_device_for_with_policy(graph(), policy) == "cpu"
    assert figures["interpret"].of(graph()) == pytest.approx(10 + 56)  # 14 floats are moved

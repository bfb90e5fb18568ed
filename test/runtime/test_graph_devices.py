"""One graph on the processor and on GPU devices at once: the faster one is taken, a device that
fails in the middle of a run is followed by the next, and params are in step on all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DeviceLostError
from rlx.runtime.devices import cost
from rlx.runtime.devices.graph_devices import GraphDevices
from rlx.runtime.devices.policy import DevicePolicy
from rlx.targets.gpu import drivers
from support.tolerances import assert_close

GPUS = ("vulkan", "gpu")
ALL = ("cpu", *GPUS)

rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def there() -> Iterator[None]:
    for api in GPUS:
        if not drivers.probe(api).found:
            pytest.skip(f"{api}: {drivers.probe(api).why} (or run `make drivers`)")
    yield
    for api in GPUS:  # the next test opens those anew that this one has lost
        found = drivers.opened(api)
        if found is not None and found.lost:
            found.close()


def layers(n: int) -> rlx.Graph:
    g = rlx.Graph(f"layers{n}")
    x = g.input("x", [4, n])
    hidden = (x @ g.param("w", [n, n])).tanh()
    g.set_outputs((hidden @ g.param("v", [n, 2])).softmax(axis=-1))
    return g


def runner(n: int, policy: DevicePolicy | None = None) -> tuple[GraphDevices, dict[str, Any]]:
    r = GraphDevices(layers(n), policy or DevicePolicy.only(ALL))
    r.set_param("w", (rng.standard_normal((n, n)) / n).astype(np.float32))
    r.set_param("v", rng.standard_normal((n, 2)).astype(np.float32))
    return r, {"x": rng.standard_normal((4, n)).astype(np.float32)}


@pytest.mark.parametrize("n", [2, 300])
def test_the_faster_of_all_is_taken_for_a_tiny_graph_and_a_large_one(n: int) -> None:
    r, feeds = runner(n, DevicePolicy.only(ALL).with_benchmark_pick(2))
    assert set(r.devices()) == set(ALL)
    seen: list[Any] = []
    bench = r.benchmark
    r.benchmark = lambda inputs, runs: seen.append(bench(inputs, runs)) or seen[-1]  # type: ignore[method-assign]
    winner = r.resolve_with_inputs(None, feeds)
    (found,) = seen
    assert {b.device for b in found} == set(ALL)
    assert winner == min(found, key=lambda b: b.median_exec_ns).device
    assert_close(r.run_resolved_with_inputs(None, feeds)[0], r.run("cpu", feeds)[0])


@pytest.mark.parametrize("n", [2, 300])
def test_the_model_of_costs_takes_the_least_of_them(n: int) -> None:
    # Of devices that are the processor by way of an API, and none before the processor itself.
    r, _ = runner(n, DevicePolicy.only(GPUS))
    costs = {d: cost.estimate_ns(d, r.graph) for d in GPUS}
    assert r.fastest() == min(costs, key=costs.__getitem__)
    if all(drivers.probe(api).software for api in GPUS):
        assert runner(n)[0].fastest() == "cpu"


def test_params_are_in_step_on_all() -> None:
    r, feeds = runner(5)
    assert r.warm_all() == r.devices()
    for scale in (1.0, -2.0):
        r.set_param("w", np.full((5, 5), scale, np.float32))
        first, *rest = [r.run(d, feeds)[0] for d in ALL]
        for other in rest:
            assert_close(other, first)
    r.invalidate_cache()
    r.set_param_typed("v", np.arange(10, dtype=np.float32).tobytes(), "f32")
    first, *rest = [r.run(d, feeds)[0] for d in ALL]
    for other in rest:
        assert_close(other, first)


@pytest.mark.parametrize("lost", ["vulkan", "gpu"])
def test_a_device_that_fails_in_the_middle_of_a_run_is_followed_by_the_next(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = next(api for api in GPUS if api != lost)
    r, feeds = runner(7)
    expected = r.run("cpu", feeds)
    assert_close(r.run(lost, feeds)[0], expected[0])
    driver = drivers.shared_driver(lost)
    real = driver._run
    count = 0

    def run(raw: Any) -> None:
        nonlocal count
        count += 1
        real(raw)  # the work was begun, and its results never come
        raise DeviceLostError("pulled out")

    monkeypatch.setattr(driver, "_run", run)
    r.set_param("v", np.ones((7, 2), np.float32))
    device, (found,) = r.run_try([lost, other, "cpu"], feeds)
    assert (device, count) == (other, 1)
    ((failed, why),) = r.attempts
    assert failed == lost and why.startswith("DeviceLostError: ") and "pulled out" in why
    assert_close(found, r.run("cpu", feeds)[0])
    # It is opened anew the next time, with the params that were set in between.
    r.set_param("v", np.arange(14, dtype=np.float32).reshape(7, 2))
    device, (found,) = r.run_try([lost, other, "cpu"], feeds)
    assert device == lost and drivers.shared_driver(lost) is not driver
    assert_close(found, r.run("cpu", feeds)[0])


def test_a_param_is_set_on_all_though_a_device_is_lost() -> None:
    r, feeds = runner(5)
    assert r.warm_all() == r.devices()
    drivers.shared_driver("vulkan").lost = "pulled out"
    r.set_param("w", np.full((5, 5), 0.5, np.float32))
    expected = r.run("cpu", feeds)[0]
    assert_close(r.run("gpu", feeds)[0], expected)
    assert_close(r.run("vulkan", feeds)[0], expected)  # opened and compiled for anew
    drivers.shared_driver("vulkan").lost = "pulled out"
    r.sync_params_to_all()
    assert_close(r.run("vulkan", feeds)[0], expected)


def test_a_device_that_another_runner_has_opened_again_is_found_again() -> None:
    (one, feeds), (two, others) = runner(5), runner(6)
    for r, given in ((one, feeds), (two, others)):
        r.run("vulkan", given)
    drivers.shared_driver("vulkan").lost = "pulled out"
    for r, given in ((one, feeds), (two, others)):
        assert r.run_try(["vulkan", "cpu"], given)[0] == "cpu"
        assert "DeviceLostError" in r.attempts[0][1]
        assert r.run_try(["vulkan", "cpu"], given)[0] == "vulkan"


def test_all_that_fail_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    r, feeds = runner(3)
    for api in GPUS:
        r.run(api, feeds)

        def lose(raw: Any) -> None:
            raise DeviceLostError("pulled out")

        monkeypatch.setattr(drivers.shared_driver(api), "_run", lose)
    with pytest.raises(rlx.DeviceFallbackError, match=r"(?s)vulkan: DeviceLost.*gpu: DeviceLost"):
        r.run_try(GPUS, feeds)
    assert r.run_try([*GPUS, "cpu"], feeds)[0] == "vulkan"

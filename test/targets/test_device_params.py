"""Runs on devices whose params were not all set are refused, by every way in: what is in the memory
of an unset param is what another program left there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DeviceError, DTypeError, GraphError, NameError, ShapeError
from rlx.runtime.backend import InterpreterBackend
from rlx.runtime.devices.graph_devices import GraphDevices
from rlx.runtime.devices.policy import DevicePolicy
from rlx.runtime.interpreted import Interpreted
from support.device import APIS, compiled, device_of, session
from support.tolerances import assert_close

X = np.arange(6, dtype=np.float32).reshape(2, 3)
VALUES: dict[str, Any] = {
    "w": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
    "b": np.float32([1, -1]),
    "unused": np.float32([7]),
}
EXPECTED = X @ (2 * VALUES["w"]).T + VALUES["b"]


def graph(rows: int | str = 2) -> rlx.Graph:
    """A param that the prologue packs, one that the main steps read, and one that nothing reads."""
    g = rlx.Graph("g")
    w = (g.param("w", [2, 3]) * 2.0).transpose([1, 0])
    g.param("unused", [1])
    g.set_outputs(g.input("x", [rows, 3]) @ w + g.param("b", [2]))
    return g


WAYS: dict[str, Callable[[rlx.CompiledGraph], Any]] = {
    "run": lambda f: f.run({"x": X}),
    "run_slots": lambda f: f.run_slots(X),
    "run_into": lambda f: f.run_into({"x": X}, [np.empty((2, 2), np.float32)]),
    "run_in_place": lambda f: f.run_in_place({"x": X}, {}),
    "run_on_device": lambda f: f.run_on_device({"x": X}),
}

INNER: dict[str, Callable[[Any], Any]] = {
    "run_slots": lambda e: e.run_slots(X),
    "run_into": lambda e: e.run_into([X], [np.empty((2, 2), np.float32)]),
    "run_in_place": lambda e: e.run_in_place([X]),
    "run_on_device": lambda e: e.run_on_device([X]),
}
"""Ways into what a ``CompiledGraph`` runs."""


def refused(call: Callable[[], Any], *names: str) -> None:
    listed = ", ".join(map(repr, names))
    many = "s" * (len(names) > 1)
    text = f"no value was set for param{many} {listed}; call set_param({names[0]!r}, array)"
    with pytest.raises(NameError, match=re.escape(text)):
        call()


@pytest.mark.parametrize("api", ["cpu", "interpret", *APIS])
@pytest.mark.parametrize("rows", [2, "n"])
def test_a_run_with_unset_params_is_refused(api: str, rows: int | str) -> None:
    f = compiled(api, graph(rows)) if api in APIS else rlx.Session(api).compile(graph(rows))
    ways = {k: v for k, v in WAYS.items() if api in APIS or k != "run_on_device"}
    for way in ways.values():
        refused(lambda w=way: w(f), "w", "unused", "b")
    f.set_param("b", VALUES["b"])
    f.set_param("unused", VALUES["unused"])
    for way in ways.values():
        refused(lambda w=way: w(f), "w")
    f.set_param("w", VALUES["w"])
    assert_close(f.run_slots(X)[0], EXPECTED)
    for way in ways.values():
        way(f)


@pytest.mark.parametrize("api", APIS)
def test_what_is_loaded_refuses_it_by_itself(api: str) -> None:
    if api == "cuda":
        pytest.skip("the emulator is no registered device")
    s = session(api)
    made = rlx.compile_artifact(graph(), api, params={"b": VALUES["b"]})
    executable: Any = s.backend.loaded(made)  # type: ignore[attr-defined]
    for way in INNER.values():
        refused(lambda w=way: w(executable), "w", "unused")
    executable.set_param("w", VALUES["w"])
    executable.set_param("unused", VALUES["unused"])
    assert_close(executable.run_slots(X)[0], EXPECTED)


@pytest.mark.parametrize("api", ["vulkan", "opencl", "gpu"])
def test_a_loaded_artifact_refuses_it(api: str, tmp_path: Any) -> None:
    s = session(api)
    rlx.compile_artifact(graph(), api, params={"b": VALUES["b"]}).save(tmp_path / "g.rlx")
    f = s.load(tmp_path / "g.rlx")
    for way in WAYS.values():
        refused(lambda w=way: w(f), "w", "unused")
    for name in ("w", "unused"):
        f.set_param(name, VALUES[name])
    assert_close(f.run_slots(X)[0], EXPECTED)


@pytest.mark.parametrize("api", APIS)
def test_a_param_whose_write_failed_is_unset(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f = compiled(api, graph())
    for name, value in VALUES.items():
        f.set_param(name, value)
    assert_close(f.run_slots(X)[0], EXPECTED)
    driver = f.backend.driver  # type: ignore[attr-defined]

    def fail(*_: Any) -> None:
        raise DeviceError("no memory")

    with monkeypatch.context() as m:
        m.setattr(driver, "write", fail)
        with pytest.raises(DeviceError, match="no memory"):
            f.set_param("w", 3 * VALUES["w"])
    for way in WAYS.values():
        refused(lambda w=way: w(f), "w")
    f.set_param("w", VALUES["w"])
    assert_close(f.run_slots(X)[0], EXPECTED)


@pytest.mark.parametrize("api", ["vulkan", "opencl", "gpu"])
def test_one_graph_on_several_devices_refuses_it(api: str) -> None:
    session(api)
    device = device_of(api)
    r = GraphDevices(graph(), DevicePolicy.only([device]))
    calls: list[Callable[[], Any]] = [
        lambda: r.run(device, {"x": X}),
        lambda: r.run_fastest({"x": X}),
        lambda: r.run_try([device, "cpu"], {"x": X}),
        lambda: r.benchmark({"x": X}, 1),
        lambda: r.compile(device).run_slots(X),
    ]
    for call in calls:
        refused(call, "w", "unused", "b")
    for name, value in VALUES.items():
        r.set_param(name, value)
    assert_close(r.run(device, {"x": X})[0], EXPECTED)


@pytest.mark.parametrize("api", ["cpu", "opencl"])
def test_a_param_may_come_as_bytes(api: str) -> None:
    f = compiled(api, graph())
    for name, value in VALUES.items():
        f.set_param_typed(name, value.tobytes(), "f32")
    assert_close(f.run_slots(X)[0], EXPECTED)
    with pytest.raises(GraphError, match="no dtype is called 'f33'"):
        f.set_param_typed("w", bytes(24), "f33")
    with pytest.raises(ShapeError, match="param 'w' of f32 takes 4 bytes an element, found 23"):
        f.set_param_typed("w", bytes(23), "f32")
    with pytest.raises(DTypeError, match="param 'w' is f32, found float64"):
        f.set_param_typed("w", bytes(48), "f64")


def test_a_backend_from_outside_is_given_no_run_without_params(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Careless(Interpreted):
        def run_slots(self, *inputs: Any) -> Any:
            return (np.zeros((2, 2), np.float32),)

    class Backend(InterpreterBackend):
        def load(self, graph: Any, options: Any, shared: Any) -> Any:
            return Careless(graph, shared)

    monkeypatch.setattr("rlx.runtime.backend._registry", {})
    rlx.register_backend("careless", Backend)
    f = rlx.Session("careless").compile(graph())
    refused(lambda: f.run_slots(X), "w", "unused", "b")

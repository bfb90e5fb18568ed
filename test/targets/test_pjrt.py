"""Running and compiling through PJRT's C interface: RLX's own platform for JAX is the plugin that
is here, and libtpu, where it is, compiles for TPUs that are not."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.errors import DeviceError, FaultError, GraphError, ToolchainError, UnsupportedError
from rlx.frontends.pjrt import table
from rlx.runtime.devices.gpu_program import DeviceVariant
from rlx.runtime.devices.whole_executable import WholeBackend
from rlx.targets.graph import devices
from rlx.targets.tpu import launch, pjrt, pjrt_abi
from rlx.targets.tpu.ahead import compiled
from rlx.targets.tpu.features import PRESETS
from rlx.targets.tpu.launch import TpuDriver
from rlx.targets.tpu.pjrt import Plugin
from support.pjrt import enumeration, struct
from support.tolerances import assert_close

LIBRARY = """
static void *table;
void set(void *given) { table = given; }
void *GetPjrtApi(void) { return table; }
"""


def _address() -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get(table(), b"pjrt_c_api")


@pytest.fixture(scope="module")
def driver() -> TpuDriver:
    return TpuDriver(Plugin("rlx's own", _address()))


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that is a plugin, which RLX_PJRT names."""
    source, library = tmp_path / "plugin.c", tmp_path / "plugin.so"
    source.write_text(LIBRARY, encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    ctypes.CDLL(str(library)).set(ctypes.c_void_p(_address()))
    monkeypatch.setenv("RLX_PJRT", str(library))
    monkeypatch.setattr(devices, "_open", {})
    yield library
    Plugin.at.cache_clear()


def _graph() -> rlx.Graph:
    g = rlx.Graph("mlp")
    x, i = g.input("x", [2, 3]), g.input("i", [2], "i32")
    y = (x @ g.param("w", [3, 4])).tanh()
    g.set_outputs([y, y.gather(i, 1), x.argmax(1)])
    return g


W = np.linspace(-1, 1, 12, dtype="f4").reshape(3, 4)
FEEDS = {"x": np.array([[1, 2, 3], [0, -1, 2]], "f4"), "i": np.array([3, -1], "i4")}


@pytest.mark.parametrize("name", pjrt_abi.STRUCTS)
def test_the_layouts_are_those_of_the_header(name: str) -> None:
    mine, theirs = type(pjrt_abi.arguments(name)), struct(f"PJRT_{name}_Args")
    offsets = [getattr(mine, f[0]).offset for f in mine._fields_]
    assert offsets == [getattr(theirs, f[0]).offset for f in theirs._fields_][: len(offsets)]


def test_the_table_and_the_element_types_are_those_of_the_header() -> None:
    functions = [f[0] for f in struct("PJRT_Api")._fields_]
    named = [n.removeprefix("PJRT_") for n in functions if n.startswith("PJRT_")]
    assert [n for n in named if n in pjrt_abi.FUNCTIONS] == pjrt_abi.FUNCTIONS
    spelled = {"bool": "PRED", "f16": "F16", "bf16": "BF16", "c64": "C64", "c128": "C128"}
    for name, number in pjrt_abi.ELEMENTS.items():
        said = spelled.get(name, name.upper().replace("I", "S") if name[0] == "i" else name.upper())
        assert enumeration(f"PJRT_Buffer_Type_{said}") == number
    for mine, theirs in (
        (pjrt_abi.Program, "PJRT_Program"), (pjrt_abi.NamedValue, "PJRT_NamedValue"),
        (pjrt_abi.ExecuteOptions, "PJRT_ExecuteOptions"),
    ):  # fmt: skip
        assert ctypes.sizeof(mine) <= ctypes.sizeof(struct(theirs)), theirs


def test_a_graph_runs_by_a_plugin(driver: TpuDriver) -> None:
    made = WholeBackend("tpu", driver).load(_graph(), {"donate": ()}, ())
    made.set_param("w", W)
    g = _graph()
    expected = rlx.interpret(g, {**FEEDS, "w": W})
    for a, b in zip(made.run_slots(*FEEDS.values()), expected, strict=True):
        assert_close(a, b)
    out = [np.zeros_like(b) for b in expected]
    made.run_into(list(FEEDS.values()), out)
    assert_close(out[0], expected[0])
    with pytest.raises(FaultError, match="out of range for axis 1 of 4"):
        made.run_slots(FEEDS["x"], np.array([4, 0], "i4"))
    with pytest.raises(UnsupportedError, match="one launch"):
        made.profile([], 1)
    with pytest.raises(GraphError, match="expected 2"):
        made.run_slots(FEEDS["x"])


def test_a_donated_input_is_written_over(driver: TpuDriver) -> None:
    g = rlx.Graph("step")
    x = g.input("x", [2])
    g.set_outputs([x + 1.0, x.sum()])
    made = WholeBackend("tpu", driver).load(g, {"donate": ((0, 0),)}, ())
    state = np.array([1, 2], "f4")
    (total,) = made.run_in_place([state])
    assert state.tolist() == [2.0, 3.0] and total == 3.0


def test_a_session_runs_on_the_plugin_that_is_named(plugin: Path) -> None:
    assert rlx.is_available("tpu")
    compiled_graph = rlx.Session("tpu").compile(_graph())
    compiled_graph.set_param("w", W)
    assert_close(compiled_graph.run(FEEDS)[0], rlx.interpret(_graph(), {**FEEDS, "w": W})[0])
    artifact = rlx.compile_artifact(_graph(), "tpu:v6e", params={"w": W})
    assert_close(rlx.Session("tpu").load(artifact).run(FEEDS)[2], np.array([2, 2], np.int64))
    assert rlx.supports("tpu", "softmax") and not rlx.supports("tpu", "qr")


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIBTPU_PATH", raising=False)
    monkeypatch.setattr(pjrt.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"pip install 'rlx\[tpu\]', or RLX_PJRT=path"):
        rlx.Session("tpu")
    with pytest.raises(ToolchainError, match="the stage tpu: it needs libtpu"):
        compiled(b"", PRESETS["v5e"])
    with pytest.raises(DeviceError, match="tpu: it needs libtpu"):
        launch.open_driver()
    for name in ("LIBTPU_PATH", "RLX_PJRT"):
        monkeypatch.setenv(name, str(tmp_path / "none.so"))
        with pytest.raises(DeviceError, match=f"{name} names no file"):
            rlx.Session("tpu")
    other = tmp_path / "text.so"
    other.write_text("no library", encoding="utf-8")
    monkeypatch.setenv("RLX_PJRT", str(other))
    with pytest.raises(DeviceError, match="is no PJRT plugin"):
        rlx.Session("tpu")


def test_a_machine_without_a_tpu_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "libtpu.so"
    library.touch()
    monkeypatch.setenv("LIBTPU_PATH", str(library))
    if pjrt.has_tpu():
        pytest.skip("it has one")
    with pytest.raises(DeviceError, match="this machine has no TPU"):
        rlx.Session("tpu")


def test_a_plugin_that_is_none_of_ours_is_refused() -> None:
    old = pjrt_abi.Api(struct_size=ctypes.sizeof(pjrt_abi.Api), major=1, minor=2)
    with pytest.raises(DeviceError, match=r"is of PJRT 1.2, expected 0.x"):
        Plugin("old.so", ctypes.addressof(old))
    empty = pjrt_abi.Api(struct_size=ctypes.sizeof(pjrt_abi.Api))
    with pytest.raises(ToolchainError, match="has no PJRT_Plugin_Initialize"):
        Plugin("empty.so", ctypes.addressof(empty))


def test_what_a_plugin_refuses_is_told_in_its_words(driver: TpuDriver) -> None:
    with pytest.raises(pjrt.PluginError, match=r"RLX: .*cannot parse"):
        driver.plugin.loaded(driver.client, b"no module")


def test_a_plugin_without_a_device_is_said_to_be_that(
    driver: TpuDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver.plugin, "devices", lambda client: [])
    with pytest.raises(DeviceError, match="has no device in this process"):
        TpuDriver(driver.plugin)

    def fails() -> int:
        raise pjrt.PluginError("no jellyfish")

    monkeypatch.setattr(driver.plugin, "client", fails)
    with pytest.raises(DeviceError, match="finds no device: no jellyfish"):
        TpuDriver(driver.plugin)


def test_a_generation_is_known_by_what_the_plugin_calls_it(driver: TpuDriver) -> None:
    kinds = {"TPU v4": "v4", "TPU v5 lite": "v5e", "TPU v5p": "v5p", "TPU7x": "tpu7x", "CPU": ""}
    for kind, name in kinds.items():
        driver.name = kind
        assert driver.features == ({name} if name else set()), kind


def test_libtpu_compiles_for_five_generations() -> None:
    path, why = pjrt.find_plugin()
    if why:
        pytest.skip(why)
    assert Path(path).is_file()
    g = rlx.Graph("row")
    g.set_outputs([(g.input("x", [8, 128]) @ g.input("w", [128, 128])).softmax(-1)])
    (variant,) = rlx.compile_artifact(g, "tpu").variants
    assert isinstance(variant, DeviceVariant)
    for features in PRESETS.values():
        made = compiled(variant.program.kernels[0].code, features)
        assert made.executable and made.memory["arguments"] >= 8 * 128 * 4
        assert made.fits and made.cost["flops"] > 0 and features.name in made.report()
    with pytest.raises(ToolchainError, match="error"):
        compiled(b"no program", PRESETS["v5e"])

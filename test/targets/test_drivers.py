"""Drivers: kernels by hand give what they say, misuse is refused, the process survives failures.

Those that find a device here are tested: ``make drivers`` has software devices for all.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx import knobs
from rlx.errors import DeviceError, DeviceLostError, OutOfMemoryError, ToolchainError
from rlx.targets.gpu import drivers
from rlx.targets.gpu.driver import Binding, DeviceLaunch, Driver, Kernel
from rlx.targets.gpu.library import Codes, Library, choose
from support.drivers import MOCKED, SOFTWARE, available, counter, kernels, mocked, pair

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=[*SOFTWARE, *MOCKED, "metal"])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    found = available(request.param)
    yield found
    found.close()


@pytest.fixture(scope="module")
def any_driver() -> Iterator[Driver]:
    """One driver, for what all have in common."""
    found = available("cuda")
    yield found
    found.close()


# -- what runs give ------------------------------------------------------------------------


def test_launches_run_in_order_and_see_what_others_wrote(driver: Driver) -> None:
    p = pair(driver)
    driver.run([p.launch(3), p.launch(2)])
    np.testing.assert_array_equal(p.result(), p.y + 5 * p.x)


def test_a_recording_runs_again_and_again(driver: Driver) -> None:
    p = pair(driver)
    with driver.record([p.launch(1), p.launch(1)]) as recording:
        for _ in range(20):
            driver.run(recording)
        driver.sync()
        np.testing.assert_array_equal(p.result(), p.y + 40 * p.x)
        p.reset()  # what is written later, a later run sees
        driver.run(recording)
    np.testing.assert_array_equal(p.result(), p.y + 2 * p.x)


def test_groups_share_memory_in_three_directions(driver: Driver) -> None:
    handle = driver.load(kernels(driver.api)[1])
    x = np.arange(8 * 100, dtype=np.int32)
    source, target = driver.allocate(x.nbytes), driver.allocate(400)
    driver.write(source, 0, x)
    driver.run([DeviceLaunch(handle, (100, 1, 1), ((source, 0, x.nbytes), (target, 0, 400)))])
    found = np.frombuffer(driver.read(target, 0, 400), np.int32)
    np.testing.assert_array_equal(found, x.reshape(-1, 8).sum(1))


def test_ranges_of_one_buffer_are_bound_as_arrays(driver: Driver) -> None:
    handle = driver.load(kernels(driver.api)[1])
    x = np.arange(16, dtype=np.int32)
    part = driver.limits.alignment * -(-64 // driver.limits.alignment)
    arena = driver.allocate(3 * part)
    driver.write(arena, 2 * part, x)
    driver.run([DeviceLaunch(handle, (2, 1, 1), ((arena, 2 * part, 64), (arena, part, 8)))])
    assert np.frombuffer(driver.read(arena, part, 8), np.int32).tolist() == [28, 92]


def test_nothing_runs_on_no_groups_and_empty_ranges_are_bound(driver: Driver) -> None:
    p = pair(driver, 0)
    driver.run([p.launch()])
    assert p.result().size == 0
    driver.run([DeviceLaunch(p.handle, (1, 1, 1), p.launch().buffers, bytes(8))])  # none is inside


def test_bytes_are_copied_from_and_to_anywhere(driver: Driver) -> None:
    n = (9 << 20) + 5  # more than is copied at once, and no whole words
    data = np.random.default_rng(0).integers(0, 256, n, dtype=np.uint8)
    buffer = driver.allocate(n)
    driver.write(buffer, 0, data)
    driver.write(buffer, 3, b"abc")
    driver.write(buffer, n - 1, b"z")
    driver.write(buffer, 5, b"")
    data[3:6], data[-1] = list(b"abc"), ord("z")
    assert driver.read(buffer, 0, n) == data.tobytes()
    assert driver.read(buffer, 1, 6) == data[1:7].tobytes()
    out = np.zeros(n, np.uint8)
    driver.read_into(buffer, 0, out)
    np.testing.assert_array_equal(out, data)


def test_kernels_of_one_file_are_loaded_once_and_freed_with_the_last(driver: Driver) -> None:
    first, second = (driver.load(k) for k in kernels(driver.api))
    assert len(driver._modules) == 1
    first.close()
    assert len(driver._modules) == 1
    second.close()
    assert not driver._modules


# -- what is refused -----------------------------------------------------------------------


def test_code_that_does_not_compile_is_refused_with_what_was_said(driver: Driver) -> None:
    good = kernels(driver.api)[0]
    with pytest.raises(ToolchainError):
        driver.load(replace(good, code=b"this is no kernel"))
    with pytest.raises((ToolchainError, DeviceError)):
        driver.load(replace(good, name="absent"))
    assert not driver._modules
    p = pair(driver)
    driver.run([p.launch(1)])
    np.testing.assert_array_equal(p.result(), p.y + p.x)


def test_launches_that_do_not_fit_are_refused(any_driver: Driver) -> None:
    driver = any_driver
    p = pair(driver)
    launch = p.launch()
    (x, y), limits = p.buffers, driver.limits
    with pytest.raises(DeviceError, match="at most"):
        driver.record([replace(launch, groups=(limits.groups[0] + 1, 1, 1))])
    with pytest.raises(DeviceError, match="2 bindings, found 1 buffers"):
        driver.record([replace(launch, buffers=launch.buffers[:1])])
    with pytest.raises(DeviceError, match="2 params of 4 bytes, found 4"):
        driver.record([replace(launch, params=bytes(4))])
    with pytest.raises(DeviceError, match="cannot bind bytes 0 to 4001 of a buffer of 4000"):
        driver.record([replace(launch, buffers=((x, 0, 4001), (y, 0, 4)))])
    with pytest.raises(DeviceError, match="offset 4 is no multiple"):
        driver.record([replace(launch, buffers=((x, 4, 8), (y, 0, 4)))])
    driver.limits = replace(limits, binding=1000)
    try:
        with pytest.raises(DeviceError, match="at most 1000 can be bound"):
            driver.record([launch])
    finally:
        driver.limits = limits


def test_kernels_that_do_not_fit_are_refused(any_driver: Driver) -> None:
    good, limits = kernels(any_driver.api)[0], any_driver.limits
    with pytest.raises(DeviceError, match="groups of"):
        any_driver.load(replace(good, workgroup=(limits.workgroup[0] + 1, 1, 1)))
    with pytest.raises(DeviceError, match="groups of"):
        any_driver.load(replace(good, workgroup=(0, 1, 1)))
    with pytest.raises(DeviceError, match="buffers; at most"):
        any_driver.load(replace(good, bindings=(Binding("f32"),) * (limits.bindings + 1)))
    with pytest.raises(ToolchainError, match="no dtype is called 'f33'"):
        any_driver.load(replace(good, bindings=(Binding("f33"),)))


def test_copies_stay_inside_of_buffers(any_driver: Driver) -> None:
    buffer = any_driver.allocate(8)
    for offset, n in ((-1, 4), (5, 4), (9, 0)):
        with pytest.raises(DeviceError, match=f"bytes {offset} to {offset + n} of a buffer of 8"):
            any_driver.write(buffer, offset, bytes(n))
        with pytest.raises(DeviceError, match="cannot read"):
            any_driver.read(buffer, offset, n)


def test_what_was_freed_or_is_of_another_driver_is_refused(any_driver: Driver) -> None:
    p = pair(any_driver)
    recording = any_driver.record([p.launch()])
    p.buffers[0].close()
    p.buffers[0].close()
    with pytest.raises(DeviceError, match="cannot write a buffer that was freed"):
        any_driver.write(p.buffers[0], 0, b"")
    with pytest.raises(
        DeviceError, match="cannot run a recording that was freed, or needs what was"
    ):
        any_driver.run(recording)
    other = available("cuda")
    with pytest.raises(DeviceError, match="cannot read a buffer of another driver"):
        other.read(p.buffers[1], 0, 4)
    other.close()
    other.close()
    with pytest.raises(DeviceError, match="was closed; open another"):
        other.sync()


# -- lifetimes and failures ----------------------------------------------------------------


def test_what_nothing_refers_to_is_freed(driver: Driver) -> None:
    before = driver.allocated
    for _ in range(3):
        p = pair(driver, 1 << 16)
        driver.run(driver.record([p.launch()]))
        del p
    gc.collect()
    driver.sync()
    assert driver.allocated == before
    assert not driver._modules


def test_too_much_memory_is_an_error_that_harms_nothing(driver: Driver) -> None:
    p = pair(driver)
    with pytest.raises(OutOfMemoryError, match="the device's largest has"):
        driver.allocate(driver.limits.buffer + 1)
    with pytest.raises(OutOfMemoryError):
        driver.allocate(-1)
    driver.run([p.launch(1)])
    np.testing.assert_array_equal(p.result(), p.y + p.x)


def test_memory_that_the_driver_refuses_is_an_error(
    any_driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(nbytes: int) -> None:
        raise OutOfMemoryError("allocation failed")

    held = any_driver.allocate(1000)
    with monkeypatch.context() as patch:
        patch.setattr(any_driver, "_allocate", refuse)
        with pytest.raises(OutOfMemoryError, match=r"1000 bytes beside the \d+ .*allocation fail"):
            any_driver.allocate(1000)
    any_driver.write(held, 0, b"fine")


def test_a_lost_device_is_said_and_another_driver_works(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise DeviceLostError("pulled out")

    p = pair(driver)
    monkeypatch.setattr(driver, "_sync", fail)
    with pytest.raises(DeviceLostError, match="pulled out"):
        driver.sync()
    with pytest.raises(DeviceLostError, match=r"was lost \(pulled out\); open it again"):
        driver.run([p.launch()])
    p.buffers[0].close()
    driver.close()
    other = available(driver.api)
    p = pair(other)
    other.run([p.launch(4)])
    np.testing.assert_array_equal(p.result(), p.y + 4 * p.x)
    other.close()


def test_a_device_that_is_lost_as_things_are_freed_is_said_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise DeviceLostError("pulled out")

    driver = available("cuda")
    buffer = driver.allocate(4)
    monkeypatch.setattr(driver, "_sync", fail)
    buffer.close()
    with pytest.raises(DeviceLostError, match="pulled out"):
        driver.allocate(4)
    driver.close()


def test_threads_take_turns(driver: Driver) -> None:
    wrong: list[int] = []

    def work(k: int) -> None:
        p = pair(driver, 500 + k)
        with driver.record([p.launch(k)]) as recording:
            for _ in range(5):
                driver.run(recording)
        if not (p.result() == p.y + 5 * k * p.x).all():
            wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_the_shared_driver_is_opened_again_when_its_device_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drivers, "open_driver", available)
    drivers.close_drivers()
    first = drivers.shared_driver("cuda")
    assert drivers.shared_driver("cuda") is first is drivers.opened("cuda")
    first.lost = "pulled out"
    second = drivers.shared_driver("cuda")
    assert second is not first
    drivers.close_drivers()
    assert second.closed
    assert drivers.opened("cuda") is None


# -- which device --------------------------------------------------------------------------


@pytest.mark.parametrize("api", SOFTWARE)
def test_a_probe_names_the_device_or_says_why_there_is_none(api: str) -> None:
    driver = available(api)
    driver.close()
    found = drivers.probe(driver.api)
    assert found.found
    assert found.name == driver.name
    assert found.software == driver.software
    with knobs.gpu.scoped("no such device"):
        found = drivers.probe(driver.api)
        assert not found.found
        assert "no device RLX_GPU=no such device; there are 0 " in found.why
        with pytest.raises(DeviceError, match="there are 0 "):
            drivers.open_driver(driver.api)
    with knobs.gpu.scoped("0"):
        assert drivers.probe(driver.api).found


@pytest.mark.parametrize("api", MOCKED)
def test_everything_is_freed_in_the_end(api: str) -> None:
    live = counter(available(api), "mock_live")
    gc.collect()
    before = live.value
    driver = available(api)
    p = pair(driver)
    recording = driver.record([p.launch(), p.launch()])
    driver.run(recording)
    assert live.value > before + 5
    driver.close()
    assert live.value == before


@pytest.mark.parametrize("api", MOCKED)
def test_a_fault_of_the_device_ends_with_its_driver(api: str) -> None:
    driver = available(api)
    p = pair(driver)
    counter(driver, "mock_sticky").value = 700
    with pytest.raises(DeviceLostError, match=r"failed with 700 \(illegal address\)"):
        driver.run([p.launch()])
    with pytest.raises(DeviceLostError, match="open it again"):
        driver.sync()
    driver.close()
    other = available(api)
    p = pair(other)
    other.run([p.launch(2)])
    np.testing.assert_array_equal(p.result(), p.y + 2 * p.x)
    other.close()


def test_a_fault_while_launches_are_captured_leaves_the_stream_usable(any_driver: Driver) -> None:
    p = pair(any_driver)
    bad = p.launch()
    with pytest.raises(DeviceError, match=r"failed with 1 \(invalid value\)"):
        any_driver._record((replace(bad, groups=(0, 1, 1)),))
    any_driver.run([p.launch(2)])
    np.testing.assert_array_equal(p.result(), p.y + 2 * p.x)


def test_a_capture_that_ends_in_an_error_is_one(
    any_driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = pair(any_driver)
    plain = any_driver.library.plain  # pyright: ignore

    def fail(name: str, *args: object) -> int:
        return plain(name, *args) or (901 if "EndCapture" in name else 0)

    monkeypatch.setattr(any_driver.library, "plain", fail)  # pyright: ignore
    with pytest.raises(DeviceError, match="cuStreamEndCapture failed with 901"):
        any_driver.record([p.launch()])


def test_a_gpu_that_runs_out_of_memory_and_code_that_it_refuses_are_told(
    any_driver: Driver,
) -> None:
    with pytest.raises(OutOfMemoryError, match=r"cuMemAlloc_v2 failed with 2 \(out of memory\)"):
        any_driver.allocate((1 << 27) + 1)
    good = kernels("cuda")[0]
    with pytest.raises(ToolchainError, match=r"200 \(invalid image\): line 1: this is no"):
        any_driver.load(replace(good, code=b"else"))
    with pytest.raises(ToolchainError, match="the code has no kernel 'absent'"):
        any_driver.load(replace(good, name="absent"))


def test_gpus_say_their_architecture(any_driver: Driver, tmp_path: Path) -> None:
    from rlx.targets.rocm.launch import architectures

    assert (
        any_driver.features >= {"sm_75", "sm_90", "sm_90a"} and "sm_100" not in any_driver.features
    )
    for number, version in enumerate((0, 90402, 110001)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "properties").write_text(f"cpu_cores_count 0\ngfx_target_version {version}\n")
    assert architectures(tmp_path) == ["gfx942", "gfx1101"]
    assert architectures(tmp_path / "none") == []


@pytest.mark.parametrize("api", MOCKED)
def test_every_thread_enters_the_device(api: str) -> None:
    driver = available(api)
    entered = counter(driver, "mock_entered")
    before = entered.value
    thread = threading.Thread(target=driver.sync)
    thread.start()
    thread.join()
    assert entered.value > before
    driver.close()


def test_a_driver_that_cannot_be_set_up_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    live = counter(available("cuda"), "mock_live")
    gc.collect()  # what other tests dropped goes now, not in between
    before = live.value
    driver = mocked("cuda")
    monkeypatch.setattr(driver, "_limits", lambda self: (_ for _ in ()).throw(DeviceError("no")))
    with pytest.raises(DeviceError, match="no"):
        driver()
    assert live.value == before


APART = """
import sys
from support.drivers import available, pair
d = available(sys.argv[1])
p = pair(d)
d.run([p.launch(3)])
assert (p.result() == p.y + 3 * p.x).all()
import rlx
g = rlx.Graph()
g.set_outputs(g.input("x", [2]) + 1.0)
assert rlx.Session("cpu").compile(g).run({"x": [1, 2]})[0].tolist() == [2, 3]
"""


@pytest.mark.parametrize("api", SOFTWARE)
def test_a_driver_with_an_llvm_of_its_own_stands_beside_ours(api: str) -> None:
    available(api).close()
    done = python(APART, api, RLX_CACHE="off")
    assert done.returncode == 0, done.stderr


def python(code: str, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "test"), *sys.path])
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )  # fmt: skip


def test_an_unknown_driver_is_refused() -> None:
    with pytest.raises(DeviceError, match="no driver is called 'vulcan'; did you mean 'vulkan'"):
        drivers.open_driver("vulcan")


LAYERED = """
import sys
from support.drivers import available, pair
d = available("vulkan")
p = pair(d)
r = d.record([p.launch(3), p.launch(2)])
d.run(r); d.run(r)
assert (p.result() == p.y + 10 * p.x).all()
if sys.argv[1:]:
    d._allocate(64)  # never freed
d.close()
"""


@pytest.mark.parametrize("wrong", [False, True])
def test_vulkan_is_used_as_its_validation_layer_wants_it(wrong: bool) -> None:
    available("vulkan").close()
    if "VK_LAYER_PATH" not in os.environ:
        pytest.skip("the validation layer is not here; `make drivers` fetches it")
    done = python(
        LAYERED, *["wrong"][: int(wrong)], VK_INSTANCE_LAYERS="VK_LAYER_KHRONOS_validation"
    )
    assert done.returncode == 0, done.stderr
    assert ("Validation Error" in done.stdout + done.stderr) == wrong, done.stdout


def test_spirv_that_is_damaged_or_says_otherwise_is_refused() -> None:
    from rlx.targets.vulkan.spirv import check_kernel, entry_points

    code = kernels("vulkan")[0].code
    found = entry_points(code)
    assert found == {"scale_add": (64, 1, 1), "sum_groups": (4, 2, 1)}
    for bad in (b"", b"word", code[:-1], code[:24], code[:20] + bytes(4) + code[24:]):
        with pytest.raises(ToolchainError, match="SPIR-V"):
            entry_points(bad)
    with pytest.raises(ToolchainError, match="no kernel 'absent'; it has scale_add, sum_groups"):
        check_kernel(found, "absent", (1, 1, 1))
    with pytest.raises(ToolchainError, match=r"groups of \(64, 1, 1\) in SPIR-V, \(32, 1, 1\)"):
        check_kernel(found, "scale_add", (32, 1, 1))


def test_vulkan_devices_that_will_not_do_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    available("vulkan").close()
    with monkeypatch.context() as patch:
        patch.setattr("rlx.targets.vulkan.api.QUEUE_COMPUTE", 1 << 30)
        with pytest.raises(DeviceError, match="the device does not compute"):
            drivers.open_driver("vulkan")
    monkeypatch.setattr("rlx.targets.vulkan.device.version", lambda major, minor: 1 << 31)
    with pytest.raises(DeviceError, match=r"it has version 1\.0; RLX needs 1\.1"):
        drivers.open_driver("vulkan")


def test_errors_of_the_wgpu_package_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    driver: Any = available("gpu")
    for error, expected in (
        (driver.wgpu.GPUOutOfMemoryError("none left"), OutOfMemoryError),
        (driver.wgpu.GPUError("Parent device is lost"), DeviceLostError),
        (RuntimeError("else"), DeviceError),
    ):
        with pytest.raises(expected), driver._failures():
            raise error
    driver.close()
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(DeviceError, match=r"no package wgpu .*; pip install 'rlx\[gpu\]'"):
        drivers.open_driver("gpu")


def test_opencl_kernels_are_what_was_said() -> None:
    driver = available("opencl")
    good = kernels("opencl")[0]
    with pytest.raises(ToolchainError, match="3 arguments in OpenCL C, 2 were said"):
        driver.load(replace(good, params=0))
    with pytest.raises(ToolchainError, match=r"groups of \(64, 1, 1\) in OpenCL C"):
        driver.load(replace(good, workgroup=(32, 1, 1)))
    with pytest.raises(DeviceError, match="invalid kernel name"):
        driver.load(replace(good, name="absent"))
    driver.close()


def test_error_codes_become_errors_by_what_they_mean() -> None:
    from rlx.targets.opencl.launch import CODES as OPENCL
    from rlx.targets.vulkan.api import CODES as VULKAN

    assert isinstance(VULKAN.error("vkQueueSubmit", -4), DeviceLostError)
    assert isinstance(VULKAN.error("vkAllocateMemory", -2), OutOfMemoryError)
    assert isinstance(OPENCL.error("clFinish", -36), DeviceLostError)
    assert str(OPENCL.error("clBuildProgram", -11, "line 1")) == (
        "clBuildProgram failed with -11 (the program does not build): line 1"
    )
    assert "-99 (unknown to RLX)" in str(VULKAN.error("vkQueueSubmit", -99))


def test_a_library_that_is_missing_and_a_device_that_is_none_are_said() -> None:
    none = Codes({}, (), ())
    with pytest.raises(DeviceError, match=r"^libabsent\.so: .*; install it"):
        Library(("libabsent.so",), {}, none, "install it")
    with pytest.raises(DeviceError, match="has no absent; install it"):
        Library(("libc.so.6",), {"absent": "p"}, none, "install it")
    with pytest.raises(DeviceError, match="finds no device"):
        choose("vulkan", [], [])
    names, ranks = ["slow", "fast"], [1, 0]
    assert choose("vulkan", names, ranks) == 1
    for wanted, found in (("0", 0), ("SLO", 0), ("fast", 1)):
        with knobs.gpu.scoped(wanted):
            assert choose("vulkan", names, ranks) == found
    for wanted in ("2", "other"):
        with (
            knobs.gpu.scoped(wanted),
            pytest.raises(DeviceError, match=f"no device RLX_GPU={wanted}; there are 0 'slow', 1"),
        ):
            choose("vulkan", names, ranks)


def test_ranks_of_a_machine_take_its_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(**environment: str) -> int:
        with monkeypatch.context() as m:
            for name, value in environment.items():
                m.setenv(name, value)
            return choose("cuda", ["a slow one", "b", "c"], [1, 0, 0])

    assert taken() == 1
    ranks = [str(n) for n in range(4)]
    assert [taken(RLX_RENDEZVOUS="/tmp", RLX_RANK=n, RLX_RANKS="4") for n in ranks] == [1, 2, 1, 2]
    assert [taken(PMI_RANK=n, MPI_LOCALRANKID="1") for n in ranks] == [2] * 4
    assert [taken(PMIX_RANK=n, SLURM_LOCALID="0") for n in ranks] == [1] * 4
    assert taken(PMI_RANK="3", MPI_LOCALRANKID="1", RLX_GPU="0") == 0


def test_kernels_say_little_of_their_code() -> None:
    assert "code" not in repr(Kernel("k", b"x" * 1000, (1, 1, 1), ()))


class Slow:
    """A driver that takes a while to open; how many were being opened at once."""

    inside, most = 0, 0

    def __init__(self) -> None:
        Slow.inside += 1
        Slow.most = max(Slow.most, Slow.inside)
        time.sleep(0.05)
        Slow.inside -= 1


def test_drivers_are_opened_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that are ranks ask for a device at once, and PoCL ends a process that does."""
    monkeypatch.setitem(drivers.DRIVERS, "opencl", drivers.DriverRow(f"{__name__}:Slow"))
    threads = [threading.Thread(target=drivers.open_driver, args=("opencl",)) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert Slow.most == 1

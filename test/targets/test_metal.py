"""The driver of Metal on a stand-in for its package: what it refuses, and how it fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlx.errors import DeviceError, DeviceLostError, OutOfMemoryError, ToolchainError
from rlx.targets import find_target
from rlx.targets.gpu.driver import Binding, DeviceLaunch, Driver, Kernel
from rlx.targets.metal.launch import MetalDriver
from support.drivers import kernels, pair, stand_in


@pytest.fixture
def driver() -> Iterator[Driver]:
    found = stand_in("metal")()
    yield found
    found.close()


@pytest.fixture
def package(driver: Any) -> Iterator[Any]:
    memory, threads = driver.package.memory, driver.package.threads
    yield driver.package
    driver.package.memory, driver.package.threads, driver.package.fails = memory, threads, None


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac may have Metal")
def test_metal_needs_a_mac() -> None:
    with pytest.raises(DeviceError, match="Metal needs a Mac with the package pyobjc-framework"):
        MetalDriver()


def test_profiles_by_name() -> None:
    assert find_target("metal").features.name == "metal2.4"
    with pytest.raises(
        DeviceError, match=r"unknown Metal profile 'metal2'; did you mean 'metal2.4'"
    ):
        find_target("metal:metal2")


def test_kernels_that_metal_would_not_run_are_refused(driver: Driver, package: Any) -> None:
    good = kernels("metal")[0]
    with pytest.raises(ToolchainError, match="has no kernel 'other'; it has scale_add, sum_groups"):
        driver.load(replace(good, name="other"))
    package.threads = 32
    with pytest.raises(
        ToolchainError, match=r"groups of 64; with the registers .* 32 are possible"
    ):
        driver.load(good)
    package.threads = 0
    with pytest.raises(ToolchainError, match="kernel 'scale_add': no pipeline"):
        driver.load(good)


def test_a_buffer_that_is_not_made_is_want_of_memory(driver: Driver, package: Any) -> None:
    package.memory = 1000
    with pytest.raises(OutOfMemoryError, match="no memory for a buffer of 4000 bytes"):
        driver.allocate(4000)
    driver.allocate(500).close()


def test_commands_that_fail_say_why(driver: Driver, package: Any) -> None:
    p = pair(driver)
    work = driver.record([p.launch()])
    package.fail("not enough memory", 8)
    driver.run(work)
    with pytest.raises(OutOfMemoryError, match="Metal: not enough memory"):
        driver.sync()
    driver.run(work)
    assert (p.result() == p.y + p.x).all(), "only those commands failed"
    package.fail("not enough memory", 8)
    driver.run(work)
    driver.run(work)
    before = package.waits
    with pytest.raises(OutOfMemoryError):
        driver.sync()
    assert package.waits == before + 2, "those behind what failed are waited for too"
    package.fail("page fault", 3)
    driver.run(work)
    with pytest.raises(DeviceLostError, match="page fault"):
        p.result()
    with pytest.raises(DeviceLostError, match="was lost"):
        driver.sync()


# -- what the stand-in finds ---------------------------------------------------------------

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
IDS = "uint3 t [[thread_position_in_threadgroup]], uint3 g [[threadgroup_position_in_grid]]) {\n"
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


def results(driver: Driver, body: str, times: int = 1) -> list[np.ndarray]:
    """What a kernel of 8 threads that has a shared array ``s`` and writes ``y`` leaves there."""
    text = f"{HEAD}kernel void k(device float* y [[buffer(0)]], {IDS}threadgroup float s[8];\n"
    code = f"{text}int i = int(t.x);\n{body}\n}}\n".encode()
    handle = driver.load(Kernel("k", code, (8, 1, 1), (Binding("f32"),)))
    y = driver.allocate(32)
    found: list[np.ndarray] = []
    for _ in range(times):
        driver.run([DeviceLaunch(handle, (1, 1, 1), ((y, 0, 32),))])
        found.append(np.frombuffer(driver.read(y, 0, 32), np.float32))
    return found


def test_threads_meet_at_barriers(driver: Driver) -> None:
    (found,) = results(driver, f"s[i] = i;\n{BARRIER}\ny[i] = s[7 - i];")
    assert found.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    body = f"for (int n = 0; n < i; ++n) {{\n{BARRIER}\n}}\ny[i] = 0;"
    with pytest.raises(DeviceLostError, match="k: threads of a group are at different barriers"):
        results(driver, body)


def test_a_barrier_that_is_missing_shows(driver: Driver) -> None:
    # Of threads that run in one order, those that come later see what the first wrote.
    found = results(driver, f"if (i == 0) s[3] = 5;\ny[i] = s[3];\n{BARRIER}", times=2)
    assert not all((f == 5).all() for f in found) and any((f == 5).all() for f in found)


def test_shared_memory_that_nothing_wrote_is_nan(driver: Driver) -> None:
    for found in results(driver, f"if (i < 4) s[i] = 1;\n{BARRIER}\ny[i] = s[i];", times=2):
        np.testing.assert_array_equal(found, [1, 1, 1, 1, *[np.nan] * 4])


def test_a_write_beside_a_buffer_shows(driver: Driver) -> None:
    with pytest.raises(DeviceLostError, match=r"k wrote beside its buffers \[0\]"):
        results(driver, "y[i + 1] = 0;")

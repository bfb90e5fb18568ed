"""The driver of Metal on a stand-in for its package: what it refuses, and how it fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rlx.errors import DeviceError, DeviceLostError, OutOfMemoryError, ToolchainError
from rlx.targets import find_target
from rlx.targets.gpu.driver import Driver
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
    package.fail("page fault", 3)
    driver.run(work)
    with pytest.raises(DeviceLostError, match="page fault"):
        p.result()
    with pytest.raises(DeviceLostError, match="was lost"):
        driver.sync()

"""Processes that are forked off one with a device: they are told, and end as others do."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import rlx
from rlx.errors import DeviceError
from rlx.targets.gpu import drivers
from support.device import compiled

_PROGRAM = """
import faulthandler, os, sys, threading
import numpy as np, rlx, rlx.errors

g = rlx.Graph("g")
g.set_outputs(g.input("x", [4]) + 1.0)
f = rlx.Session(sys.argv[1]).compile(g)
feeds = {"x": np.zeros(4, np.float32)}
f.run(feeds)
executable = f._executable({})
for lock in (f.backend.driver.lock, executable.weights.lock):  # held by other threads
    threading.Thread(target=lock.acquire).start()
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(600, exit=True)
    for again in (lambda: f.run(feeds), lambda: f.run_slots(*feeds.values()),
                  lambda: rlx.Session(sys.argv[1])):
        try:
            again()
        except rlx.errors.DeviceError as e:
            print(e, flush=True)
    assert rlx.GraphDevices(g).run_try([sys.argv[1], "cpu"], feeds)[0] == "cpu"
    sys.exit(3)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
os._exit(status)
"""


@pytest.mark.parametrize("api", ["vulkan", "gpu", "opencl", "opengl"])
def test_a_fork_is_told_that_the_device_stays_with_its_parent(api: str) -> None:
    if not drivers.probe(api).found:
        pytest.skip(f"{api}: {drivers.probe(api).why} (or run `make drivers`)")
    words = [sys.executable, "-c", _PROGRAM, api]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 3, ran.stderr
    assert ran.stdout.count("opened before this process was forked off") == 3, ran.stdout


def test_in_a_fork_no_library_of_gpus_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "_user", os.getpid() + 1)
    with pytest.raises(DeviceError, match="opencl: libraries of GPUs were called before this pro"):
        drivers.open_driver("opencl")


def test_in_a_fork_no_driver_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [4]) + 1.0)
    f = compiled("cuda", g)
    driver = f.backend.driver  # type: ignore[attr-defined]
    monkeypatch.setattr(driver, "process", os.getpid() + 1)
    with pytest.raises(DeviceError, match=r"cuda \(.*\): it was opened before this process was"):
        f.run({"x": np.zeros(4, np.float32)})

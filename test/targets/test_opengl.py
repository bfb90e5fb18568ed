"""The driver of OpenGL: contexts and threads, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rlx.errors import DeviceError, ToolchainError
from rlx.targets import find_target
from rlx.targets.opengl import api
from rlx.targets.opengl.launch import OpenGLDriver
from support.drivers import available, kernels


@pytest.fixture
def driver() -> Iterator[OpenGLDriver]:
    found = available("opengl")
    assert isinstance(found, OpenGLDriver)
    yield found
    found.close()


def test_without_egl_or_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as m:
        m.setattr(api, "LIBRARIES", ("libNoEGL.so.1",))
        with pytest.raises(DeviceError, match=r"libNoEGL.*OpenGL without a window needs EGL"):
            OpenGLDriver()
    available("opengl").close()
    monkeypatch.setattr(api._Egl, "devices", lambda self: [])
    with pytest.raises(DeviceError, match=r"EGL finds no device with OpenGL 4\.3"):
        OpenGLDriver()


def test_a_context_is_of_one_thread_at_a_time(driver: OpenGLDriver) -> None:
    said: list[str] = []

    def other() -> None:
        try:
            driver.gl.enter()
        except DeviceError as e:
            said.append(e.message)

    driver.gl.enter()
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    driver.gl.leave()
    assert "cannot be made current (EGL error 0x3002)" in said[0]
    thread = threading.Thread(target=driver.sync)  # a driver lets go of it after each call
    thread.start()
    thread.join()
    driver.sync()


def test_what_fails_is_named(driver: OpenGLDriver) -> None:
    driver.gl.enter()
    with pytest.raises(DeviceError, match=r"glBindBufferRange failed with 0x501 \(invalid value\)"):
        driver.gl("glBindBufferRange", 0x90D2, 1 << 20, 0, 0, 4)
    driver.gl.leave()
    with pytest.raises(DeviceError, match="EGL has no rlxNothing"):
        driver.gl.egl.extension("rlxNothing", "")


def test_kernels_that_are_not_as_said_are_refused(driver: OpenGLDriver) -> None:
    good = kernels("opengl")[0]
    with pytest.raises(ToolchainError, match="kernel 'other'"):
        driver.load(replace(good, name="other"))
    with pytest.raises(ToolchainError, match=r"groups of \(64, 1, 1\) in GLSL, \(32, 1, 1\) was"):
        driver.load(replace(good, workgroup=(32, 1, 1)))


def test_profiles_by_name() -> None:
    assert find_target("opengl").features.name == "opengl4.3"
    with pytest.raises(DeviceError, match=r"RLX emits GLSL for opengl4\.3"):
        find_target("opengl:2")

"""OpenGL without a window: contexts by EGL, and the functions that compute shaders need."""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass
from typing import Any

from rlx.errors import DeviceError, DeviceLostError, OutOfMemoryError
from rlx.targets.gpu.library import Codes, Library, signature

__all__ = ["LIBRARIES", "Context", "contexts"]

LIBRARIES = ("libEGL.so.1",)
"""What EGL's loader is called."""

_EGL = {
    "eglBindAPI": "u",
    "eglCreateContext": "pppp:p",
    "eglDestroyContext": "pp",
    "eglGetError": "",
    "eglGetPlatformDisplay": "upp:p",
    "eglGetProcAddress": "s:p",
    "eglInitialize": "ppp",
    "eglMakeCurrent": "pppp",
    "eglQueryString": "pi:s",
}

_GL = {
    "glAttachShader": "uu:v",
    "glBindBuffer": "uu:v",
    "glBindBufferRange": "uuuqq:v",
    "glBufferData": "uqpu:v",
    "glBufferSubData": "uqqp:v",
    "glCompileShader": "u:v",
    "glCreateProgram": ":u",
    "glCreateShader": "u:u",
    "glDeleteBuffers": "ip:v",
    "glDeleteProgram": "u:v",
    "glDeleteShader": "u:v",
    "glDispatchCompute": "uuu:v",
    "glFinish": ":v",
    "glGenBuffers": "ip:v",
    "glGetBufferSubData": "uqqp:v",
    "glGetError": ":u",
    "glGetInteger64v": "up:v",
    "glGetIntegeri_v": "uup:v",
    "glGetProgramInfoLog": "uipp:v",
    "glGetProgramiv": "uup:v",
    "glGetShaderInfoLog": "uipp:v",
    "glGetShaderiv": "uup:v",
    "glGetString": "u:s",
    "glLinkProgram": "u:v",
    "glMemoryBarrier": "u:v",
    "glShaderSource": "uipp:v",
    "glUseProgram": "u:v",
}

# The specifications' values.
_OPENGL_API, _DEVICE_PLATFORM, _EXTENSIONS = 0x30A2, 0x313F, 0x3055
_MAJOR, _MINOR, _PROFILE, _CORE, _NONE = 0x3098, 0x30FB, 0x30FD, 0x1, 0x3038
_RENDERER = 0x1F01
_MEMORY, _LOST = 0x505, 0x507
_ERRORS = {
    0x500: "invalid enum",
    0x501: "invalid value",
    0x502: "invalid operation",
    0x505: "out of memory",
    0x507: "context lost",
}
_SOFTWARE = ("llvmpipe", "softpipe", "swrast", "SwiftShader")

_MOST_DEVICES = 16

_HINT = (
    "OpenGL without a window needs EGL, of Linux, and a driver of OpenGL 4.3 (libegl1 and"
    " libgl1-mesa-dri on Debian)"
)


class _Egl(Library):
    """The functions of EGL, which return whether they succeeded."""

    def __init__(self) -> None:
        super().__init__(LIBRARIES, _EGL, Codes({}, (), ()), _HINT)

    def extension(self, name: str, letters: str) -> Any:
        """A function that is no part of EGL's core; DeviceError if there is none."""
        at = self.plain("eglGetProcAddress", name.encode())
        if not at:
            raise DeviceError(f"EGL has no {name}; {_HINT}")
        returned, arguments = signature(letters)
        return c.CFUNCTYPE(returned, *arguments)(at)

    def text(self, display: int, what: int) -> bytes:
        """What a display says of itself."""
        return self.library.eglQueryString(display, what) or b""

    def devices(self) -> list[int]:
        """What EGL can make contexts on."""
        query = self.extension("eglQueryDevicesEXT", "ipp")
        found, count = (c.c_void_p * _MOST_DEVICES)(), c.c_int32()
        query(_MOST_DEVICES, found, c.byref(count))
        return [found[n] or 0 for n in range(count.value)]


@dataclass
class Context:
    """A context of OpenGL, which is current in one thread at most."""

    egl: _Egl
    display: int
    handle: int
    functions: dict[str, Any]
    name: str = ""

    @property
    def software(self) -> bool:
        """Whether this machine's processor is behind it."""
        return any(s in self.name for s in _SOFTWARE)

    def enter(self) -> None:
        """Make it current in this thread."""
        if not self.egl.plain("eglMakeCurrent", self.display, None, None, self.handle):
            error = self.egl.plain("eglGetError")
            raise DeviceError(f"OpenGL: the context cannot be made current (EGL error {error:#x})")

    def leave(self) -> None:
        """Let another thread have it."""
        self.egl.plain("eglMakeCurrent", self.display, None, None, None)

    def destroy(self) -> None:
        """Destroy it, and what it has."""
        self.leave()
        self.egl.plain("eglDestroyContext", self.display, self.handle)

    def __call__(self, name: str, *args: Any) -> Any:
        """Call a function of OpenGL; DeviceError, OutOfMemoryError or DeviceLostError if it
        fails."""
        found = self.functions[name](*args)
        code = self.functions["glGetError"]()
        if code:
            text = f"{name} failed with {code:#x} ({_ERRORS.get(code, 'unknown to RLX')})"
            kinds = {_MEMORY: OutOfMemoryError, _LOST: DeviceLostError}
            raise kinds.get(code, DeviceError)(text)
        return found

    def number(self, what: int) -> int:
        """A number that the context tells."""
        found = c.c_int64()
        self("glGetInteger64v", what, c.byref(found))
        return found.value

    def triple(self, what: int) -> tuple[int, int, int]:
        """A number in each of three directions."""
        found = (c.c_int32 * 3)()
        for n in range(3):
            self("glGetIntegeri_v", what, n, c.byref(found, 4 * n))
        return found[0], found[1], found[2]


def contexts() -> list[Context]:
    """A context, current nowhere, on each device of OpenGL 4.3. DeviceError if EGL is missing, or
    finds no device with it."""
    egl = _Egl()
    found = [made for device in egl.devices() if (made := _context(egl, device)) is not None]
    if not found:
        raise DeviceError(f"EGL finds no device with OpenGL 4.3; {_HINT}")
    return found


def _context(egl: _Egl, device: int) -> Context | None:
    """A context on a device; None if that has no OpenGL 4.3."""
    display = egl.plain("eglGetPlatformDisplay", _DEVICE_PLATFORM, device, None)
    if not display or not egl.plain("eglInitialize", display, None, None):
        return None
    if b"EGL_KHR_no_config_context" not in egl.text(display, _EXTENSIONS):
        return None
    egl.plain("eglBindAPI", _OPENGL_API)
    wanted = (c.c_int32 * 7)(_MAJOR, 4, _MINOR, 3, _PROFILE, _CORE, _NONE)
    handle = egl.plain("eglCreateContext", display, None, None, wanted)
    if not handle:
        return None
    made = Context(egl, display, handle, {n: egl.extension(n, s) for n, s in _GL.items()})
    made.enter()
    made.name = made("glGetString", _RENDERER).decode(errors="replace")
    made.leave()
    return made

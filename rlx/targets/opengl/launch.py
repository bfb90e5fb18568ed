"""Kernels on OpenGL devices: GLSL to programs, launches to dispatches of compute shaders."""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass

from rlx.errors import OutOfMemoryError, ToolchainError
from rlx.targets.gpu.driver import DeviceLaunch, Driver, Kernel, Limits
from rlx.targets.gpu.languages.glsl import defined
from rlx.targets.gpu.library import address, choose
from rlx.targets.gpu.profiles import buffer_words
from rlx.targets.gpu.work import Triple
from rlx.targets.opengl.api import Context, contexts

__all__ = ["OpenGLDriver"]

# The specification's values.
_COMPUTE, _STORAGE, _DYNAMIC_COPY, _ALL_BARRIERS = 0x91B9, 0x90D2, 0x88EA, 0xFFFFFFFF
_COMPILED, _LINKED, _GROUP = 0x8B81, 0x8B82, 0x8267
_BLOCK_SIZE, _ALIGNMENT = 0x90DE, 0x90DF
_BLOCKS = 0x90DB, 0x90DC, 0x90DD  # of a compute shader, of a program, of all bindings
_SHARED, _INVOCATIONS, _GROUPS, _GROUP_SIZE = 0x8262, 0x90EB, 0x91BE, 0x91BF

_LOG_BYTES = 1 << 14


@dataclass
class _Step:
    """A program, its groups, and its bindings; ``params`` is the buffer of its numbers, if any."""

    program: int
    groups: Triple
    ranges: list[tuple[int, int, int]]
    params: int = 0


class OpenGLDriver(Driver):
    """A device through EGL. DeviceError if there is no EGL, or no device with OpenGL 4.3."""

    api = "opengl"

    def __init__(self) -> None:
        super().__init__()
        found = contexts()
        at = choose(self.api, [x.name for x in found], [int(x.software) for x in found])
        self.gl: Context = found.pop(at)
        for other in found:
            other.destroy()
        self.name, self.software = self.gl.name, self.gl.software
        self._enter()
        self.limits = self._limits()
        self.features = buffer_words(self.limits.bindings)
        self._exit()

    def _limits(self) -> Limits:
        number, triple = self.gl.number, self.gl.triple
        largest = number(_BLOCK_SIZE)
        return Limits(
            groups=triple(_GROUPS),
            workgroup=triple(_GROUP_SIZE),
            invocations=number(_INVOCATIONS),
            shared=number(_SHARED),
            binding=largest,
            bindings=min(map(number, _BLOCKS)),
            alignment=max(16, number(_ALIGNMENT)),
            buffer=largest,
        )

    def _enter(self) -> None:
        self.gl.enter()

    def _exit(self) -> None:
        self.gl.leave()

    # -- memory ----------------------------------------------------------------------------

    def _allocate(self, nbytes: int) -> int:
        found = c.c_uint32()
        self.gl("glGenBuffers", 1, c.byref(found))
        self.gl("glBindBuffer", _STORAGE, found.value)
        try:
            self.gl("glBufferData", _STORAGE, nbytes, None, _DYNAMIC_COPY)
        except OutOfMemoryError:
            self._free(found.value)
            raise
        return found.value

    def _free(self, raw: int) -> None:
        self.gl("glDeleteBuffers", 1, c.byref(c.c_uint32(raw)))

    def _write(self, raw: int, offset: int, data: memoryview) -> None:
        at, _held = address(data)
        self.gl("glBindBuffer", _STORAGE, raw)
        self.gl("glBufferSubData", _STORAGE, offset, len(data), at)

    def _read(self, raw: int, offset: int, out: memoryview) -> None:
        at, _held = address(out)
        self.gl("glBindBuffer", _STORAGE, raw)
        self.gl("glGetBufferSubData", _STORAGE, offset, len(out), at)

    # -- kernels ---------------------------------------------------------------------------

    def _load_module(self, kernel: Kernel) -> str:
        """The text: a program has one kernel of it."""
        return kernel.code.decode()

    def _free_module(self, module: str) -> None:
        """Nothing: it is text."""

    def _load(self, module: str, kernel: Kernel) -> int:
        gl, shader = self.gl, self.gl("glCreateShader", _COMPUTE)
        program = gl("glCreateProgram")
        try:
            text = defined(module, kernel.name).encode()
            gl("glShaderSource", shader, 1, c.byref(c.c_char_p(text)), None)
            gl("glCompileShader", shader)
            self._check("Shader", shader, _COMPILED, kernel.name)
            gl("glAttachShader", program, shader)
            gl("glLinkProgram", program)
            self._check("Program", program, _LINKED, kernel.name)
            group = (c.c_int32 * 3)()
            gl("glGetProgramiv", program, _GROUP, group)
            if tuple(group) != kernel.workgroup:
                raise ToolchainError(
                    f"kernel {kernel.name!r} has groups of {tuple(group)} in GLSL,"
                    f" {kernel.workgroup} was said"
                )
        except BaseException:
            self._unload(program)
            raise
        finally:
            gl("glDeleteShader", shader)
        return program

    def _check(self, kind: str, made: int, what: int, name: str) -> None:
        """Refuse what did not compile or link, with what the driver said."""
        done = c.c_int32()
        self.gl(f"glGet{kind}iv", made, what, c.byref(done))
        if not done.value:
            log = c.create_string_buffer(_LOG_BYTES)
            self.gl(f"glGet{kind}InfoLog", made, len(log), None, log)
            said = log.value.decode(errors="replace").strip()
            raise ToolchainError(f"{self}: kernel {name!r}: {said}")

    def _unload(self, raw: int) -> None:
        self.gl("glDeleteProgram", raw)

    # -- runs ------------------------------------------------------------------------------

    def _record(self, launches: tuple[DeviceLaunch, ...]) -> list[_Step]:
        steps: list[_Step] = []
        try:
            for launch in launches:
                # A range is not empty, and has whole words; so has every buffer.
                ranges = [
                    (b.raw[0], first if n else 0, max(4, -(-n // 4) * 4))
                    for b, first, n in launch.buffers
                ]
                steps.append(_Step(launch.handle.raw[0], launch.groups, ranges))
                if size := len(launch.params):
                    steps[-1].params = self._allocate(size)
                    self._write(steps[-1].params, 0, memoryview(launch.params))
                    ranges.append((steps[-1].params, 0, size))
        except BaseException:
            self._forget(steps)
            raise
        return steps

    def _forget(self, raw: list[_Step]) -> None:
        for step in raw:
            if step.params:
                self._free(step.params)

    def _run(self, raw: list[_Step]) -> None:
        gl = self.gl
        for step in raw:
            gl("glUseProgram", step.program)
            for i, (buffer, first, n) in enumerate(step.ranges):
                gl("glBindBufferRange", _STORAGE, i, buffer, first, n)
            gl("glDispatchCompute", *step.groups)
            gl("glMemoryBarrier", _ALL_BARRIERS)

    def _sync(self) -> None:
        self.gl("glFinish")

    def _close(self) -> None:
        self.gl.destroy()

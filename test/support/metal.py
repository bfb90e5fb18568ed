"""A stand-in for PyObjC's package Metal: MSL compiled as C++, and run by the processor.

It is for tests of the driver and of the MSL: what a Mac's own compiler refuses, it may take. The
names are Metal's, as PyObjC spells them.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

__all__ = ["StandIn"]

HEADER = Path(__file__).parent.parent / "targets" / "fixtures" / "metal"

COMPILER = (
    "g++", "-std=c++20", "-O1", "-march=native", "-ffp-contract=off", "-fno-strict-aliasing",
    "-shared", "-fPIC", "-Wno-attributes", "-Wno-unknown-pragmas", f"-I{HEADER}",
)  # fmt: skip

_KERNEL = re.compile(r"^kernel void (\w+)\((.*?)\) \{", re.MULTILINE | re.DOTALL)

_Triple = ctypes.c_uint * 3


class _Size(NamedTuple):
    width: int
    height: int
    depth: int


class _Error(NamedTuple):
    text: str
    number: int = 0

    def localizedDescription(self) -> str:
        return self.text

    def code(self) -> int:
        return self.number


class _Buffer:
    def __init__(self, nbytes: int) -> None:
        # Memory that a program did not write may be anything.
        self.data = np.full(nbytes, 0xA5, np.uint8)

    def length(self) -> int:
        return self.data.nbytes

    def contents(self) -> Any:
        return SimpleNamespace(as_buffer=lambda n: memoryview(self.data)[:n])


class _Options:
    @classmethod
    def new(cls) -> _Options:
        return cls()

    def setFastMathEnabled_(self, on: bool) -> None:
        assert not on, "fast maths loses nan"


class _Library:
    def __init__(self, path: Path, names: list[str]) -> None:
        self.library, self.names = ctypes.CDLL(str(path)), names

    def functionNames(self) -> list[str]:
        return self.names

    def newFunctionWithName_(self, name: str) -> Any:
        return getattr(self.library, f"run_{name}") if name in self.names else None


class _Pipeline(NamedTuple):
    function: Any
    threads: int

    def maxTotalThreadsPerThreadgroup(self) -> int:
        return self.threads


class _Encoder:
    """Runs each launch once the commands are committed."""

    def __init__(self) -> None:
        self.steps: list[tuple[Any, dict[int, int], Any, Any]] = []
        self.pipeline: Any = None
        self.bound: dict[int, int] = {}
        self.held: list[Any] = []

    def setComputePipelineState_(self, pipeline: _Pipeline) -> None:
        self.pipeline, self.bound = pipeline, {}

    def setBuffer_offset_atIndex_(self, buffer: _Buffer, offset: int, at: int) -> None:
        assert 0 <= offset < buffer.length() and offset % 16 == 0
        self.bound[at] = buffer.data.ctypes.data + offset

    def setBytes_length_atIndex_(self, data: bytes, length: int, at: int) -> None:
        copy = ctypes.create_string_buffer(data, length)
        self.held.append(copy)
        self.bound[at] = ctypes.addressof(copy)

    def dispatchThreadgroups_threadsPerThreadgroup_(self, groups: _Size, group: _Size) -> None:
        self.steps.append((self.pipeline.function, self.bound, groups, group))

    def endEncoding(self) -> None:
        """Nothing is to be done."""


class _Commands:
    def __init__(self, owner: StandIn) -> None:
        self.owner, self.encoder, self.failed = owner, _Encoder(), None

    def computeCommandEncoder(self) -> _Encoder:
        return self.encoder

    def commit(self) -> None:
        self.failed, self.owner.fails = self.owner.fails, None
        for function, bound, groups, group in () if self.failed else self.encoder.steps:
            buffers = (ctypes.c_void_p * len(bound))(*(bound[n] for n in range(len(bound))))
            function(buffers, _Triple(*groups), _Triple(*group))

    def waitUntilCompleted(self) -> None:
        """It is."""

    def status(self) -> int:
        return 5 if self.failed else 4

    def error(self) -> _Error | None:
        return self.failed


class StandIn:
    """The package, and its one device. ``fails`` is the error of the next commands; no buffer has
    more than ``memory`` bytes, and no group more than ``threads`` (0: there are no pipelines)."""

    MTLResourceStorageModeShared = 0
    MTLCompileOptions = _Options
    MTLSizeMake = _Size

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fails: _Error | None = None
        self.memory, self.threads = 1 << 30, 1024

    def fail(self, text: str, number: int) -> None:
        """Let the next commands end with an error."""
        self.fails = _Error(text, number)

    def packages(self) -> tuple[Any, Any]:
        """What stands for ``objc``, and for ``Metal``."""
        return SimpleNamespace(autorelease_pool=nullcontext), self

    def MTLCopyAllDevices(self) -> list[StandIn]:
        return [self]

    def name(self) -> str:
        return "stand-in for Metal"

    def isLowPower(self) -> bool:
        return False

    def maxThreadsPerThreadgroup(self) -> _Size:
        return _Size(1024, 1024, 1024)

    def maxBufferLength(self) -> int:
        return 1 << 30

    def maxThreadgroupMemoryLength(self) -> int:
        return 32 << 10

    def newCommandQueue(self) -> Any:
        return SimpleNamespace(commandBuffer=lambda: _Commands(self))

    def newBufferWithLength_options_(self, nbytes: int, mode: int) -> _Buffer | None:
        return _Buffer(nbytes) if nbytes <= self.memory else None

    def newLibraryWithSource_options_error_(
        self, source: str, options: _Options, error: None
    ) -> tuple[_Library | None, _Error | None]:
        found = list(_KERNEL.finditer(source))
        names = [m[1] for m in found]
        ends = [*(m.start() for m in found), len(source)][1:]
        calls = [_call(m, source[m.end() : end]) for m, end in zip(found, ends, strict=True)]
        text = "\n".join([source, *calls])
        path = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()}.cpp"
        library = path.with_suffix(".so")
        if not library.exists():
            path.write_text(text, encoding="utf-8")
            command = [*COMPILER, str(path), "-o", str(library)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                return None, _Error(done.stderr)
        return _Library(library, names), None

    def newComputePipelineStateWithFunction_error_(
        self, function: Any, error: None
    ) -> tuple[_Pipeline | None, _Error | None]:
        if not self.threads:
            return None, _Error("no pipeline")
        return _Pipeline(function, self.threads), None


def _call(kernel: re.Match[str], body: str) -> str:
    """A C function that launches a kernel."""
    name, count = kernel[1], kernel[2].count("[[buffer(")
    given = ", ".join(f"stand_in::buffer({n})" for n in range(count))
    barriers = "true" if "threadgroup_barrier" in body else "false"
    return (
        f"static void thread_of_{name}(uint i) {{\n"
        f"    {name}({given}, stand_in::thread(i), stand_in::group);\n}}\n"
        f'extern "C" void run_{name}(void** buffers, const uint* groups, const uint* size) {{\n'
        f"    stand_in::launch(thread_of_{name}, {barriers}, buffers, groups, size);\n}}\n"
    )

"""A stand-in for PyObjC's package Metal: MSL compiled as C++, and run by the processor.

It is for tests of the driver and of the MSL: what a Mac's own compiler refuses, it may take. The
names are Metal's, as PyObjC spells them. Commands fail whose threads do not meet at a barrier, or
that write beside a buffer; memory that nothing wrote has nan in it.
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
    "-U_FORTIFY_SOURCE",  # it takes a jump to another stack for an error
    "-Werror=frame-larger-than=16384",  # half of a fiber's stack
)  # fmt: skip

_KERNEL = re.compile(
    r"^(?:\[\[max_total_threads_per_threadgroup\((\d+)\)\]\]\n)?kernel void (\w+)\((.*?)\) \{",
    re.MULTILINE | re.DOTALL,
)

_GUARD = 64
"""Bytes before and after a buffer that nothing writes."""

_PAGE_FAULT = 3
"""MTLCommandBufferErrorPageFault."""

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
        # Memory that a program did not write may be anything: as a float this is nan.
        self.around = np.full(nbytes + 2 * _GUARD, 0xFF, np.uint8)
        self.data = self.around[_GUARD:-_GUARD]

    def length(self) -> int:
        return self.data.nbytes

    def contents(self) -> Any:
        return SimpleNamespace(as_buffer=lambda n: memoryview(self.data)[:n])

    def intact(self) -> bool:
        """Whether nothing wrote beside it."""
        return bool((self.around[:_GUARD] & self.around[-_GUARD:] == 0xFF).all())


class _Options:
    @classmethod
    def new(cls) -> _Options:
        return cls()

    def setFastMathEnabled_(self, on: bool) -> None:
        assert not on, "fast maths loses nan"


class _Function(NamedTuple):
    name: str
    run: Any
    threads: int


class _Library:
    def __init__(self, path: Path, kernels: list[re.Match[str]]) -> None:
        self.library = ctypes.CDLL(str(path))
        self.threads = {m[2]: int(m[1] or 1024) for m in kernels}

    def functionNames(self) -> list[str]:
        return list(self.threads)

    def newFunctionWithName_(self, name: str) -> _Function | None:
        if name not in self.threads:
            return None
        run = getattr(self.library, f"run_{name}")
        run.restype = ctypes.c_char_p
        return _Function(name, run, self.threads[name])


class _Pipeline(NamedTuple):
    function: _Function
    threads: int

    def maxTotalThreadsPerThreadgroup(self) -> int:
        return self.threads


class _Step(NamedTuple):
    """A launch: what the arguments are, and which of them are buffers."""

    function: _Function
    arguments: dict[int, int]
    buffers: list[_Buffer]
    groups: _Size
    group: _Size

    def run(self, backwards: bool) -> str:
        """What is wrong with it, if something is."""
        given = (ctypes.c_void_p * len(self.arguments))(
            *(self.arguments[n] for n in range(len(self.arguments)))
        )
        said = self.function.run(given, _Triple(*self.groups), _Triple(*self.group), backwards)
        if said is not None:
            return f"{self.function.name}: {said.decode()}"
        beside = [n for n, b in enumerate(self.buffers) if not b.intact()]
        return f"{self.function.name} wrote beside its buffers {beside}" if beside else ""


class _Encoder:
    """Runs each launch once the commands are committed."""

    def __init__(self) -> None:
        self.steps: list[_Step] = []
        self.pipeline: Any = None
        self.bound: dict[int, int] = {}
        self.buffers: list[_Buffer] = []
        self.held: list[Any] = []

    def setComputePipelineState_(self, pipeline: _Pipeline) -> None:
        self.pipeline, self.bound, self.buffers = pipeline, {}, []

    def setBuffer_offset_atIndex_(self, buffer: _Buffer, offset: int, at: int) -> None:
        assert 0 <= offset < buffer.length() and offset % 16 == 0
        self.bound[at] = buffer.data.ctypes.data + offset
        self.buffers.append(buffer)

    def setBytes_length_atIndex_(self, data: bytes, length: int, at: int) -> None:
        assert length <= 4096, "Metal's most"
        copy = ctypes.create_string_buffer(data, length)
        self.held.append(copy)
        self.bound[at] = ctypes.addressof(copy)

    def dispatchThreadgroups_threadsPerThreadgroup_(self, groups: _Size, group: _Size) -> None:
        assert group.width * group.height * group.depth <= self.pipeline.threads
        self.steps.append(_Step(self.pipeline.function, self.bound, self.buffers, groups, group))

    def endEncoding(self) -> None:
        """Nothing is to be done."""


class _Commands:
    def __init__(self, owner: StandIn) -> None:
        self.owner, self.encoder, self.failed = owner, _Encoder(), None

    def computeCommandEncoder(self) -> _Encoder:
        return self.encoder

    def commit(self) -> None:
        self.failed, self.owner.fails = self.owner.fails, None
        self.owner.commits += 1
        for step in self.encoder.steps:
            if self.failed:
                break
            if said := step.run(self.owner.commits % 2 == 0):
                self.failed = _Error(said, _PAGE_FAULT)

    def waitUntilCompleted(self) -> None:
        """It is."""
        self.owner.waits += 1

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
        self.commits = self.waits = 0

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
        starts = [*(m.start() for m in found), len(source)]
        parts = [
            _kernel(m, source[m.start() : end]) for m, end in zip(found, starts[1:], strict=True)
        ]
        text = "\n".join([source[: starts[0]], *parts])
        path = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()}.cpp"
        library = path.with_suffix(".so")
        if not library.exists():
            path.write_text(text, encoding="utf-8")
            command = [*COMPILER, str(path), "-o", str(library)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                return None, _Error(done.stderr)
        return _Library(library, found), None

    def newComputePipelineStateWithFunction_error_(
        self, function: _Function, error: None
    ) -> tuple[_Pipeline | None, _Error | None]:
        if not self.threads:
            return None, _Error("no pipeline")
        return _Pipeline(function, min(self.threads, function.threads)), None


def _kernel(found: re.Match[str], text: str) -> str:
    """A kernel, and a C function that launches it."""
    name, count = found[2], found[3].count("[[buffer(")
    given = ", ".join(f"stand_in::buffer({n})" for n in range(count))
    barriers = "true" if "threadgroup_barrier" in text else "false"
    ends, shared = "", "nullptr, nullptr"
    if re.search(r"^ *threadgroup ", text, re.MULTILINE):
        # The linker defines both for a section of such a name.
        ends = f"extern char __start_shared_{name}[], __stop_shared_{name}[];"
        shared = f"__start_shared_{name}, __stop_shared_{name}"
    return f"""\
#undef STAND_IN_SHARED
#define STAND_IN_SHARED "shared_{name}"
{text}
static void thread_of_{name}(uint i) {{
    {name}({given}, stand_in::thread(i), stand_in::group);
}}
extern "C" {{
{ends}
const char* run_{name}(void** buffers, const uint* groups, const uint* size, bool backwards) {{
    return stand_in::launch(
        thread_of_{name}, {barriers}, {{{shared}}}, buffers, groups, size, backwards);
}}
}}
"""

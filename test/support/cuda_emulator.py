"""A CUDA device in software: the C stand-in for libcuda, and kernels compiled for this machine.

What runs is the LLVM text that PTX is made of, by llvmlite's code generator for the host: so the
text, the math functions in it, the kernels' parameters, the launches and the driver are what they
are on a GPU, and only the choice of instructions is not.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import rlx
from rlx.codegen.builder import KernelText
from rlx.runtime import backend
from rlx.runtime.artifact import Artifact
from rlx.runtime.devices.gpu_executable import DeviceBackend
from rlx.targets.cuda import emit
from rlx.targets.cuda.launch import CudaDriver
from rlx.targets.gpu.work import Kernel
from support.drivers import mocked

__all__ = ["compiled", "driver", "loaded", "session"]

_texts: dict[bytes, str] = {}
"""Of PTX: the text that it was made of."""

_engines: list[Any] = []

_SPECIAL = ("tid", "ctaid", "ntid", "nctaid")
_DEFINED = re.compile(r"^define ptx_kernel void @(\w+)\((.*?)\)", re.MULTILINE)
_READ = re.compile(r"@llvm\.nvvm\.read\.ptx\.sreg\.(\w+)\.([xyz])\(\)")
_BARRIER = re.compile(r"call void @llvm\.nvvm\.barrier[\w.]*\(.*?\)")
_FOREIGN = re.compile(r"@(llvm\.nvvm\.[\w.]+|__nv_\w+)\(")


@contextmanager
def _remembering() -> Generator[None]:
    """PTX that is emitted meanwhile can be run."""
    to_ptx = emit.to_ptx

    def remember(kernels: Sequence[KernelText], *args: Any, **options: Any) -> str:
        ptx = to_ptx(kernels, *args, **options)
        _texts[ptx.encode()] = emit.to_llvm(kernels)
        return ptx

    with mock.patch.object(emit, "to_ptx", remember):
        yield


@cache
def driver(number: int = 0) -> CudaDriver:
    """The driver of an emulated device, of which there are any number. The test is skipped where no
    C compiler is."""
    base = mocked("cuda")

    class Emulated(base):  # type: ignore[misc, valid-type]
        def _load_module(self, kernel: Kernel) -> int:
            if kernel.code in _texts:
                _define(self.library.library, _texts.pop(kernel.code))
            return super()._load_module(kernel)

    return Emulated()  # type: ignore[return-value]


def session(number: int = 0) -> rlx.Session:
    """A session on an emulated device."""
    entry = backend.Registered(lambda: DeviceBackend("cuda", driver(number)), lambda: "")
    with mock.patch.dict(backend._registry, {"cuda": entry}):
        return rlx.Session("cuda")


def compiled(graph: rlx.Graph, number: int = 0, **options: Any) -> rlx.CompiledGraph:
    """A graph compiled for an emulated device."""
    with _remembering(), rlx.knobs.cache.scoped(False):
        return session(number).compile(graph, **options)


def loaded(graph: rlx.Graph, target: str, **options: Any) -> rlx.CompiledGraph:
    """The same by way of an artifact's bytes."""
    with _remembering(), rlx.knobs.cache.scoped(False):
        data = bytes(rlx.compile_artifact(graph, target, **options))
    return session().load(Artifact.from_bytes(data))


def _define(library: ctypes.CDLL, text: str) -> None:
    """Compile kernels for the host, and make them known to the stand-in."""
    from llvmlite import binding

    at = ctypes.addressof(ctypes.c_int.in_dll(library, "mock_at"))
    barrier = ctypes.cast(library.mock_barrier, ctypes.c_void_p).value

    def read(found: re.Match[str]) -> str:
        return f"@mock_{found[1]}_{found[2]}()"

    host = re.sub(r"^declare .*@llvm\.nvvm\..*$", "", text, flags=re.MULTILINE)
    host = re.sub(r"^target datalayout.*$", "", host, flags=re.MULTILINE)
    host = _BARRIER.sub(f"call void inttoptr (i64 {barrier} to ptr)()", host)
    host = _READ.sub(read, host).replace("ptx_kernel ", "").replace(" addrspace(3)", "")
    if foreign := _FOREIGN.search(host):
        raise NotImplementedError(f"the emulated device has no {foreign[1]}")
    for n, name in enumerate(_SPECIAL):
        for axis in range(3):
            place = at + 4 * (3 * n + axis)
            host += (
                f"\ndefine i32 @mock_{name}_{'xyz'[axis]}() {{\n"
                f"  %v = load volatile i32, ptr inttoptr (i64 {place} to ptr)\n  ret i32 %v\n}}\n"
            )
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(host)
    module.triple = binding.get_process_triple()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=1
    )
    module.data_layout = str(machine.target_data)
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _engines.append(engine)
    for name, arguments in _DEFINED.findall(text):
        body = text[text.index(f"@{name}(") :]
        barriers = _BARRIER.search(body[: body.index("\n}")]) is not None
        failed = library.mock_define(
            name.encode(), ctypes.c_void_p(engine.get_function_address(name)),
            arguments.count("ptr"), barriers,
        )  # fmt: skip
        assert not failed, name

"""A CUDA device that runs TTIR in NumPy: what is launched on it is all that is between a graph and
Triton's compiler. Kernels that are not Triton's have no code that it takes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import rlx
from rlx.codegen.builder import KernelText
from rlx.codegen.triton.machine import TritonMachine
from rlx.lowering.passes import gpu_program
from rlx.runtime import backend
from rlx.runtime.devices.gpu_executable import DeviceBackend
from rlx.targets import triton
from rlx.targets.cuda.features import runs
from rlx.targets.gpu.driver import DeviceLaunch, Driver, Kernel, Limits
from rlx.targets.triton.compile import Compiled
from support.ttir import run_programs

__all__ = ["compiled"]

_texts: dict[bytes, KernelText] = {}
"""Of the code of kernels: the text that is run."""


class BlocksDriver(Driver):
    """A driver whose memory is NumPy's."""

    api = "cuda"
    name = "blocks"
    software = True

    def __init__(self) -> None:
        super().__init__()
        large = (1 << 31) - 1
        self.limits = Limits(
            groups=(large, 65535, 65535), workgroup=(1024, 1024, 64), invocations=1024,
            shared=227 << 10, binding=1 << 40, bindings=512, alignment=16, buffer=1 << 40,
        )  # fmt: skip
        self.features = runs(90)

    def _allocate(self, nbytes: int) -> Any:
        return np.full(nbytes, 0xFF, np.uint8)  # nan, as floats

    def _free(self, raw: Any) -> None: ...

    def _write(self, raw: Any, offset: int, data: memoryview) -> None:
        raw[offset : offset + len(data)] = np.frombuffer(data, np.uint8)

    def _read(self, raw: Any, offset: int, out: memoryview) -> None:
        out[:] = raw[offset : offset + len(out)].tobytes()

    def _load_module(self, kernel: Kernel) -> KernelText:
        return _texts[kernel.code]

    def _free_module(self, module: Any) -> None: ...

    def _load(self, module: KernelText, kernel: Kernel) -> KernelText:
        assert kernel.workgroup == (module.block, 1, 1)
        return module

    def _unload(self, raw: Any) -> None: ...

    def _record(self, launches: tuple[DeviceLaunch, ...]) -> tuple[DeviceLaunch, ...]:
        return launches

    def _forget(self, raw: Any) -> None: ...

    def _run(self, raw: tuple[DeviceLaunch, ...]) -> None:
        for launch in raw:
            count, *numbers = np.frombuffer(launch.params, np.int32).tolist()
            x, y, _ = launch.groups
            assert x * y >= count
            views = [b.raw[0][first : first + n] for b, first, n in launch.buffers]
            run_programs(launch.handle.raw[0], count, views, numbers)

    def _sync(self) -> None: ...

    def _close(self) -> None: ...


@contextmanager
def _remembering() -> Generator[None]:
    def remember(text: KernelText, machine: TritonMachine) -> Compiled:
        code = text.text.encode()
        _texts[code] = text
        return Compiled(code, text.block, 0, 2, {})

    with (
        mock.patch.object(gpu_program, "compile_kernel", remember),
        mock.patch.object(triton, "installed", lambda: triton.TESTED),
        rlx.knobs.triton.scoped("auto"),
        rlx.knobs.cache.scoped(False),
    ):
        yield


def compiled(graph: rlx.Graph, **options: Any) -> rlx.CompiledGraph:
    """A graph compiled for the device."""
    entry = backend.Registered(lambda: DeviceBackend("cuda", BlocksDriver()), lambda: "")
    with _remembering(), mock.patch.dict(backend._registry, {"cuda": entry}):
        return rlx.Session("cuda").compile(graph, **options)

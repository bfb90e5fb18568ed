"""Run one kernel in this process, for tests and tuning."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.codegen.builder import KernelText
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import PRESETS, Features, best, detect

__all__ = ["host", "jit", "load"]

Call = Callable[..., None]


def host() -> Features:
    """This machine's features, with or without the native module."""
    try:
        return detect()
    except ImportError:
        import llvmlite.binding as llvm

        found = {name for name, on in llvm.get_host_cpu_features().items() if on}
        return best(found & {x for f in PRESETS.values() for x in f.has})


def jit(kernel: KernelText, features: Features | None = None, *, opt: int = 2) -> Call:
    """Compile a kernel; the result is called as
    ``f(begin, end, [arrays], [sizes], scratch_bytes=0)`` and works on the arrays in place.
    """
    obj = emit.compile_kernels([kernel], features or host(), opt=opt)
    return load(obj, kernel.name)


def load(obj: bytes, name: str) -> Call:
    """The kernel ``name`` of an object."""
    keep, address = _link(obj, name)
    entry = ctypes.CFUNCTYPE(
        None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
    )(address)

    def call(
        begin: int,
        end: int,
        arrays: Sequence[np.ndarray[Any, Any]],
        sizes: Sequence[int] = (),
        scratch_bytes: int = 0,
    ) -> None:
        buffers = (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
        numbers = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
        memory = np.zeros(scratch_bytes + 64, np.uint8)
        scratch = memory.ctypes.data + (-memory.ctypes.data) % 64
        entry(begin, end, ctypes.addressof(buffers), ctypes.addressof(numbers), scratch)

    call.keep = keep  # type: ignore[attr-defined]
    return call


def _link(obj: bytes, name: str) -> tuple[object, int]:
    try:
        from rlx.runtime import _native
    except ImportError:
        return _link_by_llvm(obj, name)
    loaded = _native.Object(obj)
    return loaded, loaded.symbol(name)


def _link_by_llvm(obj: bytes, name: str) -> tuple[object, int]:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    compiler = llvm.create_lljit_compiler()
    builder = llvm.JITLibraryBuilder().add_object_img(obj).export_symbol(name)
    library = builder.link(compiler, f"library of {name}")
    return (compiler, library), library[name]

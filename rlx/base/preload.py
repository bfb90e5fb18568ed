"""Loads the compilers' shared libraries on a thread, while Python does what comes before their use.

Mapping and relocating LLVM and MLIR takes some 30 ms and needs no GIL, but an import holds it. What
is loaded here is found loaded by the packages' own imports; what is not found here fails there.
Every compile needs MLIR. LLVM, 36 MB of memory, is needed where a kernel has to be made.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

from rlx.base.threads import threads_with_large_stacks

__all__ = ["preload"]

_LIBRARIES = {
    "torch_mlir": "_mlir_libs/libTorchMLIRAggregateCAPI.so",
    "llvmlite": "binding/libllvmlite.so",
}
"""By package."""


@cache
def preload(package: str) -> None:
    """Begin to load the library of a package, if that is installed, once a process."""
    if os.name == "posix":
        with threads_with_large_stacks():
            Thread(target=_load, args=(package,), name="rlx-preload", daemon=True).start()


def _load(package: str) -> None:
    try:
        dlopen = ctypes.CDLL(None).dlopen  # a foreign call runs without the GIL, CDLL(path) with it
    except (AttributeError, OSError):
        return
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    # Each takes its own symbols before others': Mesa's OpenGL makes those of its LLVM global.
    flags = os.RTLD_NOW | getattr(os, "RTLD_DEEPBIND", 0)
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        dlopen(os.fsencode(Path(folder) / _LIBRARIES[package]), flags)

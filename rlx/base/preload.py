"""Loads the compilers' shared libraries on a thread, while Python imports what uses them.

Mapping and relocating LLVM and MLIR takes some 30 ms and needs no GIL, but an import holds it. What
is loaded here is found loaded by the packages' own imports; what is not found here fails there.
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

_LIBRARIES = (
    ("torch_mlir", "_mlir_libs/libTorchMLIRAggregateCAPI.so"),
    ("llvmlite", "binding/libllvmlite.so"),
)
"""In the order in which compiling needs them."""


@cache
def preload() -> None:
    """Begin to load the libraries of the packages that are installed, once a process."""
    if os.name == "posix":
        with threads_with_large_stacks():
            Thread(target=_load, name="rlx-preload", daemon=True).start()


def _load() -> None:
    try:
        dlopen = ctypes.CDLL(None).dlopen  # a foreign call runs without the GIL, CDLL(path) with it
    except (AttributeError, OSError):
        return
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    # Each takes its own symbols before others': Mesa's OpenGL makes those of its LLVM global.
    flags = os.RTLD_NOW | getattr(os, "RTLD_DEEPBIND", 0)
    for package, library in _LIBRARIES:
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            dlopen(os.fsencode(Path(folder) / library), flags)

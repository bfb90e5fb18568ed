"""``rlx config --cflags --libs``: what C and C++ programs are built with."""

from __future__ import annotations

import argparse
import importlib.metadata
import os

from rlx.errors import RlxError

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """What to print."""
    p.add_argument("--cflags", action="store_true", help="the compiler's flags")
    p.add_argument("--libs", action="store_true", help="the linker's flags: a static library")
    p.add_argument("--cmakedir", action="store_true", help="the folder for CMake's rlx_DIR")
    p.add_argument(
        "--pkgconfigdir", action="store_true", help="the folder for PKG_CONFIG_PATH, with rlx.pc"
    )


def run(args: argparse.Namespace) -> int:
    """Print what was asked for, in one line; all of it, with names, where nothing was."""
    root = _root()
    library = os.path.join(root, "lib")
    pkgconfig = os.path.join(library, "pkgconfig")
    found = {
        "cflags": f"-I{os.path.join(root, 'include')}",
        "libs": _libs(os.path.join(pkgconfig, "rlx.pc")).replace("${libdir}", library),
        "cmakedir": os.path.join(library, "cmake", "rlx"),
        "pkgconfigdir": pkgconfig,
    }
    asked = [name for name in found if getattr(args, name)]
    if asked:
        print(" ".join(found[name] for name in asked))
    else:
        print("\n".join(f"{name}: {text}" for name, text in found.items()))
    return 0


def _libs(path: str) -> str:
    """What is linked, in the words of pkg-config: the build knows which library of C++."""
    with open(path, encoding="utf-8") as f:
        return next(line for line in f if line.startswith("Libs: ")).removeprefix("Libs: ").strip()


def _root() -> str:
    """Where the installed package has its header and its libraries."""
    for file in importlib.metadata.files("rlx") or ():
        if file.name == "rlx.h":
            header = os.path.realpath(str(file.locate()))
            return os.path.dirname(os.path.dirname(header))
    raise RlxError("the installed package has no rlx.h; install RLX anew: pip install rlx")

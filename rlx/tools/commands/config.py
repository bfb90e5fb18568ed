"""``rlx config --cflags --libs``: what C and C++ programs are built with."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys

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
    system = "-lc++" if sys.platform == "darwin" else "-lstdc++ -lpthread -ldl -lm"
    found = {
        "cflags": f"-I{os.path.join(root, 'include')}",
        "libs": f"{os.path.join(library, 'librlx.a')} {system}",
        "cmakedir": os.path.join(library, "cmake", "rlx"),
        "pkgconfigdir": os.path.join(library, "pkgconfig"),
    }
    asked = [name for name in found if getattr(args, name)]
    if asked:
        print(" ".join(found[name] for name in asked))
    else:
        print("\n".join(f"{name}: {text}" for name, text in found.items()))
    return 0


def _root() -> str:
    """Where the installed package has its header and its libraries."""
    for file in importlib.metadata.files("rlx") or ():
        if file.name == "rlx.h":
            header = os.path.realpath(str(file.locate()))
            return os.path.dirname(os.path.dirname(header))
    raise RlxError("the installed package has no rlx.h; install RLX anew: pip install rlx")

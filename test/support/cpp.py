"""Building and running C++ as its users do: by CMake, in build/. `python -m support.cpp` builds
what the tests of the native runtime run."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["ROOT", "cmake_build", "native_tests", "run", "tool"]

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str) -> str:
    """The program of that name, from the environment of this Python first."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is not installed; `make setup` installs it")
    return found


def run(*command: str | Path) -> str:
    """Run a program that must succeed; returns what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cmake_build(source: Path, name: str, *options: str) -> Path:
    """Configure and build a project in build/NAME, one process at a time; again after no change
    takes no time."""
    build = ROOT / "build" / name
    build.mkdir(parents=True, exist_ok=True)
    ninja = f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"
    with (build / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(tool("cmake"), "-G", "Ninja", "-S", source, "-B", build, ninja, *options)
        run(tool("cmake"), "--build", build)
    return build


def native_tests() -> Path:
    """The directory where the runtime without Python is built, with its tests."""
    options = (
        "-DRLX_BUILD_PYTHON=OFF",
        "-DRLX_BUILD_TESTS=ON",
        "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_CXX_FLAGS_DEBUG=",
    )
    return cmake_build(ROOT, "native-tests", *options)


if __name__ == "__main__":
    native_tests()

"""Building and running ``test/native/fuzz.cpp`` under sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from support.fuzz_targets import objects

__all__ = ["fuzz_native"]

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "fuzz"


def fuzz_native(count: int, seed: int) -> int:
    """Try ``count`` schedules, and as many objects in all: of the tests and of random graphs."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    ninja = shutil.which("ninja", path=path)
    cmake = str(shutil.which("cmake", path=path))
    options = [f"-DCMAKE_MAKE_PROGRAM={ninja}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    options += [
        "-DRLX_SANITIZE=address,undefined",
        "-DRLX_BUILD_PYTHON=OFF",
        "-DRLX_BUILD_TESTS=ON",
    ]
    subprocess.run(
        [cmake, "-G", "Ninja", "-S", ROOT, "-B", BUILD, *options],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    subprocess.run(
        [cmake, "--build", BUILD, "--target", "fuzz"], check=True, stdout=subprocess.DEVNULL
    )
    program = str(BUILD / "test" / "native" / "fuzz")
    with tempfile.TemporaryDirectory() as folder:
        files: list[list[str]] = [[]]
        for i, data in enumerate(objects()[:9]):
            file = Path(folder) / f"{i}.o"
            file.write_bytes(data)
            files.append([str(file)])
        runs = [["schedules", str(count), str(seed)]]
        runs += [["objects", str(count // len(files)), str(seed), *f] for f in files]
        for arguments in runs:
            print(*arguments[:3], end=": ", flush=True)
            done = subprocess.run([program, *arguments], check=False)
            if done.returncode != 0:
                return 1
    return 0

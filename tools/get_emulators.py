"""Put QEMU, cross compilers and RLX's runner for other CPUs into .drivers, after ``get_drivers``.

    .venv/bin/python tools/get_emulators.py && . .drivers/env

Also what builds for boards with a Cortex-M and emulates them. Nothing is installed and no rights
are needed. For each CPU of ``CPUS`` the native runtime and
``examples/cpp/run_model.c`` become ``.drivers/root/usr/bin/run_model-ARCH``, which QEMU's user mode
runs here as it would run there.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from get_drivers import FOLDER, fetch, offered, one

ROOT = FOLDER.parent


class Cpu(NamedTuple):
    """A CPU that QEMU emulates: its name there, the Debian package of its C++ compiler, the targets
    whose code it runs, and what its programs link besides the runtime's own libraries."""

    arch: str
    package: str
    targets: tuple[str, ...]
    libraries: tuple[str, ...] = ()


CPUS = (
    Cpu("aarch64", "g++-aarch64-linux-gnu", ("cpu:aarch64", "cpu:aarch64-sve256")),
    # GCC 12 calls the library for single bytes.
    Cpu("riscv64", "g++-riscv64-linux-gnu", ("cpu:riscv64",), ("-latomic",)),
)

QEMU = "qemu-user"

BOARDS = {"gcc-arm-none-eabi": "bin/arm-none-eabi-gcc", "qemu-system-arm": "bin/qemu-system-arm"}
"""The packages for boards with a Cortex-M, each with a file of it."""


def _compiler(cpu: Cpu) -> str:
    return f"bin/{cpu.arch}-linux-gnu-g++"


def unpack(root: Path, wanted: list[str]) -> None:
    """Packages of Debian and what they need, as files in root."""
    packages = FOLDER / "packages"
    packages.mkdir(exist_ok=True)
    fetch(root, packages, wanted)
    shutil.rmtree(packages)


def build(cpu: Cpu, root: Path) -> None:
    """The runner of artifacts for a CPU, linked statically: QEMU then needs no libraries of it."""
    compiler = one(root, _compiler(cpu))
    assert compiler is not None
    tools, folder = Path(sys.executable).parent, FOLDER / f"native-{cpu.arch}"
    configure = [
        tools / "cmake", "-G", "Ninja", "-S", ROOT, "-B", folder,
        f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", "-DCMAKE_SYSTEM_NAME=Linux",
        f"-DCMAKE_SYSTEM_PROCESSOR={cpu.arch}", f"-DCMAKE_CXX_COMPILER={compiler}",
        "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1",
        "-DCMAKE_EXE_LINKER_FLAGS=-static", "-DRLX_BUILD_PYTHON=OFF", "-DRLX_BUILD_SHARED=OFF",
    ]  # fmt: skip
    native = ROOT / "rlx" / "runtime" / "native"
    link = [
        str(compiler).removesuffix("g++") + "gcc", "-O1", "-static", "-I", native,
        ROOT / "examples" / "cpp" / "run_model.c", folder / "librlx.a",
        "-lstdc++", "-lpthread", "-ldl", "-lm", *cpu.libraries,
        "-o", root / "usr" / "bin" / f"run_model-{cpu.arch}",
    ]  # fmt: skip
    # The compilers' own libraries lie where no loader looks for them.
    libraries = root / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
    paths = [str(libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    env = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(paths)}
    for command in (configure, [tools / "cmake", "--build", folder], link):
        line = [*map(str, command)]
        done = subprocess.run(line, capture_output=True, text=True, env=env, check=False)
        if done.returncode:
            sys.exit(f"{command[0]} failed for {cpu.arch}:\n{done.stdout}{done.stderr}")


def expect(targets: Iterable[str]) -> None:
    """Have the tests fail, and skip nothing, where these targets do not run."""
    env = FOLDER / "env"
    line = re.compile(r'(?<=export RLX_TEST_DEVICES=")[^"]*')
    text = env.read_text(encoding="utf-8")
    known = [t for t in line.findall(text)[0].split() if t not in targets]
    env.write_text(line.sub(" ".join([*known, *targets]), text), encoding="utf-8")


def main() -> None:
    """Fetch what is not there, and build the runners."""
    root = FOLDER / "root"
    if one(root, "bin/qemu-aarch64") is None and not offered(QEMU):
        return
    needed = {QEMU: "bin/qemu-aarch64", **{c.package: _compiler(c) for c in CPUS}, **BOARDS}
    missing = [p for p, file in needed.items() if one(root, file) is None and offered(p)]
    if missing:
        unpack(root, missing)
    chosen = [cpu for cpu in CPUS if one(root, _compiler(cpu)) is not None]
    for cpu in chosen:
        build(cpu, root)
    expect([target for cpu in chosen for target in cpu.targets])
    print(f"runners for {', '.join(c.arch for c in chosen)} are in {root / 'usr' / 'bin'}")


if __name__ == "__main__":
    main()

"""Build the native runtime for Windows, and run an artifact by it under wine.

    python tools/try_windows.py [--folder build/windows]

It takes Debian's g++-mingw-w64-x86-64-posix and wine. The runner is ``examples/cpp/run_model.c``,
which reads an artifact that was made here, for x86-64-v3. What it gives is compared with the
reference interpreter; a fault and a file that is cut short must end it with their messages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import rlx

ROOT = Path(__file__).resolve().parents[1]
COMPILER = "x86_64-w64-mingw32-g++-posix"
NEEDED = (COMPILER, "wine")


def missing() -> list[str]:
    """The programs that are not here."""
    return [name for name in NEEDED if shutil.which(name) is None]


def build(folder: Path) -> Path:
    """The runner, linked statically."""
    tools, native = Path(sys.executable).parent, ROOT / "rlx" / "runtime" / "native"
    runner = folder / "run_model.exe"
    commands: list[list[Any]] = [
        [
            tools / "cmake", "-G", "Ninja", "-S", ROOT, "-B", folder,
            f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", "-DCMAKE_SYSTEM_NAME=Windows",
            "-DCMAKE_SYSTEM_PROCESSOR=x86_64", f"-DCMAKE_CXX_COMPILER={COMPILER}",
            "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1",
            "-DRLX_BUILD_PYTHON=OFF", "-DRLX_BUILD_SHARED=OFF",
        ],
        [tools / "cmake", "--build", folder],
        [
            COMPILER.replace("g++", "gcc"), "-O1", "-I", native,
            ROOT / "examples" / "cpp" / "run_model.c", folder / "librlx.a", "-static", "-lstdc++",
            "-lpthread", "-lm", "-o", runner,
        ],
    ]  # fmt: skip
    for command in commands:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return runner


def program() -> tuple[rlx.Graph, dict[str, Any], dict[str, Any]]:
    """Products, a row-wise op, an index that may be out of range, and a factorization."""
    rng = np.random.default_rng(0)
    g = rlx.Graph("program")
    h = (g.input("x", [8, 64]) @ g.param("w", [64, 96])).gelu() @ g.param("v", [96, 32])
    a, b = g.input("a", [6, 6], "f64"), g.input("b", [6], "f64")
    rows = h.gather(g.input("i", [4], "i32"))
    g.set_outputs([h.softmax(), rows, h.argmax(axis=-1), rlx.linalg.solve(a, b)])
    made = {v: rng.standard_normal(v.type.static_shape) for v in (*g.inputs, *g.params)}
    given: dict[str, Any] = {str(v.name): x.astype(v.dtype.numpy) for v, x in made.items()}
    params = {name: given.pop(name) for name in ("w", "v")}
    given["i"] = np.array([0, 7, 3, 1], np.int32)
    return g, given, params


def run(runner: Path, folder: Path, words: list[str]) -> tuple[int, str]:
    """The status and the message of the runner."""
    env = {**os.environ, "WINEPREFIX": str(folder / "wine"), "WINEDEBUG": "-all"}
    done = subprocess.run(
        ["wine", str(runner), *words], cwd=folder, env=env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def check(folder: Path) -> None:
    """Build and run; AssertionError for what is not as it should be."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    runner = build(folder)
    graph, given, params = program()
    artifact = rlx.compile_artifact(graph, "cpu:x86-64-v3", params=params)
    artifact.save(folder / "model.rlx")
    ins = [f"in{n}" for n in range(len(artifact.inputs))]
    outs = [f"out{n}" for n in range(len(artifact.outputs))]
    for name, (tensor, *_) in zip(ins, artifact.inputs, strict=True):
        given[tensor].tofile(folder / name)
    status, said = run(runner, folder, ["model.rlx", *ins, *outs])
    assert status == 0, said
    for name, want in zip(outs, rlx.interpret(graph, given, params), strict=True):
        found = np.fromfile(folder / name, want.dtype).reshape(want.shape)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    np.array([0, 9, 3, 1], np.int32).tofile(
        folder / ins[[n for n, *_ in artifact.inputs].index("i")]
    )
    status, said = run(runner, folder, ["model.rlx", *ins, *outs])
    assert status and "index out of range" in said, said
    (folder / "cut.rlx").write_bytes((folder / "model.rlx").read_bytes()[:3000])
    status, said = run(runner, folder, ["cut.rlx", *ins, *outs])
    assert status and "the file is cut short" in said, said
    status, said = run(runner, folder, ["none.rlx", *ins, *outs])
    assert status and "Windows' error 2, expected a file to read" in said, said


def main() -> None:
    """Say what is missing, or that all is well."""
    parser = argparse.ArgumentParser(description="Try Windows.", epilog=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/windows"))
    args = parser.parse_args()
    if lacking := missing():
        raise SystemExit(f"not on the PATH: {', '.join(lacking)}")
    check(args.folder)
    print("an artifact made here runs on Windows' runtime under wine, with its faults and errors")


if __name__ == "__main__":
    main()

"""Walk a newcomer's path with a wheel: install it where there is nothing but Python, run the quick
starts of the README, run an artifact without a compiler, and uninstall.

    python tools/try_package.py --python python3.11 --python python3.13
    python tools/try_package.py --wheel rlx.whl --tests test/runtime/test_artifact.py
    python tools/try_package.py --installed    # only the quick starts, in this environment

Without ``--wheel`` each Python builds its own. Each gets an environment and a home, both empty.
What is printed is the seconds of each step; the first that goes wrong ends the walk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))

from support.documents import (  # noqa: E402 # pyright: ignore[reportMissingImports]
    Block,
    blocks,
    same,
)

STARTS = ("Install", "Run a model", "Train", "Deploy", "Work on the compiler")
"""The README's sections that have something to run."""

BEFORE = "import numpy as np\nimport rlx\n"
"""What a section's code takes from those before it."""

COMPILE = """\
import rlx
g = rlx.Graph()
g.set_outputs([g.input("x", [2]) * 3.0])
print(rlx.Session("cpu").compile(g)([1.0, 2.0]))
"""


@contextmanager
def timed(what: str) -> Generator[None]:
    """Print how long the block takes."""
    start = time.perf_counter()
    yield
    print(f"{time.perf_counter() - start:8.1f} s  {what}", flush=True)


class Place:
    """A Python with an environment in which nothing is set, and an empty home."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.home, self.binaries, self.work = folder / "home", binaries, folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        path = os.pathsep.join([str(binaries), os.defpath])
        self.environment = {"HOME": str(self.home), "PATH": path}

    def run(self, *words: str | Path, ok: bool = True, folder: Path | None = None) -> str:
        """What a command prints on both streams. One that ends unexpectedly ends the walk."""
        done = subprocess.run(
            [str(w) for w in words], cwd=folder or self.work, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        if (done.returncode == 0) != ok:
            sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}\nended with {done.returncode}")
        return done.stdout

    def python(self, *words: str | Path, ok: bool = True, folder: Path | None = None) -> str:
        return self.run(self.binaries / "python", *words, ok=ok, folder=folder)

    def pip(self, *words: str | Path) -> str:
        # What says where packages come from is this machine's, and no part of a newcomer's home.
        mine = {k: v for k, v in os.environ.items() if k.startswith("PIP_")}
        before, self.environment = self.environment, {**self.environment, **mine}
        try:
            return self.python("-m", "pip", "-q", "--no-cache-dir", *words)
        finally:
            self.environment = before


def sections(text: str) -> dict[str, list[Block]]:
    """The blocks of each section of the README that a reader runs, but for those of a checkout."""
    found: dict[str, list[Block]] = {}
    for part in text.split("\n## ")[1:]:
        title = part.split("\n", 1)[0]
        if title in STARTS:
            found[title] = [b for b in blocks(part) if "make " not in b.text]
    if list(found) != list(STARTS):
        sys.exit(f"the README has the sections {list(found)}, expected {list(STARTS)}")
    return found


def quick_starts(place: Place) -> None:
    """Run each section as a program of its own, then its commands, and compare what is printed."""
    place.python(ROOT / "test" / "support" / "reader_model.py", place.work)
    for title, found in sections((ROOT / "README.md").read_text(encoding="utf-8")).items():
        code = [b for b in found if b.language == "python"]
        program = place.work / "start.py"
        program.write_text(BEFORE + "".join(b.text for b in code), encoding="utf-8")
        with timed(title):
            printed = place.python(program)
            for block in found:
                for line in block.text.splitlines() if block.language == "sh" else ():
                    place.run(*line.split())
        expected = "".join(b.expected or "" for b in code)
        if not same(Block("python", "", "", expected), printed):
            sys.exit(f"{title}: the README says\n{expected}\nand it prints\n{printed}")


def walk(python: str, wheel: Path, tests: list[str]) -> None:
    """Install, run everything, uninstall, and see that nothing is left."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        place = Place(folder, folder / "venv" / "bin")
        print(place.python("--version").strip(), "with", wheel.name)
        with timed("install rlx[compile,onnx]"):
            place.pip("install", f"{wheel}[compile,onnx]")
        quick_starts(place)
        if tests:
            with timed("tests"):
                run_tests(place, tests)
        place.pip("uninstall", "-y", "torch-mlir", "llvmlite", "onnx")
        with timed("an artifact without a compiler"):
            place.run(place.binaries / "rlx", "run", "model.rlx", "--random", "--dim", "batch=2")
        said = place.python("-c", COMPILE, ok=False)
        if "pip install 'rlx[compile]'" not in said:
            sys.exit(f"compiling without the extra says\n{said}")
        place.run(place.binaries / "rlx", "cache", "clear")
        with timed("uninstall"):
            place.pip("uninstall", "-y", "rlx")
        left = [
            *(folder / "venv").rglob("*rlx*"),
            *(p for p in place.home.rglob("*") if p.is_file()),
        ]
        if left:
            sys.exit(f"uninstalled, and left are {', '.join(map(str, left))}")


def run_tests(place: Place, tests: list[str]) -> None:
    """Run test files against the wheel: beside a copy of the package as it was installed, since
    tests read its source."""
    copy = place.work / "checkout"
    copy.mkdir()
    for name in ("test", "examples", "docs", "README.md", "pyproject.toml"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
    find = "import os, rlx; print(os.path.dirname(rlx.__file__))"
    shutil.copytree(place.python("-c", find).strip(), copy / "rlx")
    place.pip("install", "pytest", "hypothesis")
    said = place.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, folder=copy)
    print(said.splitlines()[-1])


def built(python: str, folder: Path) -> Path:
    """The wheel of this checkout."""
    with timed("build the wheel"):
        subprocess.run(
            [python, "-m", "pip", "-q", "wheel", "--no-deps", "-w", folder, ROOT], check=True
        )
    (wheel,) = folder.glob("rlx-*.whl")
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description="Walk a newcomer's path with a wheel.")
    parser.add_argument("--python", action="append", help="an interpreter; may be given again")
    parser.add_argument("--wheel", type=Path, help="the wheel; without it one is built")
    parser.add_argument("--tests", nargs="*", default=[], help="test files to run against it")
    parser.add_argument("--installed", action="store_true", help="run what is installed here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if given.installed:
            quick_starts(Place(folder, Path(sys.executable).parent))
            return
        for n, python in enumerate(given.python or [sys.executable]):
            wheel = given.wheel or built(python, folder / str(n))
            walk(python, wheel.resolve(), given.tests)


if __name__ == "__main__":
    main()

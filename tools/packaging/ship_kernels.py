"""Writes the kernels that a wheel brings (``docs/cache.md``), from the list of ``layers.py``.

    python tools/packaging/ship_kernels.py                      # for this checkout
    python tools/packaging/ship_kernels.py --wheel dist/*.whl   # into wheels of this checkout

An archive is for one level of CPUs, by default this machine's, or all those of a wheel's machine.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

LEVELS = {
    "x86_64": ("x86-64-v3", "x86-64-v4"), "amd64": ("x86-64-v3", "x86-64-v4"),
    "aarch64": ("aarch64",), "arm64": ("aarch64",),
}  # fmt: skip
"""By the end of a wheel's tag: the levels of its CPUs."""


class Gathered:
    """A shelf of the compile cache that has nothing, and keeps what is made."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def read(self, kernel: str) -> bytes | None:
        """Nothing."""
        return None

    def write(self, objects: Iterable[tuple[str, bytes]]) -> None:
        """Keep objects by what describes their kernels."""
        self.objects.update(objects)


@cache
def objects_of(level: str) -> dict[str, bytes]:
    """The objects of all kernels for a level of CPUs, by what describes them."""
    from layers import graphs

    from rlx.compiler.driver import compile_structure
    from rlx.targets import find_target

    shelf, target = Gathered(), find_target(f"cpu:{level}")
    for graph in graphs():
        compile_structure(graph, target, shelf=shelf)  # pyright: ignore[reportArgumentType]
    return shelf.objects


def archive(level: str, sources: str) -> bytes:
    """The file for a level, of an RLX whose Python files have the digest ``sources``."""
    from rlx.runtime.cache.key import kernel_tools
    from rlx.runtime.cache.shipped import packed_archive

    objects = objects_of(level)
    data = packed_archive(level, kernel_tools(sources), objects)
    whole = sum(map(len, objects.values()))
    print(f"{level}: {len(objects)} kernels, {whole / 1e6:.2f} MB, packed {len(data) / 1e6:.2f} MB")
    return data


def beside_sources(level: str) -> None:
    """Write an archive for this checkout, by way of another name."""
    from rlx.runtime.cache.key import contents_digests, stamps
    from rlx.runtime.cache.shared import PACKAGE
    from rlx.runtime.cache.shipped import FOLDER

    path = Path(FOLDER) / f"{level}.kernels"
    data = archive(level, contents_digests(PACKAGE, stamps(PACKAGE))[1])
    path.parent.mkdir(exist_ok=True)
    path.with_suffix(".new").write_bytes(data)
    os.replace(path.with_suffix(".new"), path)


def into_wheel(wheel: Path) -> None:
    """Add the archives for a wheel's machine, which the RLX of this checkout makes."""
    from rlx.runtime.cache.key import contents_digests, stamps
    from rlx.runtime.cache.shared import PACKAGE

    machine = wheel.stem.rpartition("-")[2].partition(".")[0]
    levels = next((found for end, found in LEVELS.items() if machine.endswith(end)), ())
    if not levels:
        sys.exit(
            f"{wheel} is for {machine!r}, and kernels are made for {', '.join(LEVELS)}; leave it as"
            " it is, or add the levels of that machine to LEVELS"
        )
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder)
        package = Path(folder, "rlx")
        for path in package.rglob("*.py"):
            own = Path(PACKAGE, path.relative_to(package))
            if not own.exists() or own.read_bytes() != path.read_bytes():
                sys.exit(f"{wheel} is of other sources: {own} differs; build it of this checkout")
        sources = contents_digests(package, stamps(package))[1]
    _add(wheel, {f"rlx/shipped/{level}.kernels": archive(level, sources) for level in levels})


def _add(wheel: Path, files: dict[str, bytes]) -> None:
    """Put files into a wheel and its record, by way of another name."""
    staged = wheel.with_suffix(".new")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            data = old.read(item)
            if item.filename in files:
                continue
            if item.filename.endswith(".dist-info/RECORD"):
                kept = [r for r in data.decode().splitlines() if r.partition(",")[0] not in files]
                data = "".join(f"{r}\n" for r in (*kept, *map(_record, files.items()))).encode()
            new.writestr(item, data)
        for name, data in files.items():
            new.writestr(name, data)
    os.replace(staged, wheel)


def _record(file: tuple[str, bytes]) -> str:
    name, data = file
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(data)}"


def main() -> None:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--level", action="append", help="such as x86-64-v3; by default this machine's")
    p.add_argument("--wheel", type=Path, nargs="+", default=[], help="wheels to put archives into")
    args = p.parse_args()
    for wheel in args.wheel:
        into_wheel(wheel)
    if not args.wheel:
        from rlx.targets.cpu.features import detect

        for level in args.level or [detect().isa]:
            beside_sources(level)


if __name__ == "__main__":
    main()

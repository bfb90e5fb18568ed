"""Keys of the compile cache: named parts, each of which can be printed, and the digest of all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

import rlx
from rlx import knobs
from rlx.base.cached import cached_property
from rlx.base.digest import digest
from rlx.base.frozen import frozen
from rlx.ir.graph import Graph
from rlx.lowering.compilation import REPORTING, Options
from rlx.runtime.cache.fingerprint import structure

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Key", "Part", "artifact_parts", "kernel_tools", "toolchain"]


TOOLS = ("rlx", "mlir", "llvm", "numpy", "ml_dtypes")
"""The parts of what makes code; see ``toolchain``."""


@frozen
class Part:
    """A part of a key: what it is called, and all that it says."""

    name: str
    text: str

    @cached_property
    def digest(self) -> str:
        """The digest of the text."""
        return digest(self.text.encode())

    def difference(self, other: Part) -> str:
        """How this part differs from the same part of another key."""
        ours, theirs = self.text.split("\n"), other.text.split("\n")
        if len(ours) == len(theirs) == 1:
            return f"{self.name} is {self.text!r} here, and {other.text!r} there"
        for n, (a, b) in enumerate(zip([*ours, ""], [*theirs, ""], strict=False), 1):
            if a != b:
                return f"{self.name} differs in line {n}:\n  here   {a}\n  there  {b}"
        return f"{self.name} has {len(ours)} lines here, and {len(theirs)} there"


@frozen
class Key:
    """What an entry of the cache is found by; ``kind`` is what is kept there."""

    kind: str
    parts: tuple[Part, ...]

    @cached_property
    def digest(self) -> str:
        """The digest of the digests of the parts, with their names."""
        named = "".join(f"{p.name}={p.digest}\n" for p in self.parts)
        return digest(f"{self.kind}\n{named}".encode(), size=20)

    @property
    def tools(self) -> tuple[Part, ...]:
        """The parts that tell by what something was made."""
        return tuple(p for p in self.parts if p.name in TOOLS)

    def differences(self, other: Key) -> list[str]:
        """How the parts that are not equal differ, in order."""
        theirs = {p.name: p for p in other.parts}
        found: list[str] = []
        for part in self.parts:
            there = theirs.pop(part.name, None)
            if there is None:
                found.append(f"{part.name} is {part.text!r} here, and no part of the key there")
            elif there.text != part.text:
                found.append(part.difference(there))
        return [*found, *(f"{name} is no part of the key here" for name in theirs)]


def artifact_parts(
    graph: Graph, target: str, features: str, options: Options, tools: Sequence[Part]
) -> tuple[Part, ...]:
    """The parts of the key of a compiled graph whose dims are all bound."""
    whole = graph.origin or graph
    dims = ", ".join(f"{name}={size}" for name, size in graph.origin.dims) if graph.origin else ""
    chosen = [
        (f"option {f.name}", str(getattr(options, f.name)))
        for f in fields(options)
        if f.name not in REPORTING
    ]
    named = [
        ("graph", structure(whole)), ("dims", dims or "none"), *chosen,
        ("target", target), ("features", features),
    ]  # fmt: skip
    if target in ("cuda", "rocm"):
        mode, version = knobs.triton.get(), _version("triton", "triton")
        named.append(("triton", mode if mode == "off" else f"{mode}, {version}"))
    return (*(Part(name, text) for name, text in named), *tools)


# -- versions ----------------------------------------------------------------------------------


def toolchain(sources: str) -> tuple[Part, ...]:
    """The versions of what makes code: RLX, with the digest of its ``sources``, and the packages
    that it compiles with, none of which is imported."""
    import numpy as np

    return (
        *kernel_tools(sources),
        Part("numpy", np.__version__),  # folds constants, as ml_dtypes those of bf16
        Part("ml_dtypes", _version("ml_dtypes", "ml-dtypes")),
    )


def kernel_tools(sources: str) -> tuple[Part, ...]:
    """The versions of what makes objects of kernels, whose constants are folded already."""
    return (
        Part("rlx", f"{rlx.__version__} with sources {sources}"),
        Part("mlir", _version("torch_mlir", "torch-mlir")),
        Part("llvm", _version("llvmlite", "llvmlite")),
    )


@cache
def _version(module: str, package: str) -> str:
    """The version of an installed package, read off the name of its metadata: importlib.metadata
    takes longer to import than all the rest of a hit."""
    for folder in sys.path:
        if os.path.isdir(os.path.join(folder, module)):
            first, last = f"{module}-", ".dist-info"
            found = [
                name[len(first) : -len(last)]
                for name in _listed(folder or ".")
                if name.endswith(last) and name.lower().startswith(first)
            ]
            return f"{package} {found[0]}" if len(found) == 1 else _metadata_version(package)
    return _metadata_version(package)


@cache
def _listed(folder: str) -> list[str]:
    return os.listdir(folder)


def _metadata_version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


# -- RLX's own sources -------------------------------------------------------------------------

Stamp = tuple[str, int, int, int, int]
"""Of a file: its path in the package, size, inode, and the times of its last change in ns."""


def stamps(package: str | Path) -> list[Stamp]:
    """The stamps of the files that RLX runs from: Python and native modules."""
    return sorted(_stamps(os.fspath(package), ""))


def _stamps(folder: str, prefix: str) -> Iterator[Stamp]:
    with os.scandir(folder) as found:
        for entry in found:
            if entry.name.endswith((".py", ".so", ".pyd", ".dylib")):
                s = entry.stat()
                name = prefix + entry.name
                yield (name, s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns)
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                yield from _stamps(entry.path, f"{prefix}{entry.name}/")


def newest(found: Sequence[Stamp]) -> int:
    """The time of the last change of any of the files, in ns since the epoch. Only the system can
    set the time of a change: that of a modification can be set by anyone."""
    return max(s[4] for s in found)


def stamps_digest(package: str | Path, found: Sequence[Stamp]) -> str:
    """One digest of the stamps."""
    return digest(f"{package}\n{found!r}".encode())


def contents_digests(package: str | Path, found: Sequence[Stamp]) -> tuple[str, str]:
    """One digest of the files' names and contents, and one of Python's files alone."""
    whole: list[tuple[str, bytes]] = []
    for name, *_ in found:
        with open(os.path.join(package, name), "rb", buffering=0) as f:
            whole.append((name, f"{name}\n{digest(f.read())}\n".encode()))
    python = [line for name, line in whole if name.endswith(".py")]
    return digest(*(line for _, line in whole)), digest(*python)
